"""The command `ce` where no ce-start stands in for it: from a wheel, or `python -m`."""

import signal
import sys


def main() -> int:
    """Run the command line, and return its exit code."""
    # as ce-start does: imports take most of the time of a short command
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    from container_engine.cli.main import main as ce

    return ce()


if __name__ == "__main__":
    sys.exit(main())

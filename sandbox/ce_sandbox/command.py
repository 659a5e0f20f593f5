"""Wrapper around every sandbox command: find the directory, report errors."""

import os
import sys
from collections.abc import Callable

from ce_sandbox.layout import Layout, SandboxError, from_environment


def execute(main: Callable[[list[str], Layout], int]) -> int:
    """Run one command with this process's arguments and environment; return its exit code."""
    os.umask(0o022)
    try:
        return main(sys.argv[1:], from_environment(os.environ))
    except SandboxError as error:
        print(f"sandbox: error: {error}", file=sys.stderr)
        if error.hint:
            print(f"sandbox: hint: {error.hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # `sandbox/status | head`: without this, the interpreter would flush its buffer again at
        # exit and fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0

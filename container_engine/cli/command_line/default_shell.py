"""The shell that users get in a container if they name no command."""

from __future__ import annotations

import sys

# bash if the image has it
SHELL = ("sh", "-c", "command -v bash >/dev/null && exec bash -i; exec sh -i")


def has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()

"""The only module that runs programs for the submit side."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from container_engine.errors import CeError, SiteError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class CommandError(CeError):
    """A program failed. Its last line is the message, the command, ready to paste, the hint."""

    def __init__(self, argv: Sequence[str], status: int, stderr: str) -> None:
        ended = f"ended by signal {-status}" if status < 0 else f"exit code {status}"
        said = [line for line in stderr.splitlines() if line.strip()]
        super().__init__(
            f"{argv[0]}: {said[-1].strip() if said else ended}",
            f"the command was: {shlex.join(argv)}",
        )
        self.status = status
        self.stderr = stderr


def output(argv: Sequence[str], env: Mapping[str, str], timeout_s: float) -> bytes:
    """What a program prints on stdout. It gets no stdin and is killed after `timeout_s` seconds.

    Raises CommandError when it fails, SiteError when it is not installed or too slow.
    """
    import subprocess

    try:
        done = subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s
        )
    except OSError as error:
        raise not_started(argv, error) from None
    except subprocess.TimeoutExpired:
        raise too_slow(argv, timeout_s) from None
    if done.returncode:
        raise CommandError(argv, done.returncode, done.stderr.decode(errors="replace"))
    return done.stdout


def not_started(argv: Sequence[str], error: OSError) -> SiteError:
    hint = f"install {argv[0]}" if isinstance(error, FileNotFoundError) else None
    return SiteError(f"cannot start {argv[0]}: {reason(error)}", hint)


def reason(error: OSError) -> str:
    """The kernel's reason in lower case."""
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


def too_slow(argv: Sequence[str], timeout_s: float) -> SiteError:
    return SiteError(
        f"{argv[0]}: not finished after {timeout_s:g} s", f"the command was: {shlex.join(argv)}"
    )

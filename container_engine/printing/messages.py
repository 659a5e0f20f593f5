"""Messages on stderr, one line each: "ce: error: …", "ce: warning: …", "ce: hint: …"."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from container_engine.base.errors import CeError, UserError
from container_engine.edf import message_text
from container_engine.submit.refused import RefusedError

USAGE = 2
_LOGS = 50
_COLOURS = {"error": "1;31", "internal error": "1;31", "warning": "1;33", "hint": "36"}


def of_error(error: CeError) -> str:
    """Return the whole block. The error's details go to a log, whose path is in the block."""
    from container_engine.faults.remedies import remedy

    log = _kept(error.details)
    if isinstance(error, RefusedError):
        return _refusal(error, log)
    hint = remedy(error.see, error.hint) or None
    also = "".join(f"ce: also: {message_text.one_line(text)}\n" for text in error.also)
    first, _end, rest = message_text.block("error", error.message, hint).partition("\n")
    return f"{first}\n{also}{rest}" + _last(log, [error.see])


def _last(log: str, codes: Sequence[str]) -> str:
    pages = " ".join(filter(None, dict.fromkeys(codes)))
    text = f"ce: details: {message_text.one_line(log)}\n" if log else ""
    return text + (f"ce: see: ce help {pages}\n" if pages else "")


def _kept(text: str) -> str:
    """Write the text to a log and return its path, or "" if there is no text."""
    if not text:
        return ""
    import time

    from container_engine.base.files import forget_oldest
    from container_engine.node.report import errors

    directory = log_directory(os.environ)
    path = errors.keep(directory, f"{time.time_ns()}-{os.getpid()}.log", text)
    with contextlib.suppress(OSError):
        forget_oldest(directory, _LOGS)
    return path


def log_directory(environment: Mapping[str, str]) -> str:
    """Return the directory of error logs; those of nodes are elsewhere, beside the traces."""
    from container_engine.base.files import user_directory

    state = user_directory("XDG_STATE_HOME", ".local/state", environment)
    if not state:
        return f"/tmp/container-engine-{os.geteuid()}"  # made for this user alone
    return f"{state}/container-engine/errors"


def _refusal(refused: RefusedError, log: str) -> str:
    from container_engine.faults.remedies import code_for, remedy

    errors = [problem for problem in refused.problems if problem.severity == "error"]
    codes = [code_for(problem.see, problem.key) for problem in errors]
    text = message_text.of_problems(refused.problems)
    if not any(problem.hint for problem in errors):
        text += f"ce: hint: {remedy(codes[0], None)}\n"
    return text + _last(log, codes)


def refuse(message: str, hint: str | None) -> int:
    """Report a wrong command line and return its exit code."""
    say(of_error(UserError(message, hint)))
    return USAGE


class _LastLine:
    """The terminal's last line, where progress is drawn until something else is printed."""

    is_drawn = False


def draw(text: str) -> None:
    """Replace the terminal's last line by this text, which the next message replaces."""
    _LastLine.is_drawn = True
    _write(f"\r\033[K{text}")


def clear() -> None:
    if _LastLine.is_drawn:
        _LastLine.is_drawn = False
        _write("\r\033[K")


def say(text: str) -> None:
    """Print text made by the functions above. A closed stderr is not an error."""
    clear()
    _write(_coloured(text) if wants_colour(sys.stderr, os.environ) else text)


def _write(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


def wants_colour(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Check whether the stream is a terminal and no plain text is requested (no-color.org)."""
    plain = environment.get("NO_COLOR") or environment.get("TERM", "dumb") == "dumb"
    return not plain and stream.isatty()


def _coloured(text: str) -> str:
    for kind, colour in _COLOURS.items():
        word = f"ce: {kind}:"
        text = re.sub(f"^{word}", f"\033[{colour}m{word}\033[0m", text, flags=re.MULTILINE)
    return text


def say_progress(message: str) -> None:
    say(f"ce: {message_text.one_line(message)}\n")


def say_use(name: str) -> None:
    """Print how to use an image that has just been built, imported or pulled."""
    say_progress(
        f'to use it, write image = "{name}" into an environment, or: ce init NAME --image {name}'
    )

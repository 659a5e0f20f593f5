"""All output of `ce` on stdout.

Text from images, registries and other users' files must not move the cursor, change colours or
add lines of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence

from container_engine.base import text_layout
from container_engine.base.text_layout import one_line, wrap


def line(content: object = "", colour: str = "", before: str = "") -> None:
    """Print one line, escaping control characters; only `before` is coloured if it is given."""
    shown, before = one_line(str(content)), one_line(before)
    if colour and before:
        before = f"\033[{colour}m{before}\033[0m"
    elif colour:
        shown = f"\033[{colour}m{shown}\033[0m"
    sys.stdout.write(f"{before}{shown}\n")


def columns() -> int | None:
    """Return the width of the terminal ($COLUMNS first), or None if stdout is not a terminal."""
    if not sys.stdout.isatty():
        return None
    import shutil

    return shutil.get_terminal_size().columns


def rows() -> int | None:
    """Return the height of the terminal, or None if stdout is not a terminal."""
    if not sys.stdout.isatty():
        return None
    import shutil

    return shutil.get_terminal_size().lines


def folded(content: str, indent: int, colour: str = "", coloured: int = 0) -> None:
    """Print one line, wrapped at words to the terminal's width; its first characters in colour."""
    for each in wrap(one_line(content), columns(), indent):
        head = f"\033[{colour}m{each[:coloured]}\033[0m" if colour else each[:coloured]
        sys.stdout.write(f"{head}{each[coloured:]}\n")
        colour = ""


def table(
    rows: Sequence[Sequence[str]],
    right: Collection[int] = (),
    shorten: tuple[int, int] | None = None,
) -> None:
    """Print a table that fits the terminal (see text_layout.table), escaping control characters."""
    shown = [[one_line(cell) for cell in row] for row in rows]
    for each in text_layout.table(shown, columns(), right, shorten):
        sys.stdout.write(f"{each}\n")


def text(content: str) -> None:
    """Print text of several lines, escaping each of them separately."""
    for each in content.removesuffix("\n").split("\n") if content else ():
        line(each.expandtabs())


def document(content: Mapping[str, object]) -> None:
    """Print JSON with the version of its format, in ASCII: no terminal takes it for a command."""
    json_text(json.dumps({"version": 1, **content}, indent=2) + "\n")


def json_text(content: str) -> None:
    """Print text that is JSON already, as ASCII; only strings in it have other characters."""
    escaped = (
        c if c.isascii() else json.dumps(c)[1:-1] for c in content.replace("\x7f", r"\u007f")
    )
    sys.stdout.write("".join(escaped))


def exact(content: bytes) -> None:
    """Print bytes unescaped, for programs or for text of our own."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()

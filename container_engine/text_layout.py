"""Wraps text at words to the width of a terminal; None stands for no limit. Pure."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence


def wrap(text: str, columns: int | None, indent: int = 0) -> list[str]:
    """Return the text as lines of at most `columns`, all but the first indented.

    A word is never broken: one that is longer than a line has a line of its own. If the first
    `indent` characters end with a blank, they are a column of their own and stay as they are.
    """
    if columns is None or len(text) <= columns:
        return [text]
    import textwrap  # not worth its time in a pipe

    column = text[:indent] if text[:indent].endswith(" ") else ""
    return textwrap.wrap(
        text[len(column) :],
        columns,
        initial_indent=column,
        subsequent_indent=" " * min(indent, columns // 2),
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
        expand_tabs=False,
    ) or [text]


def with_origin(
    what: str, origin: str, pad: int, columns: int | None, indent: int = 0
) -> list[str]:
    """Return "what  # origin", with `what` padded; what does not fit continues below, indented."""
    if not origin:
        return wrap(what.rstrip(), columns, indent)
    line = f"{what:<{pad}}  # {origin}"
    if columns is None or len(line) <= columns:
        return [line]
    below = indent + 2
    return [
        *wrap(what.rstrip(), columns, indent),
        *wrap(f"{'':{below}}# {origin}", columns, below + 2),
    ]


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """Yield the rows with aligned columns; those in `right`, counted from 0, to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        yield "  ".join(
            f"{cell:>{width}}" if column in right else f"{cell:<{width}}"
            for column, (cell, width) in cells
        ).rstrip()


def natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key by which n2 comes before n10, and 26.9 before 26.10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]

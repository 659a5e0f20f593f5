"""Lay out text: messages, tables, sizes, lines wrapped at words, a name that was meant. Pure.

`columns` is the width of a terminal; None stands for no limit.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence


def warning_text(message: str) -> str:
    return block("warning", message, None)


def block(kind: str, message: str, hint: str | None, excerpt: str | None = None) -> str:
    """Return a message as lines: "ce: KIND: …", the excerpt, "ce: hint: …"."""
    text = f"ce: {kind}: {one_line(message)}\n"
    if excerpt:
        text += "".join(f"    {line}\n" for line in excerpt.splitlines())
    if hint:
        text += f"ce: hint: {one_line(hint)}\n"
    return text


def one_line(text: str) -> str:
    """Escape line ends and other control characters: a user's file must not fake a message."""
    return "".join(c if c.isprintable() or c == " " else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()


_MOST_PADDED = 60


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


def wrap_lines(text: str, columns: int | None) -> str:
    """Return a text with its lines wrapped; a line goes on below what follows its last wide gap."""
    lines = [
        part
        for line in text.splitlines()
        for part in wrap(line, columns, line.rfind("  ") + 2 if "  " in line else 0)
    ]
    return "".join(f"{line}\n" for line in lines)


def with_origins(
    rows: Sequence[tuple[str, str, str]], columns: int | None, indent: int
) -> Iterator[str]:
    """Yield "HEADwhat  # origin" for each row; origins that are not far away are one column.

    What does not fit continues below, indented.
    """
    most = _MOST_PADDED if columns is None else min(_MOST_PADDED, columns // 2)
    pad = max((len(what) for _head, what, _origin in rows if len(what) <= most), default=0)
    for head, what, origin in rows:
        yield from _with_origin(f"{head}{what}", origin, len(head) + pad, columns, indent)


def _with_origin(what: str, origin: str, pad: int, columns: int | None, indent: int) -> list[str]:
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


def table(
    rows: Sequence[Sequence[str]],
    columns: int | None = None,
    right: Collection[int] = (),
    shorten: tuple[int, int] | None = None,
) -> Iterator[str]:
    """Yield the lines of a table; those in `right`, counted from 0, are aligned to the right.

    Only the last of its columns is wrapped, so that the others keep their places. If `shorten` is
    (N, LEAST), column N is cut before that, to LEAST at the least. A last cell without a place
    beside the others is below them. If they have no place either, a row is a paragraph of its own.
    """
    rows = rows if shorten is None else _cut(rows, columns, *shorten)
    *others, _last = zip(*rows, strict=True)
    indent = sum(max(map(len, column)) + 2 for column in others)
    for row, line in zip(rows, aligned(rows, right), strict=True):
        if columns is None or columns - indent >= _least(row[-1]):
            yield from wrap(line, columns, indent)
        elif columns >= indent - 2:
            yield line[:indent].rstrip()
            yield from wrap(f"{'':{_INDENT}}{row[-1].lstrip()}", columns, _INDENT)
        else:
            yield from wrap("  ".join(cell for cell in row if cell), columns, _INDENT)


# least width of a last cell that is wrapped, and indent of what does not stand in its column
_LEAST, _INDENT = 16, 4


def _least(cell: str) -> int:
    """Return the least width in which no word of a cell has to stand out."""
    return min(len(cell), max(_LEAST, *map(len, cell.split()), 0))


def _cut(
    rows: Sequence[Sequence[str]], columns: int | None, number: int, least: int
) -> Sequence[Sequence[str]]:
    """Return the rows with a column that is as much shorter as they are too long."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    over = 0 if columns is None else sum(widths) + 2 * (len(widths) - 1) - columns
    width = max(least, widths[number] - max(over, 0))
    return [
        [shortened(cell, width) if n == number else cell for n, cell in enumerate(row)]
        for row in rows
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


def shortened(text: str, width: int) -> str:
    """Shorten the text to `width` columns by cutting its middle.

    The end is kept, because a name ends with its tag and a path with its file.
    """
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def size_text(size: float) -> str:
    """Return a number of bytes in the largest unit of which it has one."""
    for unit, length in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1024)):
        if size >= length:
            return f"{size / length:.{1 if size < 10 * length else 0}f} {unit}"
    return f"{size:.0f} B"


def duration_text(seconds: float) -> str:
    """Return a duration in the largest unit of which it has two; a negative one as 0 seconds."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def milliseconds(seconds: float) -> str:
    """Return a short time in milliseconds, one of ten seconds and more in seconds."""
    return f"{1000 * seconds:.1f} ms" if seconds < 10 else f"{seconds:.1f} s"


def natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key by which n2 comes before n10, and 26.9 before 26.10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to `name`, ignoring case, or None if none is close."""
    import difflib  # a slow import, needed only after a mistake

    names = list(known)
    folded = {other.lower(): other for other in reversed(names)}
    close = difflib.get_close_matches(name.lower()[:200], list(folded), n=1, cutoff=0.65)
    return folded[close[0]] if close else None


def did_you_mean(name: str | None, before: str = "") -> str:
    """Return ", did you mean 'NAME'?" with `before` in front of the name; "" without a name."""
    return f", did you mean '{before}{name}'?" if name else ""

"""`make generated`: draw all pictures in docs/pictures but the recorded session.

Which program runs as whom, and who starts it, is compared with the table in spank_plugin/README.md;
text must fit into its box.
The words of the error are those of docs/guide/troubleshooting.md, which a test on a cluster
compares with a run.
"""

from __future__ import annotations

import re
import tomllib
from html import escape
from pathlib import Path
from textwrap import indent
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs/pictures"
TABLE = ROOT / "spank_plugin/README.md"
ERRORS = ROOT / "docs/guide/troubleshooting.md"
ERROR_CODE = "mount-source-missing"
# what is drawn, and how it looks
SOURCE, STYLE = PICTURES / "boxes.toml", PICTURES / "boxes.css"

LINE, PAD, LEFT = 18, 12, 15
# the width of a letter, by the class of the text
LETTER = {"small": 6.0, "title": 8.2, "code": 7.5}
TIP = """\
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"
  orient="auto-start-reverse"><path class="tip" d="M0 0 10 5 0 10z"/></marker></defs>"""


class Program(NamedTuple):
    """A row of the table."""

    runs_as: str
    started_by: str


class Box(NamedTuple):
    """A box of a picture. `program` is a name in the table, "" for what is none of ours.

    `name` is for arrows where another box has the same title; `font` is the class of the title.
    """

    kind: str
    x: int
    y: int
    width: int
    title: str
    lines: tuple[str, ...] = ()
    program: str = ""
    name: str = ""
    font: str = "title"

    @property
    def height(self) -> int:
        return (len(self.lines) + 1) * LINE + PAD

    @property
    def texts(self) -> list[tuple[str, str]]:
        """The lines of text, each with its class."""
        return [(self.title, self.font), *((line, "small") for line in self.lines)]


class Zone(NamedTuple):
    x: int
    y: int
    width: int
    height: int
    caption: str


class Arrow(NamedTuple):
    """An arrow from one box to another, by names or titles.

    `starts` are the words of the table that say so; "" for what is no start of a program.
    """

    tail: str
    head: str
    starts: str = ""


class Picture(NamedTuple):
    """A picture of boxes in zones."""

    size: tuple[int, int]
    title: str
    says: str
    zones: tuple[Zone, ...]
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    below: tuple[str, ...]
    has_legend: bool

    @property
    def named(self) -> dict[str, Box]:
        return {box.name or box.title: box for box in self.boxes}


def _source() -> dict[str, Any]:
    return tomllib.loads(SOURCE.read_text(encoding="utf-8"))


def read(name: str) -> Picture:
    """Return a picture of the source."""
    whole = _source()[name]
    width, height = whole["size"]
    return Picture(
        (width, height),
        whole["title"],
        whole["says"],
        tuple(Zone(**zone) for zone in whole.get("zones", ())),
        tuple(Box(**{**box, "lines": tuple(box.get("lines", ()))}) for box in whole["boxes"]),
        tuple(Arrow(**arrow) for arrow in whole["arrows"]),
        tuple(whole.get("below", ())),
        whole.get("legend", False),
    )


def programs() -> dict[str, Program]:
    """Return the rows of the table by each name in their first cell."""
    rows = TABLE.read_text(encoding="utf-8").partition("| of `common/`")[0]
    found: dict[str, Program] = {}
    for line in rows.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| `") and len(cells) == 5:
            for name in re.findall(r"`(?:\w+/)*([\w.-]+)`", cells[0]):
                found[name] = Program(cells[2], cells[3])
    return found


def faults(picture: Picture, table: dict[str, Program]) -> list[str]:
    """Return, in words, what a picture says and the table does not, and text that is too long."""
    found = [
        f"wider than its box: {text}"
        for box in picture.boxes
        for text, kind in box.texts
        if len(text) * LETTER[kind] > box.width - 2 * PAD
    ]
    width = picture.size[0] - 2 * LEFT
    found += [f"wider: {text}" for text in picture.below if len(text) * LETTER["small"] > width]
    for box in filter(lambda one: one.program, picture.boxes):
        program = table.get(box.program)
        if program is None:
            found.append(f"the table has no program {box.program}")
        elif ("root" if box.kind == "root" else "the user") not in program.runs_as:
            found.append(f"{box.program} does not run as the picture says: {program.runs_as}")
    for arrow in filter(lambda one: one.starts, picture.arrows):
        program = table.get(picture.named[arrow.head].program)
        if program is None or arrow.starts not in program.started_by:
            found.append(f"{arrow.head} is not started by: {arrow.starts}")
    return found


def drawn(picture: Picture) -> str:
    """Return a picture of boxes as SVG."""
    width, height = picture.size
    boxes = picture.named
    parts = [_zone(zone) for zone in picture.zones]
    parts += [_box(box) for box in picture.boxes]
    parts += [_arrow(boxes[arrow.tail], boxes[arrow.head]) for arrow in picture.arrows]
    ends = [zone.y + zone.height for zone in picture.zones]
    bottom = max(*ends, *(box.y + box.height for box in picture.boxes)) + 24
    parts += [_text(LEFT, bottom + i * LINE, line, "small") for i, line in enumerate(picture.below)]
    legend: dict[str, str] = _source()["legend"] if picture.has_legend else {}
    x = LEFT
    for kind in dict.fromkeys(box.kind for box in picture.boxes if box.kind in legend):
        parts.append(
            f'<rect class="{kind}" x="{x}" y="{height - 30}" width="16" height="14" rx="3"/>'
        )
        parts.append(_text(x + 22, height - 18, legend[kind], "small"))
        x += 50 + 7 * len(legend[kind])
    return _svg((width, height), picture.title, picture.says, parts)


def error_block() -> list[str]:
    """Return the lines of the error that the page on errors shows."""
    text = ERRORS.read_text(encoding="utf-8")
    block = next(
        b
        for b in re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        if ERROR_CODE in b
    )
    return [line for line in block.splitlines() if line.startswith("ce: ")]


def drawn_error(lines: list[str]) -> str:
    """Return the picture of an error's lines, with the name of each part."""
    match = re.fullmatch(r"ce: error: (\w+): (\S+:\d+): (.*)", lines[0])
    assert match is not None, lines[0]
    node, place, what = match.groups()
    short = f"~/{place.partition('/.edf/')[1][1:]}{place.partition('/.edf/')[2]}"
    first = f"ce: error: {node}: {short}: {what}"
    shown = [first, *lines[1:]]
    parts, letter = [], 7.6
    parts.append('<rect class="slurm" x="12" y="48" width="696" height="124" rx="6"/>')
    for at, name in (
        (11, "node"),
        (13 + len(node), "file and line"),
        (15 + len(node) + len(short), "what is wrong"),
    ):
        x = 24 + int(at * letter)
        parts.append(_text(x - 24 if name == "node" else x, 28, name, "title"))
        parts.append(f'<path class="line" d="M{x + 4} 34 V60"/>')
    parts += [_text(24, 78 + 32 * i, line, "code") for i, line in enumerate(shown)]
    below = (
        "hint: what to do. see: the page about this error, on this machine and on the site.",
        "A line “ce: details: FILE”, where there is one, names a longer log, for tickets.",
        "Exit code 125: your command did not run.",
    )
    parts += [_text(24, 200 + 22 * i, line, "small") for i, line in enumerate(below)]
    return _svg((720, 260), "The parts of an error", "An error, with the name of each part.", parts)


def _svg(size: tuple[int, int], title: str, says: str, parts: list[str]) -> str:
    width, height = size
    style = indent(STYLE.read_text(encoding="utf-8"), "  ")
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" role="img" aria-labelledby="t d">\n'
        f'<title id="t">{escape(title)}</title>\n<desc id="d">{escape(says)}</desc>\n'
        f"<style>\n{style}</style>\n{TIP}\n"
        f'<rect class="page" width="{width}" height="{height}"/>\n'
    )
    return head + "\n".join(parts) + "\n</svg>\n"


def _text(x: int, y: int, text: str, kind: str) -> str:
    return f'<text x="{x}" y="{y}" class="{kind}" xml:space="preserve">{escape(text)}</text>'


def _zone(zone: Zone) -> str:
    rect = (
        f'<rect class="zone" x="{zone.x}" y="{zone.y}" width="{zone.width}"'
        f' height="{zone.height}" rx="10"/>'
    )
    return f"{rect}\n{_text(zone.x + PAD, zone.y + 20, zone.caption, 'small')}"


def _box(box: Box) -> str:
    rect = (
        f'<rect class="{box.kind}" x="{box.x}" y="{box.y}" width="{box.width}"'
        f' height="{box.height}" rx="6"/>'
    )
    x, y = box.x + PAD, box.y + 20
    lines = [_text(x, y + LINE * i, *text) for i, text in enumerate(box.texts)]
    return "\n".join([rect, *lines])


def _arrow(tail: Box, head: Box) -> str:
    left, right = max(tail.x, head.x), min(tail.x + tail.width, head.x + head.width)
    if left < right:
        x = (left + right) // 2
        return f'<path class="arrow" d="M{x} {tail.y + tail.height} V{head.y}"/>'
    x1, y1 = tail.x + tail.width, tail.y + tail.height // 2
    x2, y2 = head.x, head.y + head.height // 2
    middle = (x1 + x2) // 2
    return f'<path class="arrow" d="M{x1} {y1} H{middle} V{y2} H{x2}"/>'


def pictures() -> dict[str, str]:
    """Return the text of each drawn picture by its name. Raise ValueError if one is not true."""
    table, known = programs(), {f"{n}.svg": read(n) for n in _source() if n != "legend"}
    wrong = [f"{name}: {text}" for name, one in known.items() for text in faults(one, table)]
    if wrong:
        raise ValueError("\n".join(wrong))
    return {
        **{name: drawn(picture) for name, picture in known.items()},
        "error.svg": drawn_error(error_block()),
    }


def main() -> None:
    for name, text in pictures().items():
        (PICTURES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

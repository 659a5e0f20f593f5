"""`ce list`: list the environments that a name can refer to, with their files and images."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from container_engine.base.text_layout import shortened
from container_engine.edf import message_text
from container_engine.printing import output
from container_engine.submit.environment import load_effective, offer_here
from container_engine.submit.environment_names import environments

if TYPE_CHECKING:
    import argparse

    from container_engine.submit.context import Context

_HEAD = ("NAME", "IMAGE", "FILE")
_LONGEST_IMAGE = 48
# the column IMAGE, and how short it may be
_SHORTEN = (1, 16)


class _Row(NamedTuple):
    """One environment; `image` is None for a base of others and for one that is not valid."""

    name: str
    file: str
    image: str | None
    valid: bool


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    rows = _rows(context)
    if arguments.json:
        listed = [row._asdict() for row in rows]
        output.document({"environments": listed})
    elif rows:
        home = context.env.get("HOME", "")
        output.table([_HEAD, *(_cells(row, home) for row in rows)], shorten=_SHORTEN)
    else:
        output.line("no environments yet (ce init NAME creates one)")
    return 0


def _rows(context: Context) -> list[_Row]:
    offer = offer_here(context)
    found = []
    for name, file in environments(context):
        edf = load_effective(name, context, offer).edf
        found.append(_Row(name, file, edf.image_text if edf else None, edf is not None))
    return found


def _cells(row: _Row, home: str) -> tuple[str, str, str]:
    image = _image(row)
    below_home = bool(home) and row.file.startswith(f"{home}/")
    file = f"~{row.file[len(home) :]}" if below_home else row.file
    return row.name, shortened(message_text.one_line(image), _LONGEST_IMAGE), file


def _image(row: _Row) -> str:
    if not row.valid:
        return "(not valid: ce validate)"
    if row.image is None:
        return "(none: a base of others)"
    return row.image or "(none: runs on the host)"

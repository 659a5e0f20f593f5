"""`ce list`: list the environments that a name can refer to, with their files and images."""

from __future__ import annotations

import argparse
from typing import NamedTuple

from container_engine.base.text_layout import one_line, shortened
from container_engine.edf.model import Edf, shown
from container_engine.printing import output
from container_engine.submit.context import Context
from container_engine.submit.environment import load_effective, site_here
from container_engine.submit.environment_names import environments

_HEAD = ("NAME", "IMAGE", "FILE", "DESCRIPTION")
_LONGEST_IMAGE = 48
# the column IMAGE, and how short it may be
_SHORTEN = (1, 16)


class _Row(NamedTuple):
    """One environment; `image` is None for a base for others and for one that is not valid.

    `description` is that of its own file; those of its bases are about them.
    """

    name: str
    file: str
    image: str | None
    valid: bool
    description: str


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    rows = _rows(context)
    if arguments.json:
        listed = [row._asdict() for row in rows]
        output.document({"environments": listed})
    elif rows:
        home = context.env.get("HOME", "")
        table = [_HEAD, *(_cells(row, home) for row in rows)]
        if not any(row.description for row in rows):
            table = [cells[:-1] for cells in table]
        output.table(table, shorten=_SHORTEN)
    else:
        output.line("no environments yet (ce init NAME creates one)")
    return 0


def _rows(context: Context) -> list[_Row]:
    site_context = site_here(context)
    found = []
    for name, file in environments(context):
        edf = load_effective(name, context, site_context).edf
        image = edf.image_text if edf else None
        found.append(_Row(name, file, image, edf is not None, _description(edf)))
    return found


def _description(edf: Edf | None) -> str:
    if edf is None or edf.description is None or edf.description_origin is None:
        return ""
    return shown(edf.description) if edf.description_origin.file == edf.own_file else ""


def _cells(row: _Row, home: str) -> tuple[str, ...]:
    image = _image(row)
    below_home = bool(home) and row.file.startswith(f"{home}/")
    file = f"~{row.file[len(home) :]}" if below_home else row.file
    image = shortened(one_line(image), _LONGEST_IMAGE)
    return row.name, image, file, one_line(row.description)


def _image(row: _Row) -> str:
    if not row.valid:
        return "(not valid: ce validate)"
    if row.image is None:
        return "(none: base for others)"
    return row.image or "(none: runs on the host)"

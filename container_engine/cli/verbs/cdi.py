"""`ce cdi generate KIND`: generate a CDI file for the devices of this node."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from container_engine.cli.printing import output
from container_engine.errors import UserError
from container_engine.files import replace
from container_engine.node.devices.cdi_generate import MAKERS
from container_engine.process import reason

if TYPE_CHECKING:
    import argparse

    from container_engine.submit.context import Context


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", metavar="ACTION", choices=("generate",), help="generate")
    parser.add_argument(
        "kind",
        metavar="KIND",
        choices=sorted(MAKERS),
        help="cxi: hpe.com/cxi; amd: amd.com/gpu; nvidia: nvidia.com/gpu; each with =0 and =all",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write it there, for example /etc/cdi/cxi.json"
    )
    parser.add_argument(
        "--root", metavar="DIR", default="", help="look at the devices of this system, not of /"
    )


def execute(arguments: argparse.Namespace, context: Context) -> int:
    root = os.path.join(context.cwd, arguments.root).rstrip("/") if arguments.root else ""
    text = json.dumps(MAKERS[arguments.kind](root), indent=2) + "\n"
    if arguments.output is None:
        output.text(text)
        return 0
    path = os.path.join(context.cwd, arguments.output)
    try:
        replace(path, text.encode(), 0o644)
    except OSError as error:
        raise UserError(f"cdi: {path}: {reason(error)}") from None
    return 0

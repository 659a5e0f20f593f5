"""`ce cdi generate KIND`: make a CDI file for the devices of this node, or check one."""

from __future__ import annotations

import argparse
import json
import os

from container_engine.base.errors import UserError
from container_engine.base.files import replace
from container_engine.base.process import reason
from container_engine.base.text_layout import warning_text
from container_engine.node.devices.cdi import Directory, Registry
from container_engine.printing import messages, output
from container_engine.submit.context import Context
from container_engine.submit.environment import site_here
from container_engine.tools.cdi import MAKERS, Made, differences


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", metavar="ACTION", choices=("generate",), help="generate")
    parser.add_argument(
        "kind",
        metavar="KIND",
        choices=sorted(MAKERS),
        help="cxi: hpe.com/cxi; amd: amd.com/gpu; nvidia: nvidia.com/gpu; nvidia-imex:"
        " nvidia.com/imex-channel; each with =0 and =all",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write it there, for example /etc/cdi/cxi.json"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing, and say what of FILE does not hold any more: exit code 1 if there is"
        " anything; without -o, of the files for KIND in the site's directories",
    )
    parser.add_argument(
        "--root", metavar="DIR", default="", help="look at the devices of this system, not of /"
    )


def execute(arguments: argparse.Namespace, context: Context) -> int:
    root = os.path.join(context.cwd, arguments.root).rstrip("/") if arguments.root else ""
    made = MAKERS[arguments.kind](root)
    for warning in made.warnings:
        messages.say(warning_text(f"cdi: {warning}"))
    path = os.path.join(context.cwd, arguments.output) if arguments.output else ""
    if arguments.check:
        for file in [path] if path else _files(made, context):
            _check(file, made, root, arguments.kind)
    elif path:
        _write(path, made)
    else:
        output.text(_text(made))
    return 0


def _text(made: Made) -> str:
    return json.dumps(made.spec, indent=2) + "\n"


def _write(path: str, made: Made) -> None:
    directory = os.path.dirname(path)
    try:
        if not os.path.isdir(directory):
            # users have to read it, whatever the umask is
            os.mkdir(directory)
            os.chmod(directory, 0o755)
        replace(path, _text(made).encode(), 0o644)
    except OSError as error:
        raise UserError(f"cdi: {path}: {reason(error)}") from None


def _files(made: Made, context: Context) -> list[str]:
    """Return the site's CDI files of this kind. Raise UserError if there is none."""
    kind, directories = made.spec["kind"], site_here(context).site.cdi_dirs
    registry = Registry([Directory(path, is_users=False) for path in directories])
    devices = sorted(registry.read().items())
    files = list(dict.fromkeys(one.file for name, one in devices if name.startswith(f"{kind}=")))
    if not files:
        raise UserError(f"cdi: no file in {', '.join(directories)} has devices of {kind}")
    return files


def _check(path: str, made: Made, root: str, kind: str) -> None:
    first, *others = differences(path, made, root) or [""]
    if first:
        raise UserError(
            first,
            f"write it again: ce cdi generate {kind} -o {path}",
            where="cdi",
            kind="CDI file",
            name=path,
            also=tuple(others),
        )
    output.line(f"{path} has what is on this node")

"""`ce pack DIRECTORY FILE.sqsh`: make a SquashFS file to mount, of data or anything else."""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import TYPE_CHECKING

from container_engine.base import process
from container_engine.base.errors import UserError
from container_engine.base.text_layout import size_text
from container_engine.images.free_space import FULL, unusable
from container_engine.images.pack.pack import Packer, pack_with_progress
from container_engine.printing import output
from container_engine.printing.messages import listener, refuse
from container_engine.submit.context import Context, site_config

if TYPE_CHECKING:
    from container_engine.build.pack_venv import PackedVenv

_LEVELS = range(1, 23)
_BLOCKS = {"128K": 131072, "256K": 262144, "512K": 524288, "1M": 1048576}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIRECTORY", help="what to put into the file")
    parser.add_argument("file", metavar="FILE.sqsh", help="the file that is made")
    parser.add_argument(
        "--venv",
        action="store_true",
        help="DIRECTORY is a virtual environment of Python: compile it, let it be mounted anywhere",
    )
    parser.add_argument(
        "--for",
        metavar="ENVIRONMENT",
        dest="environment",
        help="refuse a virtual environment that would not start in this environment's image",
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace FILE.sqsh if it exists")
    parser.add_argument(
        "--level",
        type=int,
        default=3,
        choices=_LEVELS,
        metavar="N",
        help="of compression by zstd: 1 is quick, 22 is small (3)",
    )
    parser.add_argument(
        "--block-size",
        default="128K",
        choices=list(_BLOCKS),
        help="1M is smaller, 128K quicker for small files that are read in any order (128K)",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    if arguments.environment is not None and not arguments.venv:
        return refuse(
            "pack: --for goes with --venv", "ce pack --venv DIRECTORY FILE.sqsh --for NAME"
        )
    source = os.path.join(context.cwd, arguments.directory)
    target = os.path.join(context.cwd, arguments.file)
    if not os.path.isdir(source):
        is_there = os.path.lexists(source)
        raise UserError(
            "not a directory" if is_there else "no such directory", name=arguments.directory
        )
    if os.path.lexists(target) and not arguments.force:
        raise UserError("exists", "--force replaces it", name=arguments.file)
    if os.path.realpath(target).startswith(f"{os.path.realpath(source)}/"):
        raise UserError("is in the directory that is packed", name=arguments.file)
    progress = listener(quiet=arguments.quiet)
    packer = Packer(context.env, site_config(context).import_timeout_s)
    block_size = str(_BLOCKS[arguments.block_size])
    more = ("-b", block_size, "-Xcompression-level", str(arguments.level))
    venv = _venv(arguments, source, target, context) if arguments.venv else None
    parent = os.path.dirname(target)
    try:
        with tempfile.TemporaryDirectory(prefix=".ce-pack-", dir=parent) as work:
            made = os.path.join(work, "file")
            if venv is None:
                block = pack_with_progress(source, made, packer, progress, *more)
            else:
                block = venv.pack(made, packer, progress)
            with open(made, "rb") as file:
                os.fsync(file.fileno())
            os.replace(made, target)
    except OSError as error:
        if error.errno in FULL:
            text = f"{process.reason(error)}, nothing is left of the file"
            raise UserError(text, "make room, or name a file elsewhere", name=parent) from None
        raise unusable(parent, error) from None
    progress.say(f"{arguments.file}: {size_text(block.bytes_used)}")
    for line in (target,) if venv is None else venv.lines:
        output.line(line)
    return 0


def _venv(arguments: argparse.Namespace, source: str, target: str, context: Context) -> PackedVenv:
    from container_engine.build.pack_venv import PackedVenv

    return PackedVenv(source, target, arguments.environment, context)

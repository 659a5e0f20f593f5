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
from container_engine.images.image_files import settle
from container_engine.images.pack.form import BLOCK_SIZES, Form
from container_engine.images.pack.pack import Packer, pack_with_progress
from container_engine.printing import output
from container_engine.printing.messages import listener, refuse
from container_engine.submit.context import Context, site_config
from container_engine.submit.stores import form

if TYPE_CHECKING:
    from container_engine.build.pack_venv import PackedVenv

_LEVELS = range(1, 23)
_LEVEL = 3


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
        choices=_LEVELS,
        metavar="N",
        help="of compression by zstd: 1 is quick, 22 is small (3)",
    )
    parser.add_argument(
        "--block-size",
        choices=list(BLOCK_SIZES),
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
    settings = site_config(context)
    wanted = _form(arguments, form(context, settings, progress))
    packer = Packer(context.env, settings.import_timeout_s, form=wanted)
    venv = _venv(arguments, source, target, context) if arguments.venv else None
    parent = os.path.dirname(target)
    try:
        with tempfile.TemporaryDirectory(prefix=".ce-pack-", dir=parent) as work:
            made = os.path.join(work, "file")
            if venv is None:
                block = pack_with_progress(source, made, packer, progress)
            else:
                block = venv.pack(made, packer, progress)
            with open(made, "rb") as file:
                os.fsync(file.fileno())
            settle(made, target, replaces=arguments.force)
    except OSError as error:
        if error.errno in FULL:
            text = f"{process.reason(error)}, nothing is left of the file"
            raise UserError(text, "make room, or name a file elsewhere", name=parent) from None
        raise unusable(parent, error) from None
    progress.say(f"{arguments.file}: {size_text(block.bytes_used)}")
    for line in (target,) if venv is None else venv.lines:
        output.line(line)
    return 0


def _form(arguments: argparse.Namespace, site: Form) -> Form:
    """Return the site's form, as far as the command line does not say otherwise."""
    wanted = site._replace(block_size=arguments.block_size or site.block_size)
    if arguments.level is None and site.compressor != "zstd":
        return wanted
    usual = None if arguments.venv else _LEVEL
    return wanted._replace(compressor="zstd", level=arguments.level or usual)


def _venv(arguments: argparse.Namespace, source: str, target: str, context: Context) -> PackedVenv:
    from container_engine.build.pack_venv import PackedVenv

    return PackedVenv(source, target, arguments.environment, context)

"""`ce save JOB[.STEP|.NAME] IMAGE.sqsh`: save a running container as an image."""

from __future__ import annotations

import argparse
import json
import os

from container_engine.base import process, slurm
from container_engine.base.errors import UserError
from container_engine.base.text_layout import size_text
from container_engine.build import container_archive, save_named
from container_engine.edf.locate import is_path
from container_engine.images import image_files
from container_engine.images.free_space import FULL, unusable
from container_engine.images.image_files import existing, install
from container_engine.images.listener import Listener
from container_engine.images.pack.pack import Packer
from container_engine.images.resolve import configuration
from container_engine.node.inside import tasks
from container_engine.printing import messages, output
from container_engine.printing.messages import listener
from container_engine.submit.context import Context, site_config
from container_engine.submit.image_names import image_named
from container_engine.submit.stores import form
from container_engine.tools import running_steps


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-w", "--node", metavar="NODE", help="the node whose container is saved; else the first"
    )
    parser.add_argument(
        "--difference",
        action="store_true",
        help="only what was written, as an image that goes above those of the container",
    )
    parser.add_argument(
        "-f", "--force", action="store_true", help="replace IMAGE.sqsh if it exists"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--namespace", help=argparse.SUPPRESS)
    parser.add_argument(
        "step", metavar="JOB[.STEP|.NAME]|NAME", help="a step, a job's newest one, or a name"
    )
    file = parser.add_argument("file", metavar="IMAGE.sqsh", help="the file that is made")
    file.required = False  # missing if docker's option, -o, is used instead
    parser.add_argument("-o", "--output", help=argparse.SUPPRESS)


def execute(arguments: argparse.Namespace, context: Context) -> int:
    _check(arguments, context)
    target = os.path.join(context.cwd, arguments.file)
    if os.path.lexists(target) and not arguments.force:
        raise existing(target)
    kept = save_named.parsed(arguments.step, context.env.get("SLURM_JOB_ID", ""))
    if kept is not None:
        if arguments.difference:
            raise UserError("--difference saves what a step has written", "name JOB.STEP")
        return save_named.save(kept, arguments.node, target, context, replaces=arguments.force)
    if not arguments.here:
        place = running_steps.place(arguments.step, arguments.node, context)
        options = [name for name in ("difference", "force", "quiet") if getattr(arguments, name)]
        words = ["save", "--here", f"--node={place.node}", *(f"--{name}" for name in options)]
        return running_steps.go(place, [*words, place.step, target], context, [slurm.NO_INPUT])
    if arguments.namespace:
        task = tasks.of_namespace(arguments.namespace)
    else:
        job, _dot, step = arguments.step.partition(".")
        task = tasks.find(job, step, arguments.node)
    found = tasks.container_files(task)
    progress = listener(quiet=arguments.quiet)
    progress.say(f"{arguments.file}: saving the container of step {arguments.step}")
    digest, size = _save(found, target, arguments, context, progress)
    output.line(f"{target}: {size_text(size)}, {digest}")
    if arguments.difference and not arguments.quiet:
        images = json.dumps([*found.images, target], ensure_ascii=False)
        messages.say_progress(f"to use it, write image = {images} into an environment")
    return 0


def _check(arguments: argparse.Namespace, context: Context) -> None:
    """Raise UserError for a command line of docker's save or commit."""
    what = arguments.step
    if not what[:1].isdigit() and image_named(what, context, site_config(context)) is not None:
        hint = "ce images -q shows its file: copy that; ce save is for running containers"
        raise UserError("an image, which already is a file", hint, name=what)
    if arguments.output is not None or arguments.file is None:
        raise UserError("save: IMAGE.sqsh is missing", f"ce save {what} IMAGE.sqsh")
    stem = os.path.basename(arguments.file).partition(":")[0].removesuffix(".tar")
    is_name = ":" in arguments.file and not is_path(arguments.file)
    if is_name or arguments.file.endswith(".tar"):
        hint = f"ce save {what} {stem}.sqsh" + (
            f", then ce import ./{stem}.sqsh {arguments.file}" if is_name else ""
        )
        raise UserError("ce save writes a SquashFS file", hint, name=arguments.file)


def _save(
    found: tasks.ContainerFiles,
    target: str,
    arguments: argparse.Namespace,
    context: Context,
    progress: Listener,
) -> tuple[str, int]:
    """Make the image, and return its digest and size. Raise CeError."""
    document = configuration(found.images, context.env)
    settings = site_config(context)
    wanted = form(context, settings, progress)
    packer = Packer(context.env, settings.import_timeout_s, form=wanted)
    parent = os.path.dirname(target)
    try:
        with container_archive.draft_directory(parent, packer.timeout_s) as work:
            made = os.path.join(work, "image")
            block = packer.pack_archive(
                made,
                lambda out: container_archive.write_session(
                    found, out, difference=arguments.difference
                ),
            )
            install(made, document, target, replaces=arguments.force)
    except OSError as error:
        if error.errno in FULL:
            text = f"{process.reason(error)}, nothing is left of the file"
            raise UserError(text, "make room, or name a file elsewhere", name=parent) from None
        raise unusable(parent, error) from None
    return image_files.known_digest(target), block.bytes_used

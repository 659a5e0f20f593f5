"""`ce export kubernetes NAME -- COMMAND…`: write an environment as a Kubernetes pod."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace

from container_engine.base.secrecy import Secrecy
from container_engine.compat import kubernetes
from container_engine.edf.model import Edf, Origin, Problem
from container_engine.edf.names import lock_of
from container_engine.images import lock_file
from container_engine.images.reference import RegistryImage, parse
from container_engine.printing import messages, output
from container_engine.site.model import SiteConfig
from container_engine.submit.context import Context
from container_engine.submit.environment import anywhere, load_with_origins
from container_engine.submit.image import locked_names
from container_engine.submit.image_names import stored
from container_engine.submit.stores import stores


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write the environment as a pod of Kubernetes, for 'kubectl apply -f -' or 'podman kube"
        " play'. Warnings tell what a pod does not promise."
    )
    parser.add_argument("--check", action="store_true", help="print only that; exit code 1 if any")
    parser.add_argument("--image", default="", metavar="REF", help="an image of a registry instead")
    parser.add_argument(
        "--gpus", type=int, default=0, metavar="NUMBER", help="for a device that is all GPUs"
    )
    parser.add_argument("target", metavar="kubernetes", help="the only form")
    parser.add_argument("name", metavar="NAME", help="an environment: a name or the path of a file")
    parser.add_argument(
        "command", metavar="COMMAND", nargs="...", help="the command and its arguments, after --"
    )
    parser.usage = (
        "ce export [--check] [--image REF] [--gpus NUMBER] kubernetes NAME -- COMMAND ..."
    )


def execute(arguments: argparse.Namespace, context: Context) -> int:
    if arguments.target != "kubernetes":
        hint = "ce export kubernetes NAME writes a pod; ce save JOB FILE saves a running container"
        return messages.refuse(f"export: {arguments.target}: there is no such form", hint)
    command = arguments.command[arguments.command[:1] == ["--"] :]
    if command and command[0].startswith("-"):
        hint = "write options before the word kubernetes, and the command after --"
        return messages.refuse(f"export: {command[0]}: no command", hint)
    if not command and not arguments.check:
        hint = f"for example: ce export kubernetes {arguments.name} -- python train.py"
        return messages.refuse("export: COMMAND is missing", hint)
    if arguments.gpus < 0:
        return messages.refuse(f"export: --gpus={arguments.gpus}: too few", "--gpus=1 or more")
    found = load_with_origins(arguments.name, context)
    edf = anywhere(found.edf, context.cwd)
    secrecy = Secrecy(tuple(found.site.secret_variables))
    wanted = kubernetes.Wanted(
        command,
        context.uid,
        os.getegid(),
        found.site.entrypoint if edf.entrypoint is None else edf.entrypoint,
        arguments.image,
        arguments.gpus,
        frozenset(entry.name for entry in edf.env if secrecy.hides(entry.name)),
    )
    # not those that a site applies by itself: they serve Slurm, or the hardware of this cluster
    asked = [use for use in found.hooks if use.origin.rpartition(":")[0] in edf.files]
    hooks = [(use.name, Origin(use.origin, 0)) for use in asked]
    gaps: list[Problem] = []
    if not arguments.image:
        edf, gaps = _with_launched_image(edf, context, found.site)
    pod = kubernetes.pod(edf, hooks, wanted)
    gaps += pod.gaps
    text = kubernetes.to_yaml(pod.fields)
    if arguments.check:
        for gap in gaps:
            output.line(f"{gap}{f' ({gap.hint})' if gap.hint else ''}")
        return int(bool(gaps))
    messages.say("".join(problem.text for problem in (*found.problems, *gaps)))
    output.exact(text.encode())
    return 0


def _with_launched_image(edf: Edf, context: Context, site: SiteConfig) -> tuple[Edf, list[Problem]]:
    """Return the environment with the image that launches use: as locked, or as named in full.

    Warn if that is an image of this host, whatever a registry has.
    """
    if edf.above or not edf.image:
        return edf, []  # no pod has it
    name, locked = edf.image, lock_file.read(edf.files[-1])
    if locked is not None and edf.has_image_of_file:
        [name] = locked_names(locked, lock_of(edf.files[-1]), [name], site, context)
    image = parse(name, context.cwd)
    if isinstance(image, RegistryImage) and image.short:
        image = stored(image, context, site)
        name = image.canonical
    edf = replace(edf, image=name)
    known = stores(context, site).find(image) if isinstance(image, RegistryImage) else None
    if known is None or not known.ref.origin:
        return edf, []
    why = f"{name}: made on this host; the pod gets what the registry has under this name"
    return edf, [edf.image_place.warning("image", why, "ce push sends it; --image names it here")]

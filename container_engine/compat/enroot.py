"""`enroot`, as scripts call it, on top of `ce`.

A name stands for an image file, not for a copy of its files: what is written into a container is
gone when it ends, so that a name's content is always that of its file. Containers with names live
with a job, and are listed, entered and removed in it; pyxis calls them pyxis_NAME, or
pyxis_JOB_NAME. Other commands of enroot are refused.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, NoReturn

from container_engine import __version__
from container_engine.base.errors import UserError
from container_engine.base.files import names_in
from container_engine.base.process import reason
from container_engine.base.text_layout import block
from container_engine.build import save_named
from container_engine.edf.names import SQUASHFS_SUFFIXES
from container_engine.images.image_files import settle
from container_engine.node.inside import tasks
from container_engine.node.job_containers import directory
from container_engine.node.slurm_step import node_name
from container_engine.printing import interrupts, messages, output
from container_engine.submit import container_names
from container_engine.submit import context as contexts
from container_engine.submit.context import Context, site_config


class Named(NamedTuple):
    """A container of this job on this node; `pid` is a process in it, 0 if none runs there."""

    name: str
    directory: str
    pid: int


class Here:
    """The job and node of this process, and its named containers there."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.job = context.env.get("SLURM_JOB_ID", "")
        kept_dir = site_config(context).kept_dir
        node = node_name(context.env)
        there = directory.names_here(kept_dir, self.job, node) if self.job else {}
        running = tasks.named(self.job) if there else {}
        self._named = [Named(name, path, running.get(name, 0)) for name, path in there.items()]

    def lines(self, *, fancy: bool) -> Iterator[str]:
        """Yield lines as enroot prints them."""
        for one in self._named:
            name = f"pyxis_{self.job}_{one.name}"
            yield f"{name} {one.pid}" if fancy and one.pid else name

    def remove(self, name: str, *, force: bool) -> bool:
        """Remove the container with this enroot name; False if there is none. Raise UserError."""
        for one in self._named:
            if name != f"pyxis_{self.job}_{one.name}":
                continue
            if not directory.remove(one.directory, force=force):
                raise UserError(f"enroot: container is running: {name}", "end the steps in it")
            with suppress(FileNotFoundError):
                os.unlink(container_names.record_of(one.name, self._context.env))
            return True
        return False

    def export(self, name: str, target: str, *, force: bool) -> bool:
        """Save the container with this enroot name; False if there is none. Raise UserError."""
        for one in self._named:
            if name == f"pyxis_{self.job}_{one.name}":
                if os.path.lexists(target) and not force:
                    raise UserError(f"enroot: file already exists: {target}", "enroot export -f")
                kept_one = save_named.ContainerOfJob(self.job, one.name)
                path, node = os.path.abspath(target), node_name(self._context.env)
                if save_named.save(kept_one, node, path, self._context, replaces=force):
                    raise UserError(f"enroot: not exported: {name}")
                return True
        return False

    def enter(self, pid: str, command: Sequence[str]) -> NoReturn:
        """Replace this process with the command, in the container of `pid`. Raise UserError."""
        if not pid.isdigit():
            raise UserError(f"enroot exec: {pid}: not a process id")
        tasks.become(tasks.of_process(int(pid)), command, self._context.libexec)


def here() -> Here:
    return Here(contexts.of_this_process(None))


_YES = ("y", "yes", "true", "1")
_BY_VARIABLE = {
    "ENROOT_MOUNT_HOME": "--container-mount-home",
    "ENROOT_REMAP_ROOT": "--container-remap-root",
    "ENROOT_ROOTFS_WRITABLE": "--container-writable",
}
_REFUSED = {
    "batch": "the first line of such a file can be #!/bin/bash, with ce run below",
    "bundle": "an image is one file, and ce run starts it",
    "digest": "ce images shows the digests of imported images",
    "load": "ce import imports an image without a name",
}
_HEADER = "NAME PID COMM STATE STARTED TIME MNTNS USERNS COMMAND"
_FAILED, _USAGE = 1, 2


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        messages.say(block("error", f"{self.prog}: {message}", None))
        sys.exit(_USAGE)


class Names(NamedTuple):
    """The names of a user: symlinks to image files in a directory."""

    directory: str

    def path(self, name: str) -> str:
        """Return the image file that `name` stands for. Raise UserError."""
        link = self._link(name)
        try:
            return os.readlink(link)
        except OSError:
            raise UserError(f"enroot: no such container: {name}") from None

    def create(self, name: str, image: str, *, replace: bool) -> None:
        link = self._link(name)
        if not os.path.isfile(image):
            raise UserError(f"enroot: no such file: {image}")
        if os.path.lexists(link) and not replace:
            raise UserError(f"enroot: container already exists: {name}", "enroot create -f")
        os.makedirs(self.directory, 0o700, exist_ok=True)
        draft = f"{link}.{os.getpid()}"
        os.symlink(os.path.abspath(image), draft)
        os.replace(draft, link)

    def remove(self, name: str) -> None:
        self.path(name)
        os.unlink(self._link(name))

    def _link(self, name: str) -> str:
        if not name or "/" in name or name.startswith("."):
            raise UserError(f"enroot: invalid container name: {name}")
        return os.path.join(self.directory, name)


def names(env: Mapping[str, str]) -> Names:
    data = env.get("XDG_DATA_HOME") or f"{env.get('HOME', '/')}/.local/share"
    return Names(f"{data}/container-engine/enroot")


def main(ce: Callable[[Sequence[str]], int], arguments: Sequence[str] | None = None) -> int:
    """Run `enroot ARGUMENTS`, with `ce` for the command of that name, and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with interrupts.interruptible():
        try:
            return _run(words, ce)
        except UserError as error:
            interrupts.raise_again()
            messages.say(messages.of_error(error))
        except OSError as error:
            messages.say(messages.of_error(UserError(f"enroot: {error.filename}: {reason(error)}")))
    return _FAILED


def _run(words: list[str], ce: Callable[[Sequence[str]], int]) -> int:
    if words[:1] == ["version"]:
        output.line(__version__)
        return 0
    if words and words[0] in _REFUSED:
        message = f"enroot {words[0]}: not offered by the container engine"
        raise UserError(message, _REFUSED[words[0]])
    found = _parser().parse_args(words)
    known = names(os.environ)
    if found.verb == "import":
        return ce(import_words(found))
    if found.verb == "start":
        os.environ.update(_variables(found.env))
        return ce(start_words(found, known, os.environ))
    if found.verb == "exec":
        here().enter(found.pid, found.command)
    _manage_named(found, known)
    return 0


def _manage_named(found: argparse.Namespace, known: Names) -> None:
    """Create, list, remove or export images and containers with names."""
    if found.verb == "create":
        name = found.name or _stem(found.image)
        known.create(name, found.image, replace=found.force)
    elif found.verb == "list":
        of_job = here().lines(fancy=found.fancy)
        for line in [*([_HEADER] if found.fancy else []), *names_in(known.directory), *of_job]:
            output.line(line)
    elif found.verb == "remove":
        for name in found.names:
            if not here().remove(name, force=found.force):
                known.remove(name)
    else:
        target = found.output or f"{found.name}.sqsh"
        if not here().export(found.name, target, force=found.force):
            _export(known.path(found.name), target, force=found.force)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="enroot", description="enroot's commands over ce.")
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", required=True)
    one = verbs.add_parser("import")
    one.add_argument("-a", "--arch")
    one.add_argument("-o", "--output")
    one.add_argument("uri")
    one = verbs.add_parser("create")
    one.add_argument("-n", "--name")
    one.add_argument("-f", "--force", action="store_true")
    one.add_argument("image")
    one = verbs.add_parser("list")
    one.add_argument("-f", "--fancy", action="store_true")
    one = verbs.add_parser("exec")
    one.add_argument("pid")
    one.add_argument("command", nargs="...")
    one = verbs.add_parser("remove")
    one.add_argument("-f", "--force", action="store_true")
    one.add_argument("names", nargs="+")
    one = verbs.add_parser("export")
    one.add_argument("-f", "--force", action="store_true")
    one.add_argument("-o", "--output")
    one.add_argument("name")
    one = verbs.add_parser("start")
    one.add_argument("-e", "--env", action="append", default=[])
    one.add_argument("-m", "--mount", action="append", default=[])
    one.add_argument("-r", "--root", action="store_true")
    one.add_argument("-w", "--rw", action="store_true")
    one.add_argument("image")
    one.add_argument("command", nargs="...")
    return parser


def import_words(found: argparse.Namespace) -> list[str]:
    """Return the words for `ce` that import an image as `enroot import` does: into a file."""
    scheme, there, name = found.uri.partition("://")
    if not there or scheme not in ("docker", "podman"):
        hint = "docker save NAME -o x.tar; ce import docker-archive:x.tar"
        raise UserError(
            f"enroot import: {found.uri}: expected docker:// or podman://",
            hint if scheme == "dockerd" else None,
        )
    target = found.output or f"{file_stem(name)}.sqsh"
    arch = [] if found.arch is None else ["--arch", found.arch]
    return ["import", "-o", target, *arch, "--", found.uri]


def file_stem(name: str) -> str:
    """Return the name that enroot gives to a file: nvidia+pytorch+24.05-py3."""
    path = name.rpartition("@")[2] if "#" in name else name
    return path.rpartition("#")[2].replace("/", "+").replace(":", "+")


def start_words(found: argparse.Namespace, known: Names, env: Mapping[str, str]) -> list[str]:
    """Return the words for `ce` that run a command as `enroot start` does."""
    is_file = "/" in found.image or found.image.endswith(SQUASHFS_SUFFIXES)
    image = os.path.abspath(found.image) if is_file else known.path(found.image)
    options = [word for name, word in _BY_VARIABLE.items() if env.get(name, "").lower() in _YES]
    options += ["--container-remap-root"] if found.root else []
    options += ["--container-writable"] if found.rw else []
    options += [f"--container-mounts={mount}" for mount in found.mount]
    options += [f"--container-env={','.join(_variables(found.env))}"] if found.env else []
    verb = ["run"] if found.command else ["shell"]
    command = ["--", *found.command] if found.command else []
    return [*verb, f"--container-image={image}", *dict.fromkeys(options), *command]


def _variables(given: Sequence[str]) -> dict[str, str]:
    """Return the variables of the options KEY[=VALUE]; one without a value keeps the caller's."""
    pairs = (one.partition("=") for one in given)
    return {name: value if equals else os.environ.get(name, "") for name, equals, value in pairs}


def _export(image: str, target: str, *, force: bool) -> None:
    if os.path.lexists(target) and not force:
        raise UserError(f"enroot: file already exists: {target}", "enroot export -f")
    draft = f"{target}.{os.getpid()}"
    try:
        shutil.copyfile(image, draft)
        settle(draft, target, replaces=force)
    finally:
        if os.path.lexists(draft):
            os.unlink(draft)


def _stem(path: str) -> str:
    base = os.path.basename(path)
    return next((base.removesuffix(end) for end in SQUASHFS_SUFFIXES if base.endswith(end)), base)

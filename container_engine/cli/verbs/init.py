"""`ce init [NAME]`: write a commented environment to start from."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import TextIO

from container_engine.base.errors import UserError
from container_engine.base.process import reason
from container_engine.base.text_layout import warning_text
from container_engine.cli.command_line.options import add_container_options
from container_engine.compat.pyxis_options import PyxisOptions
from container_engine.edf.locate import is_path, search_path
from container_engine.edf.model import EnvEntry, Origin, Problem, Text, Variable
from container_engine.edf.names import lock_of
from container_engine.edf.show import to_toml, toml_string
from container_engine.images import free_space
from container_engine.images.reference import FileImage, parse
from container_engine.printing import messages, output
from container_engine.submit.context import Context, site_config
from container_engine.submit.environment import load_effective
from container_engine.submit.environment_names import environments
from container_engine.submit.refused import RefusedError
from container_engine.submit.sent_environment import Sent, received

DEFAULT_NAME = "./env.toml"
DEFAULT_IMAGE = "ubuntu:24.04"
HEAD = """\
# An environment for 'srun --environment={name}' and 'ce run {name} -- COMMAND', from options.
# 'ce explain {name}' shows which values are used and why.
"""
TEMPLATE = """\
# An environment for 'srun --environment={name}' and 'ce run {name} -- COMMAND'.
# 'ce validate {name}' checks it, 'ce explain {name}' shows which values are used and why.

# A registry reference, or the path of a SquashFS file: "${{HOME}}/images/x.sqsh", "./x.sqsh".
image = {image}

# Other environments to build on, by name or path; this file wins.
# base_environment = ["common"]

# Where commands start: here in the directory where you type srun or ce run, as without a container.
workdir = "${{PWD}}"

# What of the host the container sees: "SOURCE:DESTINATION[:FLAGS]", or one path for both.
# What tasks write to other places, also to your home unless it is mounted, is gone when the
# container ends.
mounts = [
  "${{PWD}}",
  # "${{HOME}}",
  {scratch}"${{SCRATCH}}",
  # "/data:/data:ro",
]

# Whether files of the image can be changed; changes last as long as the container.
writable = true

# Whether the image's own start program runs before the tasks.
entrypoint = false

# Lines for a shell in the container, once per node before any task. '$$' leaves a variable to it.
# startup = ["source /opt/venv/bin/activate"]

[annotations]
# What hooks of the site should do.
# com.hooks.cxi.enabled = "true"

[env]
# Variables of the tasks. An empty string removes one, ${{image:NAME}} is what the image says.
# OMP_NUM_THREADS = "8"
# LR = "${{LR:-0.1}}"  # the LR of your shell wins, as in: LR=0.7 srun --environment=…
# PATH = "/opt/mine/bin:${{image:PATH}}"
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        default=DEFAULT_NAME,
        help="a name for the first directory of the search path (EDF_PATH, else ~/.edf), "
        f"or the path of a file; {DEFAULT_NAME} if left out",
    )
    begun = parser.add_mutually_exclusive_group()
    begun.add_argument(
        "--image", metavar="REF", default=DEFAULT_IMAGE, help=f"its image; else {DEFAULT_IMAGE}"
    )
    begun.add_argument(
        "--from",
        metavar="REF",
        dest="sent",
        help="take it, and its lock, from a registry: what ce push --environment has sent",
    )
    begun.add_argument(
        "--from-options",
        action="store_true",
        help="create it from the options of pyxis that follow",
    )
    add_container_options(parser)


def execute(arguments: argparse.Namespace, context: Context) -> int:
    """Write the environment, unless the file exists or would not be valid: raise UserError."""
    path = _path(arguments.name, context)
    sent = _sent(arguments, context)
    text = sent.edf if sent else _text(arguments, context)
    problems = _problems(path, text, context)
    if any(problem.severity == "error" for problem in problems):
        raise RefusedError(problems)
    with _locked(path, sent.lock if sent else ""):
        _create(path, text)
    messages.say("".join(problem.text for problem in problems))
    if unset := _unset(arguments.container_options, context):
        text = f"--container-env: {', '.join(unset)}: not set now, and not in the file"
        messages.say(warning_text(text))
    output.exact(os.fsencode(f"{path}\n"))
    sys.stdout.flush()
    name = path if is_path(arguments.name) else arguments.name
    if not is_path(arguments.name) and (hidden := _hidden(name, context)):
        messages.say(
            warning_text(
                f"'{name}' of the site ({hidden}) is hidden by this file; remove it to have that"
                " one back"
            )
        )
    name = shlex.quote(name)
    first = f"read it, ce explain {name}" if sent else f"edit it, ce validate {name}"
    messages.say_progress(f"next: {first}, srun --environment={name} COMMAND")
    return 0


def _sent(arguments: argparse.Namespace, context: Context) -> Sent | None:
    """Return the environment of `--from`, None without it. Raise CeError."""
    if arguments.sent is None:
        return None
    image = parse(arguments.sent, context.cwd)
    if isinstance(image, FileImage) or image.short:
        hint = "for example registry.example.org/me/train:1"
        raise UserError("names no registry", hint, "image-reference", name=arguments.sent)
    return received(image, context, site_config(context))


@contextlib.contextmanager
def _locked(path: str, lock: str) -> Iterator[None]:
    """Create the lock, if there is one, for an environment that the body creates."""
    if not lock:
        yield
        return
    _create(lock_of(path), lock)
    try:
        yield
    except BaseException:
        os.unlink(lock_of(path))
        raise


def _word(name: str) -> str:
    """Return the name as a shell takes it, between the quotes of a comment."""
    return name if shlex.quote(name) == name else f'"{name}"'


def _hidden(name: str, context: Context) -> str:
    """Return the site's file of this name, "" if the site has none."""
    site = (os.path.join(place, f"{name}.toml") for place in site_config(context).places.edf_path)
    return next(filter(os.path.exists, site), "")


def _text(arguments: argparse.Namespace, context: Context) -> str:
    if arguments.from_options:
        return f"{HEAD.format(name=_word(arguments.name))}{_of_options(arguments, context)}"
    if arguments.container_options:
        raise UserError("init: options of pyxis need --from-options before them")
    # programs write to SCRATCH where it is set, and what is in no mount is lost
    scratch = "" if os.path.isdir(context.env.get("SCRATCH", "")) else "# "
    image = toml_string(arguments.image)
    return TEMPLATE.format(name=_word(arguments.name), image=image, scratch=scratch)


def _of_options(arguments: argparse.Namespace, context: Context) -> str:
    """Return the text of a file with the same effect as the options. Raise RefusedError."""
    loaded = load_effective(None, context, options=PyxisOptions(arguments.container_options))
    if loaded.edf is None:
        raise RefusedError(loaded.problems)
    edf = loaded.edf
    env = tuple(_of_caller(entry) for entry in edf.env)
    home = context.env.get("HOME")
    mounts = tuple(
        replace(mount, source=_variable("HOME")) if mount.source == home else mount
        for mount in edf.mounts
    )
    image = edf.image or ""
    if image.startswith("."):
        image = os.path.normpath(os.path.join(context.cwd, image))
    return to_toml(replace(edf, image=image, env=env, mounts=mounts))


def _of_caller(entry: EnvEntry) -> EnvEntry:
    """Return the entry with its name in place of the value that it has now."""
    is_named = entry.origin.file == "--container-env"
    return replace(entry, value=_variable(entry.name)) if is_named else entry


def _unset(words: Sequence[str], context: Context) -> list[str]:
    """Return the variables that an option names and that are not set now."""
    option = "--container-env="
    lists = (word.removeprefix(option) for word in words if word.startswith(option))
    return [name for one in lists for name in one.split(",") if name not in context.env]


def _variable(name: str) -> Text:
    return (Variable(name),)


def _problems(path: str, text: str, context: Context) -> list[Problem]:
    """Return the problems of a file with this text, as if it were at `path`."""
    with TemporaryDirectory(prefix="ce-init-") as directory:
        trial = os.path.join(directory, "trial.toml")
        _create(trial, text)
        loaded = load_effective(trial, context)
    found = [replace(problem, file=path) for problem in loaded.problems]
    image = loaded.edf.image if loaded.edf is not None else None
    if any(name == image for name, _file in environments(context)):
        message = f"'{image}' is looked for in a registry, and an environment has this name, too"
        hint = f'to start from the environment, write base_environment = "{image}" and no image'
        found.append(Origin(path, 0).warning("image", message, hint))
    return found


def _path(name: str, context: Context) -> str:
    if not name or not name.isprintable():
        raise UserError(f"init: {name!r} cannot be the name of an environment")
    if is_path(name):
        path = name if name.endswith(".toml") else f"{name}.toml"
        return os.path.normpath(os.path.join(context.cwd, path))
    own = search_path(context.env, ())
    if not own:
        raise UserError("init: neither EDF_PATH nor HOME is set", "name a path, such as ./env.toml")
    return os.path.normpath(os.path.join(context.cwd, own[0], f"{name}.toml"))


def _create(path: str, text: str) -> None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _fill(open(path, "x", encoding="utf-8"), text)  # noqa: SIM115 - it closes the file
    except FileExistsError:
        hint = "it stays as it is; choose another name, or remove it first"
        raise UserError(f"init: {path} exists already", hint) from None
    except (OSError, ValueError) as error:
        if isinstance(error, OSError):
            free_space.refuse_full(path, error)
        why = reason(error) if isinstance(error, OSError) else str(error)
        hint = "ce init NAME writes ~/.edf/NAME.toml; a path is for another directory of yours"
        raise UserError(f"init: {path}: {why}", hint) from None


def _fill(file: TextIO, text: str) -> None:
    """Write and close a new file; remove it if that fails, as NFS only says at the end."""
    try:
        with file:
            file.write(text)
    except BaseException:
        os.unlink(file.name)
        raise

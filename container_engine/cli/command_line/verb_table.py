"""The verbs of `ce`, and the order in which they are listed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from container_engine.base import hook_code

_OWN = "container_engine.cli.verbs"
_HOOKS = "Of hooks"


class Verb(NamedTuple):
    """A module of `cli.verbs`, or of a hook's `package` in a directory, imported when it is used.

    It offers configure(parser), which may set the default `failure` (the exit code of a CeError,
    else 1), and execute(arguments, context), which returns the exit code or raises CeError.
    """

    module: str
    help: str
    package: tuple[str, str] = ("", "")
    examples: tuple[str, ...] = ()

    def load(self) -> Any:  # noqa: ANN401 - a module with the functions above
        """Import the module."""
        directory, package = self.package
        if directory and directory not in sys.path:
            sys.path.append(directory)
        return importlib.import_module(f"{package or _OWN}.{self.module}")


VERBS = {
    "list": Verb("list_", "list the environments that can be used by name"),
    "validate": Verb("validate", "check an environment and report every problem"),
    "plan": Verb("plan", "show what a launch would do"),
    "run": Verb("run", "run a command in a container on this host"),
    "shell": Verb("shell", "open a shell in a container on this host"),
    "render": Verb("render", "print the effective environment"),
    "explain": Verb("explain", "show for each value which line it comes from"),
    "diff": Verb("diff", "show what two environments do differently"),
    "lint": Verb("lint", "give advice on an environment"),
    "init": Verb("init", "write a commented environment to begin with"),
    "schema": Verb("schema", "print the JSON Schema of a format"),
    "import": Verb("import_", "import an image from a registry, archive, directory or Podman"),
    "pull": Verb("pull", "get an image from its registry, if there is a newer one"),
    "build": Verb("build", "build an image from a Dockerfile"),
    "images": Verb("images", "list the images in the stores"),
    "inspect": Verb("inspect", "show what is in an image"),
    "lock": Verb("lock", "pin an environment to an exact image"),
    "scan": Verb("scan", "ask the site's scanner about an image"),
    "rmi": Verb("rmi", "remove an image from your store"),
    "gc": Verb("gc", "delete unused images from your store"),
    "pack": Verb("pack", "create a SquashFS file from a directory, for a mount"),
    "login": Verb("login", "log in to a registry"),
    "logout": Verb("logout", "log out from a registry"),
    "store": Verb("store", "check or repair your store"),
    "hooks": Verb("hooks", "list, show, check or test the hooks of this site"),
    "devices": Verb("devices", "list the devices of this node that environments can use"),
    "cdi": Verb("cdi", "write a CDI file for the devices of this node"),
    "ps": Verb("ps", "list your steps that run in containers"),
    "exec": Verb("exec", "run one more command, or a shell, in a running container"),
    "save": Verb("save", "save a running container as an image"),
    "trace": Verb("trace", "show where a launch spent its time"),
    "report": Verb("report", "write one file to attach to a support ticket"),
    "doctor": Verb("doctor", "check whether containers can run on this host"),
    "completion": Verb("completion", "print a shell's completion of ce"),
    "help": Verb("help", "show help for a verb, an error or any words"),
    "config": Verb("config", "show or check the site's configuration"),
    "version": Verb("version", "print the version"),
}

_GROUPS = {
    "Environments": (
        "shell",
        "list",
        "init",
        "validate",
        "plan",
        "explain",
        "render",
        "diff",
        "lint",
    ),
    "Images": (
        *("pull", "import", "build", "pack", "images", "inspect", "scan", "lock"),
        *("rmi", "gc", "store", "login", "logout"),
    ),
    "Running steps": ("ps", "exec", "save", "trace", "report"),
    "This host and site": (
        *("help", "hooks", "devices", "cdi", "doctor", "config", "schema", "completion", "version"),
    ),
}
# Verbs by purpose, for `ce help`: a line each.
_PURPOSES = {
    "Start": ("run", "shell", "list"),
    "Write an environment": ("init", "validate", "lint", "explain", "plan", "render", "diff"),
    "Get images": ("pull", "import", "build", "pack", "login", "logout"),
    "Manage images": ("images", "inspect", "lock", "scan", "rmi", "gc", "store"),
    "Look at running steps": ("ps", "exec", "save", "trace", "report"),
    "Know this site": ("hooks", "devices", "config", "doctor", "version"),
    "Write tools for it": ("schema", "completion", "cdi"),
}
_HEAD = """\
ce runs commands in containers, each described by an environment (NAME.toml).

  srun --environment=NAME ...   run every task of a Slurm step in it
  ce run NAME -- COMMAND        run one command in it, on this host
"""
_TAIL = """\

NAME is looked for in EDF_PATH (else ~/.edf), then among the site's; a path begins with / or ./
'ce VERB --help' says more about one of them.
"""


@cache
def hook_verbs() -> Mapping[str, Verb]:
    """Return the verbs that hooks of this installation bring.

    A hook.toml with a fault is passed over: `ce hooks check` reports it.
    """
    import os
    import tomllib
    from contextlib import suppress

    found: dict[str, Verb] = {}
    catalog = hook_code.directory(sys.prefix)
    for hook in sorted(os.listdir(catalog)) if os.path.isdir(catalog) else ():
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            with open(f"{catalog}/{hook}/hook.toml", "rb") as file:
                text = file.read()
            document = tomllib.loads(text.decode()) if b"\n[verbs." in text else {}
            for name, verb in document.get("verbs", {}).items():
                module = f"verb_{name.replace('-', '_')}"
                place = (f"{catalog}/{hook}", document["code"])
                examples = tuple(verb.get("examples", ()))
                found[name] = Verb(module, verb["help"], place, examples)
    return found


def verbs() -> Mapping[str, Verb]:
    """Return all verbs: the engine's, and those of hooks."""
    return {**hook_verbs(), **VERBS}


def verb_in(words: Sequence[str]) -> str | None:
    """Return the first of the words that is a verb; hooks are asked only if the engine has none."""
    first = next((word for word in words if not word.startswith("-")), "")
    known = VERBS if first in VERBS else verbs()
    return next((word for word in words if word in known), None)


def overview() -> str:
    """Return what `ce` alone prints, with a line for every verb."""
    text, known = _HEAD, verbs()
    for title, names in (_GROUPS | _of_hooks()).items():
        text += f"\n{title}:\n"
        text += "".join(f"  ce {name:<11}{known[name].help}\n" for name in names)
    return text + _TAIL


def summary() -> str:
    """Return what `ce help` prints: the verbs by purpose."""
    purposes = _PURPOSES | _of_hooks()
    width = max(map(len, purposes))
    lines = [f"  {purpose:<{width}}  {' '.join(names)}\n" for purpose, names in purposes.items()]
    return f"""\
{_HEAD}
{"".join(lines)}
  ce help VERB     options and examples of a verb; ce --help lists all verbs
  ce help CODE     what to do about an error, by the code in its line 'ce: see:'
  ce help errors   all errors and their codes
  ce help WORDS    the pages about them: ce help pip install, ce help docker
"""


def _of_hooks() -> dict[str, tuple[str, ...]]:
    return {_HOOKS: tuple(hook_verbs())} if hook_verbs() else {}

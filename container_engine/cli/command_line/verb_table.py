"""The verbs of `ce`, and the order in which they are listed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from container_engine.base import hook_code

_OWN = "container_engine.cli.verbs"


class Verb(NamedTuple):
    """A module of `cli.verbs`, or of a hook's `package` in a directory, imported when it is used.

    It offers configure(parser), which may set the default `failure` (the exit code of a CeError,
    else 1), and execute(arguments, context), which returns the exit code or raises CeError. For the
    second verb of a module both names have an `ending`.
    """

    module: str
    help: str
    package: tuple[str, str] = ("", "")
    examples: tuple[str, ...] = ()
    ending: str = ""

    def load(self) -> tuple[Any, Any]:
        """Import the module, and return its two functions for the verb."""
        directory, package = self.package
        if directory and directory not in sys.path:
            sys.path.append(directory)
        module = importlib.import_module(f"{package or _OWN}.{self.module}")
        return getattr(module, f"configure{self.ending}"), getattr(module, f"execute{self.ending}")


_PURPOSES = {
    "Start": {
        "run": Verb("run", "run a command in a container on this host"),
        "shell": Verb("run", "open a shell in a container on this host", ending="_shell"),
        "list": Verb("list_", "list the environments that can be used by name"),
    },
    "Write an environment": {
        "init": Verb("init", "write a commented environment to begin with"),
        "validate": Verb("validate", "check an environment and report every problem"),
        "lint": Verb("lint", "give advice on an environment"),
        "explain": Verb("explain", "show for each value which line it comes from"),
        "plan": Verb("plan", "show what a launch would do"),
        "render": Verb("render", "print the effective environment"),
        "diff": Verb("diff", "show what two environments, or two steps, do differently"),
        "export": Verb("export", "write an environment as a Kubernetes pod"),
    },
    "Get images": {
        "pull": Verb("pull", "get an image from its registry, if there is a newer one"),
        "import": Verb("import_", "import an image from a registry, archive, directory or Podman"),
        "build": Verb("build", "build an image from a Dockerfile"),
        "push": Verb("push", "send an image or an environment to a registry"),
        "pack": Verb("pack", "create a SquashFS file from a directory, for a mount"),
        "login": Verb("login", "log in to a registry"),
        "logout": Verb("login", "log out from a registry", ending="_logout"),
    },
    "Manage images": {
        "images": Verb("images", "list the images in the stores"),
        "inspect": Verb("inspect", "show what is in an image"),
        "lock": Verb("lock", "pin an environment to an exact image"),
        "scan": Verb("scan", "ask the site's scanner about an image"),
        "rmi": Verb("rmi", "remove an image from your store"),
        "gc": Verb("gc", "delete unused images from your store"),
        "store": Verb("store", "check or repair your store"),
    },
    "Look at running steps": {
        "ps": Verb("ps", "list your steps that run in containers"),
        "exec": Verb("exec", "run one more command, or a shell, in a running container"),
        "save": Verb("save", "save a running container as an image"),
        "trace": Verb("trace", "show where a launch spent its time"),
        "replay": Verb("replay", "start again what a step has started"),
        "stage": Verb("stage", "copy images into the memory of a job's nodes"),
        "vet": Verb("vet", "tell the good nodes of a job from the bad ones"),
        "report": Verb("report", "write one file to attach to a support ticket"),
    },
    "Know this site": {
        "hooks": Verb("hooks", "list, show, check or test the hooks of this site"),
        "devices": Verb("devices", "list the devices of this node that environments can use"),
        "config": Verb("config", "show or check the site's configuration"),
        "doctor": Verb("doctor", "check whether containers can run on this host"),
        "metrics": Verb("metrics", "count the starts of this cluster, also for Prometheus"),
        "version": Verb("version", "print the version"),
        "help": Verb("help", "show help for a verb, an error or any words"),
    },
    "Write tools for it": {
        "schema": Verb("schema", "print the JSON Schema of a format"),
        "completion": Verb("completion", "print a shell's completion of ce"),
        "cdi": Verb("cdi", "write a CDI file for the devices of this node"),
    },
}
VERBS = {name: verb for verbs in _PURPOSES.values() for name, verb in verbs.items()}
# for the help of each verb, its manual page and its errors
_EXAMPLES: dict[str, tuple[str, ...]] = {
    "list": ("ce list",),
    "validate": ("ce validate train", "ce validate --strict --check-files ./train.toml"),
    "plan": ("ce plan train",),
    "run": (
        "ce run demo -- python3 --version",
        "ce run --image ubuntu:24.04 -- cat /etc/os-release",
    ),
    "shell": ("ce shell demo", "ce shell --image ubuntu:24.04"),
    "render": ("ce render --format toml train",),
    "explain": ("ce explain train mounts", "ce explain --env PATH train"),
    "diff": ("ce diff train ./train-new.toml", "ce diff 1234 1250.0"),
    "export": ("ce export kubernetes train -- python train.py > pod.yaml",),
    "lint": ("ce lint train",),
    "init": (
        "ce init train --image nvcr.io/nvidia/pytorch:25.01-py3",
        "ce init train --from registry.example.org/me/train:1",
    ),
    "schema": ("ce schema edf",),
    "import": ("ce import ubuntu:24.04", "ce import -o tools.sqsh docker-archive:tools.tar"),
    "pull": ("ce pull ubuntu:24.04",),
    "build": ("ce build -t mytools:1.0 .", "ce build -f Dockerfile.gpu --build-arg V=2 ."),
    "push": (
        "ce push mytools:1.0 registry.example.org/me/tools:1.0",
        "ce push --environment train registry.example.org/me/train:1",
    ),
    "images": ("ce images", "ce images -q"),
    "inspect": ("ce inspect demo", "ce inspect --depth 2 ubuntu:24.04"),
    "lock": ("ce lock train", "ce lock --check train"),
    "scan": ("ce scan train",),
    "rmi": ("ce rmi ubuntu:24.04",),
    "gc": ("ce gc --unused 60 --dry-run", "ce gc --size 50G"),
    "pack": ("ce pack ./dataset dataset.sqsh", "ce pack --venv ./venv venv.sqsh --for demo"),
    "login": ("ce login nvcr.io", "ce login -u alice --password-stdin registry.example.org"),
    "logout": ("ce logout nvcr.io",),
    "store": ("ce store check",),
    "hooks": ("ce hooks list", "ce hooks explain train"),
    "devices": ("ce devices",),
    "cdi": ("ce cdi generate amd -o /etc/cdi/amd.json",),
    "ps": ("ce ps", "ce ps 1234"),
    "exec": ("ce exec -w node2 1234.0 -- nvidia-smi", "ce exec work -- ls /data"),
    "save": ("ce save 1234 mine.sqsh", "ce save --difference 1234.0 mine.sqsh"),
    "trace": ("ce trace 1234", "ce trace 1234.0 --perfetto launch.json"),
    "replay": ("ce replay 1234", "ce replay 1234.0 -- -N4 ./train"),
    "stage": ("ce stage train",),
    "vet": ("ce vet train", "ce vet train --good-nodes 4 --exclude-file ./bad-nodes"),
    "report": ("ce report 1234", "ce report"),
    "doctor": ("ce doctor", "ce doctor --all-nodes"),
    "metrics": ("ce metrics --textfile /var/lib/prometheus/node-exporter/ce.prom",),
    "completion": ("ce completion bash",),
    "help": ("ce help mount-source-missing", "ce help pip install"),
    "config": ("ce config show", "ce config check ./new.toml"),
    "version": ("ce version",),
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
    text = _HEAD
    for purpose, found in _by_purpose().items():
        text += f"\n{purpose}:\n"
        text += "".join(f"  ce {name:<11}{verb.help}\n" for name, verb in found.items())
    return text + _TAIL


def summary() -> str:
    """Return what `ce help` prints: the verbs by purpose."""
    purposes = _by_purpose()
    width = max(map(len, purposes))
    lines = [f"  {purpose:<{width}}  {' '.join(found)}\n" for purpose, found in purposes.items()]
    return f"""\
{_HEAD}
{"".join(lines)}
  ce help VERB     options and examples of a verb; ce --help lists all verbs
  ce help CODE     what to do about an error, by the code in its line 'ce: see:'
  ce help errors   all errors and their codes
  ce help WORDS    the pages about them: ce help pip install, ce help docker
"""


def _by_purpose() -> Mapping[str, Mapping[str, Verb]]:
    return _PURPOSES | ({"Of hooks": hook_verbs()} if hook_verbs() else {})


def hint_without_name(verb: str) -> str:
    """Return the hint for a command line that ends too early."""
    usage = f"'ce {verb} --help' shows how to use it"
    examples = examples_of(verb)
    return f"for example {examples[0]}; {usage}" if examples else usage


def examples_of(verb: str) -> tuple[str, ...]:
    """Return the examples of a verb of the engine or of a hook; none for anything else."""
    if verb in _EXAMPLES or verb not in hook_verbs():
        return _EXAMPLES.get(verb, ())
    return hook_verbs()[verb].examples

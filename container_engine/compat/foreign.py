"""Verbs, actions and options of other tools, and the counterpart of each in `ce`.

Some options describe what is always so, and are accepted. The others belong in the environment
file: their error shows what to write.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from container_engine.base.text_layout import block, warning_text
from container_engine.printing import messages

_ROOM = "ce images shows how much your images take, ce gc removes unused ones"
_ENDS = "a container ends with its command or its step"
_SAVE = "ce save JOB IMAGE.sqsh keeps changes; lasting ones belong in a Dockerfile: ce build"
_REMOVE = f"ce rmi removes an image, rm the file of an environment (ce list shows it); {_ENDS}"
_STOP = f"{_ENDS}; ce ps lists your steps, scancel JOB.STEP ends one"
_CLEAN = "ce gc removes unused images, ce gc --layers what imports have kept"
_OUTPUT = "the output of a job is in Slurm's file, slurm-JOB.out; ce trace shows its launch"
_SIGNED = "the site's policy checks signatures of images: signature_policy in its configuration"
_UPGRADE = "the administrator does that: docs/admin/upgrade.md, or ce help upgrade"
_SERVICES = (
    "one 'srun --overlap -n1 --environment=NAME COMMAND &' for each service in a job script, then"
    " 'wait': ce help docker"
)

_BY_HAND = (
    "settings are changed by hand: as root edit the file that 'ce config show' names, then run"
    " 'ce config check'"
)
_ALL_SHOWN = (
    "'ce config show' prints every setting with its file, 'ce config check FILE' checks a file"
)
_HOOK_KEY = (
    'an environment decides that: com.hooks.NAME.enabled = "true" or "false" in [annotations]'
)

_SHOWS_IMAGE = "ce inspect NAME shows one image, ce rmi NAME removes one"

# Words that users type after a verb that takes an action or no word, with a hint; "" is any other.
FOREIGN_ACTIONS: dict[str, dict[str, str]] = {
    "config": {
        "": _ALL_SHOWN,
        **dict.fromkeys(("add", "edit", "remove", "rm", "set", "unset"), _BY_HAND),
        **dict.fromkeys(("dump", "get", "list", "ls", "print"), _ALL_SHOWN),
        **dict.fromkeys(("lint", "test", "validate", "verify"), "'ce config check' does that"),
    },
    "hooks": {
        **dict.fromkeys(("add", "disable", "enable", "remove", "set"), _HOOK_KEY),
        **dict.fromkeys(("info", "inspect"), "'ce hooks show NAME' does that"),
    },
    "images": {
        "": _SHOWS_IMAGE,
        **dict.fromkeys(("list", "ls"), "without a word ce images lists the images"),
        **dict.fromkeys(("clean", "gc", "prune"), "'ce gc' removes unused images"),
        "pull": "'ce pull IMAGE' gets one",
    },
    "list": {"": "ce explain NAME shows an environment, ce images lists the images"},
    "store": {
        **dict.fromkeys(("list", "ls", "show"), "'ce images' lists the images of the store"),
        **dict.fromkeys(("clean", "gc", "prune"), "'ce gc' removes unused images"),
        **dict.fromkeys(("fix", "mend"), "'ce store repair' does that"),
    },
}

FOREIGN_VERBS: dict[str, str] = {
    "activate": "srun --environment=NAME COMMAND; ce shell NAME opens a shell in a container",
    "attach": "Slurm's sattach JOB.STEP shows the output of a step; ce exec JOB opens a shell",
    "cache": _CLEAN,
    "clean": _CLEAN,
    "commit": _SAVE,
    "compose": _SERVICES,
    "container": "ce ps lists your steps, ce run starts a container",
    "cp": "ce exec JOB -- cat /FILE > FILE copies a file out of a running step; or mount a"
    ' directory: mounts = ["SOURCE:DESTINATION"] in the environment file',
    "create": "ce run and srun create the container; ce init NAME creates an environment file",
    "delete": _REMOVE,
    "df": _ROOM,
    "du": _ROOM,
    "edit": "an environment is a text file: ce list shows where it is; ce validate NAME checks it",
    "enter": "ce exec JOB opens a shell in a running step, ce shell NAME in a new container",
    "env": "ce list shows the environments, ce explain NAME where values come from",
    "events": "ce trace JOB shows what a launch did, step by step",
    "history": "ce inspect IMAGE shows the layers of an image",
    "host": "ce doctor checks this host, ce config show prints the site's settings",
    "image": "ce images lists the images, ce inspect shows one, ce rmi removes one",
    "info": "ce doctor checks this host, ce config show prints the site's settings",
    "install": "write RUN lines into a Dockerfile, then ce build -t NAME .",
    "instance": "ce ps lists your steps; services run as steps of a job",
    "key": _SIGNED,
    "kill": _STOP,
    "load": "ce import docker-archive:FILE imports an archive that docker save wrote",
    "log": _OUTPUT,
    "logs": _OUTPUT,
    "ls": "ce list shows the environments, ce images the images, ce ps your running steps",
    "manifest": "ce inspect IMAGE shows what is known of an image",
    "network": "the container has the host's network",
    "new": "ce init NAME --image IMAGE writes an environment to begin with",
    "pause": "scontrol suspend JOB suspends a job",
    "port": "the container has the host's network: every port is open as it is",
    "prune": "ce gc removes unused images",
    "quota": _ROOM,
    "remote": "ce login REGISTRY logs in to a registry, ce logout logs out",
    "remove": _REMOVE,
    "rename": "an environment has the name of its file: mv",
    "restart": f"{_ENDS}; start it again: srun or ce run",
    "rm": _REMOVE,
    "rollback": _UPGRADE,
    "search": "ce does not search registries; use their web pages, or skopeo list-tags",
    "show": "ce explain NAME shows an environment, ce inspect an image, ce hooks show a hook",
    "sign": _SIGNED,
    "start": "ce run NAME, ce shell NAME, or in a job: srun --environment=NAME COMMAND",
    "stats": "sstat JOB.STEP shows what a step uses",
    "status": "ce ps lists your running steps, ce doctor checks this host",
    "stop": _STOP,
    "system": "ce doctor checks this host, ce gc removes unused images",
    "tag": "images have the names with which they are imported or built: ce build -t NAME; in a"
    " registry, that of ce push IMAGE REFERENCE",
    "top": "ce exec JOB -- top, or sstat JOB.STEP",
    "uninstall": _UPGRADE,
    "up": _SERVICES,
    "update": "ce pull IMAGE gets the newest image of that name",
    "upgrade": _UPGRADE,
    "use": "srun --environment=NAME COMMAND, or ce run NAME -- COMMAND on this host",
    "verify": "ce validate checks an environment, ce scan an image",
    "volume": 'mount directories: mounts = ["SOURCE:DESTINATION"] in the environment file',
    "wait": "srun waits for its step, sbatch -W for the job",
}


_NAME_IN_FILE = re.compile(r"^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=", re.MULTILINE)
# The terminal is always the caller's, and no container outlives its command.
_ACCEPTED = ("-i", "--interactive", "-t", "--tty", "--rm")
_GPUS = 'devices = ["nvidia.com/gpu=all"]'
# Each option, and what to write instead of it; {} is its value as a TOML string.
_WITH_VALUE = {
    ("-v", "--volume", "-B", "--bind"): "in the environment file: mounts = [{}]",
    ("--mount",): 'in the environment file: mounts = ["SOURCE:DESTINATION"]',
    ("-w", "--workdir", "--pwd"): "in the environment file: workdir = {}",
    ("--device",): "in the environment file: devices = [{}]",
    ("--env-file",): "in the environment file: a line for each variable below [env]",
    ("--entrypoint",): "give the command after --; entrypoint = true in the environment file runs"
    " the image's own",
    ("-p", "--publish"): "the container has the host's network: every port is open as it is",
    ("--network", "--net"): "the container has the host's network",
    ("--name",): "a job has one: srun -J NAME; to join a container by name: srun"
    " --container-name=NAME (ce help one-container)",
    ("-u", "--user"): "you are yourself in the container; to appear as root, in the environment"
    ' file, below [annotations]: com.ce.root_remap = "true"',
    ("-m", "--memory"): "in the environment file, below [annotations]: com.ce.memory_limit = {}",
    ("--pids-limit",): "in the environment file, below [annotations]: com.ce.pids_limit = {}",
    ("--timeout",): "in the environment file, below [annotations]: com.ce.time_limit_s = {}",
    ("--cpus",): "srun -c N, as for every step",
    ("--shm-size",): "the host's /dev/shm is there, as large as it is",
    ("--tmpfs",): 'in the environment file: mounts = ["tmpfs:{}"]',
    ("--hostname",): "the container has the host's name",
    ("--ipc", "--pid", "--uts"): "the container has the host's, or in the environment file, below"
    ' [annotations]: com.ce.unshare = "ipc,pid,uts"',
    ("--restart",): "a container ends with its command; sbatch --requeue runs a job again",
    ("--add-host",): "the container has the host's /etc/hosts",
    ("--ulimit",): "the container has the limits of the job: ulimit, or srun --propagate",
    ("--platform",): "the container has the node's architecture",
}
_SWITCHES = {
    ("-d", "--detach"): "a container ends with its command; to run in the background: sbatch",
    ("--privileged",): "a container never has more rights than you",
    ("--read-only",): "in the environment file: writable = false",
    ("--init",): "every container has a first process that waits for its children",
    ("-P", "--publish-all"): "the container has the host's network: every port is open as it is",
    ("--nv",): f"in the environment file: {_GPUS}",
    ("--rocm",): 'in the environment file: devices = ["amd.com/gpu=all"]',
}


_HIDDEN: Mapping[str, Any] = {"dest": argparse.SUPPRESS, "help": argparse.SUPPRESS}
# options of builds that ask for what is always done, with argparse's nargs: None takes a value
_BUILD_ACCEPTED = {"--rm": 0, "--force-rm": 0, "--load": 0, "--layers": 0, "--progress": None}
_BUILD_WITH_VALUE = {
    ("--ssh",): "--secret id=key,src=FILE shows a key to RUN --mount=type=secret,id=key",
    ("--label",): "in the Dockerfile: LABEL NAME=VALUE",
    ("--network",): "the build has the host's network",
    ("--cache-from", "--cache-to"): "steps are kept on this host, in /var/tmp or TMPDIR",
    ("-v", "--volume"): "in the Dockerfile: COPY, or RUN --mount=type=bind",
}
_BUILD_SWITCHES: Mapping[tuple[str, ...], str] = {
    ("--pull",): "--no-cache asks the registry for newer images of FROM, and rebuilds everything",
    ("--push",): "the image goes into your store; ce push sends it to a registry",
    ("--squash",): "every image is one SquashFS file",
}


def add_foreign_of_builds(parser: argparse.ArgumentParser) -> None:
    """Add options of other tools' builds, hidden from the help."""
    for name, number in _BUILD_ACCEPTED.items():
        parser.add_argument(name, action=_Accepted, nargs=number, **_HIDDEN)
    _refuse_all(parser, _BUILD_WITH_VALUE, _BUILD_SWITCHES)


def add_foreign(parser: argparse.ArgumentParser) -> None:
    """Add the options of other tools, hidden from the help."""
    for name in _ACCEPTED:
        parser.add_argument(name, action=_Accepted, nargs=0, **_HIDDEN)
    parser.add_argument("--gpus", action=_NoEffect, **_HIDDEN)
    parser.add_argument("-e", "--env", action=_Variable, **_HIDDEN)
    _refuse_all(parser, _WITH_VALUE, _SWITCHES)


def _refuse_all(
    parser: argparse.ArgumentParser,
    with_value: Mapping[tuple[str, ...], str],
    switches: Mapping[tuple[str, ...], str],
) -> None:
    """Add options that are refused, each with its counterpart (refuse_foreign)."""
    parser.set_defaults(foreign_options=())
    for names, instead in with_value.items():
        parser.add_argument(*names, action=_Refused, const=instead, **_HIDDEN)
    for names, instead in switches.items():
        parser.add_argument(*names, action=_Refused, const=instead, nargs=0, **_HIDDEN)


class _Refused(argparse.Action):
    """An option that is refused once all are read, with its counterpart (refuse_foreign)."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option: str | None = None,
    ) -> None:
        found = _Foreign(self.option_strings[0], option or "", self.instead(values), str(values))
        namespace.foreign_options = (*namespace.foreign_options, found)

    def instead(self, values: object) -> str:
        return str(self.const).replace("{}", _quoted(values), 1)


class _Accepted(argparse.Action):
    def __call__(self, *_found: object) -> None:
        """Change nothing."""


class _Variable(_Refused):
    def instead(self, values: object) -> str:
        name, equals, value = str(values).partition("=")
        return f"in the environment file, below [env]: {name} = " + _quoted(
            value if equals else f"${{{name}}}"
        )


class _Foreign(NamedTuple):
    """An option with its first spelling, as it was written, and what to write instead."""

    name: str
    written: str
    instead: str
    value: str


def refuse_foreign(arguments: argparse.Namespace, words: Sequence[str] | None = None) -> int:
    """Report each foreign option, with what to write instead; return the exit code, 0 without any.

    The hint is a command line with the same effect, if there is one. `words` is the rest of the
    command line, which follows the options; None for a verb without add_container_options, in which
    such a line could not be written.
    """
    found: Sequence[_Foreign] = arguments.foreign_options
    if not found:
        return 0
    blocks = [block("error", _message(arguments.verb, one), None) for one in found]
    hint = None if words is None else _same(found, arguments, words) or None
    blocks[-1] = block("error", _message(arguments.verb, found[-1]), hint)
    messages.say("".join(blocks))
    return messages.USAGE


def _message(verb: str, option: _Foreign) -> str:
    return f"{verb}: {option.written}: {option.instead}"


def _same(found: Sequence[_Foreign], arguments: argparse.Namespace, words: Sequence[str]) -> str:
    """Return a command line that needs no file, "" if one of the options has no counterpart.

    Variables are named by --container-env, because the image's would win over the shell's.
    """
    first, mounts, before, options, names = [], [], [], [], []
    for one in found:
        if one.name == "-v" and one.value.startswith(("/", "~")):
            mounts.append(one.value)
        elif one.name == "-w":
            options.append(f"--container-workdir={one.value}")
        elif one.name == "--env-file":
            first.append(f"set -a; . {shlex.quote(_sourced(one.value))}; set +a;")
            names += _names_in(one.value) or ["NAME,…"]
        elif one.name == "-e":
            before += [one.value] if "=" in one.value else []
            names.append(one.value.partition("=")[0])
        else:
            return ""
    if mounts:
        options.insert(0, f"--container-mounts={','.join(mounts)}")
    if names:
        options.append(f"--container-env={','.join(dict.fromkeys(names))}")
    if arguments.image is not None:
        options.insert(0, f"--container-image={arguments.image}")
    rest = [f"ce {arguments.verb}", *map(shlex.quote, options), *map(shlex.quote, words)]
    return "for this once: " + " ".join([*first, *map(_assignment, before), *rest])


def _sourced(file: str) -> str:
    """Return the path of a file as the shell's `.` takes it, which looks for names in PATH."""
    return file if "/" in file else f"./{file}"


def _names_in(file: str) -> list[str]:
    """Return the names that an env file sets, none if it cannot be read."""
    try:
        # reading a pipe would take its text from the caller, or wait forever
        if not os.path.isfile(file):
            return []
        with open(file, encoding="utf-8", errors="replace") as opened:
            return _NAME_IN_FILE.findall(opened.read())
    except (OSError, ValueError):
        return []


def _assignment(text: str) -> str:
    name, _equals, value = text.partition("=")
    return f"{name}={shlex.quote(value)}"


class _NoEffect(argparse.Action):
    def __call__(
        self, _parser: object, _found: object, _values: object, option: str | None = None
    ) -> None:
        text = f"{option}: no effect; the GPUs of an environment are {_GPUS} in its file"
        messages.say(warning_text(text))


def _quoted(value: object) -> str:
    return json.dumps(str(value), ensure_ascii=False)

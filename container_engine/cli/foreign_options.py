"""Options that users of other tools give to `ce run` and `ce shell`.

Some describe what is always so, and are accepted. The others belong in the environment file: their
error shows what to write there.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from container_engine import message_text
from container_engine.cli import messages

USAGE = 2
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
    ("--name",): "containers have no names; ce ps lists your running steps",
    ("-u", "--user"): "you are yourself in the container; to appear as root, in the environment"
    ' file: annotations.com.ce.root_remap = "true"',
}
_SWITCHES = {
    ("-d", "--detach"): "a container ends with its command; to run in the background: sbatch",
    ("--privileged",): "a container never has more rights than you",
    ("--nv",): f"in the environment file: {_GPUS}",
    ("--rocm",): 'in the environment file: devices = ["amd.com/gpu=all"]',
}


def add_foreign(parser: argparse.ArgumentParser) -> None:
    """Add the options, hidden from the help."""
    hidden: dict[str, Any] = {"dest": argparse.SUPPRESS, "help": argparse.SUPPRESS}
    for name in _ACCEPTED:
        parser.add_argument(name, action="store_true", **hidden)
    parser.add_argument("--gpus", action=_NoEffect, **hidden)
    parser.add_argument("-e", "--env", action=_Variable, **hidden)
    for names, instead in _WITH_VALUE.items():
        parser.add_argument(*names, action=_Refused, const=instead, **hidden)
    for names, instead in _SWITCHES.items():
        parser.add_argument(*names, action=_Refused, const=instead, nargs=0, **hidden)


class _Refused(argparse.Action):
    """An option that ends with an error, which shows its counterpart."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        _found: object,
        values: object,
        option: str | None = None,
    ) -> None:
        verb = parser.prog.partition(" ")[2]
        message = f"{verb}: {option}: {self.instead(values)}"
        messages.say(message_text.block("error", message, None))
        sys.exit(USAGE)

    def instead(self, values: object) -> str:
        return str(self.const).replace("{}", _quoted(values), 1)


class _Variable(_Refused):
    def instead(self, values: object) -> str:
        name, equals, value = str(values).partition("=")
        return f"in the environment file, below [env]: {name} = " + _quoted(
            value if equals else f"${{{name}}}"
        )


class _NoEffect(argparse.Action):
    def __call__(
        self, _parser: object, _found: object, _values: object, option: str | None = None
    ) -> None:
        text = f"{option}: no effect; the GPUs of an environment are {_GPUS} in its file"
        messages.say(message_text.of_warning(text))


def _quoted(value: object) -> str:
    return json.dumps(str(value), ensure_ascii=False)

"""`ce completion SHELL`: print the script with which a shell completes `ce` command lines."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from container_engine.cli import output, shells
from container_engine.cli.parser import build
from container_engine.cli.verbs import VERBS
from container_engine.submit.names import environments

if TYPE_CHECKING:
    from container_engine.submit.context import Context

SHELLS = {"bash": shells.bash, "zsh": shells.zsh, "fish": shells.fish}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shell", metavar="SHELL", nargs="?", choices=tuple(SHELLS), help="bash, zsh or fish"
    )
    # used by the completion scripts
    parser.add_argument("--environments", action="store_true", help=argparse.SUPPRESS)


def execute(arguments: argparse.Namespace, context: Context) -> int:
    if arguments.environments:
        output.exact(b"".join(os.fsencode(f"{name}\n") for name, _file in environments(context)))
    else:
        output.exact(SHELLS[arguments.shell or "bash"](commands()).encode())
    return 0


def commands() -> tuple[shells.Command, ...]:
    """Return every verb with its options and arguments, as the parser defines them."""
    parsers = next(a for a in build(VERBS)._actions if a.dest == "verb")  # noqa: SLF001
    choices = parsers.choices
    assert isinstance(choices, dict)
    return tuple(_command(name, choices[name]) for name in VERBS)


def _command(name: str, parser: argparse.ArgumentParser) -> shells.Command:
    options, words = [], []
    for action in parser._actions:  # noqa: SLF001
        if action.help == argparse.SUPPRESS:
            continue
        if action.option_strings:
            value = None if action.nargs == 0 else _value(action)
            options.append(shells.Option(tuple(action.option_strings), _text(action), value))
        else:
            words.append((_value(action), action.nargs in ("*", "+", "...")))
    kinds = tuple(kind for kind, _many in words)
    return shells.Command(name, VERBS[name].help, tuple(options), kinds, _repeats(words))


def _repeats(words: list[tuple[shells.Value, bool]]) -> bool:
    return bool(words) and words[-1][1]


def _text(action: argparse.Action) -> str:
    return (action.help or "").partition(";")[0].partition(" (")[0]


def _value(action: argparse.Action) -> shells.Value:
    if action.choices is not None:
        return shells.Value("words", tuple(map(str, action.choices)))
    about = action.help or ""
    if "environment" in about and action.dest in ("name", "names", "other"):
        return shells.Value("environment")
    is_file = str(action.metavar).startswith(("FILE", "SOURCE"))
    return shells.Value("file" if is_file else "any")

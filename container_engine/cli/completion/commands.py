"""The verbs and their arguments, as the parser defines them, for the completion scripts."""

from __future__ import annotations

import argparse

from container_engine.cli.command_line.parser import build
from container_engine.cli.command_line.verb_table import VERBS
from container_engine.cli.completion.model import Command, Kind, Option, Value
from container_engine.faults.catalogue import FAULTS
from container_engine.tools.help.pages import TOPICS

# arguments of a verb that name something that ce can list
_LISTED: dict[tuple[str, str], Kind] = {
    ("exec", "step"): "step",
    ("hooks", "names"): "hook",
    ("import", "image"): "source",
    ("import", "name"): "image",
    ("inspect", "name"): "named",
    ("pull", "image"): "image",
    ("report", "job"): "trace",
    ("rmi", "images"): "image",
    ("run", "environment"): "environment",
    ("save", "step"): "step",
    ("scan", "name"): "named",
    ("ssh", "job"): "step",
    ("ssh-config", "job"): "step",
    ("trace", "step"): "trace",
}
# beginnings of metavars that are files and directories, or a command that may name some
_FILES = ("COMMAND", "CONTEXT", "DIR", "FILE", "IMAGE.sqsh", "SOURCE")


def commands() -> tuple[Command, ...]:
    """Return every verb with its options and arguments, as the parser defines them."""
    parsers = next(a for a in build(VERBS)._actions if a.dest == "verb")  # noqa: SLF001
    choices = parsers.choices
    assert isinstance(choices, dict)
    return tuple(_command(name, choices[name]) for name in VERBS)


def _command(name: str, parser: argparse.ArgumentParser) -> Command:
    options, words = [], []
    for action in parser._actions:  # noqa: SLF001
        if action.help == argparse.SUPPRESS:
            continue
        if action.option_strings:
            value = None if action.nargs == 0 else _value(name, action)
            options.append(Option(tuple(action.option_strings), _text(action), value))
        else:
            words.append((_value(name, action), action.nargs in ("*", "+", "...")))
    kinds = tuple(kind for kind, _many in words)
    return Command(name, VERBS[name].help, tuple(options), kinds, _repeats(words))


def _repeats(words: list[tuple[Value, bool]]) -> bool:
    return bool(words) and words[-1][1]


def _text(action: argparse.Action) -> str:
    return (action.help or "").partition(";")[0].partition(" (")[0]


def _value(verb: str, action: argparse.Action) -> Value:
    if action.choices is not None:
        return Value("words", tuple(map(str, action.choices)))
    if verb == "help":
        return Value("words", (*VERBS, *TOPICS, *FAULTS, "errors"))
    if (verb, action.dest) in _LISTED:
        return Value(_LISTED[verb, action.dest])
    if action.metavar == "REF":
        return Value("image")
    about = action.help or ""
    if "environment" in about and action.dest in ("name", "names", "other"):
        return Value("environment")
    return Value("file" if str(action.metavar).startswith(_FILES) else "any")

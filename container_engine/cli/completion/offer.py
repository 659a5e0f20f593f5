"""The words and files that a command line of `ce` may go on with, for shells.

A user waits for it: only the parser of the verb in the line is built, and each kind of name imports
what it needs.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from itertools import dropwhile
from typing import Literal, NamedTuple

from container_engine.cli.command_line.parser import build, of_verb
from container_engine.cli.command_line.verb_table import verbs
from container_engine.printing import output
from container_engine.submit.context import Context

# What the shell adds: nothing, files *.toml and directories, any files. Where anything may stand,
# bash offers files, as it does for any program.
Files = Literal["names", "environments", "files", "anything"]

# arguments of a verb that name something that ce can list
_LISTED = {
    ("diff", "name"): "compared",
    ("diff", "other"): "compared",
    ("exec", "step"): "step",
    ("hooks", "names"): "hook",
    ("import", "image"): "source",
    ("import", "name"): "image",
    ("inspect", "name"): "named",
    ("pull", "image"): "image",
    ("push", "image"): "source",
    ("report", "job"): "trace",
    ("rmi", "images"): "image",
    ("run", "environment"): "environment",
    ("save", "step"): "step",
    ("scan", "name"): "named",
    ("replay", "step"): "trace",
    ("trace", "step"): "trace",
}
# beginnings of metavars that are files and directories, or a command that may name some
_FILES = ("COMMAND", "CONTEXT", "DIR", "FILE", "IMAGE.sqsh", "SOURCE")


class Offer(NamedTuple):
    """Candidates, each with what it is, or nothing; and the files that the shell adds."""

    candidates: Iterable[tuple[str, str]]
    files: Files = "names"


def complete(line: Sequence[str], context: Context) -> int:
    """Print which files the shell adds, then each candidate, with what it is behind a tab."""
    found = offer(line, context)
    lines = [found.files, *(f"{name}\t{about}".rstrip("\t") for name, about in found.candidates)]
    output.exact(b"".join(os.fsencode(f"{line}\n") for line in lines))
    return 0


def offer(line: Sequence[str], context: Context) -> Offer:
    """Return what the last word of `line`, all of it behind `ce`, may become."""
    *before, word = _joined(line)
    known = verbs()
    behind = list(dropwhile(lambda word: word not in known, before))
    if not behind:
        options = {"-h": "show help", "--help": "show help", "--version": "print the version"}
        described = {name: verb.help for name, verb in known.items()}
        return Offer((options if word.startswith("-") else described).items())
    verb, *given = behind
    parser = of_verb(build([verb]), verb)
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]  # noqa: SLF001
    options_of = {name: action for action in shown for name in action.option_strings}
    name, equals, value = word.partition("=")
    names_given, open_option, is_command = _read(given, options_of, shown)
    if is_command:
        return Offer((), "files")
    if open_option is not None:
        return _values(verb, open_option, word, names_given, context)
    if equals and name in options_of:
        return _values(verb, options_of[name], value, names_given, context)
    if word.startswith("-"):
        return Offer((name, _about(action)) for name, action in options_of.items())
    action = _place(shown, len(names_given))
    return Offer(()) if action is None else _values(verb, action, word, names_given, context)


def _joined(words: Iterable[str]) -> list[str]:
    """Join what bash takes apart at = and at a colon."""
    joined: list[str] = []
    is_apart = False
    for word in words:
        if joined and (is_apart or word in ("=", ":")):
            joined[-1] += word
        else:
            joined.append(word)
        is_apart = word in ("=", ":")
    return joined


def _read(
    given: Iterable[str],
    options: dict[str, argparse.Action],
    shown: Sequence[argparse.Action],
) -> tuple[list[str], argparse.Action | None, bool]:
    """Return the names among the words, the option whose value is next, and if a command is."""
    found: list[str] = []
    waiting: argparse.Action | None = None
    for word in given:
        if waiting is not None:
            waiting = None
        elif word == "--":
            return found, None, True
        elif word.startswith("-"):
            option = options.get(word)
            waiting = option if option is not None and option.nargs != 0 else None
        else:
            found.append(word)
            action = _place(shown, len(found) - 1)
            if action is not None and action.nargs == argparse.REMAINDER:
                return found, None, True
    return found, waiting, False


def _place(shown: Iterable[argparse.Action], place: int) -> argparse.Action | None:
    """Return the argument at this place; the last one may be repeated."""
    places = [action for action in shown if not action.option_strings]
    if places and place >= len(places) and places[-1].nargs in ("*", "+", argparse.REMAINDER):
        return places[-1]
    return places[place] if place < len(places) else None


def _about(action: argparse.Action) -> str:
    return (action.help or "").partition(";")[0].partition(" (")[0]


def _values(
    verb: str, action: argparse.Action, word: str, given: Sequence[str], context: Context
) -> Offer:
    """Return the values of an argument or option of which `word` is the beginning."""
    if action.choices is not None:
        return Offer((str(choice), "") for choice in action.choices)
    if verb == "help":
        from container_engine.faults.catalogue import FAULTS
        from container_engine.tools import help_pages

        written = help_pages.files(context.prefix, verbs())
        topics = dict.fromkeys((*verbs(), *help_pages.TOPICS, *FAULTS, "errors", *written))
        return Offer((topic, "") for topic in topics)
    kind = _LISTED.get((verb, action.dest))
    if action.metavar == "REF":
        kind = "image"
    elif "environment" in (action.help or "") and action.dest in ("name", "names", "other"):
        kind = kind or "environment"
    elif action.metavar == "JOB":
        kind = kind or "step"
    if kind is None:
        is_file = str(action.metavar).startswith(_FILES)
        return Offer((), "files" if is_file else "anything")
    about = given[0] if given and kind == "hook" else word
    found = [(name, "") for name in _names(kind, about, context)]
    if kind in ("compared", "environment", "hook", "named"):
        return Offer(found, "environments")
    return Offer(found, "files" if kind == "source" and not word.startswith("podman") else "names")


def _names(kind: str, word: str, context: Context) -> Iterable[str]:
    """Return the names of this kind; `word` follows the verb.

    What Podman has is asked for only where somebody writes podman://, as that takes a while.
    """
    if kind == "hook" and word == "explain":
        kind = "environment"
    if kind == "hook":
        return _hooks(context) if word in ("show", "test") else ()
    if kind in ("step", "trace"):
        return _steps(kind, context)
    if kind == "source" and word.startswith("podman"):
        return _podmans(context)
    found = [] if kind in ("image", "source") else _environments(context)
    if kind == "compared":
        found += _steps("trace", context)
    return found + (_images(context) if kind in ("image", "named", "source") else [])


def _environments(context: Context) -> list[str]:
    from container_engine.submit.environment_names import environments

    return [name for name, _file in environments(context)]


def _hooks(context: Context) -> list[str]:
    from container_engine.submit.environment import site_here

    return sorted(site_here(context).hooks)


def _steps(kind: str, context: Context) -> Iterable[str]:
    from container_engine.tools import running_steps, step_traces

    if kind == "step":
        return [step.id for step in running_steps.running(context)]
    return step_traces.steps(running_steps.trace_directory(context), context.uid)


def _podmans(context: Context) -> list[str]:
    from container_engine.base.errors import CeError
    from container_engine.tools.podman_storage import images

    try:
        return [f"podman://{image.name}" for image in images(context.env, context.uid)]
    except CeError:
        return []


def _images(context: Context) -> list[str]:
    from container_engine.images.reference import familiar
    from container_engine.images.store.inventory import items
    from container_engine.submit.context import places
    from container_engine.submit.stores import stores

    roots = [store.root for store in stores(context, places(context)).all()]
    return sorted({familiar(name) for root in roots for i in items(root) for name in i.names})

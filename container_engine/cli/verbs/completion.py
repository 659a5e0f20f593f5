"""`ce completion SHELL`: print the script with which a shell completes `ce` command lines.

The scripts ask it for names while a user waits for them, so each kind imports what it needs.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from container_engine.cli.command_line.parser import build
from container_engine.cli.command_line.verb_table import VERBS
from container_engine.cli.completion import scripts
from container_engine.cli.printing import output
from container_engine.cli.verbs.help import TOPICS
from container_engine.faults.catalogue import FAULTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from container_engine.submit.context import Context

SHELLS = {"bash": scripts.bash, "zsh": scripts.zsh, "fish": scripts.fish}
SLURM = {"bash": scripts.bash_slurm, "zsh": scripts.zsh_slurm, "fish": scripts.fish_slurm}
# arguments of a verb that name something that ce can list
_LISTED: dict[tuple[str, str], scripts.Kind] = {
    ("exec", "step"): "step",
    ("hooks", "names"): "hook",
    ("inspect", "name"): "named",
    ("pull", "image"): "image",
    ("report", "job"): "trace",
    ("rmi", "images"): "image",
    ("run", "environment"): "environment",
    ("run", "image"): "image",
    ("save", "step"): "step",
    ("scan", "name"): "named",
    ("shell", "image"): "image",
    ("ssh", "job"): "step",
    ("ssh-config", "job"): "step",
    ("trace", "step"): "trace",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shell", metavar="SHELL", nargs="?", choices=tuple(SHELLS), help="bash, zsh or fish"
    )
    parser.add_argument(
        "--slurm",
        action="store_true",
        help="only srun, sbatch and salloc, for a file that shells read when they start",
    )
    # used by the completion scripts
    parser.add_argument("--list", metavar="KIND", help=argparse.SUPPRESS)


def execute(arguments: argparse.Namespace, context: Context) -> int:
    shell = arguments.shell or "bash"
    if arguments.list is not None:
        kind, _colon, word = arguments.list.partition(":")
        output.exact(b"".join(os.fsencode(f"{name}\n") for name in _names(kind, word, context)))
    else:
        text = SLURM[shell]() if arguments.slurm else SHELLS[shell](commands())
        output.exact(text.encode())
    return 0


def _names(kind: str, word: str, context: Context) -> Iterable[str]:
    """Return the names of this kind; `word` follows the verb."""
    if kind == "hook" and word == "explain":
        kind = "environment"
    if kind == "hook":
        return _hooks(context) if word in ("show", "test") else ()
    if kind in ("step", "trace"):
        return _steps(kind, context)
    found = [] if kind == "image" else _environments(context)
    return found + (_images(context) if kind in ("image", "named") else [])


def _environments(context: Context) -> list[str]:
    from container_engine.submit.environment_names import environments

    return [name for name, _file in environments(context)]


def _hooks(context: Context) -> list[str]:
    from container_engine.submit.environment import offered

    return sorted(offered(context).hooks)


def _steps(kind: str, context: Context) -> Iterable[str]:
    from container_engine.cli.jobs import running_steps
    from container_engine.trace import record

    if kind == "step":
        return [step.id for step in running_steps.running(context)]
    return record.steps(running_steps.trace_directory(context), context.uid)


def _images(context: Context) -> list[str]:
    from container_engine.cli.verbs import images
    from container_engine.images.store.inventory import items
    from container_engine.submit.site import site_config
    from container_engine.submit.stores import stores

    roots = [store.root for store in stores(context, site_config(context)).all()]
    return sorted(
        {images.familiar(name) for root in roots for i in items(root) for name in i.names}
    )


def commands() -> tuple[scripts.Command, ...]:
    """Return every verb with its options and arguments, as the parser defines them."""
    parsers = next(a for a in build(VERBS)._actions if a.dest == "verb")  # noqa: SLF001
    choices = parsers.choices
    assert isinstance(choices, dict)
    return tuple(_command(name, choices[name]) for name in VERBS)


def _command(name: str, parser: argparse.ArgumentParser) -> scripts.Command:
    options, words = [], []
    for action in parser._actions:  # noqa: SLF001
        if action.help == argparse.SUPPRESS:
            continue
        if action.option_strings:
            value = None if action.nargs == 0 else _value(name, action)
            options.append(scripts.Option(tuple(action.option_strings), _text(action), value))
        else:
            words.append((_value(name, action), action.nargs in ("*", "+", "...")))
    kinds = tuple(kind for kind, _many in words)
    return scripts.Command(name, VERBS[name].help, tuple(options), kinds, _repeats(words))


def _repeats(words: list[tuple[scripts.Value, bool]]) -> bool:
    return bool(words) and words[-1][1]


def _text(action: argparse.Action) -> str:
    return (action.help or "").partition(";")[0].partition(" (")[0]


def _value(verb: str, action: argparse.Action) -> scripts.Value:
    if action.choices is not None:
        return scripts.Value("words", tuple(map(str, action.choices)))
    if verb == "help":
        return scripts.Value("words", (*VERBS, *TOPICS, *FAULTS, "errors"))
    if (verb, action.dest) in _LISTED:
        return scripts.Value(_LISTED[verb, action.dest])
    about = action.help or ""
    if "environment" in about and action.dest in ("name", "names", "other"):
        return scripts.Value("environment")
    is_file = str(action.metavar).startswith(("FILE", "SOURCE"))
    return scripts.Value("file" if is_file else "any")

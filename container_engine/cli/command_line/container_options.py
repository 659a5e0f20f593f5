"""The options of pyxis, which `ce run`, `plan`, `validate` and others take as srun does.

Imports no models: `ce run` must start quickly.
"""

from __future__ import annotations

import argparse
from typing import Any

from container_engine.cli.command_line.verb_table import hint_without_name
from container_engine.compat.pyxis_names import OPTIONS, VARIABLES_COUNT
from container_engine.printing import messages


def add_container_options(parser: argparse.ArgumentParser, *, of_plugin: bool = False) -> None:
    """Add pyxis's options; those given are collected, as written, in `container_options`.

    The help has one line for all. With `of_plugin`, add the word VARIABLES_COUNT, too.
    """
    parser.set_defaults(container_options=())
    for name, placeholder in OPTIONS.items():
        keywords: dict[str, Any] = {"metavar": "…"} if placeholder else {"nargs": 0}
        shown = name == "container-image"
        parser.add_argument(
            f"--{name}",
            action=_Collected,
            dest=argparse.SUPPRESS,
            help="an image instead of an environment, or over its own; all other options of "
            "pyxis are taken, too (ce help pyxis)"
            if shown
            else argparse.SUPPRESS,
            **(keywords | ({"metavar": "REF"} if shown else {})),
        )
    if of_plugin:
        parser.add_argument(
            VARIABLES_COUNT,
            action=_Collected,
            nargs=0,
            dest=argparse.SUPPRESS,
            help=argparse.SUPPRESS,
        )


def refuse_nothing(verb: str) -> int:
    """Report a command line with neither an environment nor an image; return its exit code."""
    return messages.refuse(f"{verb}: NAME is missing", hint_without_name(verb))


def names_image(arguments: argparse.Namespace) -> bool:
    """Check whether an option names an image, so that no environment is needed."""
    return any(word.startswith("--container-image=") for word in arguments.container_options)


class _Collected(argparse.Action):
    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option: str | None = None,
    ) -> None:
        name = self.option_strings[0]
        word = name if option is None or self.nargs == 0 else f"{name}={values}"
        namespace.container_options = (*namespace.container_options, word)

"""Options that several verbs have: those of pyxis, --pull and --show-secrets, and the shell.

Imports no models: `ce run` must start quickly.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from container_engine.cli.command_line.verb_table import hint_without_name
from container_engine.compat.pyxis_names import OPTIONS, VARIABLES_COUNT
from container_engine.images.reference import Pull
from container_engine.printing import messages

if TYPE_CHECKING:
    from container_engine.base.secrecy import Secrecy
    from container_engine.submit.context import Context

# bash if the image has it
SHELL = ("sh", "-c", "command -v bash >/dev/null && exec bash -i; exec sh -i")


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


def add_arch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--platform",
        "--arch",
        dest="arch",
        metavar="ARCH",
        type=arch_of,
        help="amd64, arm64, linux/arm64; default: the compute nodes'",
    )


def arch_of(text: str) -> str:
    """Return the architecture in an option, which may be a platform as Docker names it.

    Raise argparse.ArgumentTypeError.
    """
    from container_engine.oci.architecture import KNOWN, architecture_named  # few verbs need it

    arch = text.removeprefix("linux/")
    if architecture_named(arch) not in KNOWN:
        raise argparse.ArgumentTypeError(f"'{text}' is no architecture: amd64, arm64, linux/arm64")
    return arch


def add_pull(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    parser.add_argument(
        "--pull",
        metavar="WHEN",
        choices=[*map(str, Pull)],
        default=default,
        help="ask the registry: always, if the image is missing, never, or by age of the last "
        f"answer ({default or 'age, if CE_PULL does not say otherwise'})",
    )


def add_show_secrets(parser: argparse.ArgumentParser) -> None:
    """Add the option of all verbs that print variables, whose secrets are hidden by default."""
    parser.add_argument(
        "--show-secrets",
        action="store_true",
        help="also values of variables whose names say that they are secret",
    )


def secrecy(arguments: argparse.Namespace, context: Context, words: Sequence[str]) -> Secrecy:
    """Return what to hide; `words` are the site's patterns for secret names."""
    from container_engine.base.secrecy import Secrecy  # `ce run` prints no variables

    usual = Secrecy(tuple(words), shows=arguments.show_secrets)
    return usual.knowing(context.env.items())


def has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()

"""Options that several verbs have, --pull and --show-secrets, and the shell without a command.

Imports no models: `ce run` must start quickly.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from container_engine.images.reference import Pull

if TYPE_CHECKING:
    from container_engine.base.secrecy import Secrecy
    from container_engine.submit.context import Context


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


# bash if the image has it
SHELL = ("sh", "-c", "command -v bash >/dev/null && exec bash -i; exec sh -i")


def has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()

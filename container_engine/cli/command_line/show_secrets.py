"""The option --show-secrets of all verbs that print variables; secrets are hidden by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.secrecy import Secrecy

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from container_engine.submit.context import Context


def add_show_secrets(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--show-secrets",
        action="store_true",
        help="also values of variables whose names say that they are secret",
    )


def secrecy(arguments: argparse.Namespace, context: Context, words: Sequence[str]) -> Secrecy:
    """Return what to hide; `words` are the site's patterns for secret names."""
    usual = Secrecy(tuple(words), shows=arguments.show_secrets)
    return usual.knowing(context.env.items())

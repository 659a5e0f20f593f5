"""The option --pull, which several verbs have. Imports no models: `ce run` must start quickly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.images.pull_policy import Pull

if TYPE_CHECKING:
    import argparse


def add_pull(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    parser.add_argument(
        "--pull",
        metavar="WHEN",
        choices=[*map(str, Pull)],
        default=default,
        help="ask the registry: always, if the image is missing, never, or by age of the last "
        f"answer ({default or 'age, if CE_PULL does not say otherwise'})",
    )

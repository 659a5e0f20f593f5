"""`ce schema FORMAT`: print the JSON Schema of a format, made from the model that reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.cli import output
from container_engine.schemas import render

if TYPE_CHECKING:
    import argparse

    from pydantic import BaseModel

    from container_engine.submit.context import Context

FORMATS = (
    *("config", "diff", "edf", "explain", "gc", "hook", "images", "lint", "lock", "locks"),
    *("plan", "ps", "store", "trace", "version"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "format",
        metavar="FORMAT",
        choices=FORMATS,
        help="config: config.toml; edf: an environment; hook: hook.toml; lock: what 'ce lock' "
        "writes; locks: what it prints with --json; all others: what the verb of this name prints"
        " with --json",
    )


def execute(arguments: argparse.Namespace, context: Context) -> int:  # noqa: ARG001
    output.exact(render(_model(arguments.format)).encode())
    return 0


def _model(name: str) -> type[BaseModel]:
    from container_engine.catalog.schema import MODELS as HOOK
    from container_engine.cli.schema_lists import MODELS as LISTS
    from container_engine.edf.schema import MODELS as EDF
    from container_engine.images.schema import MODELS as IMAGES
    from container_engine.plan.schema import MODELS as OTHERS

    models: dict[str, type[BaseModel]] = {**EDF, **HOOK, **IMAGES, **LISTS, **OTHERS}
    return models[f"{name}.json"]

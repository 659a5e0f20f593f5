"""`ce schema FORMAT`: print the JSON Schema of a format, made from the model that reads it."""

from __future__ import annotations

import argparse

from container_engine.base.model import Model, schema_text
from container_engine.printing import output
from container_engine.submit.context import Context

FORMATS = (
    *("config", "diff", "edf", "explain", "gc", "hook", "images", "lint", "lock", "locks"),
    *("plan", "ps", "run", "store", "trace", "version", "vet"),
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
    output.exact(schema_text(models()[arguments.format]).encode())
    return 0


def models() -> dict[str, type[Model]]:
    """Return the model of each format."""
    from container_engine.catalog.model import HookFile
    from container_engine.edf.document import Document
    from container_engine.images.lock_file import Lock
    from container_engine.plan.model import LaunchPlan
    from container_engine.printing.json_models import MODELS
    from container_engine.site.model import SiteConfig

    return {
        "config": SiteConfig,
        "edf": Document,
        "hook": HookFile,
        "lock": Lock,
        "plan": LaunchPlan,
        **MODELS,
    }

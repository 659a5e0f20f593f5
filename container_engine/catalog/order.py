"""Decides the order in which hooks are applied. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from container_engine.catalog.load import Hook
    from container_engine.catalog.model import HookFile


def applied_before(data: HookFile) -> dict[str, tuple[str, ...]]:
    """Return the hooks that are applied before the hook with this data, by the key naming them."""
    return {"implies": data.implies, "after": data.after, "requires.hooks": data.requires.hooks}


def in_order(hooks: Mapping[str, Hook]) -> list[str]:
    """Return the names of the hooks as they are applied: by what goes before each, then by name.

    A cycle is a fault of the catalog, which plan/catalog_faults.py reports.
    """
    ordered: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in ordered or name in above:
            return
        before = {other for named in applied_before(hooks[name].data).values() for other in named}
        for other in sorted(before & hooks.keys()):
            visit(other, (*above, name))
        ordered.append(name)

    for name in sorted(hooks):
        visit(name, ())
    return ordered

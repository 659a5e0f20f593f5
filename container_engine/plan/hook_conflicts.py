"""Finds hooks that edit the same thing, since neither of two may win by chance. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from container_engine.plan.model import HookUse


class Overlap(NamedTuple):
    one: str
    other: str
    what: str


def overlaps(uses: Sequence[HookUse]) -> Iterator[Overlap]:
    """Yield pairs of hooks that edit one path, variable or service differently.

    Equal edits are no overlap.
    """
    seen: dict[str, tuple[str, object]] = {}
    for use in uses:
        for what, edit in _edits(use):
            name, before = seen.setdefault(what, (use.name, edit))
            if name != use.name and before != edit:
                yield Overlap(name, use.name, what)


def _edits(use: HookUse) -> Iterator[tuple[str, object]]:
    for mount in use.mounts:
        yield f"the path {mount.target or mount.source}", (mount.source, sorted(mount.options))
    for device in use.devices:
        yield f"the device {device.path}", sorted(device.permissions)
    for name, value in use.env.items():
        yield f"the variable {name}", value
    for service in use.services:
        yield f"the service {service.name}", service.command

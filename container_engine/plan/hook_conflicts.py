"""Finds hooks that edit the same thing, since neither of two may win by chance. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from container_engine.plan.model import HookUse

_WILDCARD = re.compile(r"[*?[]")


class Overlap(NamedTuple):
    one: str
    other: str
    what: str


def overlaps(uses: Sequence[HookUse]) -> Iterator[Overlap]:
    """Yield pairs of hooks that edit one path, variable or service differently.

    Equal edits are no overlap, nor are those of hooks that never apply in the same step.
    """
    seen: dict[str, list[tuple[HookUse, object]]] = {}
    for use in uses:
        for what, edit in _edits(use):
            others = seen.setdefault(what, [])
            for other, before in others:
                if other.name != use.name and before != edit and not _exclusive(other, use):
                    yield Overlap(other.name, use.name, what)
                    break
            others.append((use, edit))


def _exclusive(one: HookUse, other: HookUse) -> bool:
    """Check whether the conditions of two automatic hooks are known to exclude each other."""
    if not one.automatic_when or not other.automatic_when:
        return False
    return all(_contrary(a, b) for a in one.automatic_when for b in other.automatic_when)


def _contrary(one: str, other: str) -> bool:
    """Check whether two conditions want different values of one variable.

    Of patterns, only the text before the first wildcard is compared.
    """
    name, _, value = one.partition("=")
    other_name, _, other_value = other.partition("=")
    if name != other_name or "=" not in one or "=" not in other:
        return False
    head, other_head = (_WILDCARD.split(text)[0] for text in (value, other_value))
    if (head, other_head) == (value, other_value):
        return value != other_value
    return not head.startswith(other_head) and not other_head.startswith(head)


def _edits(use: HookUse) -> Iterator[tuple[str, object]]:
    for mount in use.mounts:
        yield f"the path {mount.target or mount.source}", (mount.source, sorted(mount.options))
    for device in use.devices:
        yield f"the device {device.path}", sorted(device.permissions)
    for name, value in use.env.items():
        yield f"the variable {name}", value
    for service in use.services:
        yield f"the service {service.name}", service.command

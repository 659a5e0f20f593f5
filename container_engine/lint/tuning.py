"""Tuning variables copied by hand although a hook has a profile of them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.catalog.profiles import CURRENT, HOOK, IS_APPLIED, PROFILES, active
from container_engine.lint.subject import advice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.edf.model import EnvEntry, Problem
    from container_engine.lint.subject import Subject

_PLUGIN = "NCCL_NET_PLUGIN"


def tuning(subject: Subject) -> Iterator[Problem]:
    """Lines that repeat or contradict the active profile, and what breaks the hook's plugin."""
    profile = active({entry.key: entry.value for entry in subject.edf.annotations})
    if profile is None:
        return
    for entry in subject.edf.env:
        if entry.name == _PLUGIN and entry.value != "":
            message = f"keeps NCCL from loading the plugin that {HOOK} puts into the container"
            yield advice(entry.origin, f"env.{entry.name}", message, "remove the line")
        elif entry.name in PROFILES[profile]:
            yield _compared(entry, profile)


def _compared(entry: EnvEntry, profile: str) -> Problem:
    wanted = PROFILES[profile][entry.name]
    key = f"env.{entry.name}"
    if entry.value == wanted:
        message = f"repeats '{wanted}' of the profile {profile} of {HOOK}"
        return advice(entry.origin, key, message, _remove("the profile follows the network"))
    older = next((name for name, values in PROFILES.items() if _is_in(entry, values, name)), None)
    came_from = f", it is that of {older}" if older else ""
    found = f"'{entry.value}'" if isinstance(entry.value, str) else "the value"
    message = f"{found} contradicts '{wanted}' of the profile {profile} of {HOOK}{came_from}"
    return advice(entry.origin, key, message, _remove("keep it only if you measured that it helps"))


def _is_in(entry: EnvEntry, values: object, name: str) -> bool:
    return name != CURRENT and isinstance(values, dict) and values.get(entry.name) == entry.value


def _remove(why: str) -> str:
    if IS_APPLIED:
        return f"remove the line, {why}"
    return f"once launches set the profile the line can go, {why}"

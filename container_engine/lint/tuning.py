"""Advises on tuning variables set by hand although a hook sets them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.lint.subject import advice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.edf.model import EnvEntry, Problem
    from container_engine.lint.subject import Subject
    from container_engine.plan.model import HookUse

_PLUGIN = "NCCL_NET_PLUGIN"
_PLUGINS_HOOK = "aws_ofi_nccl"


def tuning(subject: Subject) -> Iterator[Problem]:
    """Warn of variables that repeat or contradict a hook's, or keep its plugin from loading."""
    for hook in subject.hooks:
        for entry in subject.edf.env:
            if hook.name == _PLUGINS_HOOK and entry.name == _PLUGIN and entry.value != "":
                message = f"keeps NCCL from loading the plugin that {_of(hook)} puts in place"
                yield advice(entry.origin, f"env.{entry.name}", message, "remove the line")
            elif hook.env.get(entry.name) is not None:
                yield _compared(entry, hook, subject)


def _compared(entry: EnvEntry, hook: HookUse, subject: Subject) -> Problem:
    wanted = hook.env[entry.name]
    key = f"env.{entry.name}"
    where = f"of the profile {hook.profile} of {_of(hook)}" if hook.profile else f"of {_of(hook)}"
    if entry.value == wanted:
        why = "the hook follows the network"
        return advice(entry.origin, key, f"repeats '{wanted}' {where}", f"remove the line, {why}")
    older = next(
        (
            name
            for name, values in subject.profiles.get(hook.name, {}).items()
            if name != hook.profile and values.get(entry.name) == entry.value
        ),
        None,
    )
    came_from = f", it is that of {older}" if older else ""
    found = f"'{entry.value}'" if isinstance(entry.value, str) else "the value"
    message = f"{found} contradicts '{wanted}' {where}{came_from}"
    hint = "remove the line, keep it only if you measured that it helps"
    return advice(entry.origin, key, message, hint)


def _of(hook: HookUse) -> str:
    return f"the hook {hook.name}"

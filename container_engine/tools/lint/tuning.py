"""Advises on tuning variables set by hand although a hook sets them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.edf.model import EnvEntry, Problem
    from container_engine.plan.model import HookUse
    from container_engine.tools.lint.subject import Subject

_PLUGIN = "NCCL_NET_PLUGIN"
_PLUGINS_HOOK = "aws_ofi_nccl"
_MEASURED = "keep it only if you measured that it helps"


def tuning(subject: Subject) -> Iterator[Problem]:
    """Warn of variables that repeat or contradict a hook's, or keep its plugin from loading."""
    for hook in subject.hooks:
        set_by_both = [entry for entry in subject.edf.env if hook.env.get(entry.name) is not None]
        yield from _repeated(
            [entry for entry in set_by_both if entry.value == hook.env[entry.name]], hook
        )
        for entry in subject.edf.env:
            if hook.name == _PLUGINS_HOOK and entry.name == _PLUGIN and entry.value != "":
                message = f"keeps NCCL from loading the plugin that {_of(hook)} puts in place"
                yield entry.origin.warning(f"env.{entry.name}", message, "remove the line")
            elif entry in set_by_both and entry.value != hook.env[entry.name]:
                yield _contradicting(entry, hook, subject)


def _repeated(entries: list[EnvEntry], hook: HookUse) -> Iterator[Problem]:
    """Yield one piece of advice, however many variables an environment has copied from a hook."""
    why = "the hook follows the network"
    if len(entries) == 1:
        (entry,) = entries
        message = f"repeats '{entry.value}' {_where(hook)}"
        yield entry.origin.warning(f"env.{entry.name}", message, f"remove the line, {why}")
    elif entries:
        as_written = sorted(entries, key=lambda entry: entry.origin.line)
        names = ", ".join(entry.name for entry in as_written)
        message = f"{len(entries)} variables repeat the values {_where(hook)}: {names}"
        yield as_written[0].origin.warning("env", message, f"remove the lines, {why}")


def _where(hook: HookUse) -> str:
    return f"of the profile {hook.profile} of {_of(hook)}" if hook.profile else f"of {_of(hook)}"


def _contradicting(entry: EnvEntry, hook: HookUse, subject: Subject) -> Problem:
    wanted = hook.env[entry.name]
    key = f"env.{entry.name}"
    where = _where(hook)
    if entry.value == "":
        message = f"removes '{wanted}' {where}"
        return entry.origin.warning(key, message, f"remove the line, {_MEASURED}")
    older = next(
        (
            name
            for name, values in subject.profiles(hook.name).items()
            if name != hook.profile and values.get(entry.name) == entry.value
        ),
        None,
    )
    came_from = f", it is that of {older}" if older else ""
    found = f"'{entry.value}'" if isinstance(entry.value, str) else "the value"
    message = f"{found} contradicts '{wanted}' {where}{came_from}"
    return entry.origin.warning(key, message, f"remove the line, {_MEASURED}")


def _of(hook: HookUse) -> str:
    return f"the hook {hook.name}"

"""Formats a hook for users: its data, and its effect in one plan. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from container_engine.base.run_check import RunCheck
from container_engine.base.text_layout import wrap
from container_engine.catalog.load import Hook
from container_engine.catalog.model import Check, Parameter
from container_engine.catalog.values import in_words
from container_engine.plan.model import HookUse

_LABEL_WIDTH, _INDENT = 13, 4
_ACTIONS = {
    "replace": "the node's, in place of the image's",
    "beside": "the node's, beside the image's libraries",
    "keep": "the image's own",
    "absent": "missing on node and image",
}


def show_hook(hook: Hook, columns: int | None = None) -> str:
    """Return a description of a hook for users and administrators, wrapped to `columns`."""
    data = hook.data
    rows = [("enabled by", f'{hook.switch} = "true"'), ("default", _default(hook))]
    rows += [("parameter", line) for name in data.parameters for line in _parameter(hook, name)]
    for name, value in data.settings.items():
        allowed = f", users may set {hook.annotation}.{name}" if name in data.allow else ""
        rows.append(("setting", f"{name} = {value}{allowed}"))
    for label, names in (
        ("implies", data.implies),
        ("conflicts", data.conflicts),
        ("applied after", data.after),
        ("needs", _needs(hook)),
    ):
        rows += [(label, ", ".join(names))] if names else []
    for profile, variables in data.profiles.items():
        active = ", active" if profile == data.profile else ""
        rows.append(("profile", f"{profile}: {len(variables)} variables{active}"))
    rows += [("check", f"{name}: {_check(check)}") for name, check in data.checks.items()]
    rows += [("file", file) for file in hook.files]
    title = wrap(f"{hook.name} {data.release}: {data.summary}", columns, _INDENT)
    lines = [*title, "", *_paragraphs(data.help.strip(), columns), "", *_layout(rows, columns)]
    return "".join(f"{line}\n" for line in lines)


def _paragraphs(text: str, columns: int | None) -> Iterator[str]:
    """Yield the lines of a text; where one is too long, wrap its paragraph again."""
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield ""
        lines = paragraph.split("\n")
        fits = columns is None or max(map(len, lines)) <= columns
        yield from lines if fits else wrap(" ".join(paragraph.split()), columns)


def show_use(use: HookUse, columns: int | None = None) -> str:
    """Return a description of the effect of one hook of a plan, wrapped to `columns`."""
    title = f"{use.name} {use.release}  # {use.reason}, {use.origin}"
    rest = None if columns is None else columns - _INDENT
    rows = (f"{'':{_INDENT}}{line}" for line in _layout(list(_edits(use)), rest))
    return "".join(f"{line}\n" for line in (*wrap(title, columns, _INDENT), *rows))


def show_libraries(decisions: Sequence[Mapping[str, Any]]) -> str:
    """Return which libraries this node would put into the image, and why."""
    if not decisions:
        return ""
    lines = ["\nlibraries on this node\n"]
    for decision in decisions:
        lines.append(f"    {decision['library']}: {_ACTIONS[decision['action']]}\n")
        lines.append(f"        {decision['reason']}\n")
        if decision["source"]:
            lines.append(f"        {decision['source']}\n")
            lines += [f"        -> {place}\n" for place in decision["places"]]
    return "".join(lines)


def _default(hook: Hook) -> str:
    if hook.data.turned_off:
        return "turned off at this site"
    where = " or ".join(hook.data.automatic_when)
    automatic = f"automatic, in steps that have the variable {where}" if where else "automatic"
    words = {"automatic": automatic, "required": "required, nobody can turn it off"}
    return words.get(hook.data.default, hook.data.default)


def _parameter(hook: Hook, name: str) -> Iterator[str]:
    parameter = hook.data.parameters[name]
    notes = f", default {parameter.default}" if parameter.default else ""
    notes += ", must be set" if parameter.required else ""
    yield f"{hook.annotation}.{name}: {_type(parameter)}{notes}"
    condition = f" (if {in_words(parameter.when)})" if parameter.when else ""
    yield f"    {parameter.help}{condition}"


def _type(parameter: Parameter) -> str:
    if parameter.values:
        return " | ".join(parameter.values)
    if parameter.values_in:
        return f"a name in {parameter.values_in}"
    return parameter.type.replace("_", " ")


def _needs(hook: Hook) -> list[str]:
    requires = hook.data.requires
    needs = [f"the hook {name}" for name in requires.hooks]
    needs += ["a writable container"] if requires.writable else []
    needs += [f"an image with {requires.libc}"] if requires.libc else []
    return needs


def _edits(use: HookUse) -> Iterator[tuple[str, str]]:
    yield from (("parameter", f"{name} = {value}") for name, value in use.parameters.items())
    for device in use.devices:
        yield "device", f"{device.path}{_optional(optional=device.optional)}"
    yield from (("cdi", name) for name in use.cdi)
    yield from (("cdi", f"{name}{_optional(optional=True)}") for name in use.cdi_if_there)
    for mount in use.mounts:
        where = f" on {mount.target}" if mount.target else ""
        yield "mount", f"{mount.source}{where}{_optional(optional=mount.optional)}"
    for library in use.libraries:
        place = "in place of the image's" if library.place == "replace" else "beside the image's"
        files = " ".join(library.files)
        yield "library", f"{files} {place}{_optional(optional=library.optional)}"
    yield from (("search", directory) for directory in use.search)
    yield from _variables(use)
    yield from _programs(use)


def _variables(use: HookUse) -> Iterator[tuple[str, str]]:
    if use.profile:
        yield "profile", use.profile
    for name, variable in use.env.items():
        yield "env", f"unset {name}" if variable is None else f"{name}={variable}"
    for name, paths in use.prepend.items():
        yield "env", f"{name}={':'.join(paths)}:…"


def _programs(use: HookUse) -> Iterator[tuple[str, str]]:
    for service in use.services:
        yield "service", f"{service.name}: {shlex.join(service.command)}"
    for check in use.checks:
        yield "check", _check(check)
    for run in use.runs:
        yield "check", _check(run)
    for hook in use.hooks:
        yield "oci hook", f"{hook.hookName} {hook.path}"
    if use.code:
        yield "code", use.code


def _check(check: Check | RunCheck) -> str:
    what = check.subject if isinstance(check, Check) else shlex.join(check.command)
    return f"{check.kind} {what} ({check.severity})"


def _optional(*, optional: bool) -> str:
    return ", if there is one" if optional else ""


def _layout(rows: list[tuple[str, str]], columns: int | None) -> Iterator[str]:
    before = ""
    for label, what in rows:
        shown = "" if label == before else label
        before = label
        yield from wrap(f"{shown:<{_LABEL_WIDTH}} {what}", columns, _LABEL_WIDTH + 1)

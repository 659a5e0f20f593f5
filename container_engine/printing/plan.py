"""Formats a plan for users: what happens on the left, the origin on the right. Pure.

It reads the plan's JSON, as nodes do: to print a cached plan takes no models.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from container_engine.base.secrecy import Secrecy
from container_engine.base.text_layout import one_line, with_origins

if TYPE_CHECKING:
    from container_engine.node.plan_types import (
        EnvEntry,
        HookUse,
        Image,
        Mount,
        Part,
        Run,
        Text,
        Variable,
    )

_USUAL = Secrecy()


def show(plan: Mapping[str, Any], secrecy: Secrecy = _USUAL, columns: int | None = None) -> str:
    """Return several lines, each "label  what  # from where", wrapped to `columns`."""
    image: Image = plan["image"]
    settings = plan["settings"]
    rows = [
        ("environment", plan["name"], ", ".join(plan["files"])),
        ("image", image["path"], image["from"]),
        *_name(image),
        *(row for part in image["above"] for row in _above(part)),
        (
            "image says",
            _image_facts(image),
            image["source"] or "no image configuration found; using defaults",
        ),
        *_left_out(image),
        ("workdir", text(plan["workdir"]), plan["workdir_from"]),
        ("file system", "writable" if plan["writable"] else "read-only", plan["writable_from"]),
        ("entrypoint", shlex.join(plan["entrypoint"]) or "none", plan["entrypoint_from"]),
    ]
    rows += [("mount", mount_line(mount), mount["from"]) for mount in plan["mounts"]]
    rows += [("device", text(device["name"]), device["from"]) for device in plan["devices"]]
    rows += [
        ("device", f"{name}, where the node has it", "devices_if_there of the site")
        for name in settings["devices_if_there"]
    ]
    always = [hook for hook in plan["hooks"] if not hook["automatic_when"]]
    in_some = [hook["name"] for hook in plan["hooks"] if hook["automatic_when"]]
    rows += [("hook", _hook(hook), f"{hook['reason']}, {hook['from']}") for hook in always]
    rows += [("hook", f"only in some steps: {some}", "automatic") for some in only_in_some(in_some)]
    rows += [("startup", text(step["line"]), step["from"]) for step in plan["startup"]]
    rows += [("check", _check(run), run["from"]) for run in plan["runs"]]
    rows += [("env", _set(entry, secrecy), entry["from"]) for entry in plan["env"]]
    for key, value in plan["annotations"].items():
        rows.append(("annotation", f"{key} = {value}", plan["annotations_from"].get(key, "")))
    for name, origin in plan["settings_from"].items():
        setting = settings.get(name)
        if origin != "default" and setting is not None:
            rows.append(("setting", f"{name} = {_setting(setting)}", origin))
    shown = [(label, secrecy.text(what), origin) for label, what, origin in rows]
    return "".join(_layout(shown, columns))


def only_in_some(hooks: Iterable[str]) -> list[str]:
    """Return a text on the hooks that apply only in steps with certain variables, or []."""
    names = ", ".join(sorted(hooks))
    return [f"{names} (ce hooks show NAME says which)"] if names else []


def _name(image: Part) -> list[tuple[str, str, str]]:
    """Return a row with the image's name if its file in a store is named after the digest."""
    return [("image name", image["name"], image["from"])] if image["digest"] else []


def _above(part: Part) -> list[tuple[str, str, str]]:
    return [("image above", part["path"], part["from"]), *_name(part)]


def _left_out(image: Image) -> list[tuple[str, str, str]]:
    """Return a row with the variables of the image that are not used, if there are any."""
    names = ", ".join(image["left_out"])
    why = "read by the engine or by Slurm: only you and environments set them"
    return [("image says", f"left out: {names}", why)] if names else []


def _set(entry: EnvEntry, secrecy: Secrecy) -> str:
    name, value = entry["name"], entry["value"]
    return f"unset {name}" if value is None else f"{name}={secrecy.value(name, text(value))}"


def _setting(value: object) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def text(value: Text) -> str:
    """Return the text, with variables that are not known yet as the author wrote them."""
    if isinstance(value, str):
        return value
    return "".join(part if isinstance(part, str) else _variable(part) for part in value)


def _variable(variable: Variable) -> str:
    return f"${{{variable['var']}{variable['op']}{text(variable['word'])}}}"


def _image_facts(image: Image) -> str:
    if image["on_nodes"]:
        return "each node reads it"
    count, entrypoint = len(image["env"]), shlex.join(image["entrypoint"])
    facts = [f"{count} variable{'' if count == 1 else 's'}", f"workdir {image['workdir'] or '/'}"]
    facts.append(f"entrypoint {entrypoint}" if entrypoint else "no entrypoint")
    return ", ".join(facts)


def mount_line(mount: Mount) -> str:
    options = f" ({','.join(mount['options'])})" if mount["options"] else ""
    if mount["kind"] == "tmpfs":
        return f"tmpfs on {text(mount['target'])}{options}"
    kind = "content of " if mount["kind"] == "squashfs" else ""
    return f"{kind}{text(mount['source'])} on {text(mount['target'])}{options}"


def _hook(hook: HookUse) -> str:
    # the secret is new for each launch, and must not be shown
    given = hook["parameters"].items()
    shown = {name: value for name, value in given if value and name != "secret"}
    parts = [f"{name} = {value}" for name, value in shown.items()]
    parts += [f"profile {hook['profile']}"] if hook["profile"] else []
    return f"{hook['name']} {hook['release']}{': ' if parts else ''}{', '.join(parts)}"


def _check(run: Run) -> str:
    return f"{run['name']}: {shlex.join(run['command'])} ({run['severity']})"


def _layout(rows: list[tuple[str, str, str]], columns: int | None) -> Iterable[str]:
    width = max(len(label) for label, _what, _origin in rows) + 2
    before = ""
    shown = []
    for label, what, origin in rows:
        head = "" if label == before else label
        shown.append((f"{head:<{width}}", one_line(what), one_line(origin)))
        before = label
    return (f"{line}\n" for line in with_origins(shown, columns, width))

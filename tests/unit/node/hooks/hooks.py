"""Hooks in the form that a plan has."""

from __future__ import annotations

from typing import Any


def hook(name: str = "cxi", **values: object) -> dict[str, Any]:
    switch = f"com.hooks.{name}.enabled"
    return {"name": name, "file": f"/hooks/{name}/hook.toml", "switch": switch, **values}


def device(path: str, optional: bool = False) -> dict[str, object]:
    return {"path": path, "optional": optional, "permissions": "rw"}


def mount(
    source: str, target: str = "", *options: str, optional: bool = False
) -> dict[str, object]:
    return {"source": source, "target": target, "options": options, "optional": optional}

"""Hooks in the form that a plan has."""

from __future__ import annotations

from typing import Any


def hook(name: str = "cxi", **values: object) -> dict[str, Any]:
    return {"name": name, "file": f"/hooks/{name}/hook.toml", **values}


def device(path: str, optional: bool = False) -> dict[str, object]:
    return {"path": path, "optional": optional, "permissions": "rw"}


def mount(
    source: str, target: str = "", *options: str, optional: bool = False
) -> dict[str, object]:
    return {"source": source, "target": target, "options": options, "optional": optional}

"""Renders the effective EDF as text: merged, expanded and sorted, without its bases."""

from __future__ import annotations

import json
from collections.abc import Callable

from container_engine.edf.document import PLAIN
from container_engine.edf.entries import mount_text
from container_engine.edf.model import Edf, escape, spell

_LAST_OF_FOUR_DIGITS = 0xFFFF
# `false`, a string, an array or a table of strings.
Value = bool | str | list[str] | dict[str, str]


def to_json(edf: Edf) -> str:
    """Return the values as the container gets them; those only the node knows stay `${NAME}`."""
    values = _values(edf, str)
    return json.dumps(values, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def to_toml(edf: Edf) -> str:
    """Return a valid EDF with the same meaning; rendering that again gives the same text."""
    values = _values(edf, escape)
    lines = [
        f"{key} = {_toml_value(value)}"
        for key, value in sorted(values.items())
        if not isinstance(value, dict) and value != []
    ]
    for key, value in sorted(values.items()):
        if isinstance(value, dict) and value:
            pairs = (f"{_toml_key(name)} = {toml_string(value[name])}" for name in sorted(value))
            lines += ["", f"[{key}]", *pairs]
    return "\n".join(lines) + "\n"


def _values(edf: Edf, literal: Callable[[str], str]) -> dict[str, Value]:
    values: dict[str, Value] = {
        "annotations": {entry.key: literal(entry.value) for entry in edf.annotations},
        "devices": [spell(device.name, literal) for device in edf.devices],
        "env": {entry.name: spell(entry.value, literal) for entry in edf.env},
        "mounts": [mount_text(mount, literal) for mount in edf.mounts],
        "startup": [spell(line, literal) for line, _ in edf.startup],
    }
    for key in PLAIN:
        if (value := getattr(edf, key)) is not None:
            values[key] = value if isinstance(value, bool) else spell(value, literal)
    if edf.image is not None:
        names = [literal(edf.image), *(literal(name) for name, _origin in edf.above)]
        values["image"] = names if edf.above else names[0]
    return values


def _toml_value(value: bool | str | list[str]) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return toml_string(value)
    items = "".join(f"  {toml_string(item)},\n" for item in value)
    return f"[\n{items}]"


def _toml_key(key: str) -> str:
    bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if bare else toml_string(key)


def toml_string(text: str) -> str:
    """Return the string in quotes, with characters escaped that a terminal might interpret."""
    # JSON escapes everything that TOML requires, except DEL
    return "".join(map(_escaped, json.dumps(text, ensure_ascii=False)))


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    number = ord(character)
    return f"\\u{number:04x}" if number <= _LAST_OF_FOUR_DIGITS else f"\\U{number:08x}"

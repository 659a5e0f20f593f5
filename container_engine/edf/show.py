"""Shows the effective EDF: as text, and for each value the line that sets it and what that hides.

As text it is merged, expanded and sorted, without its bases. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from container_engine.base.errors import UserError
from container_engine.base.secrecy import HIDDEN, Secrecy
from container_engine.base.toml_positions import Positions
from container_engine.base.variables import WORD, replacement_kind
from container_engine.edf.annotations import flatten
from container_engine.edf.checks import Report
from container_engine.edf.document import PLAIN, Document
from container_engine.edf.entries import mount_text
from container_engine.edf.expand import Expansion, Scope, scan
from container_engine.edf.layer import Item, edf_of, image_item
from container_engine.edf.model import escape, shown, spell

if TYPE_CHECKING:
    from container_engine.edf.load import EdfFile
    from container_engine.edf.model import Edf, Mount, Origin, Text

    # Text, except for the keys whose value is true or false.
    Value = bool | Text
    # A name for users, the key in the files, the value and its origin.
    Found = tuple[str, Item, Value, Origin]

_LAST_OF_FOUR_DIGITS = 0xFFFF
# `false`, a string, an array or a table of strings.
Rendered = bool | str | list[str] | dict[str, str]


def to_json(edf: Edf) -> str:
    """Return the values as the container gets them; those only the node knows stay `${NAME}`."""
    checks = _checks(edf, str)
    whole = _rendered(edf, str) | ({"checks": checks} if checks else {})
    return json.dumps(whole, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def to_toml(edf: Edf) -> str:
    """Return a valid EDF with the same meaning; rendering that again gives the same text."""
    found = {key: value for key, value in _rendered(edf, escape).items() if value != []}
    return _toml(found, _checks(edf, escape))


def as_written(edf: Edf, files: Sequence[EdfFile], checks: Sequence[Mapping[str, Any]]) -> str:
    """Return one EDF without bases for all of `files`: what counts, with its variables as written.

    `files` are those of `edf`, in order of rising precedence, as `load.load` returns them; `checks`
    are its checks as their files have them.
    """
    whole: dict[str, Any] = {}
    for found, history in zip(values(edf), histories(edf, files), strict=True):
        name, (key, item), value, _origin = found
        text = history.effective.written
        said = value if text is None else text
        if key in {"annotations", "env"}:
            whole.setdefault(key, {})[item] = said
        elif name.endswith("]"):
            whole.setdefault(key, []).append(said)
        elif key != "checks":
            whole[key] = said
    return _toml(whole, checks)


def document_to_toml(document: Document) -> str:
    """Return a file with the values of a document, as they are. Raise UserError."""
    found = document.model_dump(exclude_defaults=True, exclude={"annotations", "checks"})
    found["annotations"] = flat_annotations(document)
    return _toml(found, [check.model_dump(exclude_defaults=True) for check in document.checks])


def flat_annotations(document: Document) -> dict[str, str]:
    """Return the annotations by their dotted keys, as they are written. Raise UserError."""
    report = Report("", Positions(""))
    flat = flatten(document.annotations, report)
    for problem in report.problems:
        raise UserError(problem.message, problem.hint, where=problem.key)
    return {key: text for key, (text, _path) in flat.items()}


def _toml(values: Mapping[str, Rendered], checks: Sequence[Mapping[str, Any]]) -> str:
    rendered = sorted(values.items())
    lines = [
        f"{key} = {_toml_value(value)}" for key, value in rendered if not isinstance(value, dict)
    ]
    for key, value in rendered:
        if isinstance(value, dict) and value:
            pairs = (f"{_toml_key(name)} = {toml_string(value[name])}" for name in sorted(value))
            lines += ["", f"[{key}]", *pairs]
    for check in checks:
        lines += ["", "[[checks]]", *(f"{key} = {_toml_value(check[key])}" for key in check)]
    return "\n".join(lines) + "\n"


def _rendered(edf: Edf, literal: Callable[[str], str]) -> dict[str, Rendered]:
    """Return the values but for the checks, which are no strings."""
    found: dict[str, Rendered] = {
        "annotations": {entry.key: literal(entry.value) for entry in edf.annotations},
        "devices": [spell(device.name, literal) for device in edf.devices],
        "env": {entry.name: spell(entry.value, literal) for entry in edf.env},
        "mounts": [mount_text(mount, literal) for mount in edf.mounts],
        "startup": [spell(line, literal) for line, _ in edf.startup],
    }
    for key in PLAIN:
        if (value := getattr(edf, key)) is not None:
            found[key] = value if isinstance(value, bool) else spell(value, literal)
    if edf.image is not None:
        names = [literal(edf.image), *(literal(name) for name, _origin in edf.above)]
        found["image"] = names if edf.above else names[0]
    return found


def _checks(edf: Edf, literal: Callable[[str], str]) -> list[dict[str, Any]]:
    """Return the checks as they are written, without the keys that have their defaults."""

    def spelled(value: Any) -> Any:  # noqa: ANN401  # a value of a check
        if isinstance(value, tuple):
            return [literal(word) for word in value]
        return literal(value) if isinstance(value, str) else value

    written = (check.model_dump(exclude_defaults=True) for check, _origin in edf.checks)
    return [{key: spelled(value) for key, value in check.items()} for check in written]


def _toml_value(value: float | str | Sequence[str]) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
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


@dataclass(frozen=True, slots=True)
class Assignment:
    """One place that sets a value: the value there, and the string as it was written.

    The value of a mount is its shortest spelling. `written` is None for true and false.
    """

    origin: Origin
    value: Value
    written: str | None


@dataclass(frozen=True, slots=True)
class History:
    """One effective value under its name for users (`mounts[1]`, `env.PATH`).

    `effective` is the place whose value is used. `others` are the overridden places, the next in
    precedence last; for devices and start-up lines they only repeat the value.
    """

    key: str
    effective: Assignment
    others: tuple[Assignment, ...]


def histories(edf: Edf, files: Sequence[EdfFile]) -> tuple[History, ...]:
    """Return the history of every value set in a file, in the order of the rendered EDF's keys.

    `files` are those of `edf`, in order of rising precedence, as `load.load` returns them.
    """
    places: dict[Item, list[Assignment]] = {}
    for file in files:
        for _key, item, value, origin in values(edf_of("", (), file.layer)):
            assignment = Assignment(origin, value, file.written.get(item))
            places.setdefault(item, []).append(assignment)
    found: list[History] = []
    for key, item, _value, origin in values(edf):
        assignments = places.get(item, [])
        effective = next(one for one in reversed(assignments) if one.origin == origin)
        others = tuple(one for one in assignments if one is not effective)
        found.append(History(key, effective, others))
    return tuple(found)


def variables(written: str, scope: Scope, secrecy: Secrecy) -> Iterator[tuple[str, str]]:
    """Yield each variable that the expansion of a string looks up, and a text on its value.

    They come in the order of writing, without repetitions; words that are not used are skipped.
    """
    yield from dict.fromkeys(_found(scan(written), scope, secrecy))


def _found(
    nodes: Sequence[str | Expansion], scope: Scope, secrecy: Secrecy
) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, str):
            continue
        value = scope.get(node.name)
        if node.name.startswith("image:"):
            yield node.name, "what the image says"
            yield from _found(node.word, scope, secrecy)
        elif value is None and scope.deferred(node.name):
            yield node.name, "known on the node only"
            yield from _found(node.word, scope, secrecy)
        else:
            counts = replacement_kind(node.op, value) == WORD
            yield node.name, _meaning(node, value, scope, secrecy, word_counts=counts)
            yield from _found(node.word if counts else [], scope, secrecy)


def _meaning(
    variable: Expansion, value: str | None, scope: Scope, secrecy: Secrecy, *, word_counts: bool
) -> str:
    source = "the path of the file" if variable.name in scope.own else "the environment"
    shown = "not defined" if value is None else displayed(variable.name, value, secrecy)
    text = shown if value is None else f"{shown}, from {source}"
    if word_counts:
        return f"{text}; the text after '{variable.op}' is used"
    return (
        f"{text}; the text after '{variable.op}' is not used" if variable.op[-1:] == "+" else text
    )


def quoted(value: Value) -> str:
    """Return the value as TOML writes it, on one line, with deferred variables as `${NAME}`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(shown(value), ensure_ascii=False)


def displayed(name: str, value: Value, secrecy: Secrecy) -> str:
    """Return the value, quoted; hide secrets. `name` is the variable, "" for any other value."""
    return HIDDEN if secrecy.hides(name) else secrecy.text(quoted(value))


def values(edf: Edf) -> Iterator[Found]:
    """Yield each value set in a file: its name for users, its key in the files, and its origin."""
    places = {key: _one(edf, key, "") for key in PLAIN}
    places["annotations"] = [(f".{o.key}", o.key, o.value, o.origin) for o in edf.annotations]
    places["checks"] = [(f".{o.name}", o.name, o.text, origin) for o, origin in edf.checks]
    places["devices"] = _numbered([(o.name, o.name, o.origin) for o in edf.devices])
    places["env"] = [(f".{o.name}", o.name, o.value, o.origin) for o in edf.env]
    places["image"] = _one(edf, "image", "[0]" if edf.above else "")
    above = [(image_item(n), image, origin) for n, (image, origin) in enumerate(edf.above, 1)]
    places["image"] += _numbered(above, 1)
    places["mounts"] = _numbered([(o.target, _shown(o), o.origin) for o in edf.mounts])
    places["startup"] = _numbered([(line, line, origin) for line, origin in edf.startup])
    for key, found in sorted(places.items()):
        for name, item, value, origin in found:
            yield f"{key}{name}", (key, item), value, origin


def _one(edf: Edf, key: str, name: str) -> list[tuple[str, Text, Value, Origin]]:
    value, origin = getattr(edf, key), getattr(edf, f"{key}_origin")
    return [] if value is None or origin is None else [(name, "", value, origin)]


def _numbered(
    items: Sequence[tuple[Text, Value, Origin]], first: int = 0
) -> list[tuple[str, Text, Value, Origin]]:
    return [(f"[{number}]", *item) for number, item in enumerate(items, first)]


def _shown(mount: Mount) -> str:
    return mount_text(mount, str)

"""Read a plan's JSON and resolve its deferred strings without importing `json` (8 ms per start).

A deferred string is a list whose items are strings or ``{"var", "op", "word"}`` (see
``container_engine.plan.model``); it is resolved here with the node's own environment.
"""

from __future__ import annotations

from container_engine.base.errors import LaunchError

TYPE_CHECKING = False  # not typing's: importing typing would cost each start milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from container_engine.node.plan_types import Text, Variable


class _ScannerSettings:
    """The attributes that CPython's C scanner reads from a ``json.JSONDecoder``."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def parse_json(text: str) -> Any:  # noqa: ANN401  # JSON has any type
    """Parse JSON as ``json.loads`` does. Raise ValueError or RecursionError."""
    try:
        from _json import make_scanner
    except ImportError:
        import json

        return json.loads(text)
    settings: Any = _ScannerSettings()
    document = text.strip(" \t\n\r")
    try:
        value, end = make_scanner(settings)(document, 0)
    except (StopIteration, SystemError):  # SystemError: a lone brace
        raise ValueError("not a JSON document") from None
    if end != len(document):
        raise ValueError("there is text after the JSON document")
    return value


def to_json(value: Any) -> str:  # noqa: ANN401  # the inverse of `parse_json`
    """Return a value of `parse_json` as ASCII JSON on one line."""
    if isinstance(value, str):
        from _json import encode_basestring_ascii

        text: str = encode_basestring_ascii(value)
        return text
    if isinstance(value, dict):
        return "{" + ",".join(f"{to_json(k)}:{to_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(to_json, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)


def resolve(text: Text, environment: Mapping[str, str], where: str) -> str:
    """Return the literal text of a plan's string on this node.

    Raise LaunchError, with the string's origin `where`, if a required variable is not set.
    """
    if isinstance(text, str):
        return text
    return "".join(
        part if isinstance(part, str) else _variable(part, environment, where) for part in text
    )


def _variable(part: Variable, environment: Mapping[str, str], where: str) -> str:
    from container_engine.base.variables import MISSING, VALUE, WORD, replacement_kind

    name, operator = part["var"], part["op"]
    value = environment.get(name)
    kind = replacement_kind(operator, value)
    if kind == WORD:
        return resolve(part["word"], environment, where)
    if kind != MISSING:
        return value or "" if kind == VALUE else ""
    reason = resolve(part["word"], environment, where) if operator.endswith("?") else ""
    message = f"${{{name}}}: {reason or _why_undefined(name)}"
    raise LaunchError(message, see="variable-on-node", where=where)


# slurmstepd or one of its plugins sets these for each task, after the container has started.
_OF_TASKS = ("CUDA_", "ROCR_", "GPU_", "ZE_")


def _why_undefined(name: str) -> str:
    from container_engine.base.variables import OF_TASKS, TOO_EARLY

    if name.startswith(_OF_TASKS) or name in OF_TASKS:
        return TOO_EARLY
    return "the variable is not defined on this node either"

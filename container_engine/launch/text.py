"""Reading a plan's JSON and its deferred strings, without the import of `json` (8 ms of a start).

Deferred strings are lists whose items are strings or ``{"var", "op", "word"}`` (see
``container_engine.plan.model``); here they meet the node's own environment.
"""

from __future__ import annotations

from container_engine.launch.failure import LaunchFailure

TYPE_CHECKING = False  # the import of typing would cost more than all the rest of a launcher
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class _ScannerSettings:
    """What CPython's C scanner asks of a ``json.JSONDecoder``."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict[str, str] = {}


def parse_json(text: str) -> Any:
    """The same as ``json.loads``; a test holds the two against each other."""
    try:
        from _json import make_scanner  # type: ignore[attr-defined]
    except ImportError:
        import json

        return json.loads(text)
    try:
        value, _end = make_scanner(_ScannerSettings())(text, 0)
    except StopIteration:
        raise ValueError("not a JSON document") from None
    return value


def resolve(text: Any, environment: Mapping[str, str], where: str) -> str:
    """The literal text of a plan's string on this node; `where` names its origin in an error."""
    if isinstance(text, str):
        return text
    return "".join(
        part if isinstance(part, str) else _variable(part, environment, where) for part in text
    )


def _variable(part: Mapping[str, Any], environment: Mapping[str, str], where: str) -> str:
    name, operator = part["var"], part["op"]
    value = environment.get(name)
    # the colon of an operator makes an empty value count as none
    present = value is not None and not (operator.startswith(":") and value == "")
    kind = operator[-1:]
    if kind == "+":
        return resolve(part["word"], environment, where) if present else ""
    if present:
        return value or ""
    if kind == "-":
        return resolve(part["word"], environment, where)
    reason = resolve(part["word"], environment, where) if kind == "?" else ""
    raise LaunchFailure(
        f"{where}: ${{{name}}}: {reason or 'the variable is not defined on this node either'}"
    )

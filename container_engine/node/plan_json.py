"""Read and write JSON without importing `json` (8 ms per start)."""

from __future__ import annotations

TYPE_CHECKING = False  # not typing's: importing typing would cost each start milliseconds
if TYPE_CHECKING:
    from typing import Any


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

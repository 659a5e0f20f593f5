"""Parses one entry of `devices`: the path of a device or a CDI name."""

from __future__ import annotations

from container_engine.base.errors import UserError
from container_engine.edf.deferred_text import Text, Variable
from container_engine.edf.model import Device, Origin


def parse_device(text: Text, origin: Origin) -> Device:
    """Return the device that an expanded entry names. Raise UserError."""
    first = text if isinstance(text, str) else text[0]
    if isinstance(first, Variable):
        # A CDI name normally has a literal "=", the path of a device has none.
        return Device(text, is_cdi="=" in _literal(text), origin=origin)
    if first.startswith("/"):
        if ":" in _literal(text):
            hint = "use a symbolic link without a colon; only a path is allowed here"
            raise UserError(
                f"'{text}': Podman does not accept a device with a colon in its path", hint
            )
        return Device(text, is_cdi=False, origin=origin)
    literal = _literal(text)
    vendor, slash, rest = literal.partition("/")
    kind, equals, name = rest.partition("=")
    if isinstance(text, str) and not (vendor and slash and kind and equals and name):
        hint = f"did you mean '/{text}'?" if text.startswith("dev/") else _hint(literal)
        raise UserError(f"'{text}' is neither the path of a device nor a CDI name", hint)
    return Device(text, is_cdi=True, origin=origin)


def _hint(text: str) -> str:
    if "/" in text and "=" not in text:
        return f"a CDI name ends in '=' and a device, for example '{text}=all'"
    return "write for example '/dev/fuse' or 'nvidia.com/gpu=all'"


def _literal(text: Text) -> str:
    parts = (text,) if isinstance(text, str) else text
    return "".join(part for part in parts if isinstance(part, str))

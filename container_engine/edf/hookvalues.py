"""What hooks accept as the values of their parameters, judged when a job is submitted. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from container_engine.edf.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from container_engine.edf.model import Severity

_CHOICES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("netstack", "source"): ("artifact", "host"),
}
# A site may have more of these, so another one is only doubtful.
_USUAL: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("aws_ofi_nccl", "variant"): ("cuda-dl", "cuda12", "cuda13", "rocm5", "rocm6"),
}
_KEY_TYPES = ("ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-")


class Doubt(NamedTuple):
    severity: Severity
    message: str
    hint: str | None = None


def judge(hook: str, parameter: str, value: str) -> Doubt | None:
    """What is wrong with an expanded value, None if nothing is."""
    key = (hook, parameter)
    if key in _CHOICES and value not in _CHOICES[key]:
        return _choice("error", value, _CHOICES[key])
    if key in _USUAL and value not in _USUAL[key]:
        return _choice("warning", value, _USUAL[key])
    rule = _RULES.get(key)
    return rule(value) if rule else None


def _choice(severity: Severity, value: str, known: tuple[str, ...]) -> Doubt:
    meant = nearest(value, known)
    suggestion = f", did you mean '{meant}'?" if meant else ""
    return Doubt(severity, f"unknown value '{value}'{suggestion}", f"known are {', '.join(known)}")


def _port(value: str) -> Doubt | None:
    if value.isascii() and value.isdigit() and len(value) < 6 and 1 <= int(value) <= 65535:
        return None
    return Doubt(
        "error", f"'{value}' is not the number of a port", "write for example port = 15263"
    )


def _key_file(value: str) -> Doubt | None:
    if value.startswith("/"):
        return None
    if value.startswith(_KEY_TYPES):
        example = 'write the path of its file, for example "${HOME}/.ssh/id_ed25519.pub"'
        return Doubt("error", "expected the path of a file, found the text of a key", example)
    hint = "'~' is not expanded, write ${HOME}" if value.startswith("~") else None
    return Doubt("error", f"'{value}' is not an absolute path", hint)


_RULES: Mapping[tuple[str, str], Callable[[str], Doubt | None]] = {
    ("ssh", "authorize_ssh_key"): _key_file,
    ("ssh", "port"): _port,
}

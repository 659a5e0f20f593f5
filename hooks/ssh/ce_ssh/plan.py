"""The public key of a plan: it decides who may log in."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping
from typing import NamedTuple

from container_engine.base.files import read_regular
from container_engine.base.process import reason
from container_engine.plan.hooks import SECRET, Added

PARAMETER = "authorize_ssh_key"
MAX_SIZE = 64 * 1024
# the types of key that the ssh server can verify
_KINDS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)


class Judged(NamedTuple):
    """A public key without its comment in `line`, or None and the problem in `message`."""

    line: str | None
    message: str = ""
    hint: str | None = None


def complete(parameters: Mapping[str, str], consult: Callable[[str], None]) -> Added:
    """Return the public key for a plan, so that nodes need not see its file, and a secret."""
    path = parameters.get(PARAMETER, "")
    if not path:
        return Added({"secret": SECRET, "authorized_key": ""})
    consult(path)
    judged = read(path)
    if judged.line is None:
        return Added({}, PARAMETER, judged.message, judged.hint)
    return Added({"secret": SECRET, "authorized_key": judged.line})


def read(path: str) -> Judged:
    """Return the public key in a file, or the reason why a login cannot use it."""
    try:
        content = read_regular(path, MAX_SIZE, follow=True)
    except OSError as error:
        why = "does not exist" if isinstance(error, FileNotFoundError) else reason(error)
        hint = "make one with ssh-keygen, and name the file that ends with .pub"
        return Judged(None, f"'{path}': {why}", hint)
    return judge(path, content)


def judge(path: str, content: bytes) -> Judged:
    """Judge the content of the file `path` as a public key for a login."""
    if b"PRIVATE KEY" in content or content.startswith(b"PuTTY-User-Key-File"):
        hint = f"name the public one, perhaps {path}.pub; keep the private key to yourself"
        return Judged(None, f"'{path}' contains a private key", hint)
    text = content.decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if len(keys) != 1:
        found = "no key" if not keys else f"{len(keys)} keys"
        return Judged(None, f"'{path}' has {found}, expected one public key")
    return _judge_line(path, keys[0])


def _judge_line(path: str, line: str) -> Judged:
    words = line.split()
    if words[0] not in _KINDS:
        hint = f"a line of such a file begins with one of {', '.join(_KINDS[:2])}, {_KINDS[4]}"
        return Judged(None, f"'{path}' is not a public key that the server understands", hint)
    if len(words) < 2 or not _is_blob(words[1], words[0]):
        return Judged(None, f"'{path}' is not a public key: what follows {words[0]} is damaged")
    return Judged(f"{words[0]} {words[1]}")


def _is_blob(text: str, kind: str) -> bool:
    """Check that the base64 text begins with the name of its kind, as in every public key."""
    try:
        blob = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError):
        return False
    name = kind.encode()
    return blob.startswith(len(name).to_bytes(4, "big") + name) and len(blob) > len(name) + 4 + 16

"""The public key of a plan with the ssh hook: it decides who may log in. Pure."""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from container_engine.edf.model import Edf, Problem
    from container_engine.plan.model import HookUse, LaunchPlan

CODE, PARAMETER = "ssh", "authorize_ssh_key"
# placeholder in a plan, which each launch replaces with a secret of its own
SECRET = "@new@"
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


def with_keys(
    plan: LaunchPlan, edf: Edf, read: Callable[[str], Judged]
) -> tuple[LaunchPlan, tuple[Problem, ...]]:
    """Add the public key to the plan, and a place for the secret of each launch.

    submit/plan_output.py fills in the secret. `read` judges the user's key file here, so that nodes
    need not see it. A plan without the ssh hook is returned unchanged.
    """
    if not any(use.code == CODE for use in plan.hooks):
        return plan, ()
    uses, problems = [], []
    for use in plan.hooks:
        path = _path(use)
        judged = read(path) if path else Judged("")
        if judged.line is None:
            problems.append(_problem(edf, judged))
        added = {"secret": SECRET, "authorized_key": judged.line or ""}
        given = {**use.parameters, **added} if use.code == CODE else use.parameters
        uses.append(use.model_copy(update={"parameters": given}))
    return plan.model_copy(update={"hooks": tuple(uses)}), tuple(problems)


def _path(use: HookUse) -> str:
    return use.parameters.get(PARAMETER, "") if use.code == CODE else ""


def _problem(edf: Edf, judged: Judged) -> Problem:
    # below the annotation that the site gave the hook
    found = [(one.key, one.origin) for one in edf.annotations if one.key.endswith(f".{PARAMETER}")]
    key, origin = found[0] if found else (PARAMETER, edf.place)
    return origin.error(key, judged.message, judged.hint, "hook-refused")

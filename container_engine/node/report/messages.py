"""Print a message once per step, by the first node to report it, without secrets.

Imported only once the tasks can start, or to print a message.
"""

from __future__ import annotations

import os

from container_engine.base.errors import without_output
from container_engine.node.node_plan import PLANNED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from container_engine.node.node_plan import Secrets


# signs of a possible secret, which base/secrecy.py examines: a setting, a login,
# and the prefixes of tokens
_SIGNS = (
    *("=", "://", "hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "sk-", "GR1348941"),
    *("glpat-", "glrt-", "gldt-", "glcbt-", "glptt-", "glft-", "glsoat-", "gloas-"),
    *("npm_", "pypi-"),
    *("AKIA", "ASIA", "AIza", "xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxr-", "xoxs-", "nvapi-"),
    *("dckr_", "wandb_v1_", "hvs.", "eyJ", "-----BEGIN ", "robot$", '"auth"', " -p "),
)
# the same in small letters: headers, and options with a user and a password
_SMALL_SIGNS = ("authorization", "bearer ", "creds ", "--user ", "--proxy-user ", "-u ")
# what is between the name of a secret and its value, but for "="
_BETWEEN = ("--", ": ")


def concealed(text: str, secrets: Secrets, node: Mapping[str, str]) -> str:
    """Return the text without the values of secret variables: anyone may read a job's output."""
    # looking for secrets costs 20 ms of imports, and there are hardly ever any
    if not may_be_secret(text, secrets, node):
        return text
    from container_engine.base.secrecy import Secrecy

    return Secrecy(secrets.patterns).knowing([*secrets.known, *node.items()]).text(text)


def may_be_secret(text: str, secrets: Secrets, node: Mapping[str, str]) -> bool:
    """Check whether a text has a sign of a secret, or the value of a variable that may be one."""
    stems = secret_stems(secrets)
    return (
        any(sign in text for sign in _SIGNS)
        or any(sign in text.lower() for sign in _SMALL_SIGNS)
        or (any(sign in text for sign in _BETWEEN) and _names_secret(text, stems))
        or any(value in text for value in _suspects(secrets, stems, node))
    )


def _names_secret(text: str, stems: Sequence[str]) -> bool:
    """Check whether a text has the name of a secret, perhaps with other characters within."""
    flat = text.upper().replace("-", "_")
    return any(stem in flat for stem in stems)


def _suspects(secrets: Secrets, stems: Sequence[str], node: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of variables that may match a pattern for secrets, by its literal part."""
    for name, value in (*secrets.known, *node.items()):
        if len(value) > 1 and any(stem in name.upper() for stem in stems):
            yield value


def secret_stems(secrets: Secrets) -> list[str]:
    """Return words in capital letters; the name of each secret variable contains one of them."""
    return [_literal_part(word.upper()) for word in secrets.patterns]


def _literal_part(pattern: str) -> str:
    """Return text that each matching name contains: the literal part before the first wildcard."""
    text = pattern.lstrip("*")
    for wildcard in "*?[":
        text = text.partition(wildcard)[0]
    return text


def claim_message(directory: str, node: Mapping[str, str], message: str) -> bool:
    """Claim the printing of a message; return False if another node of the step has done so.

    `directory` is that of the step's traces. Of a thousand nodes only one prints a message, but
    without such a directory, "", every node does. srun itself names every node that failed.
    spank_plugin/common/say.h does the same for tasks.
    """
    if not directory:
        return True
    from container_engine.base.files import fingerprint

    # the time of planning distinguishes one srun from a later one with the same numbers
    said = f"{node.get(PLANNED, '')} {message}".encode("utf-8", "surrogateescape")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(f"{directory}/said-{fingerprint(said)}", flags, 0o600))
    except FileExistsError:
        return False
    except OSError:
        return True
    return True


def alike(message: str, node: Mapping[str, str]) -> str:
    """Return the message without what differs between nodes: output, names of nodes, numbers."""
    import re

    own = re.escape(node.get("SLURMD_NODENAME") or os.uname().nodename)
    # only as a whole word: inside another word it is not the node's name, and equal on all nodes
    text = re.sub(rf"(?<![A-Za-z0-9]){own}(?![A-Za-z0-9])", "@", without_output(message))
    return re.sub(r"\d+", "0", text)

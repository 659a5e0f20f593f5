"""Hide the values of secret variables in what a launch prints or records.

Imported only once the tasks can start, or to print a message.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from container_engine.node.node_plan import Secrets


# signs of a possible secret, which base/secrecy.py examines: a setting, a login,
# and the prefixes of tokens
_SIGNS = (
    *("=", "://", "hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "sk-", "GR1348941"),
    *(
        "glpat-",
        "glrt-",
        "gldt-",
        "glcbt-",
        "glptt-",
        "glft-",
        "glsoat-",
        "gloas-",
        "npm_",
        "pypi-",
    ),
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

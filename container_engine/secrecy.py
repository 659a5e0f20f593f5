"""Which values nobody needs to see: what `ce` prints ends up in logs and tickets. Pure."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HIDDEN = "(hidden)"
# what is shorter stands for itself in other places, too
_SHORTEST = 8
# what the words of a secret's name are, as long as a site says nothing else
WORDS = (
    *("TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL*"),
    *("KEY", "*APIKEY"),
)
# Prefixes that services give to what must stay secret, so that scanners find it.
TOKENS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}"
    r"|glpat-[A-Za-z0-9_-]{16,}|sk-[A-Za-z0-9_-]{20,}|AKIA[A-Z0-9]{16}|xox[abpr]-[A-Za-z0-9-]{10,}"
    r"|nvapi-[A-Za-z0-9_-]{20,}|dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}"
    # a JSON Web Token: two documents in base64, which begin with a brace, and a signature
    r"|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[^\"]*"
)
# NAME=value in a line of shell, a value with blanks in quotes; NAME = "value" in a file
_SETTING = re.compile(r"""\b([A-Za-z_][A-Za-z0-9_]*)("?\s*=\s*)("[^"]*"?|'[^']*'?|[^\s;&|'",]+)""")
# the password in scheme://user:password@host, and the token in https://token@host
_LOGIN = re.compile(r"(?<=://)([^/:@\s]*):([^/@\s]+)(?=@)")
_BEARER = re.compile(r"(?i)\b(https?://)([^/:@\s]+)(?=@)")
# what makes a URL enough to fetch something: those of blob stores are signed
_SIGNED = re.compile(
    r"(?i)([?&](?:sig|signature|(?:x-(?:amz|goog)-)?(?:signature|credential|security-token)"
    r"|(?:access_)?token)=)[^&\s\"'<>]+"
)


def is_secret_name(name: str, words: Sequence[str] = WORDS) -> bool:
    """Whether one of the patterns fits some words of the name: TOKEN fits HF_TOKEN_FILE."""
    whole = f"_{name.upper()}_"
    return any(fnmatchcase(whole, f"*_{word.upper()}_*") for word in words)


class Secrecy(NamedTuple):
    """`words` are patterns for names, `known` values that stay hidden wherever they appear.

    With `shows` nothing is hidden.
    """

    words: tuple[str, ...] = WORDS
    known: frozenset[str] = frozenset()
    shows: bool = False

    def knowing(self, environment: Iterable[tuple[str, str]]) -> Secrecy:
        """Hides the secrets of an environment, too, where they have been expanded."""
        found = {value for name, value in environment if self.hides(name)}
        return self._replace(known=self.known | {v for v in found if len(v) >= _SHORTEST})

    def hides(self, name: str) -> bool:
        return not self.shows and is_secret_name(name, self.words)

    def value(self, name: str, text: str) -> str:
        """What may be said of a variable's value."""
        return HIDDEN if self.hides(name) else self.text(text)

    def text(self, text: str) -> str:
        """Without known secrets, and what is one by its look: a token with a service's prefix."""
        if self.shows:
            return text
        for secret in sorted(self.known, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        text = _SETTING.sub(self._setting, text)
        text = _LOGIN.sub(rf"\1:{HIDDEN}", TOKENS.sub(HIDDEN, text))
        return _SIGNED.sub(rf"\1{HIDDEN}", _BEARER.sub(rf"\1{HIDDEN}", text))

    def _setting(self, match: re.Match[str]) -> str:
        name, equals, value = match.groups()
        if value.startswith(("$", '"$', HIDDEN)) or not self.hides(name):
            return match[0]
        return f"{name}{equals}{HIDDEN}"

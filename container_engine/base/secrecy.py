"""Hide secret values: what `ce` prints ends up in logs and tickets. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

HIDDEN = "(hidden)"
# a shorter value may occur elsewhere with another meaning
_SHORTEST = 8
# the default patterns for words in a secret's name; a site may configure others
WORDS = (
    *("TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL*"),
    *("KEY", "*APIKEY"),
)
# Patterns are kept as text: most launches print nothing and need not compile them.
# Prefixes that services give to secrets, so that scanners find them.
TOKENS = (
    r"\b(?:hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}"
    r"|gl(?:pat|rt|dt|cbt|ptt|ft|soat|oas)-[A-Za-z0-9_-]{16,}|GR1348941[A-Za-z0-9_-]{16,}"
    r"|sk-[A-Za-z0-9_-]{20,}|A[KS]IA[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|xox[abeprs]-[A-Za-z0-9-]{10,}"
    r"|nvapi-[A-Za-z0-9_-]{20,}|dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}|pypi-[A-Za-z0-9_-]{16,}"
    r"|npm_[A-Za-z0-9]{30,}|wandb_v1_[A-Za-z0-9_-]{16,}|hvs\.[A-Za-z0-9_-]{20,}"
    # a JSON Web Token: two documents in base64, which begin with a brace, and a signature
    r"|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[^\"]*"
)
# What separates a name from its value where a line is continued or folded.
_GAP = r"(?:[ \t]|\\?\r?\n[ \t]*)"
# NAME=value in a line of shell, with quotes around blanks; NAME = "value" in a file; --NAME value,
# also as two words of a list; NAME: value in YAML or a header, but not the last part of a path. The
# value may be on the next line, alone or further to the right. A name has a limit, so that no text
# takes quadratic time.
_SETTING = (
    r"""\b([A-Za-z_][A-Za-z0-9_]*)["']?\s*=(?:\s|\\\r?\n)*"""
    r"""|(?<![\w-])--([A-Za-z][\w-]{0,63})(?:["'],\s*|(?:[ ]|[ ]?\\\r?\n)+"""
    r"""|[ ]?\r?\n[ \t]*(?:-[ ]+)?(?=[^\s-]\S*[ ]*(?:[\r\n]|\Z)))(?!-)"""
    r"""|(?<![\w/.-])([A-Za-z][\w-]{0,63})["']?:"""
    r"""(?:[ ]+(?![ \r\n])|[ \t]*(\r?\n)(?:[ \t]*\r?\n){0,2}"""
    r"""(?=[ \t]+\S|[^\s:]{6,}[ \t]*(?:[\r\n]|\Z))(?![^\n]*:(?:\s|\Z)))"""
)
# the value on the lines below its name: the first, and those as far to the right
_BELOW = (
    r"([ \t]*)(\S[^\r\n]*"
    r"(?:\r?\n\1[ \t]*(?<=[ \t])(?![^\n]*:(?:\s|\Z))[^\s][^\r\n]*)*)"
)
# options and names whose value is no secret itself
_NO_VALUE = ("-stdin", "-file")
_VALUE = (
    # a block of YAML: all lines that are indented
    r"""[|>][-+0-9]*[ ]*(?:\n[ \t]*(?=\n)|\n[ \t]+[^\n]+)+"""
    r"""|\"{3}[\s\S]*?(?:\"{3}|\Z)|'{3}[\s\S]*?(?:'{3}|\Z)"""
    r"""|"(?:[^"\\]|\\[\s\S])*"?|'[^']*'?|[^\s;&|'",]+"""
)
# "NAME": "value" in JSON
_MEMBER = r""""([A-Za-z_][A-Za-z0-9_]*)"(\s*:\s*)("(?:[^"\\]|\\[\s\S])*"?)"""
# Each pattern with what stands in its place.
_ELSEWHERE = (
    # the password in scheme://user:password@host, and the token in https://token@host
    (r"(?<=://)([^/:@\s]*):([^/@\s]+)(?=@)", rf"\1:{HIDDEN}"),
    (TOKENS, HIDDEN),
    (r"(?i)\b(https?://)([^/:@\s]+)(?=@)", rf"\1{HIDDEN}"),
    # parameters of signed URLs, as blob stores make them: the URL alone gives access
    (
        r"(?i)([?&](?:sig|signature|(?:x-(?:amz|goog)-)?(?:signature|credential|security-token)"
        r"|(?:access_)?token)=)[^&\s\"'<>]+",
        rf"\1{HIDDEN}",
    ),
    # headers of HTTP, with the scheme and without
    (
        rf"(?i)\b(authorization[\"']? *[:=]{_GAP}*[\"']?(?:bearer|basic|token|digest){_GAP}+)"
        r"[^\s\"',;]+",
        rf"\1{HIDDEN}",
    ),
    (
        rf"(?i)\b(authorization[\"']? *[:=]{_GAP}*[\"']?|bearer{_GAP}+)[\w.~+/=-]{{16,}}",
        rf"\1{HIDDEN}",
    ),
    # user:password of curl and skopeo, but not the numbers of a user and a group
    (
        rf"(?<![\w-])((?:--(?:src-|dest-)?creds|--(?:proxy-)?user|-[uU])(?:{_GAP}+|=)[\"']?"
        r"[^\s:\"']{1,128}:)(?!\d+\b)[^\s\"']+",
        rf"\1{HIDDEN}",
    ),
    (
        rf"\b((?:login|sshpass)\b(?:[^\n\\;|&]|\\\r?\n){{0,200}}? -p{_GAP}+[\"']?)"
        r"[^\s;&|\"'-][^\s;&|\"']*",
        rf"\1{HIDDEN}",
    ),
    # .netrc, on one line or several
    (r"(\blogin\s+\S{1,128}\s+password\s+)\S+", rf"\1{HIDDEN}"),
    # robot accounts of Harbor
    (r"(\brobot\$[^\s:@/$\"']{1,128}:)[^\s@\"']+", rf"\1{HIDDEN}"),
    # a login in a file of Docker's
    (rf"(\"auth\" *:{_GAP}*\")[^\"]+", rf"\1{HIDDEN}"),
)


def is_secret_name(name: str, words: Sequence[str] = WORDS) -> bool:
    """Check whether a pattern matches words of the name: TOKEN matches HF_TOKEN_FILE."""
    whole = f"_{name.upper()}_"
    return any(fnmatchcase(whole, f"*_{word.upper()}_*") for word in words)


class Secrecy(NamedTuple):
    """The rules for hiding secrets.

    `words` are patterns for names; `known` are values that are hidden wherever they appear. With
    `shows` nothing is hidden.
    """

    words: tuple[str, ...] = WORDS
    known: frozenset[str] = frozenset()
    shows: bool = False

    def knowing(self, environment: Iterable[tuple[str, str]]) -> Secrecy:
        """Return rules that also hide the values of an environment's secrets wherever they occur.

        Values of fewer than 8 characters are not among them.
        """
        found = {value for name, value in environment if self.hides(name)}
        return self._replace(known=self.known | {v for v in found if len(v) >= _SHORTEST})

    def hides(self, name: str) -> bool:
        return not self.shows and is_secret_name(name, self.words)

    def value(self, name: str, text: str) -> str:
        """Return the value of a variable as it may be shown."""
        return HIDDEN if self.hides(name) else self.text(text)

    def text(self, text: str) -> str:
        """Hide known secrets, and what looks like one, such as a token with a service's prefix."""
        if self.shows:
            return text
        for secret in sorted(self.known, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        text = self._settings(re.sub(_MEMBER, self._member, text))
        for pattern, shown in _ELSEWHERE:
            text = re.sub(pattern, shown, text)
        return text

    def _settings(self, text: str) -> str:
        """Hide the values of secret settings, also within another value: Comment=TOKEN=x."""
        shown: list[str] = []
        done = position = 0
        settings, values, below = map(re.compile, (_SETTING, _VALUE, _BELOW))
        while setting := settings.search(text, position):
            position = setting.end()
            found = below if setting[4] else values
            value = found.match(text, position) if self._is_secret(setting) else None
            if value is None:
                continue
            begin = value.start(2) if setting[4] else value.start()
            if not text.startswith(("$", '"$', HIDDEN, f'"{HIDDEN}'), begin):
                shown += [text[done:begin], HIDDEN]
                done = value.end()
            position = value.end()
        return "".join([*shown, text[done:]])

    def _is_secret(self, setting: re.Match[str]) -> bool:
        """Check a match of _SETTING; variables and keys before a colon begin sentences on them."""
        variable, option, name, below = setting.groups()
        if variable is not None:
            return self.hides(variable)
        if name is not None and (
            name.lower() == "key" or (name.isupper() and not below and "-" not in name)
        ):
            return False
        told = option or name
        return self.hides(told.replace("-", "_")) and not told.endswith(_NO_VALUE)

    def _member(self, match: re.Match[str]) -> str:
        name, colon, _value = match.groups()
        return f'"{name}"{colon}"{HIDDEN}"' if self.hides(name) else match[0]

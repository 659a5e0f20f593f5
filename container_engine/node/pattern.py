"""Find files and devices of a node by patterns: `*`, `?`, `[a-z]`.

The modules glob and re would cost each start 6 ms.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    # checks whether a path exists, and lists a directory; the latter raises OSError
    Queries = tuple[Callable[[str], bool], Callable[[str], list[str]]]

_NODE: Queries = (os.path.lexists, os.listdir)


def has_wildcard(path: str) -> bool:
    return any(character in path for character in "*?[")


def expand(path: str, queries: Queries = _NODE) -> list[str]:
    """Return the existing paths that match, cxi2 before cxi10.

    A path without wildcards matches itself.
    """
    exists, _names = queries
    if not has_wildcard(path):
        return [path] if exists(path) else []
    found = ["/"] if path.startswith("/") else [""]
    for part in filter(None, path.split("/")):
        found = [longer for start in found for longer in _step(start, part, queries)]
    return sorted(found, key=natural)


def questions_of(path: str) -> dict[str, None]:
    """Return the questions (base/answers.py) about all paths on which a pattern depends."""
    asked: dict[str, None] = {}

    def exists(found: str) -> bool:
        asked[f"p{found}"] = None
        return os.path.lexists(found)

    def names(directory: str) -> list[str]:
        asked[f"f{directory}"] = None
        return os.listdir(directory)

    return asked | dict.fromkeys(map("p".__add__, expand(path, (exists, names))))


def _step(start: str, part: str, queries: Queries) -> list[str]:
    exists, names_of = queries
    prefix = start if start in ("", "/") else start + "/"
    if not has_wildcard(part):
        return [prefix + part] if exists(prefix + part) else []
    try:
        names = names_of(start or ".")
    except OSError:
        return []
    hidden = part.startswith(".")
    return [prefix + name for name in names if (hidden or name[:1] != ".") and matches(name, part)]


def matches(name: str, pattern: str) -> bool:
    """Check whether the whole of `name` matches the pattern; `*` also matches the empty string."""
    head, star_sign, tail = pattern.partition("*")
    # fast path: most names do not begin as the pattern does
    if not has_wildcard(head) and not name.startswith(head):
        return False
    if star_sign and not has_wildcard(head + tail):
        return len(name) >= len(head) + len(tail) and name.endswith(tail)
    name_at = pattern_at = 0
    # where to resume if the text after the last star does not match
    star, retry = -1, 0
    while name_at < len(name):
        fits, after = _one(name[name_at], pattern, pattern_at)
        if fits:
            name_at, pattern_at = name_at + 1, after
        elif pattern[pattern_at : pattern_at + 1] == "*":
            star, retry = pattern_at + 1, name_at
            pattern_at = star
        elif star >= 0:
            retry += 1
            name_at, pattern_at = retry, star
        else:
            return False
    return pattern[pattern_at:].strip("*") == ""


def _one(character: str, pattern: str, at: int) -> tuple[bool, int]:
    """Return whether the pattern's element at `at` matches, and where the next one begins."""
    head = pattern[at : at + 1]
    close = pattern.find("]", at + 2) if head == "[" else -1
    if close > 0:
        body = pattern[at + 1 : close]
        negated = body[0] in "!^" and len(body) > 1
        return _in_set(character, body[negated:]) != negated, close + 1
    return head != "*" and head in ("?", character), at + 1


def _in_set(character: str, body: str) -> bool:
    at = 0
    while at < len(body):
        if body[at + 1 : at + 2] == "-" and at + 2 < len(body):
            if body[at] <= character <= body[at + 2]:
                return True
            at += 3
        else:
            if body[at] == character:
                return True
            at += 1
    return False


def is_device(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def natural(text: str) -> list[tuple[int, str]]:
    """Return a sort key under which numbers in the text compare as numbers.

    A number is represented by its length and digits: int() refuses more than 4300 digits.
    """
    key: list[tuple[int, str]] = []
    digits = ""
    for character in text + "\0":
        if "0" <= character <= "9":
            digits += character
            continue
        if digits:
            value = digits.lstrip("0")
            key.append((len(value), value))
            digits = ""
        key.append((-1, character))
    return key

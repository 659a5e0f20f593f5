"""Read what shell files of an Apptainer image assign, without a shell. Pure.

`%environment` of a definition file may be any program. Read are assignments, `export`, quotes, and
variables that were set before; every other line is left to a shell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

# the form in which Apptainer keeps the variables of an image from a registry; of values with quotes
# and the like shells make something else than the image has
_DEFAULT = re.compile(r"""export (\w+)="\$\{\1:-"([^"\\$`]*)"\}\"""")
_EXPANSION = r"""\$(?:\w+|\{\w+(?::-[^${}"\\`]*)?\})"""
_PART = rf"""'[^']*'|"(?:[^"\\`]|\\.)*"|{_EXPANSION}|\\.|[^\s'"\\$;&|<>()`#*?~]"""
_ASSIGNMENT = rf"[A-Za-z_]\w*(?:=(?:{_PART})*)?"
_LINE = re.compile(rf"(export\s+)?({_ASSIGNMENT}(?:\s+{_ASSIGNMENT})*)\s*;?\s*(?:#.*)?")
_SHOWN = 60  # of a line that is not read
_IN_PART = re.compile(rf"\\(?P<escaped>.)|(?P<expansion>{_EXPANSION})|(?P<other>\$)")


class Assigned(NamedTuple):
    """The variables that are exported, and the first line that only a shell can run, or ""."""

    env: dict[str, str]
    other: str


class _UnknownError(Exception):
    """A line that depends on more than the image."""


def assigned(text: str, before: Mapping[str, str]) -> Assigned:
    """Return what the lines of shell files assign, one after the other, after `before`."""
    known, env, other = dict(before), dict[str, str](), ""
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith("#"):
            continue
        if kept := _DEFAULT.fullmatch(line):
            known[kept[1]] = env[kept[1]] = kept[2]
            continue
        match = _LINE.fullmatch(line)
        try:
            if match is None or not (match[1] or "=" in match[2]):
                raise _UnknownError
            for name, value in _values(match[2], known):
                known[name] = value
                if match[1] or name in env:
                    env[name] = value
        except _UnknownError:
            other = other or line[:_SHOWN]
    return Assigned(env, other)


def _values(words: str, known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for word in re.findall(_ASSIGNMENT, words):
        name, equals, value = word.partition("=")
        if equals:
            yield name, "".join(_value(part, known) for part in re.findall(_PART, value))
        elif name in known:
            yield name, known[name]
        else:
            raise _UnknownError


def _value(part: str, known: Mapping[str, str]) -> str:
    """Return the value of a quoted text, an expansion or a character. Raise _UnknownError."""
    quote = part[0] if part[0] in "'\"" else ""
    if quote == "'":
        return part[1:-1]

    def expanded(match: re.Match[str]) -> str:
        if match["escaped"]:
            is_kept = quote and match["escaped"] not in '\\"`$'
            return match[0] if is_kept else match["escaped"]
        name, _default, default = (match["expansion"] or "").strip("${}").partition(":-")
        value = known.get(name) or default
        # a path that is searched is often continued, and empty at first
        if not name or not (value or name in known or name.endswith("PATH")):
            raise _UnknownError
        return value

    return _IN_PART.sub(expanded, part[1:-1] if quote else part)

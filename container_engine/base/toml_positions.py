"""Finds the line of each key and each array item of a TOML text.

The standard library's parser returns values but no lines. This scanner runs before it, and so also
limits what the parser must handle. It understands just enough of TOML to walk from key to key. It
never judges, and stops silently where the text is not TOML, because the real parser reports that.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from container_engine.base.errors import UserError

Path = tuple["str | int", ...]
# The full path of a key or table, its line, and whether it is a [table].
Statement = tuple[Path, int, bool]

# More than any user writes, few enough for the parser's stack and for linear time.
MAX_DEPTH = 32
_BARE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_BLANK = " \t\r\n"


class TooDeepError(UserError):
    """Keys or values nested more than MAX_DEPTH levels deep, at `line`."""

    def __init__(self, line: int) -> None:
        super().__init__(f"nested more than {MAX_DEPTH} levels deep", see="edf-too-large")
        self.line = line


class Fault(NamedTuple):
    """A fault of an administrator's file; `key` is "" if it does not concern a single key."""

    file: str
    message: str
    hint: str | None = None
    key: str = ""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.key, self.message) if part)


class Positions:
    """The lines of paths such as ("mounts", 1) or ("env", "HOME"), counted from 1."""

    def __init__(self, walker: _Walker) -> None:
        self._lines = walker.lines
        self._statements = walker.statements
        self._dotted = walker.dotted
        self._open = walker.open

    def line(self, path: Path) -> int:
        """Return the line of the path, else that of its nearest known parent, else 1."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def last_statement(self, line: int) -> Statement | None:
        """Return the last statement that begins on this line or above it."""
        return next((s for s in reversed(self._statements) if s[1] <= line), None)

    def is_open_array(self, path: Path) -> bool:
        """Check whether the scan ended inside the array that is the value of this key."""
        return self._open is not None and self._open[: len(path)] == path

    def begun_by_dots(self, path: Path) -> bool:
        """Check whether a table was first mentioned in a dotted key, `a.b = …`, not as `[a]`."""
        return path in self._dotted


def place_of(file: str, path: Path) -> str:
    """Return FILE:LINE of a key, or of its table if it is absent; FILE if that cannot be read."""
    try:
        with open(file, encoding="utf-8") as opened:
            line = find_positions(opened.read()).line(path)
    except (OSError, ValueError, UserError):
        return file
    return f"{file}:{line}"


def find_positions(text: str) -> Positions:
    """Return the positions in a text with "\\n" line ends. Raise TooDeepError."""
    walker = _Walker(text)
    with suppress(_NotTomlError):  # the positions so far are right; the parser reports the error
        walker.document()
    return Positions(walker)


class _NotTomlError(Exception):
    pass


class _Walker:
    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0
        self.lines: dict[Path, int] = {}
        self.statements: list[Statement] = []
        self.dotted: set[Path] = set()
        self.open: Path | None = None
        self._counted = 0
        self._line = 1
        self._tables: dict[Path, int] = {}

    def document(self) -> None:
        table: Path = ()
        while self._skip():
            if self._peek() == "[":
                table = self._header()
            else:
                self._pair(table, 0)

    def _header(self) -> Path:
        line = self._here()
        self.pos += 1
        is_array = self._peek() == "["
        self.pos += is_array
        path: Path = tuple(self._key())
        self._expect("]")
        if is_array:
            self._expect("]")
            index = self._tables.get(path, 0)
            self._tables[path] = index + 1
            self.lines.setdefault(path, line)
            path = (*path, index)
        self.lines.setdefault(path, line)
        self.statements.append((path, line, True))
        return path

    def _pair(self, table: Path, depth: int) -> None:
        line = self._here()
        path = (*table, *self._key())
        self._expect("=")
        if depth == 0:
            self.statements.append((path, line, False))
        self.lines.setdefault(path, line)
        for end in range(len(table) + 1, len(path)):
            if path[:end] not in self.lines:
                self.lines[path[:end]] = line
                self.dotted.add(path[:end])
        self._blanks()
        self._value(path, depth)

    def _key(self) -> list[str]:
        parts = [self._key_part()]
        self._blanks()
        while self._peek() == ".":
            if len(parts) == MAX_DEPTH:
                raise TooDeepError(self._here())
            self.pos += 1
            parts.append(self._key_part())
            self._blanks()
        return parts

    def _key_part(self) -> str:
        self._blanks()
        start = self.pos
        quote = self._peek()
        if quote in ('"', "'"):
            self._line_string(quote)
            return _unquoted(self.text[start : self.pos])
        while self._peek() in _BARE:
            self.pos += 1
        if self.pos == start:
            raise _NotTomlError
        return self.text[start : self.pos]

    def _value(self, path: Path, depth: int) -> None:
        if depth >= MAX_DEPTH:
            raise TooDeepError(self._here())
        first = self._peek()
        if first in ('"', "'"):
            self._string(first)
        elif first == "[":
            self._array(path, depth + 1)
        elif first == "{":
            self._inline_table(path, depth + 1)
        else:
            while self._peek() not in ("", ",", "]", "}", "\n", "#"):
                self.pos += 1

    def _array(self, path: Path, depth: int) -> None:
        self.pos += 1
        index = 0
        self.open = path
        while self._skip() and self._peek() != "]":
            self.lines[*path, index] = self._here()
            self._value((*path, index), depth)
            self._skip()
            if self._peek() != "]":
                self._expect(",")
            index += 1
        self._expect("]")
        self.open = path[:-1] if depth > 1 else None

    def _inline_table(self, path: Path, depth: int) -> None:
        self.pos += 1
        while self._skip() and self._peek() != "}":
            self._pair(path, depth)
            self._skip()
            if self._peek() != "}":
                self._expect(",")
        self._expect("}")

    def _string(self, quote: str) -> None:
        if not self.text.startswith(quote * 3, self.pos):
            self._line_string(quote)
            return
        self.pos = self._closing(quote * 3, self.pos + 3)
        for _ in range(2):  # up to two quotes may precede the three that close
            self.pos += self._peek() == quote

    def _line_string(self, quote: str) -> None:
        start = self.pos
        self.pos = self._closing(quote, start + 1)
        if "\n" in self.text[start : self.pos]:
            raise _NotTomlError

    def _closing(self, quotes: str, start: int) -> int:
        at = self.text.find(quotes, start)
        while at >= 0 and quotes[0] == '"' and self._escaped(at, start):
            at = self.text.find(quotes, at + 1)
        if at < 0:
            raise _NotTomlError
        return at + len(quotes)

    def _escaped(self, at: int, start: int) -> bool:
        first = at
        while first > start and self.text[first - 1] == "\\":
            first -= 1
        return (at - first) % 2 == 1

    def _peek(self) -> str:
        return self.text[self.pos : self.pos + 1]

    def _expect(self, char: str) -> None:
        self._blanks()
        if self._peek() != char:
            raise _NotTomlError
        self.pos += 1

    def _blanks(self) -> None:
        while self._peek() in (" ", "\t"):
            self.pos += 1

    def _skip(self) -> bool:
        """Skip blanks, line ends and comments; return False at the end of the text."""
        while self.pos < len(self.text):
            char = self.text[self.pos]
            if char == "#":
                end = self.text.find("\n", self.pos)
                self.pos = len(self.text) if end < 0 else end
            elif char in _BLANK:
                self.pos += 1
            else:
                return True
        return False

    def _here(self) -> int:
        self._line += self.text.count("\n", self._counted, self.pos)
        self._counted = self.pos
        return self._line


def _unquoted(raw: str) -> str:
    if raw[0] == "'" or "\\" not in raw:
        return raw[1:-1]
    import tomllib

    try:
        return str(tomllib.loads(f"key = {raw}")["key"])
    except tomllib.TOMLDecodeError as error:
        raise _NotTomlError from error

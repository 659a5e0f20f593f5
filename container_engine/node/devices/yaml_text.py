"""Parse the part of YAML used in CDI specifications, with the standard library alone.

The tools that write such files (nvidia-ctk and others, in Go) use block mappings and sequences,
plain and quoted scalars, and flow collections within a line. Everything else (anchors, tags, block
text, several documents) is refused with its line rather than misread. Submit host and node share
this reader, so that both understand a file alike.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    Value: TypeAlias = "str | int | float | bool | list[Value] | dict[str, Value] | None"

_WORDS: dict[str, Value] = {"": None, "~": None, "null": None, "true": True, "false": False}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "e": "\x1b"}
_ESCAPES |= {"f": "\f", "v": "\v"}
_ESCAPES |= {'"': '"', "\\": "\\", "/": "/", " ": " "}
_CODES = {"x": 2, "u": 4, "U": 8}
_NOT_OURS = "&*!|>%@`"
_MAX_DEPTH = 50


class YamlError(ValueError):
    """Text that is not understood, with its line, counted from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")


def parse(text: str) -> Value:
    """Return the document. Raise YamlError."""
    return _Parser(text).document()


class _Parser:
    """A parser of one document. Methods raise YamlError.

    `lines` are (number, indentation, text) of the non-empty lines.
    """

    def __init__(self, text: str) -> None:
        self.lines: list[tuple[int, int, str]] = []
        self.at = 0
        for number, line in enumerate(text.split("\n"), 1):
            content = _without_comment(line.rstrip())
            stripped = content.lstrip(" ")
            if stripped.startswith("\t"):
                raise YamlError(number, "a tab in the indentation")
            if stripped and not (stripped == "---" and not self.lines):
                self.lines.append((number, len(content) - len(stripped), stripped))

    def document(self) -> Value:
        if not self.lines:
            return None
        value = self.block(self.lines[0][1], 0)
        if self.at < len(self.lines):
            raise YamlError(self.lines[self.at][0], f"unexpected '{self.lines[self.at][2][:40]}'")
        return value

    def block(self, indent: int, depth: int) -> Value:
        """Parse the block that begins at the current line, whose indentation is `indent`."""
        number, _indent, text = self.lines[self.at]
        if depth > _MAX_DEPTH:
            raise YamlError(number, "nested too deeply")
        if _is_item(text):
            return self.sequence(indent, depth)
        if _key_end(text, number) >= 0:
            return self.mapping(indent, depth)
        self.at += 1
        return self.scalar(text, number, indent - 1)

    def sequence(self, indent: int, depth: int) -> Value:
        items: list[Value] = []
        while self.at < len(self.lines):
            number, here, text = self.lines[self.at]
            if here != indent or not _is_item(text):
                break
            rest = text[1:].lstrip(" ")
            if rest:
                # the text after the dash is a block of its own, as if on a line of its own
                self.lines[self.at] = (number, indent + len(text) - len(rest), rest)
                items.append(self.block(self.lines[self.at][1], depth + 1))
            else:
                self.at += 1
                items.append(self.nested(indent, depth))
        return items

    def mapping(self, indent: int, depth: int) -> Value:
        table: dict[str, Value] = {}
        while self.at < len(self.lines):
            number, here, text = self.lines[self.at]
            end = _key_end(text, number) if here == indent and not _is_item(text) else -1
            if end < 0:
                break
            key = _simple(text[:end].strip(), number)
            if not isinstance(key, str):
                key = text[:end].strip()
            if key in table:
                raise YamlError(number, f"'{key}' is here twice")
            rest = text[end + 1 :].strip(" ")
            self.at += 1
            table[key] = (
                self.scalar(rest, number, indent) if rest else self.nested(indent, depth, key=True)
            )
        return table

    def nested(self, indent: int, depth: int, *, key: bool = False) -> Value:
        """Parse the block below a key or dash; a sequence may have the indentation of its key."""
        if self.at < len(self.lines):
            _number, here, text = self.lines[self.at]
            if here > indent or (key and here == indent and _is_item(text)):
                return self.block(here, depth + 1)
        return None

    def scalar(self, text: str, number: int, indent: int) -> Value:
        """Parse a value on this line, and on further ones indented deeper than `indent`."""
        while self.at < len(self.lines) and self.lines[self.at][1] > indent:
            quoted = text[:1] in "\"'"
            if quoted and _quoted_end(text, 0) >= 0:
                break
            if text[:1] in "[{":
                break
            if not quoted and _key_end(self.lines[self.at][2], number) >= 0:
                break
            following = self.lines[self.at][0]
            if following != number + 1 or (text[:1] == '"' and text.endswith("\\")):
                raise YamlError(number, "line breaks within a string are not supported")
            number = following
            text += " " + self.lines[self.at][2]
            self.at += 1
        return _simple(text, number)


def _is_item(text: str) -> bool:
    return text == "-" or text.startswith("- ")


def _without_comment(line: str) -> str:
    at = 0
    while at < len(line):
        begins = at == 0 or line[at - 1] in " \t[{,:-"
        if line[at] in "\"'" and begins:
            end = _quoted_end(line, at)
            if end < 0:
                return line
            at = end
        elif line[at] == "#" and (at == 0 or line[at - 1] in " \t"):
            return line[:at].rstrip()
        at += 1
    return line


def _quoted_end(text: str, at: int) -> int:
    """Return the index of the quote that ends the string beginning at `at`, or -1."""
    quote = text[at]
    place = at + 1
    while place < len(text):
        if text[place] == "\\" and quote == '"':
            place += 1
        elif text[place] == quote:
            if quote == "'" and text[place + 1 : place + 2] == "'":
                place += 1
            else:
                return place
        place += 1
    return -1


def _key_end(text: str, number: int) -> int:
    """Return the index of the colon after a key at the beginning of `text`, or -1.

    Raise YamlError for a key that is not a simple word.
    """
    if text[:1] in "\"'":
        end = _quoted_end(text, 0)
        if end < 0:
            return -1
        rest = text[end + 1 :].lstrip(" ")
        is_key = rest == ":" or rest.startswith(": ")
        return len(text) - len(rest) if is_key else -1
    if text[:1] in "[{":
        return -1
    if text.startswith("? "):
        raise YamlError(number, "only simple words are supported as keys")
    place = text.find(": ")
    return place if place >= 0 else len(text) - 1 if text.endswith(":") else -1


def _simple(text: str, number: int) -> Value:
    if text[:1] in ("[", "{"):
        value, end = _flow(text, 0, number)
        if text[end:].strip():
            raise YamlError(number, f"unexpected '{text[end:].strip()[:40]}'")
        return value
    if text[:1] in ('"', "'"):
        end = _quoted_end(text, 0)
        if end != len(text) - 1:
            raise YamlError(number, "a string whose quotes do not match")
        return _unquoted(text, number)
    return _plain(text, number)


def _flow(text: str, at: int, number: int, depth: int = 0) -> tuple[Value, int]:
    """Parse a collection or scalar within a line; return it and the index after it.

    Raise YamlError.
    """
    opening = text[at : at + 1]
    if opening not in ("[", "{"):
        return _flow_scalar(text, at, number)
    if depth > _MAX_DEPTH:
        raise YamlError(number, "nested too deeply")
    items: list[Value] = []
    table: dict[str, Value] = {}
    closing = "]" if opening == "[" else "}"
    at = _blank(text, at + 1)
    while text[at : at + 1] != closing:
        value, at = _flow(text, at, number, depth + 1)
        at = _blank(text, at)
        if opening == "{":
            if text[at : at + 1] != ":":
                raise YamlError(number, "expected 'key: value' between braces")
            table[str(value)], at = _flow(text, _blank(text, at + 1), number, depth + 1)
            at = _blank(text, at)
        else:
            items.append(value)
        if text[at : at + 1] == ",":
            at = _blank(text, at + 1)
        elif text[at : at + 1] != closing:
            raise YamlError(number, f"a '{opening}' that is not closed on its line")
    return (items if opening == "[" else table), at + 1


def _flow_scalar(text: str, at: int, number: int) -> tuple[Value, int]:
    if text[at : at + 1] in ('"', "'"):
        end = _quoted_end(text, at)
        if end < 0:
            raise YamlError(number, "a string whose quotes do not match")
        return _unquoted(text[at : end + 1], number), end + 1
    end = at
    while end < len(text) and text[end] not in ",]}":
        if text[end] == ":" and text[end + 1 : end + 2] in ("", " "):
            break
        end += 1
    if end == at or text[at:end].startswith("? "):
        raise YamlError(number, "a value is missing between brackets")
    return _plain(text[at:end].strip(), number), end


def _blank(text: str, at: int) -> int:
    while text[at : at + 1] == " ":
        at += 1
    return at


def _plain(text: str, number: int) -> Value:
    if text[:1] and text[0] in _NOT_OURS:
        raise YamlError(number, f"'{text[:20]}': anchors, tags and block text are not supported")
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    digits = text.removeprefix("-").removeprefix("+")
    base = {"0x": 16, "0o": 8}.get(digits[:2], 10)
    if digits[:1].isdigit() and digits.isascii():
        for convert in (lambda: int(text, base), lambda: float(text)):
            try:
                return convert()
            except ValueError:
                continue
    return text


def _unquoted(text: str, number: int) -> str:
    body = text[1:-1]
    if text[0] == "'":
        return body.replace("''", "'")
    result, at = "", 0
    while at < len(body):
        if body[at] != "\\":
            result += body[at]
            at += 1
            continue
        code = body[at + 1 : at + 2]
        if code in _CODES:
            size = _CODES[code]
            try:
                result += chr(int(body[at + 2 : at + 2 + size], 16))
            except (ValueError, OverflowError):
                raise YamlError(number, f"'\\{code}' without {size} digits") from None
            at += 2 + size
        elif code in _ESCAPES:
            result += _ESCAPES[code]
            at += 2
        else:
            raise YamlError(number, f"'\\{code}' is not an escape")
    return result

"""Explains why a text is not TOML: the line, a caret below it and the reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from container_engine.base.secrecy import TOKENS, is_secret_name
from container_engine.base.toml_positions import Positions
from container_engine.edf.checks import find_placeholder, key_text
from container_engine.edf.document import KEYS
from container_engine.edf.model import Problem
from container_engine.edf.names import WINDOWS, WINDOWS_HINT

if TYPE_CHECKING:
    import tomllib

_MARK = " (at "
_WIDTH = 100
_NO_QUOTE = 'Expected "\'"'


def syntax_problem(path: str, text: str, error: tomllib.TOMLDecodeError) -> Problem:
    """Return the problem with an excerpt.

    The parser's own message is used only if no common mistake is recognised.
    """
    words, number, column = _words_and_place(error, text)
    place = _place(text, number, column)
    message, hint = next((one for rule in _RULES if (one := rule(place))), (words, None))
    excerpt = _excerpt(place) if place.line.strip() else None
    return Problem("error", path, number, "", message, hint, excerpt)


def _words_and_place(error: tomllib.TOMLDecodeError, text: str) -> tuple[str, int, int]:
    """Return the message, line and column of an error.

    Python before 3.14 gives the place only in the message, always as its last part.
    """
    words, _, where = str(error).rpartition(_MARK)
    numbers = [int(word) for word in where.strip(")").replace(",", "").split() if word.isdigit()]
    if len(numbers) != 2:
        last = text.rstrip().count("\n") + 1
        numbers = [last, len(text.rstrip().split("\n")[-1]) + 1]
    if words == _NO_QUOTE:
        numbers = _unclosed(text) or numbers
    return f"{words[:1].lower()}{words[1:]}", numbers[0], numbers[1]


def _unclosed(text: str) -> list[int] | None:
    """Return line and column of the end of the first line with a string in ' that is not closed.

    The parser looks for the ' to the end of the file, and stops there.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        code = re.sub(r'"(?:\\.|[^"\\])*"|#.*', "", line.replace("'''", ""))
        if code.count("'") % 2:
            return [number, len(line.rstrip()) + 1]
    return None


def _place(text: str, number: int, column: int) -> Place:
    lines = text.split("\n")
    line = lines[number - 1] if number <= len(lines) else ""
    above = [*lines[: number - 1], line[: column - 1]]
    before_it, positions = Positions("\n".join(above)), Positions(text)
    return Place(number, column, line, _last_code(above), before_it, positions)


def _last_code(lines: list[str]) -> str:
    """Return the last character of code, "" if there is none; " #" is taken for a comment."""
    for line in reversed(lines):
        code = line.strip()
        if code and not code.startswith("#"):
            return code.partition(" #")[0].rstrip()[-1]
    return ""


def _excerpt(place: Place) -> str:
    """Return the line with a caret below it; of a long line the part around the caret."""
    start = max(0, place.column - 1 - _WIDTH * 3 // 4) if len(place.line) > _WIDTH else 0
    line = _without_secret(place.line)
    shown = "".join(c if c.isprintable() else " " for c in line[start : start + _WIDTH])
    margin = f"{place.number:5} | "
    caret = " " * (len(margin) - 2) + "| " + " " * (place.column - 1 - start) + "^"
    return f"{margin}{shown}\n{caret}"


def _without_secret(line: str) -> str:
    """Replace a secret with as many stars, so that the caret stays in place."""
    name, equals, value = line.partition("=")
    if equals and is_secret_name(name.strip().strip("\"'").rpartition(".")[2]):
        stars = "".join(c if c in "\"' #\t" else "*" for c in value)
        return f"{name}{equals}{stars}"
    return re.sub(TOKENS, lambda match: "*" * len(match[0]), line)


_DOCKERFILE_WORDS = ("ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "RUN", "WORKDIR")
_NOT_EDF = "keep only the lines of the environment file itself"
_SHELL_WORDS = (
    "cat", "cd", "curl", "echo", "EOF", "mkdir", "ml", "module", "podman", "salloc", "sbatch",
    "source", "srun", "sudo", "wget",
)  # fmt: skip
_SWITCHES = {"yes": "true", "no": "false", "on": "true", "off": "false"}
_SINGLE_BACKSLASH = r"write '\\' for a backslash, or put the string in single quotes"

# spaces of web pages and word processors: no-break, narrow, wide and zero-width
_BLANKS = tuple("\u00a0\u2002\u2003\u2007\u2009\u200b\u202f\u3000\ufeff")

# A message and a hint.
Advice = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Place:
    """The place where the parser stopped: `number` and `column` count from 1.

    `previous` is the last character of code before it; `before_it` are the positions in the text
    before it, `positions` those in the whole text.
    """

    number: int
    column: int
    line: str
    previous: str
    before_it: Positions
    positions: Positions

    @property
    def char(self) -> str:
        return self.line[self.column - 1 : self.column]

    @property
    def before(self) -> str:
        return self.line[: self.column - 1].rstrip()

    @property
    def key(self) -> str:
        return self.line.partition("=")[0].strip()

    @property
    def value(self) -> str:
        """Return the text after the first `=`, without what looks like a comment on this line."""
        value = self.line.partition("=")[2].strip()
        return value if value.startswith(('"', "'")) else value.partition(" #")[0].strip()


def _shell(place: Place) -> Advice | None:
    line = place.line.strip()
    if line.startswith(("$ ", "> ", "% ")):
        return "a shell prompt is not TOML", _NOT_EDF
    if line.startswith("```"):
        return "the fence of a Markdown code block (```) is not TOML", _NOT_EDF
    word, _, rest = line.partition(" ")
    if word == "export":
        name, _, value = rest.partition("=")
        return "'export' is not TOML", f'write {name.strip()} = "{_bare(value)}" below [env]'
    if word in _SHELL_WORDS and not rest.lstrip().startswith("="):
        return f"the shell command '{word}' is not TOML", _NOT_EDF
    return None


def _other_language(place: Place) -> Advice | None:
    line = place.line.strip()
    word, _, rest = line.partition(" ")
    if word in _DOCKERFILE_WORDS and rest and not rest.lstrip().startswith("="):
        hint = 'ce build -t NAME DIRECTORY builds an image from it, for image = "NAME"'
        return "this looks like a Dockerfile, not TOML", hint
    if line.startswith("{") and not place.before_it.last_statement(place.number):
        return "this looks like JSON, not TOML", "write KEY = VALUE lines and [table] headings"
    if line.startswith("<") and ">" in line:
        return "this looks like a web page, not TOML", "download the file itself, not its page"
    name, colon, rest = line.partition(":")
    if colon and place.char == ":" and name.strip().replace("_", "").isalnum():
        hint = f'write {name.strip()} = "{_bare(rest)}"' if rest else f"write {name.strip()} = …"
        return "':' does not separate a key from its value", hint
    return None


def _quotes(place: Place) -> Advice | None:
    if any(mark in place.line for mark in "\u201c\u201d\u2018\u2019\u201e"):
        return "typographic quotes are not TOML", "use straight quotes: \"…\" or '…'"
    return None


def _invisible(place: Place) -> Advice | None:
    """Recognise what looks like a space or the end of a line and is neither in TOML."""
    if place.char in _BLANKS:
        name = f"U+{ord(place.char):04X}"
        return f"a special space ({name}), which TOML does not allow", "type a plain space instead"
    if "\r" in place.line.rstrip("\r"):
        return "the lines end with carriage returns alone", "save it with the line ends of Unix"
    return None


def _backslash(place: Place) -> Advice | None:
    around = place.line[max(0, place.column - 3) : place.column]
    if re.search(r'"[A-Za-z]:\\', place.line):
        return WINDOWS, WINDOWS_HINT
    # the parser stops up to two characters after the backslash
    if "\\" in around and place.line.count('"', 0, place.column) % 2:
        return "a backslash begins an escape that TOML does not know", _SINGLE_BACKSLASH
    return None


def _dots(place: Place) -> Advice | None:
    if place.value.startswith(("...", "[...", "[ ...")) or place.line.strip() in ("...", "…"):
        return "'...' is a placeholder", "put your own values in its place"
    return None


def _unclosed_string(place: Place) -> Advice | None:
    if place.char:
        return None
    for mark in ('"', "'"):
        if place.line.count(mark * 3) % 2:
            return f"a string that begins with {mark * 3} is not closed", f"end it with {mark * 3}"
        if place.line.count(mark) % 2:
            return f"a string is not closed, its {mark} is missing on this line", None
    return None


def _array(place: Place) -> Advice | None:
    statement = place.before_it.last_statement(place.number)
    if statement is None or not place.before_it.is_open_array(statement[0]):
        return None
    is_next = not place.before and (place.char == "[" or place.line.partition("=")[1] != "")
    if not place.char or (is_next and place.char not in ('"', "'")):
        return f"the array that begins on line {statement[1]} is not closed", "end it with ']'"
    if place.previous in ("[", ","):
        item = _bare(place.line[place.column - 1 :].replace("]", ",").partition(",")[0])
        return "a string must be in quotes", f'write "{item}"'
    if place.char in ('"', "'"):
        return "a comma is missing before this item", "the items of an array are separated by ','"
    return "a quote or a comma is missing here", None


def _inline_table(place: Place) -> Advice | None:
    if place.char == "}" and place.before.endswith(","):
        return "a comma before '}'", "the last entry of an inline table has no comma after it"
    if not place.char and place.previous in ("{", ",") and "{" in place.line:
        hint = f"write [{place.key}] on a line of its own and the entries below it"
        return "an inline table must be on one line", hint
    return None


def _parentheses(place: Place) -> Advice | None:
    if place.char == "(" and place.previous == "=":
        return "parentheses are not TOML", "an array is written in [ ]"
    return None


def _value(place: Place) -> Advice | None:
    value = place.value
    if "=" not in place.line or place.line.index("=") >= place.column - 1 or not place.key:
        return None
    if not value or value.startswith("#"):
        return f"no value after '{place.key} ='", f'write {place.key} = "" for an empty string'
    if value[0] in "\"'[{,":
        return None
    switch = _SWITCHES.get(value.lower(), value.lower())
    if switch in ("true", "false"):
        return f"'{value}' is not a TOML value", f"write {place.key} = {switch}"
    placeholder = find_placeholder(value)
    if placeholder is not None:
        return f"'{placeholder}' is a placeholder", "put your own value in its place, in quotes"
    return "a string must be in quotes", f'write {place.key} = "{_bare(value)}"'


def _after_value(place: Place) -> Advice | None:
    if place.previous == "=" or "=" not in place.before:
        return None
    if place.char == ",":
        return "a comma after the value", "lines end without a comma, only items are separated"
    if place.char == ";":
        return "a ';' after the value", "lines end without it"
    if place.char in ('"', "'"):
        return "a second value on this line", "several values are an array: [ …, … ]"
    return None


def _heading(place: Place) -> Advice | None:
    line = place.line.strip()
    if line.startswith("[") and "]" not in line and not place.before.endswith(","):
        return "the name of a table is not closed", f"write {line.partition(' ')[0]}]"
    return None


def _twice(place: Place) -> Advice | None:
    statement = place.positions.last_statement(place.number)
    if statement is None:
        return None
    path, line, is_table = statement
    first = place.positions.line(path)
    if first >= line:
        return None
    if not is_table:
        return f"'{key_text(path)}' is written twice, first on line {first}", "remove one of them"
    if place.positions.begun_by_dots(path) and len(path) > 1:
        hint = f"continue in the same form: {key_text(path[1:])}.NAME = … below [{path[0]}]"
        return f"[{key_text(path)}] is begun by dotted keys on line {first}", hint
    return f"[{key_text(path)}] is defined twice, first on line {first}", "put its keys together"


def _key(place: Place) -> Advice | None:
    line = place.line.strip()
    if not line or line.startswith("["):
        return None
    if "=" in line:
        words = place.key.split()
        if len(words) > 1 and words[0].isalnum() and len(place.before) < place.line.index("="):
            return "a key of several words must be in quotes", f'write "{place.key}" ='
        return None
    name = line.partition(" ")[0]
    if name in KEYS:
        return f"no '=' after '{name}'", f"write {name} = …"
    return "neither KEY = VALUE nor a [table]", "a comment begins with '#'"


def _bare(text: str) -> str:
    return text.strip().rstrip(",;").strip("\"'")


_RULES: tuple[Callable[[Place], Advice | None], ...] = (
    _shell,
    _other_language,
    _quotes,
    _invisible,
    _backslash,
    _dots,
    _unclosed_string,
    _array,
    _inline_table,
    _parentheses,
    _value,
    _after_value,
    _heading,
    _twice,
    _key,
)

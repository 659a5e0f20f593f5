"""Splits a string of an EDF into nodes: literal text and variables, as written.

Unsupported forms are refused here, wherever they are, so that they can never be executed.
"""

from __future__ import annotations

from container_engine.base.errors import UserError

TYPE_CHECKING = False  # avoids the import of typing; type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Sequence

    from container_engine.edf.deferred_text import Operator

Fault = tuple["str", "str | None"]

MAX_DEPTH = 20
MAX_VARIABLES = 10_000
_NAME_START = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_NAME_CHARS = _NAME_START | frozenset("0123456789")
_OPERATORS: tuple[Operator, ...] = (":-", ":+", ":?", "-", "+", "?")
_NOT_EXECUTED = (
    "run the command before the launch, export its output as a variable and use that here; "
    "a literal {literal} is written {escaped}"
)
_FORMS = "supported are ${VAR} and ${VAR<op>word} with the operators :- - :+ + :? ?"


class ExpandError(UserError):
    """A string that cannot be expanded; `faults` are all reasons, each with its hint."""

    def __init__(self, faults: Sequence[Fault], see: str = "variable-form") -> None:
        super().__init__(*faults[0], see)
        self.faults = tuple(faults)


class Expansion:
    """`$name` or `${name<op>word}` as written."""

    def __init__(self, name: str, op: Operator, word: list[str | Expansion]) -> None:
        self.name = name
        self.op = op
        self.word = word


def scan(text: str) -> list[str | Expansion]:
    """Return the nodes of the text. Raise ExpandError for unsupported forms."""
    return _Scanner(text).scan()


def names(nodes: list[str | Expansion]) -> set[str]:
    """Return every variable that the nodes mention, including those in words."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, Expansion):
            found |= {node.name} | names(node.word)
    return found


class _Scanner:
    """A scanner of one string; each method leaves `pos` just after what it has read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0
        self.variables = 0

    def scan(self) -> list[str | Expansion]:
        nodes: list[str | Expansion] = []
        while self.pos < len(self.text):
            at = self.text.find("$", self.pos)
            end = len(self.text) if at < 0 else at
            if "`" in self.text[self.pos : end]:
                raise _backtick()
            if end > self.pos:
                nodes.append(self.text[self.pos : end])
            self.pos = end
            if at >= 0:
                nodes.append(self._dollar(0))
        return nodes

    def _dollar(self, depth: int) -> str | Expansion:
        after = self.text[self.pos + 1 : self.pos + 2]
        if after in ("$", "`") and after:
            self.pos += 2
            return after
        if after == "(":
            raise self._substitution()
        if after == "{":
            self.pos += 2
            self._count()
            return self._braces(depth)
        self.pos += 1
        name = self._name()
        if not name:
            return "$"
        self._count()
        return Expansion(name, "", [])

    def _count(self) -> None:
        self.variables += 1
        if self.variables > MAX_VARIABLES:
            raise ExpandError([(f"more than {MAX_VARIABLES} variables in one value", None)])

    def _name(self) -> str:
        start = self.pos
        if self.text[start : start + 1] not in _NAME_START:
            return ""
        end = start + 1
        while end < len(self.text) and self.text[end] in _NAME_CHARS:
            end += 1
        self.pos = end
        return self.text[start:end]

    def _braces(self, depth: int) -> Expansion:
        start = self.pos - 2
        if depth >= MAX_DEPTH:
            raise ExpandError([(f"'${{' nested more than {MAX_DEPTH} deep", None)])
        name = self._name()
        if name == "image":
            name += self._image_name()
        op = self._operator()
        if name and op:
            return Expansion(name, op, self._word(start, depth + 1))
        if not name or self.text[self.pos : self.pos + 1] != "}":
            raise self._unsupported(start)
        self.pos += 1
        return Expansion(name, "", [])

    def _image_name(self) -> str:
        """Read the rest of `image:NAME`; return "" for the variable `image` with an operator."""
        if self.text[self.pos : self.pos + 1] != ":" or (
            self.text[self.pos + 1 : self.pos + 2] not in _NAME_START
        ):
            return ""
        self.pos += 1
        return f":{self._name()}"

    def _operator(self) -> Operator:
        for op in _OPERATORS:
            if self.text.startswith(op, self.pos):
                self.pos += len(op)
                return op
        return ""

    def _word(self, start: int, depth: int) -> list[str | Expansion]:
        """Read up to the closing brace; `\\}` and `\\\\` stand for `}` and `\\`."""
        nodes: list[str | Expansion] = []
        run: list[str] = []
        while self.pos < len(self.text):
            char = self.text[self.pos]
            if char == "}":
                self.pos += 1
                return [*nodes, "".join(run)]
            if char == "`":
                raise _backtick()
            if char == "$":
                nodes += ["".join(run), self._dollar(depth)]
                run = []
                continue
            if char == "\\" and self.text[self.pos + 1 : self.pos + 2] in ("\\", "}"):
                self.pos += 1
            run.append(self.text[self.pos : self.pos + 1])
            self.pos += 1
        raise self._unsupported(start)

    def _substitution(self) -> ExpandError:
        kind = "arithmetic" if self.text.startswith("$((", self.pos) else "command substitution"
        closing = "))" if kind == "arithmetic" else ")"
        excerpt = self._excerpt(self.pos, closing)
        hint = _NOT_EXECUTED.format(literal="'$('", escaped="'$$('")
        return ExpandError([(f"{kind} '{excerpt}' is not supported in an EDF", hint)])

    def _unsupported(self, start: int) -> ExpandError:
        if self.text.find("}", self.pos) < 0:
            excerpt = self._excerpt(start, "")
            return ExpandError([(f"'{excerpt}' lacks its '}}'", "a literal '$' is written '$$'")])
        excerpt = self._excerpt(start, "}")
        return ExpandError([(f"'{excerpt}' is not supported in an EDF", _FORMS)])

    def _excerpt(self, start: int, closing: str) -> str:
        at = self.text.find(closing, start) if closing else -1
        end = at + len(closing) if at >= 0 else len(self.text)
        return self.text[start:end] if end - start <= 40 else f"{self.text[start : start + 37]}..."


def _backtick() -> ExpandError:
    hint = _NOT_EXECUTED.format(literal="backtick", escaped="'$`'")
    return ExpandError([("a command in backticks is not supported in an EDF", hint)])

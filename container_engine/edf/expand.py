"""Expands variables in the strings of an EDF. No shell is involved, and nothing is ever executed.

There are two steps. First, a scanner turns the string into nodes and refuses unsupported forms,
wherever they are. Then the nodes are evaluated, so that an unused word of a `${NAME:-word}` may
name variables that do not exist. The value of a variable is *protected*: it is never scanned
again, and a mount is not split at a colon in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from container_engine.base.errors import UserError
from container_engine.base.text_layout import nearest
from container_engine.base.variables import (
    MISSING,
    NOTHING,
    OF_TASKS,
    TOO_EARLY,
    VALUE,
    WORD,
    replacement_kind,
)
from container_engine.edf.model import Operator, Text, Variable, join, shown

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


# A piece of an evaluated string, and whether it is protected.
Piece = tuple[str | Variable, bool]

MAX_EXPANDED = 1 << 20

# If srun is called in a batch script or in a step, its values of these describe that script's node
# or that step, not the new one, which may have other GPUs.
_OF_GPUS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "SLURM_GPUS_ON_NODE")
_OF_NODES = ("SLURMD_NODENAME", "SLURM_NODEID", *_OF_GPUS, *OF_TASKS)
_OF_STEPS = "SLURM_STEP"


class Scope:
    """The variables known to a string: `env` of the caller, overridden by `own` (EDF_DIR).

    `deferred` checks whether a name that is defined in neither exists on the compute node. If the
    value of such a name differs between nodes or steps, it is never looked up in `env`.
    """

    def __init__(
        self, env: Mapping[str, str], own: Mapping[str, str], deferred: Callable[[str], bool]
    ) -> None:
        self.env = env
        self.own = own
        self.deferred = deferred

    def get(self, name: str) -> str | None:
        value = self.own.get(name)
        if value is not None or (is_of_nodes(name) and self.deferred(name)):
            return value
        return self.env.get(name)


def is_of_nodes(name: str) -> bool:
    """Check whether only a node of the step knows the value of the variable."""
    return name in _OF_NODES or name.startswith(_OF_STEPS)


def expand(text: str, scope: Scope, target: str = "") -> Text:
    """Return the text with every variable replaced. Raise ExpandError with all faults.

    `target` is the variable whose value the text becomes, "" for any other text; hints name it.
    """
    if "$" not in text and "`" not in text:
        return text
    return join([part for part, _ in pieces(text, scope, target)])


def pieces(text: str, scope: Scope, target: str = "") -> list[Piece]:
    """Expand as `expand` does, but keep literal text apart from the values of variables."""
    evaluation = _Evaluation(scope, target)
    result = evaluation.evaluate(scan(text))
    if evaluation.faults:
        raise ExpandError(list(dict.fromkeys(evaluation.faults)), "variable-undefined")
    return result


class _Evaluation:
    """The evaluation of nodes to pieces; it collects faults so that one run reports them all."""

    def __init__(self, scope: Scope, target: str) -> None:
        self.scope = scope
        self.target = target
        self.faults: list[Fault] = []
        self.size = 0

    def evaluate(self, nodes: list[str | Expansion], *, protected: bool = False) -> list[Piece]:
        result: list[Piece] = []
        for node in nodes:
            if isinstance(node, str):
                result.append((node, protected))
                self._grow(node)
            else:
                result.extend(self._variable(node))
        return result

    def _variable(self, var: Expansion) -> list[Piece]:
        value = self.scope.get(var.name)
        if var.name.startswith("image:") or (value is None and self.scope.deferred(var.name)):
            word = self._word(var)
            if var.name in OF_TASKS and replacement_kind(var.op, None) == MISSING:
                hint = f"in the task: sh -c 'export NAME=${var.name}; exec PROGRAM'"
                said = (shown(word), None) if word else (TOO_EARLY, hint)
                self.faults.append((f"${{{var.name}}}: {said[0]}", said[1]))
            return [(Variable(var.name, var.op, word), True)]
        kind = replacement_kind(var.op, value)
        if kind == WORD:
            return self.evaluate(var.word, protected=True)
        if kind == VALUE and value is not None:
            return [(self._value(var.name, value), True)]
        if kind != NOTHING:
            self._missing(var)
        return []

    def _word(self, var: Expansion) -> Text:
        return join([part for part, _ in self.evaluate(var.word)])

    def _value(self, name: str, value: str) -> str:
        self._grow(value)
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:  # surrogates, with which Python decodes invalid bytes
                self.faults.append((f"the value of variable '{name}' is not valid UTF-8", None))
        return value

    def _missing(self, var: Expansion) -> None:
        if not var.op:
            meant = nearest(var.name, (*self.scope.own, *self.scope.env))
            hint = f"is {meant} meant? Otherwise " if meant else ""
            hint += f"export {var.name} before the launch, or write ${{{var.name}:-default}}"
            if var.name == self.target:
                hint = f"write ${{image:{var.name}:-}} for the value of the image, if it has one"
            self.faults.append((f"variable '{var.name}' is not defined", hint))
            return
        state = "unset or empty" if var.op == ":?" else "not set"
        reason = shown(self._word(var))
        detail = f": {reason}" if reason else ""
        self.faults.append((f"variable '{var.name}' is {state}{detail}", None))

    def _grow(self, text: str) -> None:
        self.size += len(text)
        if self.size > MAX_EXPANDED:
            raise ExpandError([(f"expands to more than {MAX_EXPANDED >> 20} MiB", None)])

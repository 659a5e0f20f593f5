"""Expands variables in the strings of an EDF. No shell is involved, and nothing is ever executed.

There are two steps. First, a scanner turns the string into nodes and refuses unsupported forms,
wherever they are. Then the nodes are evaluated, so that an unused word of a `${NAME:-word}` may
name variables that do not exist. The value of a variable is *protected*: it is never scanned
again, and a mount is not split at a colon in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from container_engine.base.deferred_operators import (
    MISSING,
    NOTHING,
    OF_TASKS,
    TOO_EARLY,
    VALUE,
    WORD,
    replacement_kind,
)
from container_engine.edf.deferred_text import Text, Variable, join
from container_engine.edf.tokens import ExpandError, Expansion, Fault, scan

# A piece of an evaluated string, and whether it is protected.
Piece = tuple[str | Variable, bool]

MAX_EXPANDED = 1 << 20

# If srun is called in a batch script or in a step, its values of these describe that script's node
# or that step, not the new one.
_OF_NODES = ("SLURMD_NODENAME", "SLURM_NODEID", *OF_TASKS)
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


def escape(text: Text) -> str:
    """Return a string that expands to `text` again, its deferred variables still deferred."""
    return spell(text, _escape_literal)


def spell(text: Text, literal: Callable[[str], str]) -> str:
    """Return the text with its deferred variables as `${NAME}`; `literal` spells the rest."""
    if isinstance(text, str):
        return literal(text)
    return "".join(
        literal(part) if isinstance(part, str) else f"${{{part.var}{part.op}{_word(part.word)}}}"
        for part in text
    )


def _word(word: Text) -> str:
    return spell(word, lambda part: _escape_literal(part.replace("\\", "\\\\").replace("}", "\\}")))


def shown(text: Text) -> str:
    """Return the text for a message: as it is or, with deferred variables, as `escape` does."""
    return text if isinstance(text, str) else escape(text)


def _escape_literal(text: str) -> str:
    return text.replace("$", "$$").replace("`", "$`")


def deferred_names(text: Text) -> list[str]:
    """Return the names of all deferred variables in the text, including those in words."""
    if isinstance(text, str):
        return []
    names: list[str] = []
    for part in text:
        if isinstance(part, Variable):
            names.append(part.var)
            names.extend(deferred_names(part.word))
    return names


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
            hint = f"export {var.name} before the launch, or write ${{{var.name}:-default}}"
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

"""Record which variables of a step a decision asks for.

A later step in which these have the same values, or are set or unset again, gets the same answer.
"""

from __future__ import annotations

# loaded by Python itself; collections.abc would cost another import
from _collections_abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


class AskedVariables(Mapping[str, str]):
    """The variables of a step. `asked` has the state of each that was looked up.

    A state is "=" and the value, "+" if it was only asked whether the variable is set, and "-" if
    it is not. `are_all` becomes True once somebody has gone through all of them. `aside` are what
    `without_record` returns.
    """

    def __init__(self, variables: Mapping[str, str], aside: Mapping[str, str]) -> None:
        self._variables, self.aside = variables, aside
        self.asked: dict[str, str] = {}
        self.are_all = False

    def __getitem__(self, name: str) -> str:
        self.asked[name] = state_of(self._variables, name)
        return self._variables[name]

    def __contains__(self, name: object) -> bool:
        is_set = name in self._variables
        self.asked.setdefault(str(name), "+" if is_set else "-")
        return is_set

    def __iter__(self) -> Iterator[str]:
        self.are_all = True
        return iter(self._variables)

    def __len__(self) -> int:
        self.are_all = True
        return len(self._variables)


def state_of(variables: Mapping[str, str], name: str) -> str:
    """Return the state of a variable as AskedVariables has it for one whose value counts."""
    return f"={variables[name]}" if name in variables else "-"


def without_record(node: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables for what ce-node computes itself: looking them up leaves no record."""
    return node.aside if isinstance(node, AskedVariables) else node

"""Every code is provoked, on the cluster or by a file alone, or listed with the reason why not."""

import ast
from collections.abc import Iterator
from pathlib import Path

from container_engine.faults.catalogue import FAULTS

TESTS = Path(__file__).parents[2]
PROVOKING = (*TESTS.glob("slurm/test_*.py"), TESTS / "unit/cli/test_refusals.py")

# Code: the reason why no such test can provoke it.
NOT_PROVOKED = {
    "environment-not-inherited": "needs a Slurm with other names of variables; the C tests do it",
    "step-async": "needs Slurm 26.05 with its step manager; the C tests do it",
    "entrypoint-ended": "needs an image with one; tests/integration/test_start.py does it",
    "virtual-environment": "needs an image with Python; tests/integration/test_venvs.py does it",
    "task-container": "needs a limit between two containers of a node; the C tests do it",
    "plugin-contained": "needs Slurm 24.05 or newer with contain_spank; the C tests do it",
}


def _strings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _provoked() -> set[str]:
    """Return the codes that tests expect, alone or in the last line of an error."""
    found = {text for path in PROVOKING for text in _strings(path)}
    return {code for code in FAULTS if {code, f"ce: see: ce help {code}"} & found}


def test_every_code_is_provoked_or_says_why_not() -> None:
    assert set(FAULTS) - _provoked() == set(NOT_PROVOKED)


def test_the_promise_is_kept_for_at_least_sixty_codes() -> None:
    assert len(_provoked()) >= 60

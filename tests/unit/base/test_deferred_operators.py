"""The rule for `${NAME<op>word}` is that of a POSIX shell."""

import subprocess

import pytest

from container_engine.base.deferred_operators import MISSING, NOTHING, VALUE, WORD, replacement_kind

OPERATORS = ["", ":-", "-", ":+", "+", ":?", "?"]
SHELLS = {"value": VALUE, "word": WORD, "": NOTHING}


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("value", [None, "", "value"])
def test_the_choice_is_the_shells(operator: str, value: str | None) -> None:
    environment = {} if value is None else {"NAME": value}
    word = f"{operator}word" if operator else ""
    done = subprocess.run(
        ["/bin/sh", "-uc", f'printf %s "${{NAME{word}}}"'],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    expected = MISSING if done.returncode else SHELLS[done.stdout]
    if value == "" and expected == NOTHING and replacement_kind(operator, value) == VALUE:
        expected = VALUE  # an empty value looks like nothing
    assert replacement_kind(operator, value) == expected

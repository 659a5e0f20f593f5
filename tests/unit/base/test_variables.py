"""Variables that choose code are one list, which C has, too; `${NAME<op>word}` is as in a shell."""

import re
import subprocess

import pytest

from container_engine.base import variables
from container_engine.base.variables import MISSING, NOTHING, VALUE, WORD, replacement_kind
from container_engine.node.container import environment
from tests.c_header import SPANK_PLUGIN

OPERATORS = ["", ":-", "-", ":+", "+", ":?", "?"]
SHELLS = {"value": VALUE, "word": WORD, "": NOTHING}


def test_the_programs_in_c_have_the_same_list_and_names() -> None:
    source = (SPANK_PLUGIN / "common/held.c").read_text(encoding="utf-8")
    (body,) = re.findall(r"choosing\[\] = \{(.*?)\}", source, re.DOTALL)
    assert tuple(re.findall(r'"(.*?)"', body)) == variables.CHOOSING_CODE
    header = (SPANK_PLUGIN / "common/held.h").read_text(encoding="utf-8")
    assert re.findall(r'^#define \w+ "(.*)"', header, re.MULTILINE) == [
        variables.HELD,
        environment.OF_CONTAINER,
        environment.OF_JOB,
    ]


def test_a_name_is_compared_as_a_whole_where_it_is_one() -> None:
    chosen = [name for name in ("ENV", "ENVIRONMENT", "LD_X") if variables.chooses_code(name)]
    assert chosen == ["ENV", "LD_X"]


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

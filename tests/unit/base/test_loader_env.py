"""Variables that choose code: one list, which C has, too."""

import re

from container_engine.base import loader_env
from container_engine.node.container import environment
from tests.c_header import SPANK_PLUGIN


def test_the_programs_in_c_have_the_same_list_and_names() -> None:
    source = (SPANK_PLUGIN / "common/held.c").read_text(encoding="utf-8")
    (body,) = re.findall(r"choosing\[\] = \{(.*?)\}", source, re.DOTALL)
    assert tuple(re.findall(r'"(.*?)"', body)) == loader_env.CHOOSING_CODE
    header = (SPANK_PLUGIN / "common/held.h").read_text(encoding="utf-8")
    assert re.findall(r'^#define \w+ "(.*)"', header, re.MULTILINE) == [
        loader_env.HELD,
        environment.OF_CONTAINER,
        environment.OF_JOB,
    ]


def test_a_name_is_compared_as_a_whole_where_it_is_one() -> None:
    chosen = [name for name in ("ENV", "ENVIRONMENT", "LD_X") if loader_env.chooses_code(name)]
    assert chosen == ["ENV", "LD_X"]

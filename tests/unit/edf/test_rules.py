"""Each rule of the format has a case or a test, and each case is about a rule of its section."""

import tomllib
from pathlib import Path
from typing import NamedTuple

from tests.unit.edf.cases import DATA

ROOT = DATA.parents[2]
SECTIONS = range(1, 11)


class Rule(NamedTuple):
    section: int
    says: str
    cases: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()


def rules() -> list[Rule]:
    document = tomllib.loads((DATA / "rules.toml").read_text(encoding="utf-8"))
    return [Rule(**rule) for rule in document["rule"]]


def cases() -> set[str]:
    files = [*DATA.glob("good/*.toml"), *DATA.glob("bad/*.toml")]
    return {f"{path.parent.name}/{path.stem}" for path in files}


def is_there(test: str) -> bool:
    file, _, function = test.partition("::")
    path = ROOT / file
    return path.is_file() and (not function or f"def {function}(" in path.read_text("utf-8"))


def section_of(case: str) -> int:
    return int(Path(case).name.partition("-")[0])


def test_no_rule_is_without_a_case() -> None:
    bare = [f"{rule.section}: {rule.says}" for rule in rules() if not (rule.cases or rule.tests)]
    assert bare == []


def test_every_section_has_rules_and_cases() -> None:
    assert {rule.section for rule in rules()} == set(SECTIONS)
    assert {section_of(case) for case in cases()} == set(SECTIONS)


def test_what_a_rule_names_exists() -> None:
    named = {case for rule in rules() for case in rule.cases}
    assert named - cases() == set()
    assert [test for rule in rules() for test in rule.tests if not is_there(test)] == []


def test_every_case_shows_a_rule() -> None:
    assert cases() - {case for rule in rules() for case in rule.cases} == set()


def test_every_case_shows_a_rule_of_its_own_section_first() -> None:
    shown = {(rule.section, case) for rule in rules() for case in rule.cases}
    strayed = [case for case in cases() if (section_of(case), case) not in shown]
    assert strayed == []


def test_the_suite_is_as_large_as_it_promises() -> None:
    assert len(cases()) >= 150

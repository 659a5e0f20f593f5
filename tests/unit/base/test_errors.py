"""An error has its parts as fields, and no code takes them out of its text."""

import ast
import re
from pathlib import Path

import pytest

from container_engine.base import errors
from container_engine.base.errors import CeError, LaunchError, UserError

PACKAGE = Path(__file__).parents[3] / "container_engine"
PARSED = re.compile(
    r"(\.message|str\((error|failure|fault|problem)\))"
    r"\.(r?partition|r?split|removeprefix|startswith|endswith|find|index)\("
)


def test_the_exit_codes_of_the_engine_stand_once_in_python_and_are_those_of_c() -> None:
    header = (PACKAGE.parent / "spank_plugin/common/error.h").read_text()
    in_c = {name: int(value) for name, value in re.findall(r"CE_(EXIT_\w+) = (\d+)", header)}
    assert in_c == {name: value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    # Podman's own code
    others = {"build/failure.py"}
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and type(node.value) is int
        and node.value in in_c.values()
    }
    assert found == {"base/errors.py", *others}


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (UserError("is empty"), "is empty"),
        (UserError("is empty", name="a.sqsh"), "'a.sqsh': is empty"),
        (UserError("is empty", name=""), "'': is empty"),
        (
            UserError("expected a table", where="/etc/site.toml:3"),
            "/etc/site.toml:3: expected a table",
        ),
        (UserError("no", where="f", key="k", kind="image", name="n"), "f: k: image 'n': no"),
        (LaunchError("no", kind="image", name="n").at("e.toml:2"), "e.toml:2: image 'n': no"),
        (LaunchError("no", where="hook ssh").at("explain"), "explain: hook ssh: no"),
    ],
)
def test_a_message_is_made_of_its_parts(error: CeError, message: str) -> None:
    assert (error.message, str(error)) == (message, message)


def test_a_line_that_begins_with_the_name_does_not_repeat_it() -> None:
    assert UserError("is empty", name="a").about("a") == "is empty"
    assert UserError("is empty", name="b").about("a") == "'b': is empty"
    assert UserError("is empty", where="f", name="a").about("a") == "f: 'a': is empty"


def test_no_code_takes_the_parts_out_of_a_message() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if PARSED.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"edf/syntax.py"}  # Python's error of TOML has its place in its text alone

"""The plan's JSON, read without `json`, and its deferred strings."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container_engine.base.errors import LaunchError
from container_engine.node.container.checks import resolve
from container_engine.node.node_plan import read_plan
from container_engine.node.plan_json import parse_json, to_json
from tests.unit.node.plans import variable

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)
# Pieces of documents that are nearly right.
PIECES = ["{", "}", "[", "]", ":", ",", '"a"', '"', "\\", "\\u12", "1", "-", "1e5", "0x", " ", "\n"]
PIECES += ["null", "true", "NaN", "-Infinity", "nul", "\ud800", '"\\ud83d\\ude00"', "01", "1."]


def outcome(read: Any, text: str) -> Any:  # noqa: ANN401
    """Return the value that a reader reads from a text, or ValueError if it refuses the text."""
    try:
        # NaN is not equal to itself, but its text is.
        return repr(read(text))
    except ValueError:
        return ValueError


@given(JSON, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_a_document_reads_as_with_json_loads(value: object, indent: Any, ascii_only: bool) -> None:  # noqa: ANN401
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert repr(parse_json(text)) == repr(json.loads(text))


@given(JSON.filter(lambda value: "inf" not in repr(value) and "nan" not in repr(value)))
def test_what_is_written_reads_as_itself(value: object) -> None:
    assert json.loads(to_json(value)) == value


@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
def test_invalid_json_fails_as_with_json_loads(text: str) -> None:
    assert outcome(parse_json, text) == outcome(json.loads, text)


@given(st.text())
def test_any_text_reads_or_fails_as_with_json_loads(text: str) -> None:
    assert outcome(parse_json, text) == outcome(json.loads, text)


@pytest.mark.parametrize("text", ["", " ", "{} x", "{}{}", " {} \n", "[1,]", "\ufeff{}", '"a\nb"'])
def test_the_ends_of_a_document_are_looked_at(text: str) -> None:
    assert outcome(parse_json, text) == outcome(json.loads, text)


def test_bytes_that_are_not_utf_8_survive() -> None:
    assert parse_json('"\\udcff"') == "\udcff"


def test_numbers_keep_their_kinds() -> None:
    assert [type(value) for value in parse_json("[1, 1.0, 1e2]")] == [int, float, float]
    assert math.isnan(parse_json("NaN"))


# ---- deferred strings ------------------------------------------------------------------------

NODE = {"SET": "value", "EMPTY": ""}


@pytest.mark.parametrize(
    ("name", "op", "wanted"),
    [
        ("SET", "", "value"),
        ("EMPTY", "", ""),
        ("SET", ":-", "value"),
        ("EMPTY", ":-", "word"),
        ("NONE", ":-", "word"),
        ("SET", "-", "value"),
        ("EMPTY", "-", ""),
        ("NONE", "-", "word"),
        ("SET", ":+", "word"),
        ("EMPTY", ":+", ""),
        ("NONE", ":+", ""),
        ("SET", "+", "word"),
        ("EMPTY", "+", "word"),
        ("NONE", "+", ""),
        ("SET", ":?", "value"),
        ("SET", "?", "value"),
        ("EMPTY", "?", ""),
    ],
)
def test_operators_mean_what_they_mean_in_a_shell(name: str, op: str, wanted: str) -> None:
    assert resolve([variable(name, op, "word")], NODE, "/e.toml:3") == wanted


@pytest.mark.parametrize(("name", "op"), [("NONE", "?"), ("NONE", ":?"), ("EMPTY", ":?")])
def test_a_question_mark_fails_with_its_word(name: str, op: str) -> None:
    with pytest.raises(LaunchError) as caught:
        resolve([variable(name, op, "set it")], NODE, "/e.toml:3")
    assert str(caught.value) == f"/e.toml:3: ${{{name}}}: set it"


@pytest.mark.parametrize("op", ["", "?"])
def test_a_variable_that_the_node_lacks_too_is_named(op: str) -> None:
    with pytest.raises(LaunchError) as caught:
        resolve(["/x/", variable("NONE", op)], NODE, "/e.toml:3")
    assert str(caught.value) == (
        "/e.toml:3: ${NONE}: the variable is not defined on this node either"
    )


@pytest.mark.parametrize("name", ["SLURM_PROCID", "CUDA_VISIBLE_DEVICES"])
def test_a_variable_that_slurm_sets_for_each_task_is_named_as_such(name: str) -> None:
    with pytest.raises(LaunchError, match="Slurm sets the variable for each task, after"):
        resolve([variable(name)], {}, "/e.toml:3")


@pytest.mark.parametrize("text", ["", "[", "[1]", '"x"', "null", "[" * 100_000])
def test_json_that_is_not_a_plan_is_refused_as_damaged(text: str) -> None:
    with pytest.raises(LaunchError, match="the plan that arrived on this node is damaged: "):
        read_plan(text)


def test_parts_are_joined_and_words_nest() -> None:
    word = ["<", variable("NONE", ":-", [variable("SET")]), ">"]
    assert resolve(["a", variable("EMPTY", ":-", word), "b"], NODE, "x") == "a<value>b"


def test_plain_text_is_literal() -> None:
    assert resolve("${SET} $$ `x`", NODE, "x") == "${SET} $$ `x`"


def test_a_value_is_not_expanded_again() -> None:
    assert resolve([variable("A")], {"A": "${B}", "B": "x"}, "x") == "${B}"

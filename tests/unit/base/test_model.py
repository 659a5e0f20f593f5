"""Faults of documents: each is found, and said in the words of the format."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import pytest
from pydantic import Field

from container_engine.base.model import (
    Array,
    Excerpt,
    MisfitError,
    Model,
    Written,
    about,
    schema_text,
)
from container_engine.catalog.model import HookFile
from container_engine.images.lock_file import Pinned


class Part(Model):
    path: str
    many: Annotated[Array[str], about("words", min_length=1)] = ("a",)


class Table(Written):
    word: Annotated[str, about("a word", pattern=r"^[a-z]+$")] = "a"
    kind: Literal["one", "two", "three"] = "one"
    share: Annotated[float, Field(gt=0)] = 1
    count: Annotated[int, Field(ge=2)] | None = None
    on: bool = False
    either: str | Array[str] = ""
    parts: dict[str, Part] = Field(default_factory=dict)
    listed: Annotated[Array[Part], about("parts", examples=[[{"path": "/x"}]])] = ()


class Document(Model):
    part: Annotated[Part, Field(alias="from")]


class Other(Excerpt):
    size: int = 0


def faults(model: type[Model], value: object) -> list[str]:
    with pytest.raises(MisfitError) as caught:
        model.of(value)
    return [str(misfit) for misfit in caught.value.misfits]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"word": 1}, "word: must be a string"),
        ({"word": "A"}, "word: 'A' has an invalid form"),
        ({"word": "a\n"}, r"word: 'a\n' has an invalid form"),
        ({"kind": "four"}, "kind: must be 'one', 'two' or 'three'"),
        ({"kind": 1}, "kind: must be 'one', 'two' or 'three'"),
        ({"share": 0}, "share: must be greater than 0"),
        ({"share": "1"}, "share: must be a number"),
        ({"share": True}, "share: must be a number"),
        ({"count": 1}, "count: must be at least 2"),
        ({"count": 2.5}, "count: must be a whole number"),
        ({"on": 1}, "on: must be true or false"),
        ({"either": 1}, "either: must be a string or an array"),
        ({"either": ["a", 1]}, "either[1]: must be a string"),
        ({"parts": []}, "parts: must be a table"),
        ({"parts": {"x": "y"}}, "parts.x: must be a table"),
        ({"parts": {"x": {}}}, "parts.x.path: is missing"),
        ({"parts": {"x": {"path": "/", "mony": 1}}}, "unknown key 'parts.x.mony', did you mean"),
        ({"parts": {"x": {"path": "/", "many": []}}}, "parts.x.many: must have at least 1 item"),
        ({"listed": "x"}, "listed: must be an array"),
        ({"listed": [{"path": "/"}, {"path": 1}]}, "listed[1].path: must be a string"),
        ({"wort": "a"}, "unknown key 'wort', did you mean 'word'?"),
        ([], "must be a table"),
    ],
)
def test_each_fault_is_named_by_its_key(value: object, said: str) -> None:
    (found,) = faults(Table, value)
    assert found.startswith(said)


def test_all_faults_are_found_at_once_in_the_order_of_the_keys() -> None:
    value = {"x": 1, "listed": [{}], "kind": "four", "word": 1}
    assert faults(Table, value) == [
        "word: must be a string",
        "kind: must be 'one', 'two' or 'three'",
        "listed[0].path: is missing",
        "unknown key 'x'",
    ]


def test_a_fault_in_an_array_has_the_example_of_the_whole() -> None:
    with pytest.raises(MisfitError) as caught:
        Table.of({"listed": [1]})
    assert caught.value.misfits[0].example == 'for example listed = [{"path": "/x"}]'


def test_json_has_objects_and_the_names_of_its_keys() -> None:
    with pytest.raises(MisfitError, match=r"^from: must be an object$"):
        Document.of_json(b'{"from": 1}')
    assert faults(Document, {"part": {"path": "/"}}) == [
        "from: is missing",
        "unknown key 'part'",
    ]


@pytest.mark.parametrize(
    "text", [b"", b"{", b'{"size": NaN}', b'{"size": 1}x', b'{"size": "\xff"}', b"[" * 100_000]
)
def test_invalid_json_is_reported_as_such(text: bytes) -> None:
    with pytest.raises(MisfitError, match=r"^not valid JSON: "):
        Other.of_json(text)


def test_an_excerpt_looks_at_its_own_keys_only() -> None:
    assert Other.of_json(b'{"size": 3, "more": [1]}').size == 3
    with pytest.raises(MisfitError, match=r"^size: must be a whole number$"):
        Other.of_json(b'{"more": [1], "size": "3"}')


def test_a_digest_has_nothing_after_it() -> None:
    good = {"digest": f"sha256:{'0' * 64}", "size": 1}
    Pinned.of(good)
    assert faults(Pinned, {**good, "digest": good["digest"] + "\n"})  # type: ignore[operator]


def test_a_model_of_a_file_that_people_write_has_no_null_in_its_schema() -> None:
    assert '"null"' not in schema_text(Table)
    assert "required" not in json.loads(schema_text(HookFile))


def test_a_document_survives_its_json() -> None:
    made = Table(word="b", parts={"x": Part(path="/", many=("a", "b"))})
    assert Table.of_json(json.dumps(made.as_dict())) == made
    assert Table.of(made.as_dict()) == made

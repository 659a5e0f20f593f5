"""Records of the engine's own."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from container_engine.base.records import from_json, to_json


class Made(NamedTuple):
    name: str
    number: int = 0
    when: float = 0
    status: int | None = None
    words: tuple[str, ...] = ()


@pytest.mark.parametrize("made", [Made("é\udcff"), Made("n", 1, 1.5, 2, ("a", "b"))])
def test_a_record_is_read_as_it_was_written(made: Made) -> None:
    assert from_json(Made, to_json(made)) == made
    assert b"\n" not in to_json(made)


def test_keys_of_a_later_version_do_not_matter() -> None:
    assert from_json(Made, b'{"name": "n", "when": 3, "more": []}') == Made("n", when=3)


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"[]", b"null", b"{", b"{}", b'{"name": "\xff"}', b"[" * 100_000),
        *(b'{"name": 1}', b'{"name": "n", "number": true}', b'{"name": "n", "number": 1.5}'),
        *(b'{"name": "n", "words": "ab"}', b'{"name": "n", "words": [1]}'),
    ],
)
def test_anything_else_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"^"):
        from_json(Made, text)

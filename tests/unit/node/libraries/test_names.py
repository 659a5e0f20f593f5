"""Versions in names that an image may have made up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container_engine.node.libraries.elf import c_version, file_version, numbers
from container_engine.node.pattern import natural


@pytest.mark.parametrize(
    ("text", "version"),
    [("2.36", (2, 36)), ("2.2\N{SUPERSCRIPT TWO}", (2,)), ("2." + "9" * 5000, (2,)), ("", ())],
)
def test_a_version_ends_before_a_part_that_is_not_a_number(
    text: str, version: tuple[int, ...]
) -> None:
    assert numbers(text) == version
    assert c_version([f"GLIBC_{text}"]) == version


@given(st.text(alphabet="0123456789.\u00b2\u0663\u2460xs", max_size=40))
def test_no_name_is_an_error(text: str) -> None:
    numbers(text)
    c_version([f"GLIBC_{text}", text])
    file_version(f"libx.so.{text}")
    natural(text)


def test_numbers_in_names_of_any_length_sort_by_value() -> None:
    names = ["a10", "a9", "a" + "1" * 5000, "a010"]
    assert min(names, key=natural) == "a9"
    assert max(names, key=natural) == names[2]

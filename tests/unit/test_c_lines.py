"""The check of the lines of C counts columns, as an editor shows them."""

import pytest

from tests import c_lines


@pytest.mark.parametrize(
    ("line", "columns"),
    [("x" * 110, []), ("x" * 111, [111]), ("\t" + "x" * 103, [111]), ("ab\t" + "é" * 102, [])],
)
def test_a_line_that_ends_beyond_the_limit_is_found(line: str, columns: list[int]) -> None:
    assert list(c_lines.too_long(f"int a;\n{line}\n")) == [(2, each) for each in columns]

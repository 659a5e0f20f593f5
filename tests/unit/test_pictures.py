"""The pictures of the documentation: each is used, and says what the table of programs says."""

import re
from pathlib import Path

import pytest

from docs import draw

ROOT = Path(__file__).parents[2]
PICTURES = sorted((ROOT / "docs/pictures").glob("*.svg"))
PAGES = "".join(
    page.read_text(encoding="utf-8") for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
)
TEXT = re.compile(r"<(?:text|desc|title)[^>]*>([^<]*)<")


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_every_picture_is_on_a_page(picture: Path) -> None:
    assert f"pictures/{picture.name})" in PAGES


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_a_picture_names_programs_of_the_table(picture: Path) -> None:
    words = " ".join(TEXT.findall(picture.read_text(encoding="utf-8")))
    named = set(re.findall(r"\b(?:ce-(?!alice|bob|sandbox)[a-z]+|container_engine\.so)\b", words))
    assert named <= set(draw.programs())


@pytest.mark.parametrize(("name", "text"), draw.pictures().items())
def test_a_drawn_picture_is_up_to_date(name: str, text: str) -> None:
    file = ROOT / "docs/pictures" / name
    assert file.read_text(encoding="utf-8") == text, "run: make generated"


def test_every_picture_but_the_recorded_session_is_drawn_from_the_one_source() -> None:
    assert {*draw.pictures(), "session.svg"} == {path.name for path in PICTURES}


def test_text_that_is_wider_than_its_box_or_picture_is_refused() -> None:
    boxes = (draw.Box("user", 0, 0, 100, "x" * 12), draw.Box("user", 0, 0, 100, "", ("short",)))
    picture = draw.Picture((100, 100), "", "", (), boxes, (), ("y" * 12,), has_legend=False)
    assert draw.faults(picture, {}) == [f"wider than its box: {'x' * 12}", f"wider: {'y' * 12}"]


def test_a_picture_is_refused_where_the_table_says_something_else() -> None:
    table = draw.programs()
    table["ce-guard"] = draw.Program("root", "slurmd")
    del table["ce-init"]
    assert draw.faults(draw.read("launch"), table) == [
        "ce-guard does not run as the picture says: root",
        "ce-guard does not run as the picture says: root",
        "the table has no program ce-init",
        "ce-guard is not started by: the plugin, in the node's first task",
        "ce-init is not started by: crun",
    ]


def test_the_picture_of_an_error_has_the_lines_of_the_page() -> None:
    drawn = TEXT.findall((ROOT / "docs/pictures/error.svg").read_text(encoding="utf-8"))
    _first, *others = draw.error_block()
    assert set(others) <= set(drawn)


def test_the_recorded_session_plays_once_and_is_its_end_where_nothing_moves() -> None:
    picture = (ROOT / "docs/pictures/session.svg").read_text(encoding="utf-8")
    assert "infinite" not in picture
    still = re.search(
        r"@media print, \(prefers-reduced-motion: reduce\) \{.*translateY\((.*?)\)", picture
    )
    assert still is not None
    assert re.findall(r"%\{transform:translateY\((.*?)\)", picture)[-1] == still[1]

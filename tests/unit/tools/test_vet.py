"""The file in which `ce vet` remembers bad nodes."""

import json
import re
from datetime import datetime
from pathlib import Path

import pytest

from container_engine.base.errors import UserError
from container_engine.tools.verdicts import FAILED, SILENT, Verdict
from container_engine.tools.vet import longest_checks, remember, remembered

_NOW = datetime.fromisoformat("2026-11-29T12:00:00+00:00").timestamp()
_DAY_S = 86400


def test_checks_on_the_node_and_then_those_in_the_container_may_take_their_time() -> None:
    limits = [(False, 7), (False, 300), (True, 200), (True, 10)]
    runs = [{"inside": inside, "limit_s": limit_s} for inside, limit_s in limits]
    hooks = [{"name": "pmi2"}, {"name": "mine", "runs": runs[2:]}]
    assert longest_checks(json.dumps({"runs": runs[:2], "hooks": hooks})) == 500
    assert longest_checks(json.dumps({"hooks": hooks[:1]})) == 0


def test_a_node_is_remembered_for_a_week(tmp_path: Path) -> None:
    file = tmp_path / "bad"
    file.write_text("# of my project\nn9\n")
    assert remembered(str(file), _NOW) == {"n9": ""}
    remember(str(file), [Verdict("n2", FAILED, "the disk\nis full, # 1")], _NOW)
    (about,) = re.findall(r"^n2 # (.*)$", file.read_text(), re.MULTILINE)
    assert about.endswith(" the disk is full, # 1")
    assert remembered(str(file), _NOW + 6 * _DAY_S) == {"n9": "", "n2": about}
    assert remembered(str(file), _NOW + 7 * _DAY_S) == {"n9": ""}
    assert file.read_text() == "# of my project\nn9\n"


def test_a_silent_node_is_remembered_for_a_day(tmp_path: Path) -> None:
    file = tmp_path / "bad"
    remember(str(file), [Verdict("n2", SILENT, "no answer within 60 s")], _NOW)
    (about,) = remembered(str(file), _NOW + _DAY_S - 1).values()
    assert about.endswith("+00:00 silent: no answer within 60 s")
    assert remembered(str(file), _NOW + _DAY_S) == {}


def test_a_line_is_added_whole_where_an_editor_left_no_end(tmp_path: Path) -> None:
    file = tmp_path / "bad"
    file.write_text("n9")
    assert list(remembered(str(file), _NOW)) == ["n9"]
    remember(str(file), [Verdict("n2", SILENT, "no answer")], _NOW)
    assert list(remembered(str(file), _NOW)) == ["n9", "n2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n1\nn2 n3 # x\n", ":2: 'n2 n3' is no node"),
        ("n1 # yesterday it was down\n", ":1: 'yesterday it was down' begins with no time"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "bad"
    file.write_text(text)
    with pytest.raises(UserError) as raised:
        remembered(str(file), _NOW)
    assert raised.value.message == f"{file}{message}"
    assert raised.value.hint == "each line is NODE # TIME REASON: correct it or remove it"
    assert file.read_text() == text


@pytest.mark.parametrize("content", [b"\xff\xfe\n", None])
def test_what_is_no_text_file_is_one_error(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "bad"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    with pytest.raises(UserError) as raised:
        remembered(str(file), _NOW)
    assert raised.value.where == str(file)
    assert raised.value.hint == "name a text file that you may write"

"""The output of a failed program, as one line."""

import os
import tempfile
from pathlib import Path

import pytest

from container_engine.errors import SiteError
from container_engine.process import CommandError, output


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo some; echo 'sh: error: no such node' >&2; exit 3", "sh: error: no such node"),
        ("echo 'no such node' >&2; exit 3", "sh: no such node"),
        ("exit 3", "sh: exit code 3"),
        ("kill -9 $$", "sh: ended by signal 9"),
    ],
)
def test_the_message_of_a_failed_program_has_its_name_once(script: str, message: str) -> None:
    with pytest.raises(CommandError) as caught:
        output(["sh", "-c", script], os.environ, 10)
    assert caught.value.message == message


def test_a_program_of_the_system_does_not_get_the_loaders_variables_of_the_job() -> None:
    own = {"LD_PRELOAD": "/none.so", "LD_LIBRARY_PATH": "/none", "PYTHONPATH": "/none"}
    printed = output(["env"], {**os.environ, **own, "OLD_LD_X": "kept"}, 10).decode()
    assert "OLD_LD_X=kept" in printed
    assert not [line for line in printed.splitlines() if line.startswith(("LD_", "PYTHON"))]


def test_a_program_that_has_no_place_for_its_messages_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(SiteError, match="cannot make a temporary file: ") as caught:
        output(["true"], {}, 10)
    assert caught.value.see == "limit-reached"
    assert "TMPDIR" in (caught.value.hint or "")

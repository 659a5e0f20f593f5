"""Progress of an import: on a terminal, in a file, and when it is turned off."""

import io
import os
import re
import sys

import pytest

from container_engine.cli.printing import progress
from container_engine.images.fetch.listener import Quiet

HALF = ("tools:1", "downloading", 5 << 20, 10 << 20)


def test_a_terminal_has_one_bar_that_is_drawn_again_and_then_gone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    clock = iter([1.0, 1.05])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    told = progress.Terminal()
    told.far(*HALF)
    told.far(*HALF)  # too soon after the first to be printed
    told.say("tools:1: imported, 9.0 MiB in 1.0 s")
    assert capsys.readouterr().err == (
        "\r\033[Kce: tools:1: downloading [############------------]  50% of 10 MiB"
        "\r\033[Kce: tools:1: imported, 9.0 MiB in 1.0 s\n"
    )


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_a_bar_fits_into_its_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    name = f"registry.example/{'long/' * 20}name:1"
    progress.Terminal().far(name, *HALF[1:])
    drawn = capsys.readouterr().err.removeprefix("\r\033[K")
    narrowest = len(": downloading []  50% of 10 MiB") + 24 + len("ce: ") + 8
    assert len(drawn) <= max(int(columns) - 1, narrowest)
    assert "\n" not in drawn


def test_a_file_has_plain_lines_not_too_many(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 1.0, 10.5, 11.0, 21.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    told = progress.Log()
    for _n in range(4):
        told.far(*HALF)
    line = "ce: tools:1: downloading 5.0 MiB of 10 MiB\n"
    assert capsys.readouterr().err == line * 2


def test_who_listens_depends_on_what_stderr_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(progress.listener(quiet=True)) is Quiet
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert type(progress.listener()) is progress.Log
    main, side = os.openpty()
    with open(side, "w") as terminal, open(main, "rb"):
        monkeypatch.setattr(sys, "stderr", terminal)
        assert type(progress.listener()) is progress.Terminal


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    told = Quiet()
    told.far(*HALF)
    told.say("x")
    told.clear()
    assert not re.search(r".", "".join(capsys.readouterr()))

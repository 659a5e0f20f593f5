"""Progress of an import: on a terminal, in a file, and when it is turned off."""

import io
import os
import re
import signal
import subprocess
import sys

import pytest

from container_engine.images.listener import Quiet
from container_engine.printing import messages

HALF = ("tools:1", "downloading", 5 << 20, 10 << 20)


def test_a_terminal_has_one_bar_that_is_drawn_again_and_then_gone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    clock = iter([1.0, 1.05])  # the second is too soon to be printed
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    told = messages.Terminal()
    told.far(*HALF)
    told.far(*HALF)
    told.say("tools:1: imported, 9.0 MiB in 1.0 s")
    assert capsys.readouterr().err == (
        "\r\033[Kce: tools:1: downloading [############------------]  50% of 10 MiB"
        "\r\033[K"
        "ce: tools:1: imported, 9.0 MiB in 1.0 s\n"
    )


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ("40", "ce: reg…me:1: downloading  50% of 100"),
        ("64", "ce: reg…me:1: downloading  50% of 100 GiB, 1.0 GiB/s"),
        ("80", "ce: regis…name:1: downloading [###---]  50% of 100 GiB, 1.0 GiB/s, 50 s left"),
        ("84", "ce: regis…name:1: downloading [#####-----]  50% of 100 GiB, 1.0 GiB/s, 50 s left"),
    ],
)
def test_the_bar_the_name_and_the_rate_give_way_to_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str, line: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    clock = iter([1.0, 51.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    told = messages.Terminal()
    for done in (0, 50):
        told.far("registry.example/long/names/name:1", "downloading", done << 30, 100 << 30)
    drawn = capsys.readouterr().err.rpartition("\r\033[K")[2]
    assert drawn == line
    assert len(f"{drawn}^C") < int(columns)


def test_a_bar_has_the_rate_of_the_last_seconds_and_the_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    # 10 MiB/s, then 1 MiB/s
    seen = [(0, 0), (1, 10), (10, 100), (15, 105), (20, 110), (21, 0), (24, 300)]
    doing = ["downloading"] * 5 + ["packing"] * 2
    clock = iter([float(at) for at, _done in seen])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    told = messages.Terminal()
    for what, (_at, done) in zip(doing, seen, strict=True):
        told.far("tools:1", what, done << 20, 300 << 20)
    ends = [drawn.rpartition(" of 300 MiB")[2] for drawn in capsys.readouterr().err.split("\r")]
    assert ends[1:] == [
        "",
        ", 10 MiB/s, 29 s left",
        ", 10 MiB/s, 20 s left",
        ", 1.0 MiB/s, 3 minutes left",
        ", 1.0 MiB/s, 3 minutes left",
        "",
        ", 100 MiB/s, 0 s left",
    ]


def test_an_error_and_a_signal_take_the_bar_away(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    messages.Terminal().far(*HALF)
    messages.say("ce: error: no more\n")
    messages.clear()  # nothing is drawn
    messages.Terminal().far(*HALF)
    messages.clear()
    bar = "\r\033[Kce: tools:1: downloading [############------------]  50% of 10 MiB"
    assert capsys.readouterr().err == f"{bar}\r\033[Kce: error: no more\n{bar}\r\033[K"


def test_a_file_has_plain_lines_not_too_many(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 1.0, 10.5, 11.0, 21.0, 25.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    told = messages.Log()
    for done in (0, 1, 1, 5, 6):
        told.far("tools:1", "downloading", done << 20, 10 << 20)
    assert capsys.readouterr().err == (
        "ce: tools:1: downloading 1.0 MiB of 10 MiB, 108 KiB/s, 86 s left\n"
        "ce: tools:1: downloading 5.0 MiB of 10 MiB, 410 KiB/s, 12 s left\n"
    )


def test_the_form_of_progress_depends_on_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(messages.listener(quiet=True)) is Quiet
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert type(messages.listener()) is messages.Log
    main, side = os.openpty()
    with open(side, "w") as terminal, open(main, "rb"):
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        assert type(messages.listener()) is messages.Terminal
        monkeypatch.setenv("TERM", "dumb")  # cannot take a line back
        assert type(messages.listener()) is messages.Log


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    told = Quiet()
    told.far(*HALF)
    told.say("x")
    told.clear()
    assert not re.search(r".", "".join(capsys.readouterr()))


_DIES = """
import os, signal, sys
from container_engine.printing import interrupts, messages
os.close(os.open(os.ttyname(2), os.O_RDWR))  # the session's terminal from now on
child = os.fork()
if child == 0:
    if sys.argv[1] == "background":
        os.setpgid(0, 0)
    messages.draw("bar")
    interrupts.die_of(signal.SIGINT)
sys.exit(os.WTERMSIG(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(("where", "left"), [("foreground", "\r\033[K"), ("background", "")])
def test_a_signal_takes_the_bar_away_unless_the_terminal_is_anothers(where: str, left: str) -> None:
    """Behind salloc, which ends at once, the line may be a shell's prompt by then."""
    ours, theirs = os.openpty()
    argv = [sys.executable, "-c", _DIES, where]
    done = subprocess.run(
        argv, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, timeout=20
    )
    os.close(theirs)
    with open(ours, "rb", buffering=0) as terminal:
        assert terminal.read(100).decode() == f"\r\033[Kbar{left}"
    assert done.returncode == signal.SIGINT

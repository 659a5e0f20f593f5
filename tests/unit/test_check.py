"""`make check`, with a fake `make`: only what is known to have passed passes."""

import os
import pwd
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TARGETS = ("deps", "lint", "docs", "sandbox-images", "test-core", "unit", "c-tests")
Completed = subprocess.CompletedProcess[str]
Check = Callable[..., Completed]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Return a function that runs tests/check; `does` maps a target to shell commands for it."""

    def run(
        does: dict[str, str] | None = None, steps: tuple[str, ...] = (), **environment: str
    ) -> Completed:
        cases = "".join(f"{target}) {words} ;;\n" for target, words in (does or {}).items())
        make = tmp_path / "bin" / "make"
        make.parent.mkdir(exist_ok=True)
        make.write_text(f'#!/bin/sh\necho "this is $2"\ncase $2 in\n{cases}esac\n')
        make.chmod(0o755)
        room = tmp_path / "room"
        room.mkdir(exist_ok=True)
        # others may use this machine's sandbox meanwhile
        sandbox = tmp_path / "sandbox"
        sandbox.mkdir(exist_ok=True)
        usual = {
            "PATH": f"{make.parent}:{os.environ['PATH']}",
            "TMPDIR": str(room),
            "CE_SANDBOX_DIR": str(sandbox),
        }
        return subprocess.run(
            [str(ROOT / "tests" / "check"), *steps],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=usual | environment,
            timeout=60,
        )

    return run


def summary(done: Completed) -> dict[str, str]:
    lines = done.stdout.partition("== make check: ")[2].splitlines()[1:]
    return {line.split()[0]: line.split(maxsplit=1)[1] for line in lines}


def has_ended(pid: str) -> bool:
    """Check whether the process is gone or a zombie."""
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_all_that_passed_is_named(check: Check) -> None:
    done = check()
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(summary(done)) == set(TARGETS)
    assert all(said.split()[0] == "ok" for said in summary(done).values())


def test_other_steps_may_be_given(check: Check) -> None:
    done = check({"two": "exit 1"}, ("one | two", "three"))
    assert done.returncode == 1
    ended = {target: said.split()[0] for target, said in summary(done).items()}
    assert ended == {"one": "ok", "two": "FAILED", "three": "not"}


# the first step, a later one of a row, and those of two rows
@pytest.mark.parametrize("target", ["deps", "docs", "test-core", "unit"])
def test_one_that_fails_fails_the_check_and_is_shown_again(check: Check, target: str) -> None:
    done = check({target: "echo what is wrong; exit 2"})
    assert done.returncode == 1
    assert summary(done)[target].startswith("FAILED")
    assert f"== the end of make {target}\nthis is {target}\nwhat is wrong\n" in done.stdout


def test_nothing_is_begun_after_a_failure(check: Check) -> None:
    done = check({"lint": "exit 1"})
    assert "this is deps" in done.stdout
    assert "this is docs" not in done.stdout
    assert summary(done)["test-core"] == "not run to its end"


def test_asked_to_go_on_it_makes_all_and_fails(check: Check) -> None:
    done = check({"lint": "exit 1", "unit": "exit 1"}, KEEP_GOING="1")
    assert done.returncode == 1
    words = {target: said.split()[0] for target, said in summary(done).items()}
    assert words == {t: "FAILED" if t in {"lint", "unit"} else "ok" for t in TARGETS}


@pytest.mark.parametrize("target", ["unit", "test-core"])
def test_an_outcome_that_cannot_be_written_down_is_a_failure(check: Check, target: str) -> None:
    """This happens on a full disk."""
    done = check({target: 'mkdir "$(echo "$TMPDIR"/tmp.*)"/' + target})
    assert done.returncode == 1
    assert summary(done)[target] == "not run to its end"


def test_a_killed_row_is_a_failure_and_nothing_of_it_runs_on(check: Check, tmp_path: Path) -> None:
    """The kernel does this when memory is short."""
    done = check({"lint": f"echo $$ >{tmp_path}/row; kill -9 $PPID; sleep 300"})
    assert done.returncode == 1
    assert has_ended((tmp_path / "row").read_text().strip())
    for target in ("lint", "docs"):
        assert summary(done)[target] == "not run to its end"
    assert summary(done)["sandbox-images"].startswith("ok")


def test_what_is_left_is_named_and_fails_the_check(check: Check, tmp_path: Path) -> None:
    left = tmp_path / "sandbox.unit"
    begin = f"setsid sleep 1234 >/dev/null 2>&1 & echo $! >{tmp_path}/pid; mkdir {left}"
    done = check({"unit": begin})
    shown = done.stdout.partition("== left on this machine, and not there before\n")[2]
    user = pwd.getpwuid(os.geteuid()).pw_name
    assert shown.startswith(f"process of user {user}: sleep 1234 \nfile {left}\n\n== make check")
    assert (done.returncode, summary(done)["unit"].split()[0]) == (1, "ok")
    assert has_ended((tmp_path / "pid").read_text().strip())


def test_a_killed_make_is_a_failure(check: Check) -> None:
    done = check({"c-tests": "kill -9 $$"})
    assert done.returncode == 1
    assert summary(done)["c-tests"].startswith("FAILED")


@pytest.mark.parametrize(
    ("target", "hangs"),
    [("test-core", "kill -STOP $$"), ("unit", "trap '' TERM; sleep 300 & wait")],
)
def test_a_row_that_hangs_is_ended_at_the_limit_and_fails(
    check: Check, tmp_path: Path, target: str, hangs: str
) -> None:
    begin = time.monotonic()
    hangs = f"echo $$ >{tmp_path}/row; {hangs}"
    done = check({target: hangs}, CHECK_LIMIT_S="8", CHECK_MERCY_S="1")
    assert has_ended((tmp_path / "row").read_text().strip())
    assert done.returncode == 1
    assert time.monotonic() - begin < 50
    assert summary(done)[target] == "not run to its end"
    assert summary(done)["c-tests"].startswith("ok")
    assert "not over after 8 s (CHECK_LIMIT_S)" in done.stderr


def test_a_row_may_set_the_terminal_that_the_check_was_started_from(tmp_path: Path) -> None:
    make = tmp_path / "make"
    make.write_text("#!/bin/sh\ncase $2 in lint|unit) stty -F /dev/tty sane;; esac\n")
    make.chmod(0o755)
    done = subprocess.run(
        ["script", "-qec", shlex.quote(f"{ROOT}/tests/check"), "/dev/null"],
        env={
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "CHECK_LIMIT_S": "20",
            "CE_SANDBOX_DIR": str(tmp_path),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("name", "of_rows"), [("INT", False), ("TERM", False), ("TERM", True)])
def test_ending_the_check_ends_its_rows(tmp_path: Path, name: str, *, of_rows: bool) -> None:
    """The rows' shells may get the signal, too, as from `pkill -f tests/check`."""
    make = tmp_path / "make"
    make.write_text(
        f"#!/bin/sh\ncase $2 in lint|unit) echo $$ >>{tmp_path}/rows; sleep 300;; esac\n"
    )
    make.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "KEEP_GOING": "1"}
    with subprocess.Popen(
        ["env", "--default-signal=INT", ROOT / "tests" / "check"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as running:
        rows = tmp_path / "rows"
        until = time.monotonic() + 20
        while not (rows.exists() and rows.read_text()) and time.monotonic() < until:
            time.sleep(0.05)
        (pid,) = rows.read_text().split()
        signals = [running.pid]
        if of_rows:
            children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text()
            signals = [*map(int, children.split()), running.pid]
        for one in signals:
            os.kill(one, signal.Signals[f"SIG{name}"])
        try:
            assert running.wait(20) == 130
        finally:
            running.kill()
    assert has_ended(pid)


def test_without_room_for_outcomes_nothing_is_begun(check: Check, tmp_path: Path) -> None:
    done = check(TMPDIR=str(tmp_path / "absent"))
    assert done.returncode == 1
    assert "this is" not in done.stdout


def test_the_checks_are_targets_of_the_makefile() -> None:
    lines = (ROOT / "Makefile").read_text().splitlines()
    made = {target for line in lines for target in line.partition(":")[0].split()}
    assert made >= set(TARGETS)


def test_what_the_check_leaves_out_is_in_ci() -> None:
    text = (ROOT / "Makefile").read_text()
    assert re.search(r"^within \d+ make check-further$", (ROOT / ".ci/run").read_text(), re.M)
    assert 'tests/check sandbox-images "$(FIRST_ROWS)" "$(SECOND_ROWS) | ' in text
    made, begun = (
        [row for line in re.findall(pattern, text, re.M) for row in re.findall(r"test-\S+", line)]
        for pattern in (r"^(?:SLURM|PODMAN)_ROWS := .*", r"^(?:FIRST|SECOND)_ROWS := .*")
    )
    assert sorted(begun) == sorted(made)


def test_nothing_that_is_given_on_the_command_line_is_a_variable_of_the_makefiles() -> None:
    """make would use the given value everywhere, even for a variable of the Makefile's own."""
    text = (ROOT / "Makefile").read_text()
    own = set(re.findall(r"^(\w+) :?= ", text, re.MULTILINE))
    shown = "".join(re.findall(r" ## .*", text)) + (ROOT / "CONTRIBUTING.md").read_text()
    given = set(re.findall(r"\b([A-Z_]+)=[\w'/]", shown))
    assert {"T", "SCRIPTS", "PYXIS_SUITE"} <= given
    assert own & given == set()

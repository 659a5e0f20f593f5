"""The lock of a store: one holder, dead ones replaced, waiting that names the holder and ends."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from container_engine.base.errors import UserError
from container_engine.base.records import to_json
from container_engine.images.store.lease import (
    Holder,
    Lease,
    Pace,
    held,
    read,
    this_machine,
    this_process,
)

SOURCES = Path(__file__).parents[3]
QUICK = Pace(beat_s=0.02, stale_s=0.3)
PATIENT = Pace(beat_s=0.02, stale_s=3600)

# A process that takes the lock, reports it, and keeps it until it is asked to end or killed.
HOLDER = """
import sys
from container_engine.images.store.lease import Pace, held
with held(sys.argv[1], "ann", 60, lambda *_: None, Pace(0.02, 0.3)) as lease:
    lease.progress = "half of it"
    print("mine", flush=True)
    sys.stdin.read()
"""
# A process that counts up a number in a file, many times, under the lock.
COUNTER = """
import sys
from container_engine.images.store.lease import Pace, held
for _n in range(20):
    with held(sys.argv[1], "ann", 60, lambda *_: None, Pace(0.02, 5)):
        with open(sys.argv[2]) as file:
            number = int(file.read())
        with open(sys.argv[2], "w") as file:
            file.write(str(number + 1))
"""


def process(code: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=SOURCES,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@contextlib.contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    with process(HOLDER, str(path)) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "mine\n"
        yield child
        child.kill()


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "locks/x"


def foreign(lock: Path, **changed: Any) -> Holder:  # noqa: ANN401  # of any field
    """Return a lock of a process on another host."""
    lock.parent.mkdir(exist_ok=True)
    found = this_process("bob")._replace(**{"machine": "another", "host": "nid2", **changed})
    lock.write_text(to_json(found).decode())
    return found


def take(lock: Path, limit_s: float = 30, pace: Pace = QUICK) -> list[str]:
    """Take the lock once and release it; return the messages of the waiting."""
    said: list[str] = []
    with held(str(lock), "eve", limit_s, lambda who, _s: said.append(str(who)), pace):
        found = read(str(lock))
        assert found is not None
        assert found.user == "eve"
    return said


def test_a_lock_is_gone_when_its_holder_is_done(lock: Path) -> None:
    assert take(lock) == []
    assert list(lock.parent.iterdir()) == []


def test_only_one_holds_it_at_a_time(lock: Path, tmp_path: Path) -> None:
    counter = tmp_path / "n"
    counter.write_text("0")
    children = [process(COUNTER, str(lock), str(counter)) for _n in range(4)]
    for child in children:
        assert child.wait(60) == 0
        child.communicate()
    assert counter.read_text() == "80"
    assert list(lock.parent.iterdir()) == []


def test_a_waiter_learns_the_holder_and_its_progress(lock: Path) -> None:
    with holder(lock) as child:
        told: list[Holder] = []

        def on_wait(who: Holder, _waited: float) -> None:
            told.append(who)
            if who.progress:
                child.communicate("")

        with held(str(lock), "eve", 30, on_wait, PATIENT):
            pass
    assert str(told[-1]) == f"ann on {os.uname().nodename} (process {child.pid})"
    assert told[-1].progress == "half of it"


def test_a_wait_has_an_end(lock: Path) -> None:
    with holder(lock), pytest.raises(UserError) as caught:
        take(lock, limit_s=0.1, pace=PATIENT)
    assert caught.value.message.startswith("still running after 0.1 s: ann on ")
    assert caught.value.hint == f"if that is no longer so, remove {lock}"


def test_a_dead_process_of_this_host_is_replaced_at_once(lock: Path) -> None:
    with holder(lock) as child:
        child.kill()
        child.wait()
        assert list(lock.parent.iterdir()) == [lock]
        began = time.monotonic()
        take(lock, pace=Pace(3, 3600))
        assert time.monotonic() - began < 10


def test_a_dead_process_that_its_parent_forgot_is_replaced_at_once(lock: Path) -> None:
    with holder(lock) as child:
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        began = time.monotonic()
        take(lock, pace=Pace(3, 3600))
        assert time.monotonic() - began < 10


def test_what_a_killed_waiter_left_is_removed_by_the_next_holder(lock: Path) -> None:
    with holder(lock) as child, process(HOLDER, str(lock)) as waiter:
        while [path.stat().st_size > 0 for path in lock.parent.iterdir()] != [True, True]:
            assert waiter.poll() is None
        waiter.kill()
        waiter.wait()
        child.kill()
        child.wait()
        assert len(list(lock.parent.iterdir())) == 2
        take(lock)
    assert list(lock.parent.iterdir()) == []


def test_a_number_that_another_process_has_now_does_not_count(lock: Path) -> None:
    foreign(lock, machine=this_machine(), start="another", pid=1)
    take(lock, pace=Pace(3, 3600))


def test_a_holder_elsewhere_that_shows_no_life_is_replaced(lock: Path) -> None:
    foreign(lock)
    assert set(take(lock)) == {f"bob on nid2 (process {os.getpid()})"}


def dead_pid() -> int:
    """Return the pid of a process of this host that has ended."""
    with process("") as child:
        child.communicate()
    return child.pid


def test_whether_a_process_elsewhere_lives_cannot_be_seen_here(lock: Path) -> None:
    pid = dead_pid()
    assert not foreign(lock, pid=pid).is_dead(this_machine())
    assert foreign(lock, pid=pid, machine=this_machine()).is_dead(this_machine())


def test_a_takeover_leaves_the_lock_to_a_quicker_process(lock: Path) -> None:
    dead = foreign(lock, token="dead")
    foreign(lock, token="quicker")
    late = Lease(str(lock), this_process("eve"), QUICK)
    try:
        late.take_over(dead)
        found = read(str(lock))
        assert found is not None
        assert found.token == "quicker"
        assert late.replaced == []
    finally:
        late.discard()
    assert list(lock.parent.iterdir()) == [lock]


def test_a_holder_elsewhere_that_shows_life_is_waited_for(lock: Path) -> None:
    ended = threading.Event()

    def live() -> None:
        beat = 0
        while not ended.wait(0.02):
            beat += 1
            draft = lock.with_suffix(".draft")
            draft.write_text(to_json(alive._replace(beat=beat)).decode())
            draft.replace(lock)

    alive = foreign(lock)
    thread = threading.Thread(target=live)
    thread.start()
    try:
        with pytest.raises(UserError, match=r"^still running after 5 s: bob on nid2"):
            take(lock, limit_s=5, pace=Pace(0.02, 2))
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("content", ["", "{", "null", "x" * 5000])
def test_a_damaged_lock_does_not_stay(lock: Path, content: str) -> None:
    lock.parent.mkdir()
    lock.write_text(content)
    assert set(take(lock)) == {"somebody"}


def test_a_holder_that_was_replaced_leaves_the_new_ones_lock_alone(lock: Path) -> None:
    with held(str(lock), "old", 1, lambda *_: None, QUICK):
        lock.unlink()
        successor = foreign(lock)
    found = read(str(lock))
    assert found is not None
    assert found.token == successor.token


@pytest.mark.parametrize("seed", range(2))
def test_a_kill_at_any_moment_is_survived(lock: Path, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    counter = tmp_path / "n"
    counter.write_text("0")
    for _n in range(5):
        with process(COUNTER, str(lock), str(counter)) as child:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(chance.uniform(0.1, 0.4))
            child.send_signal(signal.SIGKILL)
        counter.write_text("0")  # it may be empty: only the lock is under test
        take(lock, pace=Pace(3, 3600))
    assert not lock.exists()


def test_where_no_lock_can_be_made_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(NotADirectoryError):
        take(tmp_path / "f/x/lock")

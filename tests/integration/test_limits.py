"""Limits of the container of `ce run`, and the JSON of what became of its command."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from container_engine.printing.json_models import Outcome
from tests.integration.engine import Completed, Engine
from tests.integration.leftovers import until

_MEMORY = '[annotations.com.ce]\nmemory_limit = "200m"'
_TAKE = "import time; x = b'x' * (400 << 20); time.sleep(60)"
_SEES = "ce: see: ce help container-limit"


def _run(engine: Engine, limits: str, *command: str) -> tuple[Completed, dict[str, Any]]:
    """Run a command in an image with Python; return what it did and its JSON."""
    file = engine.scratch / f"{os.urandom(4).hex()}.json"
    edf = engine.edf(f"writable = true\n{limits}", "demo")
    ce, _run, name, *rest = engine.argv(edf, *command)
    with engine.popen([ce, "run", "--json", str(file), name, *rest]) as process:
        out, err = process.communicate(timeout=100)
    done = Completed(process.args, process.returncode, out, err)
    document: dict[str, Any] = json.loads(file.read_text())
    assert document.pop("version") == 1
    return done, document


def _is_ended(done: Completed, document: dict[str, Any], limit: str, words: str) -> None:
    assert done.returncode == -signal.SIGKILL, done.stderr
    line, hint, see = done.stderr.splitlines()[-3:]
    assert line.startswith("ce: error: the container was ended: it "), line
    assert words in line
    assert hint.startswith("ce: hint: ")
    assert see == _SEES
    expected = {"started": True, "exit_code": 137, "signal": 9, "limit": limit, "error": None}
    assert {key: document[key] for key in expected} == expected


# ---- memory ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    [
        f'exec python3 -c "{_TAKE}"',
        f'python3 -c "{_TAKE}" & wait',
        # a daemon, in a session of its own
        f'(setsid sh -c "python3 -c \\"{_TAKE}\\" &" &) </dev/null >/dev/null 2>&1; sleep 60',
        "head -c 400M /dev/zero >/file; sleep 60",
        "head -c 400M /dev/zero >/dev/shm/file; sleep 60",
        # without a name
        "exec 3>/file; rm /file; head -c 400M /dev/zero >&3; sleep 60",
        # shared between processes
        "exec python3 -c \"import mmap, time; x = mmap.mmap(-1, 400 << 20); x.write(b'x' * "
        '(150 << 20)); x.write(x[: 150 << 20]); time.sleep(60)"',
        # several processes, each of which has less
        "for one in 1 2 3; do python3 -c \"import time; x = b'x' * (90 << 20); time.sleep(60)\" & "
        "done; wait",
    ],
)
def test_memory_of_any_kind_ends_the_container(engine: Engine, script: str) -> None:
    begun = time.monotonic()
    done, document = _run(engine, _MEMORY, "bash", "-c", script)
    _is_ended(done, document, "memory", "more than the 200 MiB of com.ce.memory_limit")
    assert document["peak_memory"] > 200 << 20
    assert time.monotonic() - begun < 50


@pytest.mark.parametrize("root", ["false", "true"])
@pytest.mark.parametrize(
    "script",
    [
        # in namespaces of its own, in which nobody may look at the process
        f"""import ctypes, os, time
libc = ctypes.CDLL(None)
assert libc.unshare(0x30000000) == 0  # user and PID
if os.fork() == 0:
    libc.prctl(4, 0, 0, 0, 0)  # not dumpable
    {_TAKE}
os.wait()""",
        # with /proc hidden
        f"""import ctypes, os, time
libc = ctypes.CDLL(None)
assert libc.unshare(0x10020000) == 0  # user and mount
libc.mount(b"x", b"/proc", b"tmpfs", 0, None)
{_TAKE}""",
        # a program that nobody can read
        f"""import os, shutil, sys
shutil.copy(os.path.realpath(sys.executable), "/program")
os.chmod("/program", 0o111)
os.environ["PYTHONHOME"] = "/usr"
os.execv("/program", ["/program", "-c", {_TAKE!r}])""",
    ],
    ids=["nested", "hidden", "unreadable"],
)
def test_no_process_hides_its_memory(engine: Engine, script: str, root: str) -> None:
    limits = f"{_MEMORY}\nroot_remap = {root}"
    done, document = _run(engine, limits, "python3", "-c", script)
    _is_ended(done, document, "memory", "more than the 200 MiB of com.ce.memory_limit")


def test_a_tmpfs_that_root_mounts_inside_counts_as_well(engine: Engine) -> None:
    script = (
        "import ctypes, os, time\n"
        "os.mkdir('/new'); libc = ctypes.CDLL(None)\n"
        "assert libc.mount(b'x', b'/new', b'tmpfs', 0, None) == 0\n"
        "file = open('/new/file', 'wb')\n"
        "while True: file.write(b'x' * (1 << 20)); time.sleep(0.003)"
    )
    done, document = _run(engine, f"{_MEMORY}\nroot_remap = true", "python3", "-c", script)
    _is_ended(done, document, "memory", "more than the 200 MiB of com.ce.memory_limit")


@pytest.mark.parametrize(
    "script",
    [
        # processes that share what one of them has written
        "import os, time\nx = b'x' * (100 << 20)\nfor _ in range(4):\n"
        "    if os.fork() == 0: time.sleep(3); os._exit(0)\ntime.sleep(4)",
        # a process that starts programs, with vfork and with posix_spawn: it has half of the limit
        "import os, subprocess, time\nx = b'x' * (130 << 20)\nend = time.monotonic() + 4\n"
        "while time.monotonic() < end: subprocess.run(['/usr/bin/true'], check=True)\n"
        "os.mkfifo('/fifo')\nwriter = subprocess.Popen(['sh', '-c', 'sleep 1; : >/fifo'])\n"
        "os.posix_spawn('/usr/bin/true', ['true'], {}, "
        "file_actions=[(os.POSIX_SPAWN_OPEN, 0, '/fifo', os.O_RDONLY, 0)])",
        # a file that is read: the kernel can forget its pages
        "import mmap, time\nf = open('/big'); m = mmap.mmap(f.fileno(), 0, access=1)\n"
        "n = sum(m[i] for i in range(0, len(m), 4096)); time.sleep(2)",
    ],
    ids=["shared", "starts", "read"],
)
def test_memory_that_costs_nothing_more_does_not_count(engine: Engine, script: str) -> None:
    big = engine.scratch / "big"
    with big.open("wb") as file:
        file.truncate(400 << 20)
    big.chmod(0o644)
    mounts = f'mounts = ["{big}:/big:ro"]\n'
    done, document = _run(engine, f"{mounts}{_MEMORY}", "python3", "-c", script)
    assert (done.returncode, done.stderr, document["limit"]) == (0, "", None)


# ---- processes -------------------------------------------------------------------------------


def test_no_more_processes_than_the_limit_can_be_started(engine: Engine) -> None:
    script = (
        "import os, threading, time\n"
        "count = 1\n"
        "try:\n"
        "    while count < 99:\n"
        "        if os.fork() == 0: time.sleep(20); os._exit(0)\n"
        "        count += 1\n"
        "except BlockingIOError: print(count, flush=True); time.sleep(1)"
    )
    limits = "[annotations.com.ce]\npids_limit = 20"
    done, document = _run(engine, limits, "python3", "-c", script)
    assert (done.returncode, done.stdout) == (0, "20\n")
    assert done.stderr == (
        "ce: warning: the container had 20 processes and threads, which is all that "
        "com.ce.pids_limit allows: further ones were refused\n"
    )
    assert (document["limit"], document["exit_code"]) == ("pids", 0)


def test_processes_in_namespaces_of_their_own_count_as_well(engine: Engine) -> None:
    script = (
        "import ctypes, os, time\n"
        "assert ctypes.CDLL(None).unshare(0x30000000) == 0\n"
        "count = 1\n"
        "try:\n"
        "    while count < 99:\n"
        "        if os.fork() == 0: time.sleep(20); os._exit(0)\n"
        "        count += 1\n"
        "except BlockingIOError: print(count)"
    )
    done, _document = _run(engine, "[annotations.com.ce]\npids_limit = 20", "python3", "-c", script)
    assert done.stdout == "20\n", done.stderr


def test_a_fork_bomb_ends_with_the_time_and_takes_nothing_from_others(engine: Engine) -> None:
    limits = "[annotations.com.ce]\npids_limit = 30\ntime_limit_s = 4"
    with engine.start(engine.edf(limits, "demo"), "bash", "-c", "f() { f | f & f; }; f") as bomb:
        time.sleep(2)
        other = engine.run(engine.edf(limits, "demo"), "bash", "-c", "sleep 0.1 & wait; echo fine")
        assert (other.stdout, other.returncode) == ("fine\n", 0)
        _out, err = bomb.communicate(timeout=60)
    assert "longer than the 4 s of com.ce.time_limit_s" in err
    assert bomb.returncode == -signal.SIGKILL


# ---- time ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    [
        "trap '' TERM INT HUP; while :; do sleep 1; done",
        "kill -STOP $$",
        "kill -STOP -1; sleep 60",
        "(setsid sleep 4711 &) </dev/null >/dev/null 2>&1; exec sleep 60",
        # what the container can see of the engine
        "kill -STOP 1; kill -KILL 1; exec sleep 60",
    ],
)
def test_time_ends_whatever_a_command_does(engine: Engine, script: str) -> None:
    begun = time.monotonic()
    limits = "[annotations.com.ce]\ntime_limit_s = 2"
    done, document = _run(engine, limits, "bash", "-c", script)
    _is_ended(done, document, "time", "longer than the 2 s of com.ce.time_limit_s")
    # the limit counts from the container's start, which is before the command's
    assert document["seconds"] < 10
    assert 2 < time.monotonic() - begun < 30


def test_a_command_within_its_limits_ends_as_ever(engine: Engine) -> None:
    limits = f"{_MEMORY}\npids_limit = 50\ntime_limit_s = 50"
    done, document = _run(engine, limits, "sh", "-c", "cat; echo error >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "error\n")
    assert document["seconds"] < 40
    assert 0 < document["peak_memory"] < 100 << 20
    rest = {key: document[key] for key in ("started", "exit_code", "signal", "limit", "error")}
    assert rest == {
        "started": True,
        "exit_code": 3,
        "signal": None,
        "limit": None,
        "error": None,
    }


def test_limits_cannot_be_raised_inside(engine: Engine) -> None:
    script = (
        "import resource as r; n, most = r.getrlimit(r.RLIMIT_NPROC); print(most)\n"
        "for pid in (0, 1):\n"
        "    try: r.prlimit(pid, r.RLIMIT_NPROC, (99, 99)); print('raised')\n"
        "    except (PermissionError, ValueError): print('refused')"
    )
    for root in ("false", "true"):
        limits = f"[annotations.com.ce]\npids_limit = 20\nroot_remap = {root}"
        done, _document = _run(engine, limits, "python3", "-c", script)
        assert done.stdout == "22\nrefused\nrefused\n", (root, done.stderr)


# ---- JSON ------------------------------------------------------------------------------------


def test_the_json_says_what_a_shell_says(engine: Engine) -> None:
    for script, code, number, started in (
        ("exit 4", 4, None, True),
        ("kill -SEGV $$", 139, 11, True),
    ):
        _done, document = _run(engine, "", "sh", "-c", script)
        found = [document[key] for key in ("exit_code", "signal", "started", "peak_memory")]
        assert found == [code, number, started, None]
    done, document = _run(engine, "", "no-such-command")
    assert (document["exit_code"], document["started"]) == (127, False)
    assert f"ce: error: {document['error']}\n" in done.stderr


@pytest.mark.parametrize("name", ["no-such-name", "./\udcff.toml"])
def test_the_json_says_why_there_is_no_container(engine: Engine, name: str) -> None:
    file = engine.scratch / "outcome.json"
    ce, _run, *_rest = engine.argv(engine.edf())
    with engine.popen([ce, "run", "--json", str(file), name, "--", "true"]) as process:
        _out, err = process.communicate(timeout=60)
    assert process.returncode == 125
    document = json.loads(file.read_text())
    assert (document["started"], document["exit_code"]) == (False, 125)
    assert f"ce: error: {document['error']}\n" in err


def test_a_file_without_room_does_not_hide_why_there_is_no_container(engine: Engine) -> None:
    ce, _run, *_rest = engine.argv(engine.edf())
    with engine.popen([ce, "run", "--json", "/dev/full", "no-such-name", "--", "true"]) as process:
        _out, err = process.communicate(timeout=60)
    assert process.returncode == 125
    assert "ce: error: --json: no space left on device\n" in err
    assert "no environment 'no-such-name'" in err


@pytest.mark.parametrize("name", ["/dev/fd/3", "/dev/stderr"])
def test_json_to_a_descriptor_is_added_to_what_its_file_has(engine: Engine, name: str) -> None:
    file = engine.scratch / "outcomes.json"
    ce, _run, *rest = engine.argv(engine.edf(), "sh", "-c", "exit 4")
    script = f'exec 3>>{file} 2>>{file}; "$@"; "$@"'
    with engine.popen(["sh", "-c", script, "sh", ce, "run", "--json", name, *rest]) as process:
        assert process.wait(60) == 4
    lines = [line for line in file.read_text().splitlines() if line.startswith("{")]
    assert [json.loads(line)["exit_code"] for line in lines] == [4, 4]


@pytest.mark.parametrize("file", ["-", "/no/such/directory/x"])
def test_a_file_that_cannot_be_written_is_refused_first(engine: Engine, file: str) -> None:
    ce, _run, *rest = engine.argv(engine.edf(), "echo", "ran")
    with engine.popen([ce, "run", "--json", file, *rest]) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (125, "")
    assert "--json" in err


def test_a_signal_from_outside_reaches_a_command_with_json(engine: Engine) -> None:
    file = engine.scratch / "outcome.json"
    script = 'trap "echo heard; exit 5" USR1; echo ready; while :; do sleep 0.1; done'
    ce, _run, *rest = engine.argv(engine.edf(), "sh", "-c", script)
    with engine.popen([ce, "run", "--json", str(file), *rest]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.read() == "heard\n"
    assert process.returncode == 5
    assert json.loads(file.read_text())["exit_code"] == 5


def test_the_document_is_that_of_the_schema(engine: Engine) -> None:
    for limits in ("", "[annotations.com.ce]\ntime_limit_s = 1"):
        _done, document = _run(engine, limits, "sleep", "2")
        Outcome.model_validate(document)


# ---- ends of the container that no limit causes ----------------------------------------------


def _parent(pid: str) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1]


def _kill(mark: str, name: str) -> None:
    """Kill .ce-init, in whose container something is called `mark`, its parent, or a sibling."""
    named: dict[str, list[str]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            named.setdefault(place.joinpath("comm").read_text().strip(), []).append(place.name)
    (init,) = (n for n in named[".ce-init"] if mark in Path(f"/proc/{n}/mountinfo").read_text())
    guard = _parent(init)
    (image,) = (n for n in named["ce-image"] if _parent(n) == guard)
    assert guard in named["ce-guard"]
    victims = {".ce-init": init, "ce-guard": guard, "ce-image": image}
    os.kill(int(victims[name]), signal.SIGKILL)
    assert until(lambda: not Path(f"/proc/{guard}/cwd").exists())


@pytest.mark.parametrize(
    ("victim", "words"),
    [
        ("ce-guard", "the process that guards the container was killed"),
        ("ce-image", "the process that serves the image (ce-image) was killed by signal 9"),
        (".ce-init", "the container's init process ended"),
    ],
)
@pytest.mark.parametrize("limits", [_MEMORY, "[annotations.com.ce]\npids_limit = 50", ""])
def test_a_container_that_dies_says_why(
    engine: Engine, limits: str, victim: str, words: str
) -> None:
    place = engine.scratch / os.urandom(8).hex()
    place.mkdir()
    file = engine.scratch / f"{place.name}.json"
    edf = engine.edf(f'mounts = ["{place}:/there"]\n{limits}', "demo")
    script = "echo begun; read line"
    ce, _run, name, *rest = engine.argv(edf, "sh", "-c", script)
    with engine.popen([ce, "run", "--json", str(file), name, *rest]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        _kill(place.name, victim)
        # also if it reads nothing of the image
        assert process.wait(30) == -signal.SIGKILL
        _out, err = process.communicate()
    assert f"ce: error: {words}\n" in err
    assert "ce: see: ce help container-died\n" in err
    document = json.loads(file.read_text())
    assert (document["exit_code"], document["limit"]) == (137, None)
    assert document["error"] == words

"""The node launcher without a container: its imports, its answers, its refusals."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from container_engine.base.errors import LaunchError
from container_engine.node.container import environment as env
from container_engine.node.container import guard
from container_engine.node.container.description import person_of_process
from container_engine.node.node_plan import NodePlan
from container_engine.node.start import container, launcher
from tests.c_header import constants, in_order
from tests.unit.node.plans import plan

PACKAGE = Path(launcher.__file__).parents[3]
# Without the virtual environment, as the launcher is started.
PYTHON: str = getattr(sys, "_base_executable", sys.executable)
# Modules that a start may load besides the interpreter's own; each delays every start.
ALLOWED = {
    "__future__",
    "_collections_abc",
    "_signal",
    "_socket",
    "_stat",
    "genericpath",
    "os",
    "os.path",
    "posixpath",
    "pwd",
    "stat",
    "container_engine",
    "container_engine.base",
    "container_engine.base.errors",
    "container_engine.base.mounts",
    "container_engine.base.variables",
    "container_engine.node",
    *(
        f"container_engine.node.{name}"
        for name in (
            "container",
            "container.checks",
            "container.description",
            "container.environment",
            "container.guard",
            "container.podman",
            "container.specification",
            "slurm_step",
            "node_plan",
            "plan_json",
            "protocol",
            "report",
            "report.trace",
            "start",
            "start.container",
            "start.image_in_use",
            "start.launcher",
            "start.site_rules",
        )
    ),
}


def test_a_start_imports_only_what_is_cheap() -> None:
    script = (
        "import sys; before = set(sys.modules); sys.path.insert(0, sys.argv[1]);"
        "import container_engine.node.start.launcher; print(*sorted(set(sys.modules) - before))"
    )
    argv = [PYTHON, "-ISE", "-c", script, str(PACKAGE)]
    loaded = set(subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split())
    assert loaded - ALLOWED == set()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def memory_file(content: bytes) -> int:
    fd = os.memfd_create("test")
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def answer_to(the_plan: bytes, pair: tuple[socket.socket, socket.socket]) -> tuple[int, bytes]:
    """Return the exit code and the packet that the plugin gets for a plan that cannot start."""
    ours, theirs = pair
    script = (
        "import sys; sys.path.insert(0, sys.argv.pop(1));"
        "from container_engine.node.start.launcher import main; sys.exit(main(sys.argv[1:],"
        " '/libexec'))"
    )
    made = {
        "CE_ARG_PLAN": memory_file(the_plan),
        "CE_ARG_ENVIRONMENT": memory_file(b"A=1\0"),
        "CE_ARG_WATCH": os.pidfd_open(os.getpid()),
        "CE_ARG_LIFE": os.dup(theirs.fileno()),
    }
    fds = in_order({"CE_ARG_REPLY": theirs.fileno(), **made}, constants("common/protocol.h"))
    argv = [PYTHON, "-ISE", "-c", script, str(PACKAGE), *map(str, fds), "1"]
    done = subprocess.run(argv, pass_fds=fds, capture_output=True, text=True)
    for fd in made.values():
        os.close(fd)
    assert done.stderr == ""
    return done.returncode, ours.recv(65536)


DAMAGED = b"the plan that arrived on this node is damaged: "


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"version": 7}', b"this node understands plans of version 1, not 7: "),
        (b'{"version": 1}', DAMAGED + b"it lacks workdir, workdir_from, writable, entrypoint, "),
        *((text, DAMAGED) for text in (b"", b"{", b"[]", b"\xff", b"null")),
    ],
)
def test_a_plan_that_cannot_start_is_answered_with_code_and_words_and_no_traceback(
    pair: tuple[socket.socket, socket.socket], text: bytes, words: bytes
) -> None:
    code, packet = answer_to(text, pair)
    assert code == 125
    assert packet.startswith(b"F125\n" + words)


def test_a_plan_of_another_version_is_refused() -> None:
    with pytest.raises(LaunchError, match="different versions of the container engine"):
        container.checked(plan(version=3), "/libexec")


# ---- the guard's report ----------------------------------------------------------------------


def test_the_report_of_a_running_container_gives_its_descriptors(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    socket.send_fds(theirs, [b"Rsession 5\nready 7\n\0hello\n"], [0, 1, 2, 0])
    moments, fds = guard.await_report(ours, NodePlan(start_timeout_s=5))
    assert moments == ("session 5\nready 7\n", "hello\n")
    assert len(fds) == 4
    assert not any(os.get_inheritable(fd) for fd in fds)
    for fd in fds:
        os.close(fd)


def test_a_guard_that_has_ended_cannot_go_on(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.close()
    with pytest.raises(LaunchError, match="guards the container ended while it started") as caught:
        guard.go_on(ours)
    assert caught.value.see == "launcher-ended"
    assert ours.fileno() == -1


def test_the_report_of_a_failure_is_explained(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.send(b"Eoverlay\n2\ncannot mount\nlog \xff")
    with pytest.raises(LaunchError, match=r"^cannot mount: No such file or directory \(log"):
        guard.await_report(ours, NodePlan(start_timeout_s=5))


def test_notes_are_passed_on_before_the_report(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    notes: list[str] = []
    theirs.send(b"Nfirst")
    theirs.send(b"N")
    socket.send_fds(theirs, [b"R"], [0])
    _moments, [fd] = guard.await_report(ours, NodePlan(start_timeout_s=5), notes.append)
    os.close(fd)
    assert notes == ["first", ""]


def test_a_guard_that_ends_without_a_report_is_named(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    theirs.close()
    with pytest.raises(LaunchError, match="the process that guards the container ended"):
        guard.await_report(ours, NodePlan(start_timeout_s=5))


def test_a_guard_that_never_reports_is_given_up(pair: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(LaunchError, match=r"^the container did not start within 0\.05 s$"):
        guard.await_report(pair[0], NodePlan(start_timeout_s=0.05))


# ---- the user --------------------------------------------------------------------------------


def test_the_users_entries_are_the_hosts() -> None:
    person = person_of_process()
    assert person.passwd.split(":")[2:4] == [str(os.getuid()), str(os.getgid())]
    assert len(person.passwd.split(":")) == 7
    assert len(person.group.split(":")) == 4


def test_the_home_of_tasks_is_that_of_edf_image_job_or_user() -> None:
    job, own = {"HOME": "/job"}, "/own"
    image = {"HOME": "/image"}
    assert env.home_of_tasks(image, {"HOME": "/edf"}, job, own) == "/edf"
    assert env.home_of_tasks(image, {"HOME": None}, job, own) == ""
    assert env.home_of_tasks(image, {}, job, own) == "/image"
    assert env.home_of_tasks({}, {}, job, own) == "/job"
    assert env.home_of_tasks({}, {}, {}, own) == own


def test_tasks_get_the_users_home_where_nobody_names_one() -> None:
    assert env.missing_home({}, {}, "/own") == {"HOME": "/own"}
    assert env.missing_home({}, {"HOME": ""}, "/own") == {}
    assert env.missing_home({"HOME": None}, {}, "/own") == {}


def test_somebody_without_a_name_gets_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_001)
    monkeypatch.setattr(os, "getgid", lambda: 4_000_000_002)
    person = person_of_process()
    assert person.passwd == "user4000000001:*:4000000001:4000000002::/:/bin/sh"
    assert person.group == "user4000000001:x:4000000002:"

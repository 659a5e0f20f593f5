"""Python passes values by position to programs in C in the order of common/protocol.h.

The stages of this folder write and read arguments, reports and containers in that order; the tests
here are about all else.
"""

import os
import socket
from pathlib import Path

import pytest

from container_engine.base.errors import LaunchError
from container_engine.node.container import guard
from container_engine.node.node_plan import NodePlan
from container_engine.node.start import launcher
from container_engine.node.start.container import Container
from docs import protocol
from tests.bench import worker
from tests.c_header import constants, in_order
from tests.unit.node.join_stage import PYTHON
from tests.unit.node.plans import plan

C = constants("common/protocol.h")
_OWN = ("network", "IPC")


def _named(name: str) -> int:
    return guard.memory_file(name, b"")


def _name(fd: int) -> str:
    link = os.readlink(f"/proc/self/fd/{fd}")
    os.close(fd)
    return link.removeprefix("/memfd:").removesuffix(" (deleted)")


@pytest.mark.parametrize("own", [(), _OWN])
@pytest.mark.parametrize("of_tasks", [True, False])
@pytest.mark.parametrize("traced", [True, False])
def test_the_answer_of_a_container_has_its_strings_and_descriptors_in_order(
    tmp_path: Path, own: tuple[str, ...], of_tasks: bool, traced: bool
) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ready = Container(
        user_ns=_named("user"),
        mount_ns=_named("mount"),
        records=b"",
        guard=_named("guard"),
        unshared=[*map(_named, own)],
        workdir="/work",
        control=ours,
        printed="printed",
        attended=_named("attended"),
        tasks=_named("tasks") if of_tasks else -1,
        warnings=["careful"],
    )
    recorded = os.open(tmp_path / "n1.json", os.O_WRONLY | os.O_CREAT) if traced else -1
    with ours, theirs:
        kept = plan(kept={"name": "a"})
        launcher._answer_ready(theirs, ready, kept, {}, recorded, saves=True)
        data, fds, _flags, _address = socket.recv_fds(ours, 1 << 16, 20)
    texts = {
        "CE_TEXT_WORKDIR": chr(C["CE_ANSWER_READY"]) + ("2" if own else "") + "/work",
        "CE_TEXT_NOTICES": "careful",
        "CE_TEXT_OUTPUT": "printed",
        "CE_TEXT_KEPT": "kept",
        "CE_TEXT_SAVED": "save",
        "CE_TEXT_TASKS": "tasks" if of_tasks else "",
    }
    assert data.decode().split("\0") == in_order(texts, C)
    first = {
        "CE_ANSWER_USER_NS": "user",
        "CE_ANSWER_MOUNT_NS": "mount",
        "CE_ANSWER_ENVIRONMENT": "ce-env",
        "CE_ANSWER_GUARD": "guard",
        "CE_ANSWER_LAUNCHER": "anon_inode:[pidfd]",
        "CE_ANSWER_ATTENDED": "attended",
    }
    assert C["CE_ANSWER_UNSHARED"] == len(first)
    last = [str(tmp_path / "n1.json"), str(tmp_path)] if traced else []
    rest = [*own, *(["tasks"] if of_tasks else []), *last]
    assert [*map(_name, fds)] == [*in_order(first, C), *rest]


@pytest.mark.parametrize("kind", ["CE_REPORT_OF_NODE", "CE_REPORT_OF_TASKS"])
def test_a_report_of_a_container_is_told_by_its_first_letter(kind: str) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    notes: list[str] = []
    with ours, theirs:
        theirs.send(bytes([C["CE_REPORT_NOTE"]]) + b"a note")
        socket.send_fds(theirs, [bytes([C[kind]]) + b"times\0printed"], [_named("x")])
        found, [fd] = guard.await_report(ours, NodePlan(start_timeout_s=5), notes.append)
    assert (found, notes, _name(fd)) == (("times", "printed"), ["a note"], "x")


def test_a_report_of_a_failure_is_told_by_its_first_letter() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        theirs.send(bytes([C["CE_REPORT_FAILED"]]) + b"overlay\n2\ncannot mount\nlog")
        with pytest.raises(LaunchError, match=r"^cannot mount: No such file or directory \(log"):
            guard.await_report(ours, NodePlan(start_timeout_s=5))


def test_a_session_goes_on_after_the_byte_that_the_guard_waits_for() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    end, services = socket.socketpair()
    with theirs, end, services:
        guard.go_on(ours, end)
        data, [fd], _flags, _address = socket.recv_fds(theirs, 10, 2)
        assert data == bytes([C["CE_GO_ON"]])
        assert os.path.sameopenfile(fd, end.fileno())
        os.close(fd)


def test_a_command_is_run_in_a_container_by_words_in_order() -> None:
    user, network, mounts, records = fds = [_named("x") for _ in range(4)]
    program, *words = guard.entering("/libexec", (user, network), mounts, records, "/work")
    wanted = {
        "CE_ENTER_NAMESPACES": f"{user},{network}",
        "CE_ENTER_MOUNT_NS": str(mounts),
        "CE_ENTER_ENVIRONMENT": str(records),
        "CE_ENTER_WORKDIR": "/work",
    }
    assert C["CE_ENTER_COMMAND"] == len(wanted)
    assert (program, words) == ("/libexec/ce-enter", in_order(wanted, C))
    assert all(map(os.get_inheritable, fds))
    for fd in fds:
        os.close(fd)


def test_a_change_of_the_header_is_noticed() -> None:
    changed = protocol.HEADER.read_text(encoding="utf-8").replace("\tCE_ARG_PLAN,\n", "", 1)
    module = protocol.TARGET.read_text(encoding="utf-8")
    assert module == protocol.render(), "run: make generated"
    assert "CE_ARG_ENVIRONMENT = 2\n" in module
    assert protocol.constants(changed)["CE_ARG_ENVIRONMENT"] == 1


def test_the_bench_reads_the_answer_of_tasks_as_the_plugin_does() -> None:
    assert C["CE_TEXT_TASKS"] == worker.ASKS
    assert C["CE_ANSWER_GUARD"] == worker.GUARD
    assert C["CE_ANSWER_UNSHARED"] == worker.TASKS


def test_the_bench_asks_as_tasks_do() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        worker._ask(ours, _named("task")).close()
        data, fds, _flags, _address = socket.recv_fds(theirs, 10, 4)
    assert data == bytes([C["CE_ASK"]])
    assert len(fds) == C["CE_ASKED_COUNT"]
    assert _name(fds[C["CE_ASKED_TASK"]]) == "task"
    for fd in (fds[C["CE_ASKED_ANSWER"]], fds[C["CE_ASKED_OUTCOME"]]):
        os.close(fd)


def test_the_bench_starts_the_launcher_as_the_plugin_does(tmp_path: Path) -> None:
    script = tmp_path / "node"
    script.write_text(
        f"#!{PYTHON} -ISE\n"
        "import os, socket, sys\n"
        f"plan, environment = (open(int(sys.argv[1 + at])).read() for at in {_files()})\n"
        f"watch = os.readlink('/proc/self/fd/' + sys.argv[1 + {C['CE_ARG_WATCH']}])\n"
        f"life = socket.socket(fileno=int(sys.argv[1 + {C['CE_ARG_LIFE']}]))\n"
        f"begun = sys.argv[1 + {C['CE_ARG_BEGUN']}]\n"
        "found = plan, 'PATH=' in environment, watch, begun.isdigit(), len(sys.argv)\n"
        f"reply = socket.socket(fileno=int(sys.argv[1 + {C['CE_ARG_REPLY']}]))\n"
        "reply.send(repr(found).encode())\n"
    )
    script.chmod(0o755)
    done = worker.launch({"plan": "the plan", "node": str(script)})
    wanted = "the plan", True, "anon_inode:[pidfd]", True, 1 + C["CE_ARG_COUNT"]
    assert done["output"] == repr(wanted)


def _files() -> tuple[int, int]:
    return C["CE_ARG_PLAN"], C["CE_ARG_ENVIRONMENT"]

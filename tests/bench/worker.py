"""Process that runs and times commands as an ordinary user: the far end of `user.py`.

A separate program, started once through sandbox/run, so that no figure includes its start. It reads
one JSON object per line from stdin and answers each with one. Times are in seconds.
"""

import array
import contextlib
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_ENOUGH_S = 60
_POLL_S = 0.005
# the environments of the launcher and of the step: a recorded start needs the names of both
_OF_PLUGIN = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "SLURMD_NODENAME": "n1",
}
_STEPS = itertools.count()
# Indices in the launcher's answer (spank_plugin/common/protocol.h): of the word about tasks, of the
# guard's descriptor, and of the one at which tasks ask for their containers; and the most
# descriptors that it has.
ASKS, GUARD, TASKS, _MOST_FDS = 5, 3, 6, 16


def _environment(request: dict[str, Any]) -> dict[str, str]:
    return {**os.environ, **request.get("env", {})}


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Time a command from start to end; `after` is a command that cleans up, untimed."""
    begin = time.perf_counter()
    done = subprocess.run(
        request["argv"],
        env=_environment(request),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_ENOUGH_S,
    )
    seconds = time.perf_counter() - begin
    if "after" in request:
        subprocess.run(
            request["after"],
            env=_environment(request),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_ENOUGH_S,
        )
    output = done.stdout.decode(errors="replace")
    return {"seconds": seconds, "code": done.returncode, "output": output}


def _started(request: dict[str, Any], stderr: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        request["argv"],
        env=_environment(request),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
    )


def ready(request: dict[str, Any]) -> dict[str, Any]:
    """Time a command up to its first line; then close its stdin and wait for its end."""
    begin = time.perf_counter()
    process = _started(request, subprocess.PIPE)
    assert process.stdout is not None
    line = process.stdout.readline()
    seconds = time.perf_counter() - begin
    _out, error = process.communicate(timeout=_ENOUGH_S)
    code = process.returncode if line else process.returncode or 1
    return {"seconds": seconds, "code": code, "output": error.decode(errors="replace")}


def ready_at_once(request: dict[str, Any]) -> dict[str, Any]:
    """Start a command `count` times at once; return when each had printed its first line."""
    begin = time.perf_counter()
    processes = [_started(request, subprocess.DEVNULL) for _ in range(request["count"])]
    outputs = {each.stdout.fileno(): each.stdout for each in processes if each.stdout}
    times, silent = [], 0
    for fd, now in _as_they_answer(outputs):
        times.append(now - begin)
        silent += not outputs[fd].readline()
    for process in processes:
        process.communicate(timeout=_ENOUGH_S)
    output = f"{silent} of {len(processes)} printed nothing" if silent else ""
    return {"seconds": times[-1], "code": int(silent > 0), "output": output, "times": times}


def launch(request: dict[str, Any]) -> dict[str, Any]:
    """Do what the plugin does in user_init; time it up to the launcher's answer to the first task.

    `prefix` is a command that runs the launcher, such as strace.
    """
    begin = time.perf_counter()
    answer, _fds, end = _launched(request)
    seconds = time.perf_counter() - begin
    end()
    code = 0 if answer.startswith("R") else 1
    return {"seconds": seconds, "code": code, "output": answer}


def _launched(request: dict[str, Any]) -> tuple[str, list[int], Callable[[], None]]:
    """Start a container; return the answer, its descriptors, and a function that ends it."""
    reply, their_reply = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    life, their_life = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    step = {b"SLURM_JOB_ID": b"%d" % os.getpid(), b"SLURM_STEP_ID": b"%d" % next(_STEPS)}
    block = b"".join(b"%s=%s\0" % pair for pair in {**os.environb, **step}.items())
    files = [_memory_file(request["plan"].encode()), _memory_file(block)]
    passed = [their_reply.fileno(), *files, os.pidfd_open(os.getpid()), their_life.fileno()]
    process = subprocess.Popen(
        [*request.get("prefix", []), request["node"], *map(str, passed), str(time.time_ns())],
        pass_fds=passed,
        env=_OF_PLUGIN,
    )
    their_reply.close()
    their_life.close()
    answer, fds = _receive(reply)
    reply.close()

    def end() -> None:
        # The launcher ends by itself; strace stays as long as any process that it follows.
        if not request.get("prefix"):
            process.wait(_ENOUGH_S)
        life.close()
        process.wait(_ENOUGH_S)
        for fd in fds[GUARD : GUARD + 1]:
            _wait_for_end(fd)
        for fd in (*fds, *passed[1:4]):
            os.close(fd)

    return answer, fds, end


# functions that end the containers of `many`
_held: list[Callable[[], None]] = []


def many(request: dict[str, Any]) -> dict[str, Any]:
    """Start containers of tasks, `single` of them in turn and then `count` at once.

    Return two lists: how long each start in turn took, and when each of the others had started. The
    containers stay until `ended`.
    """
    answer, fds, end = _launched(request)
    _held.append(end)
    words = answer.split("\0")
    if not answer.startswith("R") or words[ASKS:] != ["tasks"] * len(words[ASKS:]):
        return {"seconds": 0, "code": 1, "output": answer}
    single, count = request["single"], request["count"]
    tasks = [_sleeping() for _ in range(single + count + 1)]
    _held.append(lambda: _kill(tasks))
    asks = socket.socket(fileno=os.dup(fds[TASKS]))
    _ask(asks, tasks[-1][1]).recv(65536)  # the launcher has made this container already
    taken = []
    for _pid, pidfd in tasks[:single]:
        begin = time.perf_counter()
        _check(_ask(asks, pidfd))
        taken.append(time.perf_counter() - begin)
    begin = time.perf_counter()
    asked = {each.fileno(): each for each in (_ask(asks, task[1]) for task in tasks[single:-1])}
    times = []
    for fd, seconds in _as_they_answer(asked):
        times.append(seconds - begin)
        _check(asked[fd])
    return {"seconds": times[-1], "code": 0, "output": "", "single": taken, "at_once": times}


def ended(_request: dict[str, Any]) -> dict[str, Any]:
    """End the containers of `many`; time it."""
    begin = time.perf_counter()
    while _held:
        _held.pop()()
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, 0)[0]:
            pass
    return {"seconds": time.perf_counter() - begin, "code": 0, "output": ""}


def _as_they_answer(fds: Iterable[int]) -> Iterator[tuple[int, float]]:
    """Yield each descriptor once, when it becomes readable, and the time at which it did."""
    poll = select.poll()
    waiting = set(fds)
    for fd in waiting:
        poll.register(fd, select.POLLIN)
    while waiting:
        for fd, _event in poll.poll(_ENOUGH_S * 1000):
            poll.unregister(fd)
            waiting.remove(fd)
            yield fd, time.perf_counter()


def _sleeping() -> tuple[int, int]:
    pid = os.fork()
    if pid == 0:
        while True:
            signal.pause()
    return pid, os.pidfd_open(pid)


def _kill(tasks: list[tuple[int, int]]) -> None:
    for pid, _pidfd in tasks:
        os.kill(pid, signal.SIGKILL)


def _ask(asks: socket.socket, pidfd: int) -> socket.socket:
    """Ask as a task does (spank_plugin/plugin_user/task_container.c) and return the socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    outcome = os.memfd_create("ce-outcome")
    rights = array.array("i", [theirs.fileno(), pidfd, outcome])
    asks.sendmsg([b"J"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    os.close(outcome)
    theirs.close()
    return ours


def _check(asked: socket.socket) -> None:
    """Raise OSError unless the report is a container's; the kernel closes its descriptors."""
    asked.settimeout(_ENOUGH_S)
    report = asked.recv(65536)
    asked.close()
    if not report.startswith(b"R"):
        raise OSError(report.decode(errors="replace"))


def _memory_file(content: bytes) -> int:
    fd = os.memfd_create("bench")
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _receive(reply: socket.socket) -> tuple[str, list[int]]:
    reply.settimeout(_ENOUGH_S)
    fds = array.array("i")
    data, ancillary, _flags, _address = reply.recvmsg(
        65536, socket.CMSG_SPACE(_MOST_FDS * fds.itemsize)
    )
    for _level, _kind, rights in ancillary:
        fds.frombytes(rights)
    return data.decode(), list(fds)


def _wait_for_end(pidfd: int) -> None:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll(_ENOUGH_S * 1000)


def settle(_request: dict[str, Any]) -> dict[str, Any]:
    """Wait until the queue is empty, as a completing job keeps its nodes from the next."""
    deadline = time.monotonic() + _ENOUGH_S
    while time.monotonic() < deadline:
        if not subprocess.run(["squeue", "-h"], capture_output=True, timeout=_ENOUGH_S).stdout:
            return {"seconds": 0, "code": 0, "output": ""}
        time.sleep(_POLL_S)
    return {"seconds": 0, "code": 1, "output": "the cluster is not idle: somebody else's jobs?"}


_OPERATIONS = {"run": run, "ready": ready, "launch": launch, "settle": settle}
_OPERATIONS |= {"ready_at_once": ready_at_once, "many": many, "ended": ended}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = _OPERATIONS[request["operation"]](request)
        except (OSError, subprocess.SubprocessError) as error:
            answer = {"seconds": 0, "code": 1, "output": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

"""A job's running container as steps that join it see it, made without a container.

A fake guard answers at the control socket; the step starts another one, which only records what it
is sent.
Both programs that join, the launcher and ce-guard, are run on this stage.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fcntl import LOCK_SH, flock
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple, Self

from container_engine.node.container.guard import memory_file
from container_engine.node.job_containers import enter, recorded_join
from container_engine.node.node_plan import node_plan
from container_engine.node.start import launcher
from tests.c_header import constants, in_order
from tests.unit.node.plans import document

PACKAGE = Path(launcher.__file__).parents[3]
# Without the virtual environment, as the launcher is started.
PYTHON: str = getattr(sys, "_base_executable", sys.executable)
ANEW = b"F125\nthe launcher"
C = constants("common/protocol.h")
# files of a process that stand for a container's; "" is its environment
_INSIDE = in_order(
    {
        "CE_AT_USER_NS": "ns/user",
        "CE_AT_MOUNT_NS": "ns/mnt",
        "CE_AT_ENVIRONMENT": "",
        "CE_AT_MOUNTS": "mountinfo",
    },
    C,
)
_OTHERS = ("ns/net", "ns/ipc", "ns/uts", "ns/pid", "ns/cgroup")
_GUARD = """#!{python} -ISE
import array, json, os, socket, sys, time
control = int(sys.argv[1 + {CE_GUARD_CONTROL}])
spec = int(sys.argv[1 + {CE_GUARD_SPECIFICATION}])
joins = len(sys.argv) == 1 + {CE_GUARD_MOST}
assert joins or len(sys.argv) == 1 + {CE_GUARD_LEAST}
for place, link in (
    ({CE_GUARD_WATCH}, "anon_inode:[pidfd]"), ({CE_GUARD_LIFE}, "socket:"),
    *([({CE_GUARD_USER_NS}, "user:")] if joins else []),
):
    assert os.readlink("/proc/self/fd/" + sys.argv[1 + place]).startswith(link)
starter = os.readlink(f"/proc/{{os.getppid()}}/exe")
if os.fork():
    os._exit(0)
answers = socket.socket(fileno=control)
mode = open("{prefix}/mode").read()
if mode == "ends":
    os._exit(1)
if mode == "fails":
    answers.send(b"Ejoined\\n5\\nno\\n")
    os._exit(1)
text = b""
while data := os.read(spec, 1 << 20):
    text += data
words = text.decode().split("\\0")[:-1]
told = []
assert open("/proc/self/environ", "rb").read() == b""
if mode.startswith("makes "):
    os.mkdir(mode[6:])
if not words:
    os._exit(0)
while words:
    name, count = words.pop(0), int(words.pop(0))
    told.append([name, *words[:count]])
    del words[:count]
# of ce-guard, whose child it is, the guard has no other descriptor
given = {{*sys.argv[1:], *(word for o in told for word in o[1:])}}
others = {{n for n in os.listdir("/proc/self/fd") if int(n) > 2}} - given
others = [n for n in others if os.path.lexists("/proc/self/fd/" + n)]
assert not starter.endswith("/ce-guard") or not others
def meant(word):
    link = "/proc/self/fd/" + word
    return os.readlink(link) if word.isdigit() and os.path.lexists(link) else word
open("{prefix}/told", "w").write(json.dumps([[o[0], *map(meant, o[1:])] for o in told]))
stamps = "Rkeep 1\\njoined 2\\n\\0"
if joins:
    inside = list(map(int, told[-1][1:]))
else:
    names = ("session", "file", "crun", "container")
    stamps = "R" + "".join(f"{{name}} {{time.monotonic_ns()}}\\n" for name in names) + "\\0"
    environ = os.memfd_create("environ")
    os.write(environ, open("{prefix}/environ", "rb").read())
    os.lseek(environ, 0, os.SEEK_SET)
    # with a network of its own, a container has no /sys of the node's
    mounted = os.memfd_create("mountinfo")
    lines = open("/proc/self/mountinfo").readlines()
    os.write(mounted, "".join(line for line in lines if " /sys " not in line).encode())
    os.lseek(mounted, 0, os.SEEK_SET)
    made = {{"": environ, "mountinfo": mounted}}
    inside = [made.get(name) or os.open("/proc/self/" + name, os.O_RDONLY) for name in {inside}]
inside.insert({CE_REPORTED_GUARD}, os.pidfd_open(os.getpid()))
fds = array.array("i", inside)
answers.sendmsg([stamps.encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
open("{prefix}/last_packet", "wb").write(answers.recv(10))
"""
_LAUNCHER = """#!{python} -ISE
import os, socket, sys
fds = list(map(int, sys.argv[1:]))[:{CE_ARG_FDS}]
assert all(os.fstat(fd) for fd in fds)
open("{prefix}/argc", "w").write(str(len(sys.argv)))
assert "SLURMD_NODENAME" not in os.environ
socket.socket(fileno=fds[{CE_ARG_REPLY}]).send({anew!r})
"""


_REAL = """#!{python} -ISE
import os, sys
open("{prefix}/argc", "w").write(str(len(sys.argv)))
sys.path.insert(0, "{package}")
from container_engine.node.start.launcher import main
os._exit(main(sys.argv[1:], "{prefix}/libexec/container-engine"))
"""


class Joined(NamedTuple):
    """The answer of a step that joins, what the guard was sent, and the trace."""

    texts: Sequence[str]
    fds: Sequence[str]
    records: bytes
    told: Sequence[Sequence[str]]
    trace: dict[str, Any]


class Stage:
    """A job's container with one image, made by a step; `run_step` runs a later one."""

    def __init__(self, directory: Path, home: Path, program: Path) -> None:
        self.prefix, self.short, self.home = home / "prefix", directory, home
        self.image = home / "i.sqsh"
        self.image.write_text("image")
        self.traces = home / "traces"
        # the step that started the container has written its trace there
        self.traces.mkdir()
        self.node = {
            "SLURM_JOB_ID": "7",
            "SLURM_STEP_ID": "2",
            "SLURM_NODEID": "0",
            "SLURM_STEP_NODELIST": "n1",
            "SLURM_STEP_NUM_TASKS": "3",
            "SLURM_CE_PLANNED": "1700000000000000000 1700000000010000000",
            "PATH": "/usr/bin",
            "HOME": "/home/me",
        }
        self.name: str | None = "n1"
        self.block = b"FROM_HOOK=1\0A=changed\0HOME=/h\0PATH=/bin\0"
        self.plan = self._plan()
        self.after = b""
        self.hands: list[tuple[bytes, int]] = [(b"C", 5), (bytes(self.image), 1), (b".", 1)]
        self.last: list[tuple[bytes, int]] = [(b"\0", 0)]
        self._install(program)

    @classmethod
    def of_one_step(cls, directory: Path, program: Path) -> Self:
        """Return a stage for a step that starts a container of its own, by the launcher."""
        made = cls(directory, directory, program)
        made.image.write_bytes(b"hsqs" + bytes(92))
        made.plan["kept"], made.plan["mounts"][0]["source"] = None, str(directory)
        made.plan["writable"] = True
        made.plan["settings"] |= {"start": "crun", "tmpfs_size": "1g", "root_remap": False}
        made.plan["hooks"].pop()
        made.use_the_launcher()
        return made

    def _plan(self) -> dict[str, Any]:
        found: dict[str, Any] = document(
            engine="1.0",
            name="env",
            files=["/e.toml"],
            workdir="/work dir",
            workdir_from="/e.toml:2",
            image={"path": str(self.image), "name": "i", "env": {"A": "1", "B": "2"}},
            env=[{"name": "MINE", "value": "é", "from": "/e.toml:3"}],
            mounts=[
                {"kind": "bind", "source": "/data", "target": "/d", "options": [], "from": "e"}
            ],
            hooks=[
                {"name": "mpi", "automatic_when": ["CE_PMIX_DIR", "SLURM_MPI_TYPE=pmi2", "X=a*"]},
                {"name": "always", "release": "1", "reason": "enabled", "automatic_when": None},
            ],
            kept={"name": "a", "key": "0" * 16, "mode": "auto", "directory": str(self.short)},
        )
        found["settings"] |= {
            "start_timeout_s": 5.0,
            "trace_dir": str(self.traces),
            "secret_variables": ["TOKEN", "*KEY"],
        }
        return found

    def _install(self, program: Path) -> None:
        place = self.prefix / "libexec/container-engine"
        place.mkdir(parents=True)
        shutil.copy(program, place / "ce-guard")
        for name, text in (("fake-guard", _GUARD), ("launcher", _LAUNCHER)):
            values = {"python": PYTHON, "prefix": self.prefix, "anew": ANEW, "inside": _INSIDE, **C}
            (place / name).write_text(text.format(**values))
            (place / name).chmod(0o755)
        (self.prefix / "environ").touch()
        self.guard("")

    def guard(self, mode: str) -> None:
        """Let the guard of the next step behave in this way."""
        (self.prefix / "mode").write_text(mode)

    def use_the_launcher(self) -> None:
        """Let ce-guard become the launcher itself."""
        values = {"python": PYTHON, "prefix": self.prefix, "package": PACKAGE}
        place = self.prefix / "libexec/container-engine/launcher"
        place.write_text(_REAL.format(**values))

    @property
    def argc(self) -> int:
        """The number of words with which the launcher was started by ce-guard."""
        return int((self.prefix / "argc").read_text())

    @property
    def last_packet(self) -> bytes:
        """What the guard was sent when the launcher was ready, which may take it a moment."""
        deadline = time.monotonic() + 10
        file = self.prefix / "last_packet"
        while not (found := file.read_bytes()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return found

    @property
    def place(self) -> Path:
        return self.short / f"ce-kept-{os.geteuid()}" / "7.n1" / ("0" * 16)

    @property
    def recorded(self) -> Path:
        [found] = self.place.glob("answers/*")
        return found

    @property
    def text(self) -> str:
        return json.dumps(self.plan, separators=(",", ":"), ensure_ascii=False)

    def record(self) -> None:
        libexec = str(self.prefix / "libexec/container-engine")
        plan, place = node_plan(self.plan), str(self.place)
        recorded_join.record(self.text, plan, self.node, libexec, place, self.block)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the stage as after a step that started the container and left what others need."""
        node = {**self.node, "SLURM_STEP_ID": "1"}
        first = enter.enter(self.plan["kept"], node_plan(self.plan), node)
        first.records.note([str(self.image)])
        flock(first.lock, LOCK_SH)
        self.record()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(first.control_socket)
            listener.listen()
            thread = Thread(target=self._answer, args=(listener,), daemon=True)
            thread.start()
            yield
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(20)
        os.close(first.lock)

    def _answer(self, listener: socket.socket) -> None:
        while True:
            try:
                visitor, _address = listener.accept()
            except OSError:
                return
            environment = memory_file("environ", self.block)
            opened = [
                os.open(f"/proc/self/{name}", os.O_RDONLY) if name else environment
                for name in ("ns/user", *_INSIDE, *_OTHERS)
            ]
            with visitor:
                for data, count in (*self.hands, *self.last):
                    try:
                        socket.send_fds(visitor, [data], opened[:count])
                    except OSError:
                        break
            for descriptor in opened:
                os.close(descriptor)

    def run_step(self, *, by_python: bool = False) -> Joined | None:
        """Run a step with this plan; return its outcome, None if ce-guard becomes the launcher."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        life, guards_life = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for name in ("told", "last_packet"):
            (self.prefix / name).unlink(missing_ok=True)
        shutil.rmtree(self.traces / "7.2", ignore_errors=True)
        wanted = self.plan["kept"]
        facts = {"SLURM_CE_KEPT": wanted["key"] + wanted["directory"]} if wanted else {}
        environment = b"".join(f"{k}={v}\0".encode() for k, v in {**self.node, **facts}.items())
        with ours, theirs, life, guards_life:
            made = {
                "CE_ARG_PLAN": memory_file("plan", self.text.encode() + self.after),
                "CE_ARG_ENVIRONMENT": memory_file("env", environment),
                "CE_ARG_WATCH": os.pidfd_open(os.getpid()),
            }
            ends = {"CE_ARG_REPLY": theirs.fileno(), "CE_ARG_LIFE": guards_life.fileno()}
            self._run(in_order({**made, **ends}, C), by_python=by_python)
            for fd in made.values():
                os.close(fd)
            theirs.close()
            return self._read(ours)

    def _run(self, fds: Sequence[int], *, by_python: bool) -> None:
        libexec = self.prefix / "libexec/container-engine"
        script = (
            "import sys; sys.path.insert(0, sys.argv[1]);"
            "from container_engine.node.start.launcher import main; main(sys.argv[3:], sys.argv[2])"
        )
        python = [PYTHON, "-ISE", "-c", script, str(PACKAGE), str(libexec)]
        program = python if by_python else [str(libexec / "ce-guard")]
        env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        if self.name is not None and not by_python:
            env["SLURMD_NODENAME"] = self.name
        argv = [*program, *map(str, fds), "1700000000000000000"]
        subprocess.run(argv, env=env, pass_fds=fds, timeout=60, check=False)

    def _read(self, reply: socket.socket) -> Joined | None:
        data, fds, _flags, _address = socket.recv_fds(reply, 1 << 16, 20)
        if data == ANEW:
            return None
        assert data[:1] == b"R", data
        with open(os.dup(fds[C["CE_ANSWER_ENVIRONMENT"]]), "rb") as file:
            records = file.read()
        links = [re.sub(r"pipe:.*|\d+", "N", os.readlink(f"/proc/self/fd/{fd}")) for fd in fds]
        for fd in fds:
            os.close(fd)
        text = (self.prefix / "told").read_text()
        told = json.loads(re.sub(r"door\.2\.[0-9a-f]{6}\b", "door", text))
        lines = list(self.traces.glob("7.2/n1.json"))
        trace = json.loads(lines[0].read_text()) if lines else {}
        for phase in trace.get("phases", ()):
            assert phase["begin"] <= phase["end"]
        trace["phases"] = [phase["name"] for phase in trace.get("phases", ())]
        return Joined(data.decode().split("\0"), links, records, told, trace)

"""Handle of the tests on the two machines: commands of alice on the first, of root on both."""

import contextlib
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.slurm.polling import until
from tests.vm.machine import Completed, Machine
from tests.vm.pair import Pair

# Allows for an emulated processor that others use, too.
STEP_S = 600
DROP_CACHES = "sync; echo 3 >/proc/sys/vm/drop_caches"
# Reads parts of the image that have not been read before.
READS = (
    "echo up; while [ ! -e /gate/go ]; do sleep 1; done;"
    " cat /usr/bin/* /usr/lib/*-linux-gnu/*.so* >/dev/null"
)
_OF_LOGINS = {"systemd", "(sd-pam)", "sshd-session", "dbus-daemon"}


@dataclass(frozen=True)
class Cluster:
    pair: Pair

    @property
    def first(self) -> Machine:
        return self.pair.first

    @property
    def second(self) -> Machine:
        return self.pair.second

    def root(self, machine: Machine, command: str, timeout: float = STEP_S) -> str:
        """Return the output of a command of root; fail the test if the command fails."""
        done = machine.ssh(command, timeout=timeout)
        assert done.returncode == 0, f"{machine.name}: {command}: {done.stdout}{done.stderr}"
        return done.stdout

    def srun(self, *argv: str, timeout: float = STEP_S) -> Completed:
        """Run a step as alice."""
        return self.first.ssh(shlex.join(["srun", *argv]), "alice", timeout)

    def alice(self, *argv: str) -> str:
        """Return the output of a command of alice; fail the test if the command fails."""
        done = self.first.ssh(shlex.join(argv), "alice", STEP_S)
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout

    def state(self, job: str) -> str:
        """Return the state of a job, such as RUNNING."""
        shown = self.root(self.first, f"scontrol show job -o {job}")
        return shown.partition("JobState=")[2].split()[0]

    @contextmanager
    def started(self, *argv: str) -> Iterator["Job"]:
        """Run a step as alice in the background; end all steps afterwards."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            command = self.first.ssh_argv(shlex.join(["srun", *argv]), "alice")
            quiet = subprocess.DEVNULL
            process = subprocess.Popen(command, stdin=quiet, stdout=out, stderr=err)
            try:
                yield Job(
                    process,
                    Path(f"/proc/self/fd/{out.fileno()}"),
                    Path(f"/proc/self/fd/{err.fileno()}"),
                )
            finally:
                process.kill()
                process.wait()
                self.end_all()

    @contextmanager
    def without_server(self) -> Iterator[None]:
        """Stop the file server during the block."""
        self.root(self.first, "systemctl stop nfs-server")
        try:
            yield
        finally:
            self.root(self.first, "systemctl start nfs-server")

    def end_all(self) -> None:
        """Cancel alice's jobs, and wait until both nodes are idle."""
        self.first.ssh("scancel -u alice")
        self.pair.await_idle(600)

    def placed(self, machine: Machine) -> list[tuple[str, str]]:
        """Return name and cgroup of each process of alice but those that every login has."""
        asked = "for p in $(pgrep -u alice); do cat /proc/$p/comm /proc/$p/cgroup | paste - -; done"
        rows = [line.split("\t") for line in machine.ssh(asked).stdout.splitlines()]
        # a process that has ended in between has no second part
        return [(row[0], row[1]) for row in rows if row[1:] != [""] and row[0] not in _OF_LOGINS]

    def outside(self, machine: Machine) -> list[tuple[str, str]]:
        """Return alice's processes that are in no step of a job, as `placed` does."""
        return [process for process in self.placed(machine) if "/step_" not in process[1]]

    def left(self, machine: Machine) -> str:
        """List what remains on a machine: alice's processes, the engine's mounts, jobs' cgroups."""
        asked = (
            # Processes of a login session do not belong to a step.
            "for p in $(pgrep -u alice); do grep -qs -e user.slice /proc/$p/cgroup ||"
            " tr '\\0' ' ' </proc/$p/cmdline; done;"
            " grep -e ce-image -e container-engine /proc/mounts;"
            " ls -d /sys/fs/cgroup/system.slice/*slurmstepd.scope/job_* 2>/dev/null; true"
        )
        return machine.ssh(asked).stdout

    def assert_nothing_left(self) -> None:
        for machine in self.pair.machines:
            with contextlib.suppress(AssertionError):
                until("the end of all", partial(self._clean, machine), 60)
            assert self.left(machine) == ""

    def _clean(self, machine: Machine) -> bool:
        return not self.left(machine)


@dataclass(frozen=True)
class Job:
    process: subprocess.Popen[bytes]
    _out: Path
    _err: Path

    @property
    def out(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def err(self) -> str:
        return self._err.read_text(errors="replace")

    def wait_for(self, text: str, within_s: float = STEP_S) -> None:
        """Wait until its output has this text."""

        def said() -> bool:
            ended = self.process.poll() is not None
            if text not in self.out and ended:
                raise AssertionError(f"ended with {self.process.returncode}: {self.out}{self.err}")
            return text in self.out

        until(f"{text!r}", said, within_s)

    def wait(self, timeout: float = STEP_S) -> int:
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"runs after {timeout:g} s: {self.out}{self.err}") from None


def gated_edf(image: str) -> str:
    return f'image = "/apps/images/{image}.sqsh"\nmounts = ["/gate"]\n'


def errors(text: str) -> list[str]:
    """Return the engine's error lines."""
    return [line for line in warned(text) if "ce: error:" in line]


def warned(text: str) -> list[str]:
    """Return the engine's lines, warnings among them."""
    return [line for line in text.splitlines() if "ce: " in line]


def write(machine: Machine, path: str, text: str, mode: str = "0644") -> None:
    """Write a file on the machine as root."""
    lines = (
        f"install -D -m {mode} /dev/null {path} && cat >{path} <<'END_OF_FILE'\n{text}\nEND_OF_FILE"
    )
    done = machine.ssh(lines)
    assert done.returncode == 0, done.stderr

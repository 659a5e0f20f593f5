"""A command of a user that runs during a test."""

import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.piped import end_session
from tests.slurm.cluster import ALICE, Cluster, Completed, as_if_at_once
from tests.slurm.polling import until


class Job:
    """A running command whose output goes to files, so that it never waits for a reader."""

    def __init__(self, process: subprocess.Popen[bytes], directory: Path) -> None:
        self.process = process
        self._directory = directory

    @property
    def out(self) -> str:
        return (self._directory / "out").read_text(errors="replace")

    @property
    def err(self) -> str:
        return as_if_at_once((self._directory / "err").read_text(errors="replace"))

    def wait_for_lines(self, count: int, within_s: float = 30) -> list[str]:
        """Return the first `count` lines of output; fail if it ends or the time is up before."""

        def whole_lines() -> list[str] | None:
            lines = self.out.splitlines(keepends=True)
            whole = [line for line in lines if line.endswith("\n")]
            if len(whole) < count and self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}: {self.out}{self.err}")
            return whole if len(whole) >= count else None

        lines = until(f"{count} lines of output", whole_lines, within_s)
        return [line.rstrip("\n") for line in lines[:count]]

    def wait_for_error(self, pattern: str, within_s: float = 30) -> None:
        until(f"{pattern!r} on stderr", lambda: re.search(pattern, self.err), within_s)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def write(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self, timeout: float = 40) -> Completed:
        """Return how the command ended; fail the test if it runs longer than `timeout` seconds."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout} s: {self.out}{self.err}") from None
        return subprocess.CompletedProcess(self.process.args, code, self.out, self.err)


@contextmanager
def started(
    cluster: Cluster,
    *argv: str,
    user: str = ALICE,
    env: Mapping[str, str] | None = None,
) -> Iterator[Job]:
    """Run `argv` as `user` in the user's home; end it with the block at the latest."""
    with tempfile.TemporaryDirectory(prefix="ce-test-") as name:
        directory = Path(name)
        with (directory / "out").open("wb") as out, (directory / "err").open("wb") as err:
            process = subprocess.Popen(
                argv,
                **cluster.login(user, env),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                cwd=cluster.home(user),
                start_new_session=True,
            )
        try:
            yield Job(process, directory)
        finally:
            _end(cluster, process, user)


def _end(cluster: Cluster, process: subprocess.Popen[bytes], user: str) -> None:
    if process.stdin is not None and not process.stdin.closed:
        process.stdin.close()
    if process.poll() is None:
        cluster.cancel_all(user)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        end_session(process.pid)
        process.wait()


def job_id(cluster: Cluster, user: str = ALICE) -> str:
    """Return the id of this user's newest running job.

    An older one is of a test whose srun was killed before it could give up its allocation.
    """
    answer = ""

    def ask() -> int | None:
        nonlocal answer
        done = cluster.run(["squeue", "-aho", "%A %T %j %R", "-u", user], user)
        answer = done.stdout + done.stderr
        running = [line.split()[0] for line in done.stdout.splitlines() if " RUNNING " in line]
        return max(map(int, running), default=None)

    try:
        return str(until("a running job", ask))
    except AssertionError as error:
        raise AssertionError(f"{error}; squeue says:\n{answer}") from None


def batch(
    cluster: Cluster,
    *words: str,
    user: str = ALICE,
    env: Mapping[str, str] | None = None,
    within_s: float = 120,
) -> Completed:
    """Run `sbatch WORDS` and wait for its job; return the job's exit code, the largest of an array.

    If sbatch refuses, return its own. `sbatch --wait` would poll only every few seconds.
    """
    done = cluster.run(["sbatch", "--parsable", *words], user, env)
    if done.returncode != 0:
        return done
    job = done.stdout.strip()
    assert job.isdecimal(), done.stdout

    def ended() -> bool:
        asked = cluster.run(["squeue", "-ho", "%A", "-j", job], user)
        return (asked.returncode, asked.stdout) == (0, "")

    until(f"the end of job {job}", ended, within_s)
    said = cluster.run(["scontrol", "show", "job", job], user).stdout
    codes = [int(code) for code in re.findall(r"\bExitCode=(\d+):", said)]
    return subprocess.CompletedProcess(done.args, max(codes), "", done.stderr)

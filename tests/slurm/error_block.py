"""Checks of what a user sees of one error: one block per step, with remedy, page and exit code."""

import json
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from container_engine.faults.catalogue import FAULTS
from tests.slurm.cluster import ALICE, ROOT, Cluster, Completed, sandbox

# Slurm may only name the failed nodes and tasks.
_SLURMS = re.compile(
    r"srun: error: (n\d+): tasks? [\d,-]+: (Exited with exit code \d+|Killed|Bus error)"
    r"|srun: Force Terminated StepId=[\d.]+"
)
_PARTS = ("hint", "details", "see")
_LARGEST_LOG = 64 * 1024


class ErrorBlock:
    """The one error block of this code that a step has printed.

    The constructor fails unless there is exactly one, whose first line has all `words`. `node` is
    the node at fault, if one is. `also` are further lines of the block: other causes. All other
    lines must be Slurm's, or progress, warnings and excerpts.
    """

    def __init__(
        self, done: Completed, code: str, *words: str, node: str = "", exit_code: int = 0
    ) -> None:
        lines = done.stderr.splitlines()
        causes = [line for line in lines if line.startswith("ce: error: ")]
        assert len(causes) == 1, done.stderr
        self.cause = causes[0]
        assert all(word in self.cause for word in words), done.stderr
        below = [line for line in lines if line.startswith(tuple(f"ce: {p}: " for p in _PARTS))]
        self.parts = dict(line.removeprefix("ce: ").split(": ", 1) for line in below)
        self.also = [line for line in lines if line.startswith("ce: also: ")]
        assert len(self.parts) == len(below), f"a line twice: {done.stderr}"
        assert self.parts["see"] == f"ce help {code}", done.stderr
        assert self.parts["hint"], done.stderr
        assert done.returncode == (exit_code or FAULTS[code].code), done.stderr
        if node:
            assert self.cause.startswith(f"ce: error: {node}: "), done.stderr
        self._check_others(
            [line for line in lines if line not in (*causes, *self.also, *below)], done
        )
        self.code = code

    @staticmethod
    def _check_others(lines: list[str], done: Completed) -> None:
        for line in lines:
            excerpt = line.startswith("    ")
            ours = line.startswith(("ce: warning: ", "ce: /", "ce: 127."))  # progress
            assert excerpt or ours or _SLURMS.fullmatch(line), done.stderr
        assert "Traceback" not in done.stderr
        assert "spank" not in done.stderr.lower()

    def details(self, *words: str) -> str:
        """Return the log, which must be private to the user and of limited size."""
        path = Path(self.parts["details"])
        found = path.stat()
        assert stat.S_IMODE(found.st_mode) == 0o600
        assert found.st_size <= _LARGEST_LOG
        text = path.read_text()
        assert all(word in text for word in words), text
        return text


class Provoked:
    """Runner of steps that must fail; it checks that none of their tasks has run."""

    def __init__(self, cluster: Cluster, shared: Path) -> None:
        self.cluster, self.shared = cluster, shared

    def srun(
        self,
        edf: str,
        *options: str,
        command: tuple[str, ...] = (),
        user: str = ALICE,
        env: dict[str, str] | None = None,
        before: tuple[str, ...] = (),
    ) -> Completed:
        """Run a step, on two nodes with two tasks each unless `options` say otherwise."""
        marker = self.shared / "ran"
        argv = ["srun", *(options or ("-N2", "-n4")), f"--environment={edf}"]
        argv += command or ("sh", "-c", f"touch {marker} /dev/shm/ce-ran; echo ran")
        done = self.cluster.run([*before, *argv], user, env)
        left = [path for path in (marker, Path("/dev/shm/ce-ran")) if path.exists()]
        for path in left:
            path.unlink()  # otherwise every later test would fail
        assert not left
        assert "ran" not in done.stdout
        return done

    def edf(self, text: str, image: str | None = "busybox") -> str:
        return self.cluster.edf(text, image)


@contextmanager
def differing(name: str = "n2") -> Iterator[None]:
    """Let a test change a node's mounts; restart the node as it was afterwards."""
    done = sandbox("node", name, "true")
    assert done.returncode == 0, done.stderr
    try:
        yield
    finally:
        done = sandbox("node", "--again", name)
        assert done.returncode == 0, done.stderr


@contextmanager
def mounted_on(name: str, source: str, place: str) -> Iterator[None]:
    """Bind mount `source` over another file or directory, on one node only."""
    with changed_on(name, ["mount", "--bind", source, place], place):
        yield


@contextmanager
def changed_on(name: str, command: list[str], place: str) -> Iterator[None]:
    """Run a command that makes a mount at `place`, on one node only; unmount it at the end."""
    done = sandbox("node", name, *command)
    assert done.returncode == 0, done.stderr
    try:
        yield
    finally:
        done = sandbox("node", name, "umount", "--lazy", place)
        assert done.returncode == 0, done.stderr


def as_json(value: object) -> str:
    """Return a TOML string or array."""
    return json.dumps(value)


PAGES = ROOT / "docs/guide/errors"

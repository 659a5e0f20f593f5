"""`make bench-reading`, second table: what an image costs the first import of a step.

The kernel's page cache is a mount's. The steps of a batch job share one on a node; a job without a
script has a new one for each step, in which the first program reads and decompresses everything.
Python times its import itself, so that the start of the step does not count; the same files,
natively from a directory. What one step has read, the next new mount on the node reads ahead; a
row has steps before which that was forgotten. The image is that of `tests.bench.tree`. RUNS
(default 5) is the number of rounds, all ways in turn.
"""

import contextlib
import os
import pwd
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from ce_sandbox.layout import from_environment
from tests.bench import tree as bench_tree
from tests.bench.place import place
from tests.bench.reading import packed, report
from tests.bench.results import Row, duration
from tests.bench.samples import Samples, interleave
from tests.bench.user import User

RESULT = Path(__file__).parents[2] / "build" / "bench-first-import.json"
_MODULES = "numpy, scipy.stats"
_TIMED = f"import time; t = time.monotonic(); import {_MODULES}; print(time.monotonic() - t)"
_NATIVE, _COLD_NATIVE = "a native step", "a native step, files not in memory"
_NEW = "the first step of a job, nothing recorded"
_SECOND, _COLD = "the second process of a step", "the first step of a job, image not in memory"
_WANTED = {
    "the first step of a job": 1.3,
    "a later step of the job": 1.1,
    "a step that joins the job's container, in which a step runs": 1.1,
    _SECOND: 1.1,
}
_FIRST, _LATER, _JOINS, _ = _WANTED


def _environment(path: Path, image: Path, scope: str) -> Path:
    path.write_text(f'image = "{image}"\n[annotations]\ncom.ce.scope = "{scope}"\n')
    path.chmod(0o644)
    return path


def _native(tree: Path) -> list[str]:
    """Return a command with the tree's Python, which finds its libraries in the tree."""
    usr = tree / "usr"
    triple = next((usr / "lib").glob("*-linux-gnu"))
    libraries = ":".join(str(triple / name) for name in ("", "blas", "lapack"))
    variables = [f"PYTHONHOME={usr}", f"LD_LIBRARY_PATH={libraries}"]
    return ["env", *variables, str(usr / "bin/python3"), "-B", "-c", _TIMED]


def _forget(paths: list[Path]) -> None:
    """Drop what the kernel has in memory of these files."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _files(tree: Path) -> list[Path]:
    return [
        path for path in (tree / "usr/lib").rglob("*") if path.is_file() and not path.is_symlink()
    ]


class _Steps:
    """The ways to import, each a step of the user's on the first node; seconds of an import."""

    def __init__(self, user: User, job: list[str], image: Path, tree: Path, where: Path) -> None:
        self._user, self._job, self._image, self._tree = user, job, image, tree
        self._own = _environment(where / "own.toml", image, "step")
        self._shared = _environment(where / "shared.toml", image, "job")
        self._inside = ["/usr/bin/python3", "-B", "-c", _TIMED]

    @property
    def ways(self) -> dict[str, Callable[[], float]]:
        new, later = ["srun", "-N1", "-n1", "-w", "n1"], ["srun", *self._job, "--overlap"]
        own, shared = f"--environment={self._own}", f"--environment={self._shared}"
        inside = self._inside
        native = [*later, *_native(self._tree)]
        twice = ["sh", "-c", 'for _ in 1 2; do "$@"; done', "sh", *inside]
        return {
            _NATIVE: partial(self._seconds, native),
            _FIRST: partial(self._seconds, [*new, own, *inside]),
            _NEW: partial(self._unrecorded, [*new, own, *inside]),
            _LATER: partial(self._seconds, [*later, own, *inside]),
            _JOINS: partial(self._seconds, [*later, shared, *inside]),
            _SECOND: partial(self._seconds, [*later, own, *twice]),
            _COLD: partial(self._cold, [self._image], [*new, own, *inside]),
            _COLD_NATIVE: partial(self._cold, _files(self._tree), native),
        }

    def hold(self) -> list[str]:
        return ["srun", *self._job, "--overlap", f"--environment={self._shared}"]

    def _seconds(self, argv: list[str]) -> float:
        return float(self._user.output(argv).split()[-1])

    def _unrecorded(self, argv: list[str]) -> float:
        shutil.rmtree(f"/var/tmp/ce-answers-{self._image.stat().st_uid}/reads", ignore_errors=True)
        return self._seconds(argv)

    def _cold(self, files: list[Path], argv: list[str]) -> float:
        _forget(files)
        return self._seconds(argv)


@contextlib.contextmanager
def _job(user: User) -> Iterator[list[str]]:
    """Have a job on the first node, and yield the options of srun that mean it.

    Its script names an option for an environment, as do those whose steps have containers.
    """
    sbatch = ["sbatch", "-N1", "-w", "n1", "-n1", "--parsable", "--output=/dev/null"]
    job = user.output([*sbatch, "--wrap=sleep infinity # --environment"]).strip()
    try:
        user.run(["sh", "-c", f"until squeue -h -t R -j {job} | grep -q .; do sleep 0.1; done"])
        yield [f"--jobid={job}", "-N1", "-n1"]
    finally:
        user.run(["scancel", job])


def _measure(user: User, image: Path, tree: Path, where: Path, rounds: int) -> dict[str, Samples]:
    with _job(user) as job:
        steps = _Steps(user, job, image, tree, where)
        said = " ".join([*steps.hold(), "sleep", "infinity"])
        user.run(["sh", "-c", f"{said} </dev/null >/dev/null 2>&1 & sleep 5"])
        steps.ways[_LATER]()  # the first step of the job is another way
        steps.ways[_FIRST]()  # as is one on a node that has recorded nothing
        return interleave(steps.ways, rounds)


def rows(measured: dict[str, Samples]) -> list[Row]:
    """Return a row for each way, its ratio to the native step with files in memory."""
    native = (_NATIVE, measured[_NATIVE])
    title = f"import {_MODULES}: {{}}".format
    return [
        duration(title(_NATIVE), measured[_NATIVE]),
        *(
            duration(title(way), samples, against=native, budget=_WANTED.get(way))
            for way, samples in measured.items()
            if way != _NATIVE
        ),
    ]


def main() -> int:
    rounds = int(os.environ.get("RUNS") or 5)
    tree, layout = bench_tree.made(), from_environment(os.environ)
    name = pwd.getpwnam(layout.users[0])
    with (
        tempfile.TemporaryDirectory(prefix="ce-bench-", dir="/var/tmp") as directory,
        place(layout) as here,
        User(here.worker) as user,
    ):
        os.chmod(directory, 0o755)  # the user reads the image
        image = Path(directory) / "image.sqsh"
        packed(tree, image)
        os.chown(image, name.pw_uid, name.pw_gid)
        found = rows(_measure(user, image, tree, Path(directory), rounds))
    report(found, rounds, RESULT)
    return 0


if __name__ == "__main__":
    sys.exit(main())

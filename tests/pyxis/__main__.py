"""`python -m tests.pyxis SUITE [FILE…]`: run the tests of pyxis against this engine.

SUITE is a checkout of pyxis; nothing of it is kept. Its tests run as a user of the sandbox, within
one allocation per file, unchanged. Images are stand-ins (stand_ins.py). What is expected to fail,
and why, is in expected.toml; any other outcome fails.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from ce_sandbox.layout import from_environment
from tests.pyxis.stand_ins import PORT, made, serving_images
from tests.slurm.cluster import ALICE, Cluster, sandbox, start_again

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ce_sandbox.layout import Layout
    from tests.integration.registry import Registry

_HERE = Path(__file__).parent
_RESULTS = _HERE.parents[1] / "build/pyxis"
# Limits in seconds: of a test, of a file.
_TEST_S, _FILE_S = "600", 2400
# The site's settings in place of sbatch_support, ENROOT_ROOTFS_WRITABLE and ENROOT_REMAP_ROOT.
_SITE = 'batch_script = "inside"\npyxis_writable = true\nroot_remap = true\n'
# Slurm's setting that lets root of a container use its PMIx.
_MPI = "PMIxEnv=PMIX_MCA_psec=none\n"
# A file that calls `wait` gets no time limit: it would also wait for bats's process for that.
_WAITS = re.compile(r"^\s*wait$", re.MULTILINE)
_LINE = re.compile(r"^(ok|not ok) \d+ (.*?)(?: # skip ?(.*))?$")
_REGISTRIES = ("docker.io", "nvcr.io", "gcr.io", "registry.gitlab.com")


class Outcome(NamedTuple):
    """The outcome of a test: "ok", "not ok" or "skipped", and why it was skipped."""

    name: str
    word: str
    reason: str = ""


def main(suite: Path, names: Sequence[str]) -> int:
    files = [suite / "tests" / name for name in names] or sorted(suite.glob("tests/**/*.bats"))
    if not files:
        raise SystemExit(f"{suite}: no tests/*.bats: PYXIS_SUITE is a checkout of NVIDIA/pyxis")
    layout = from_environment(os.environ)
    # first: it makes the user to whom the images belong
    done = sandbox("up", "-n", "1")
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    place = made()
    cluster = Cluster(layout.dir, 1, layout.cache)
    outcomes: dict[str, list[Outcome]] = {}
    with (
        _site(layout),
        serving_images(place) as registry,
        _serving(place / "www"),
        _suite(cluster, suite, registry) as copy,
    ):
        for file in files:
            name = str(file.relative_to(suite / "tests"))
            outcomes[name] = _run(cluster, place, copy, name)
            print(_row(name, outcomes[name]), flush=True)
    return _judge(outcomes)


def _run(cluster: Cluster, place: Path, copy: Path, name: str) -> list[Outcome]:
    """Run a file of tests within an allocation; keep what it printed."""
    waits = _WAITS.search((copy / "tests" / name).read_text())
    limit = {} if waits else {"BATS_TEST_TIMEOUT": _TEST_S}
    store = str(place / "store")
    login = cluster.login(env={"EDF_IMAGESTORE": store, "TERM": "xterm", **limit})
    compat = cluster.prefix / "libexec/container-engine/compat"
    # two steps at once, without --overlap
    login["env"]["SLURM_OVERLAP"] = "1"
    login["env"]["PATH"] = f"{compat}:{login['env']['PATH']}"
    log = _RESULTS / f"{name.replace('/', '-')}.tap"
    log.parent.mkdir(parents=True, exist_ok=True)
    argv = [
        "salloc",
        "-Q",
        "-N1",
        "--exclusive",
        # half of the node's memory, as a test's own sbatch needs some of it
        "--mem-per-cpu=512M",
        "bats",
        "--tap",
        f"tests/{name}",
    ]
    with log.open("w") as output:
        limited = ["timeout", "-k", "20", str(_FILE_S), *argv]
        subprocess.run(
            limited, **login, cwd=copy, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    found = (_LINE.match(line) for line in log.read_text(errors="replace").splitlines())
    return [_outcome(*line.groups()) for line in found if line]


def _outcome(word: str, name: str, skipped: str | None) -> Outcome:
    return Outcome(name, word) if skipped is None else Outcome(name, "skipped", skipped)


def _row(name: str, outcomes: Sequence[Outcome]) -> str:
    words = [one.word for one in outcomes]
    figures = (f"{words.count(word):4} {word}" for word in ("ok", "not ok", "skipped"))
    return f"{name:24} {len(words):4} tests {' '.join(figures)}"


def _judge(outcomes: dict[str, list[Outcome]]) -> int:
    """Print the sum, and what is not as expected; return the exit code."""
    every = [one for found in outcomes.values() for one in found]
    print(_row("all", every))
    expected = tomllib.loads((_HERE / "expected.toml").read_text())
    wrong = 0
    for file, found in outcomes.items():
        reasons = expected.get(file, {})
        for one in found:
            if (one.word == "ok") == (one.name in reasons):
                wrong += 1
                print(f"{file}: {one.name}: {one.word} {reasons.get(one.name, one.reason)}")
        for name in reasons.keys() - {one.name for one in found}:
            wrong += 1
            print(f"{file}: {name}: did not run")
    return 1 if wrong else 0


@contextmanager
def _site(layout: Layout) -> Iterator[None]:
    file = layout.site_config.parent / "conf.d/90-suite-of-pyxis.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_SITE)
    mpi = layout.etc / "mpi.conf"
    mpi.write_text(_MPI)
    mpi.chmod(0o644)
    try:
        start_again("n1")
        yield
    finally:
        file.unlink()
        mpi.unlink()
        start_again("n1")


@contextmanager
def _serving(www: Path) -> Iterator[None]:
    """Serve what tests install."""
    handler = partial(_Quiet, directory=str(www))
    server = ThreadingHTTPServer(("127.0.0.1", PORT), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        pass


@contextmanager
def _suite(cluster: Cluster, suite: Path, registry: Registry) -> Iterator[Path]:
    """Copy the tests into the home of their user, who takes the images from `registry`."""
    user, home = pwd.getpwnam(ALICE), cluster.home()
    known = home / ".config/containers/registries.conf.d/of-a-suite.conf"
    known.parent.mkdir(parents=True, exist_ok=True)
    known.write_text(
        "".join(
            f'[[registry]]\nprefix = "{name}"\nlocation = "{registry.address}/{name}"\n'
            "insecure = true\n"
            for name in _REGISTRIES
        )
    )
    with TemporaryDirectory(prefix="suite-", dir=home) as directory:
        copy = Path(directory)
        shutil.copytree(suite / "tests", copy / "tests")
        own = [home / ".config", known.parents[1], known.parent, *_with_key(home)]
        for path in (copy, *copy.rglob("*"), *own):
            os.chown(path, user.pw_uid, user.pw_gid)
        try:
            yield copy
        finally:
            known.unlink()


def _with_key(home: Path) -> list[Path]:
    """Make a key for logins to hosts with this home; return the files that the user must own."""
    key = home / ".ssh/id_ed25519"
    key.parent.mkdir(mode=0o700, exist_ok=True)
    if not key.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = key.with_suffix(".pub")
    shutil.copyfile(public, key.with_name("authorized_keys"))
    return [key.parent, key, public, key.with_name("authorized_keys")]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))

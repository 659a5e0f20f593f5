"""Images from a registry in Slurm steps: those in use stay, those to be removed go."""

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from container_engine.images.store.ephemeral_store import EphemeralStore
from tests.integration.registry import Registry
from tests.piped import Piped
from tests.slurm.cluster import ALICE, Cluster
from tests.slurm.job import batch
from tests.slurm.polling import until
from tests.slurm.registry import push, serving_to
from tests.unit.images.oci import Member

pytestmark = pytest.mark.usefixtures("tidy")

_HELD = ("/bin/busybox", "sh", "-c", "echo up; read -r word; /bin/busybox cat /here")


@pytest.fixture(scope="module")
def registry(cluster: Cluster) -> Iterator[Registry]:
    with serving_to(cluster) as running:
        yield running


@pytest.fixture(scope="module")
def image(cluster: Cluster, registry: Registry) -> str:
    return push(cluster, registry, "tools:1", Member("here", b"it is"))


@pytest.fixture
def edf(cluster: Cluster, image: str) -> str:
    return cluster.edf(f'image = "{image}"\n', image=None)


@pytest.fixture
def place(shared: Path) -> Iterator[Path]:
    """Yield the directory for the images of one step."""
    path = shared / "scratch"
    path.mkdir()
    path.chmod(0o1777)
    yield path
    shutil.rmtree(path)


def ce(cluster: Cluster, *words: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return cluster.run([str(cluster.prefix / "bin/ce"), *words], env=env)


def void(place: Path) -> dict[str, str]:
    return {"EDF_IMAGESTORE": "void", "SCRATCH": str(place)}


def begin(cluster: Cluster, env: dict[str, str], edf: str, *options: str) -> Piped:
    """Start a step; return when its tasks, one a node, wait for a line of input."""
    argv = ["srun", *options, f"--environment={edf}", *_HELD]
    step = cluster.popen(argv, env=env)
    for _node in range(2 if "-N2" in options else 1):
        line = step.line()
        if line != "up\n":
            step.kill_all()
            pytest.fail(f"{line}{step.communicate(timeout=20)}")
    return step


def records(cluster: Cluster) -> list[str]:
    return os.listdir(cluster.home() / ".local/state/container-engine/void")


# ---- jobs that run -------------------------------------------------------------------------------


def test_what_a_running_job_uses_is_not_removed(
    cluster: Cluster, edf: str, image: str, shared: Path
) -> None:
    store = {"EDF_IMAGESTORE": f"{shared}/store"}
    step = begin(cluster, store, edf, "-N2", "-n2")
    [link] = os.listdir(shared / "store/uses")
    job = link.partition("-")[0]
    done = ce(cluster, "rmi", image, env=store)
    assert done.returncode == 1
    assert f"ce: error: '{image}': in use by job {job}\n" in done.stderr
    assert "ce: hint: --force " in done.stderr
    done = ce(cluster, "gc", "--size", "0", env=store)
    assert done.stdout.startswith(f"kept: {image} ")
    assert f": in use by job {job}\nnothing to remove in {shared}/store\n" in done.stdout
    assert ": ce gc --layers removes them\n" in done.stdout
    # A user's own settings of squeue must not hide the job.
    done = ce(cluster, "gc", "--size=0", env={**store, "SQUEUE_STATES": "PENDING"})
    assert "in use by job" in done.stdout
    [damaged] = (shared / "store/images").glob("*.sqsh.sha256")
    damaged.write_text("0\n")
    done = ce(cluster, "store", "repair", env=store)
    assert done.returncode == 1
    assert f"; in use by job {job} (--force removes it)\n" in done.stdout
    out, _said = step.communicate("on\n" * 2, timeout=60)
    assert "it is" in out
    # srun ends before its job does, which has an epilog.
    until("the job's end", lambda: cluster.run(["squeue", "-h", "-j", job]).stdout == "")
    done = ce(cluster, "gc", "--size", "0", env=store)
    assert "the store is larger than the limit" in done.stdout
    assert os.listdir(shared / "store/uses") == os.listdir(shared / "store/images") == []


def test_force_removes_what_a_running_job_uses(
    cluster: Cluster, edf: str, image: str, shared: Path
) -> None:
    store = {"EDF_IMAGESTORE": f"{shared}/store"}
    step = begin(cluster, store, edf)
    done = ce(cluster, "rmi", "--force", image, env=store)
    assert done.stdout.startswith("removed ")
    step.communicate("on\n", timeout=60)


@pytest.mark.parametrize("number", [6, pytest.param(16, marks=pytest.mark.soak)])
def test_of_many_steps_that_want_an_image_one_imports_it_and_all_run(
    cluster: Cluster, registry: Registry, shared: Path, number: int
) -> None:
    content = [Member(f"f{n}", os.urandom(200_000)) for n in range(200)]
    image = push(cluster, registry, f"wanted:{number}", *content)
    edf = cluster.edf(f'image = "{image}"\n', image=None)
    step = f"srun -N1 -n1 --overlap --environment={edf} /bin/busybox echo ran"
    script = f"#!/bin/sh\nfor n in $(seq {number}); do {step} & done; wait\n"
    job = cluster.write(script, mode=0o755)
    env = {"EDF_IMAGESTORE": f"{shared}/store"}
    batch(cluster, "-N2", "-o", f"{shared}/out", str(job), env=env, within_s=300)
    said = (shared / "out").read_text()
    assert said.count("ran\n") == number, said
    assert said.count(f"{image}: imported, ") == 1, said
    assert f"{image}: being imported by {ALICE} on " in said
    assert os.listdir(shared / "store/locks") == os.listdir(shared / "store/work") == []


# ---- EDF_IMAGESTORE=void -------------------------------------------------------------------------


def test_where_nothing_shall_be_kept_a_step_has_its_image_and_then_it_is_gone(
    cluster: Cluster, edf: str, image: str, place: Path
) -> None:
    step = begin(cluster, void(place), edf, "-N2", "-n2")
    [directory] = place.iterdir()
    assert directory.stat().st_mode & 0o777 == 0o700
    assert len(list((directory / "images").glob("*.sqsh"))) == 1
    assert len(list((directory).glob("blobs"))) == 0
    out, said = step.communicate("on\n" * 2, timeout=60)
    assert (step.returncode, "it is" in out) == (0, True)
    assert f"{image}: imported, " in said
    assert list(place.iterdir()) == []
    until("the record to go", lambda: records(cluster) == [])


def test_the_last_command_of_a_batch_script_leaves_no_image(
    cluster: Cluster, edf: str, place: Path, shared: Path
) -> None:
    script = f"#!/bin/sh\nsrun --environment={edf} /bin/busybox true\n"
    job = cluster.write(script, mode=0o755)
    done = batch(cluster, "-o", f"{shared}/out", str(job), env=void(place))
    assert done.returncode == 0, (shared / "out").read_text()
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_when_srun_is_killed_its_image_goes(
    cluster: Cluster, edf: str, place: Path, number: int
) -> None:
    step = begin(cluster, void(place), edf)
    step.send_signal(number)
    step.communicate(timeout=60)
    until("the image to go", lambda: not list(place.iterdir()))
    cluster.cancel_all(ALICE)


def test_when_all_was_killed_the_next_launch_or_gc_removes_the_image(
    cluster: Cluster, edf: str, place: Path
) -> None:
    for remedy in ("launch", "gc"):
        step = begin(cluster, void(place), edf)
        [left] = place.iterdir()
        for reaper in reapers(left):
            os.kill(reaper, signal.SIGKILL)
        step.kill()
        step.communicate(timeout=60)
        cluster.cancel_all(ALICE)
        assert left.is_dir()
        if remedy == "gc":
            said = ce(cluster, "gc", env=void(place)).stdout
            assert said == f"{left}: left by a launch that was killed\n"
        else:
            done = cluster.srun(f"--environment={edf}", "/bin/busybox", "true", env=void(place))
            assert done.returncode == 0, done.stderr
        assert list(place.iterdir()) == []


def reapers(directory: Path) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"/ce-reaper") and str(directory).encode() in words:
            found.append(int(entry.parent.name))
    assert found
    return found


def test_the_epilog_removes_the_images_of_its_job_that_killed_launches_left(
    cluster: Cluster, place: Path
) -> None:
    entry = pwd.getpwnam(ALICE)
    left = {}
    for job in ("987654", "987655"):
        env = {"HOME": str(cluster.home()), "SLURM_JOB_ID": job}
        with subprocess.Popen(["sleep", "60"]) as owner:
            store = EphemeralStore(env, str(place), owner.pid)
            store.store("amd64")
            left[job] = store
            owner.kill()
        for path in (store.root, f"{store.root}/owner", *map(str, _up_to_home(store, env))):
            os.chown(path, entry.pw_uid, entry.pw_gid, follow_symlinks=False)
    mine, other = left["987654"], left["987655"]
    env = {"SLURM_JOB_ID": "987654", "SLURM_JOB_UID": str(entry.pw_uid)}
    epilog = cluster.prefix / "libexec/container-engine/epilog"
    subprocess.run([str(epilog)], env={**cluster.environment(), **env}, check=True, timeout=30)
    assert not os.path.lexists(mine.record)
    assert [str(path) for path in place.iterdir()] == [other.root]
    other.remove()


def _up_to_home(store: EphemeralStore, env: dict[str, str]) -> list[Path]:
    record = Path(store.record)
    return [record, *(path for path in record.parents if path.is_relative_to(env["HOME"]))]


def test_what_cannot_be_imported_leaves_nothing(
    cluster: Cluster, registry: Registry, place: Path
) -> None:
    edf = cluster.edf(f'image = "{registry.address}/absent:1"\n', image=None)
    done = cluster.srun(f"--environment={edf}", "true", env=void(place))
    assert done.returncode == 125
    assert "manifest unknown" in done.stderr
    assert list(place.iterdir()) == []


def test_to_submit_a_job_or_to_look_at_a_plan_imports_nothing(
    cluster: Cluster, edf: str, image: str, place: Path, shared: Path
) -> None:
    done = ce(cluster, "plan", edf, env=void(place))
    assert (done.returncode, done.stderr) == (0, "")
    assert "imported for each step" in done.stdout
    job = cluster.write("#!/bin/sh\n:\n", mode=0o755)
    words = ("-o", f"{shared}/out", f"--environment={edf}", str(job))
    done = batch(cluster, *words, env=void(place))
    assert done.returncode == 0, done.stderr
    assert list(place.iterdir()) == []
    missing = cluster.edf(f'image = "{image}9"\n', image=None)
    done = cluster.run(["sbatch", f"--environment={missing}", str(job)], env=void(place))
    assert done.returncode == 125
    assert "manifest unknown" in done.stderr

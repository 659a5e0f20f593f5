"""Homes and projects that root may not read, as with root_squash of NFS."""

import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.slurm.cluster import ALICE, Cluster, Completed
from tests.slurm.job import batch, started
from tests.slurm.polling import until
from tests.slurm.registry import push, serving_to
from tests.unit.images.oci import Member

pytestmark = pytest.mark.usefixtures("tidy")

_SOURCE = Path(__file__).with_name("squashing.c")


@dataclass(frozen=True)
class Home:
    """A user's home that root cannot read; `real` is where its files are."""

    cluster: Cluster
    place: Path
    real: Path

    def write(self, name: str, content: bytes) -> None:
        path = self.real / name
        if not path.parent.exists():
            path.parent.mkdir()
            shutil.chown(path.parent, ALICE, ALICE)
        path.write_bytes(content)

    def sh(self, script: str) -> Completed:
        """Run a script as a login shell does, in the home."""
        return self.cluster.run(["sh", "-ec", f"cd; {script}"], env={"HOME": str(self.place)})


@pytest.fixture
def home(cluster: Cluster, tmp_path: Path) -> Iterator[Home]:
    user = pwd.getpwnam(ALICE)
    real, place = (
        Path(tempfile.mkdtemp(prefix=name, dir=cluster.scratch)) for name in ("real", "home")
    )
    for directory in (real, place):
        shutil.chown(directory, ALICE, ALICE)
    program = tmp_path / "squashing"
    flags = subprocess.check_output(["pkg-config", "--cflags", "--libs", "fuse3"], text=True)
    subprocess.run(["gcc", "-o", program, _SOURCE, *flags.split()], check=True)
    server = subprocess.Popen([program, str(user.pw_uid), real, place])
    try:
        until("the file system", place.is_mount)
        with pytest.raises(PermissionError):
            list(place.iterdir())
        yield Home(cluster, place, real)
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
        server.wait(10)


def _environment(home: Home) -> str:
    """Write an environment of the user, with its image beside it and mounts below the home."""
    home.write("data/words", b"from home\n")
    home.write("images/demo.sqsh", home.cluster.image("demo").read_bytes())
    home.write(
        ".edf/mine.toml",
        b'image = "${HOME}/images/demo.sqsh"\n'
        b'mounts = ["${HOME}/data:/data", "${HOME}:${HOME}"]\n'
        b'workdir = "${HOME}/data"\n',
    )
    return "mine"


def test_a_step_has_its_environment_image_and_mounts_there(home: Home) -> None:
    done = home.sh(f"srun -N2 --environment={_environment(home)} sh -c 'pwd; cat /data/words'")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == sorted([str(home.place / "data"), "from home"] * 2)


def test_tasks_write_there_and_srun_writes_their_output_there(home: Home) -> None:
    step = "sh -c 'echo $SLURM_PROCID said; echo $SLURM_PROCID > ~/made.$SLURM_PROCID'"
    done = home.sh(f"srun -n2 -o out.%t --environment={_environment(home)} {step}")
    assert (done.returncode, done.stderr) == (0, "")
    for task in ("0", "1"):
        assert (home.real / f"out.{task}").read_text() == f"{task} said\n"
        made = home.real / f"made.{task}"
        assert (made.read_text(), made.owner()) == (f"{task}\n", ALICE)


def test_a_batch_script_of_a_directory_there_runs_with_its_environment(home: Home) -> None:
    home.write(
        "project/job.sh",
        b"#!/bin/sh\n#SBATCH --environment=%s\npwd\nsrun cat /data/words\n"
        % _environment(home).encode(),
    )
    script = str(home.place / "project/job.sh")
    words = ["--chdir", str(home.place / "project"), "--output=job.out", script]
    done = batch(home.cluster, *words, env={"HOME": str(home.place)})
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("each srun in it runs in 'mine'\n")
    assert (home.real / "project/job.out").read_text() == f"{home.place / 'project'}\nfrom home\n"


def _lose(home: Home) -> None:
    (home.real / ".stale").touch()


def _overwrite(home: Home) -> None:
    image = home.real / "images/demo.sqsh"
    image.write_bytes(b"another" * (image.stat().st_size // 7))


@pytest.mark.parametrize("harm", [_lose, _overwrite])
def test_an_image_that_is_lost_or_overwritten_ends_the_step_with_the_reason(
    home: Home, harm: Callable[[Home], None]
) -> None:
    reads = (
        "echo up; while [ ! -e ~/go ]; do sleep 0.1; done; cat /usr/bin/* /usr/lib/*/* >/dev/null"
    )
    argv = ["srun", f"--environment={_environment(home)}", "sh", "-c", reads]
    with started(home.cluster, *argv, env={"HOME": str(home.place)}) as job:
        job.wait_for_lines(1)
        harm(home)
        (home.real / "go").touch()
        done = job.wait()
    # The task is killed, unless its shell ends first: by SIGBUS, or unable to execute a program.
    assert done.returncode in (126, 135, 137), done.stderr
    image = home.place / "images/demo.sqsh"
    told = f"the image can no longer be read: '{image}' was removed, replaced or overwritten"
    assert told in done.stderr
    assert "ce: see: ce help image-gone" in done.stderr
    assert "memory" not in done.stderr


def test_an_image_of_a_registry_is_stored_there_when_a_step_wants_it(home: Home) -> None:
    with serving_to(home.cluster) as registry:
        reference = push(home.cluster, registry, "tools:1", Member("here", b"it is"))
        home.write("tools.toml", f'image = "{reference}"\n'.encode())
        done = home.sh(
            f"cp -r {home.cluster.home(ALICE)}/.config .; "
            "srun -N2 --environment=./tools.toml /bin/busybox cat /here; ce images; ce doctor"
        )
    assert (done.returncode, done.stdout.count("it is")) == (0, 2), done.stderr
    assert "tools:1" in done.stdout
    assert re.search(r"ok +image store", done.stdout), done.stdout
    assert list(home.real.glob(".local/share/container-engine/images/**/*.sqsh"))

"""Images of all kinds: without a shell, read-only, with others' files or setuid files."""

import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.slurm.cluster import ALICE, BOB, Cluster

pytestmark = pytest.mark.usefixtures("tidy")


def test_an_image_without_a_shell_works(cluster: Cluster) -> None:
    done = cluster.srun("-n2", f"--environment={cluster.edf(image='static')}", "/bin/probe")
    entry = pwd.getpwnam(ALICE)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [
        f"rank={rank} uid={entry.pw_uid} gid={entry.pw_gid} cwd=/" for rank in range(2)
    ]


def test_the_exit_code_of_a_program_without_a_shell_is_sruns(cluster: Cluster) -> None:
    edf = cluster.edf(image="static")
    assert cluster.srun(f"--environment={edf}", "probe", "exit", "9").returncode == 9


def test_a_container_is_writable_and_the_image_stays_as_it_is(cluster: Cluster) -> None:
    image = cluster.image("busybox")
    before = image.read_bytes()
    edf = cluster.edf(image="busybox")
    script = "echo new > /etc/new && rm /bin/vi && mkdir /opt && cat /etc/new"
    done = cluster.srun(f"--environment={edf}", "sh", "-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "new\n", "")
    again = cluster.srun(f"--environment={edf}", "ls", "/bin/vi", "/etc/new")
    assert "/bin/vi" in again.stdout
    assert "/etc/new" in again.stderr
    assert image.read_bytes() == before


def test_a_read_only_container_cannot_be_written(cluster: Cluster) -> None:
    edf = cluster.edf("writable = false\n", image="busybox")
    script = (
        "touch /etc/new /bin/new /new; echo $?; touch /dev/shm/ce-test-ro && rm /dev/shm/ce-test-ro"
    )
    done = cluster.srun(f"--environment={edf}", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert [line.rpartition(": ")[2] for line in done.stderr.splitlines()] == [
        "Read-only file system"
    ] * 3


def test_an_image_of_another_user_works(cluster: Cluster) -> None:
    image = cluster.image("foreign")
    assert image.stat().st_uid == pwd.getpwnam(BOB).pw_uid
    done = cluster.srun(f"--environment={cluster.edf(image='foreign')}", "cat", "/readable")
    assert (done.returncode, done.stdout) == (0, "readable\n"), done.stderr


def test_files_of_other_owners_in_an_image_are_the_users(cluster: Cluster) -> None:
    """A user who may read the image's file may read all of its content by other means, too."""
    command = ["sh", "-c", "stat -c '%U %a' /private && cat /private"]
    done = cluster.srun(f"--environment={cluster.edf(image='foreign')}", *command)
    assert (done.returncode, done.stdout) == (0, f"{ALICE} 640\nprivate\n"), done.stderr


def test_an_image_that_only_its_owner_may_read_is_the_owners_alone(
    cluster: Cluster, shared: Path
) -> None:
    image = shared / "private.sqsh"
    image.write_bytes(cluster.image("busybox").read_bytes())
    entry = pwd.getpwnam(ALICE)
    image.chmod(0o600)
    os.chown(image, entry.pw_uid, entry.pw_gid)
    edf = str(cluster.write(f'image = "{image}"\n', name="private-image.toml"))
    assert cluster.srun(f"--environment={edf}", "true").returncode == 0
    done = cluster.srun(f"--environment={edf}", "true", user=BOB)
    assert done.returncode == 125
    assert "Permission denied" in done.stderr or "permission denied" in done.stderr
    assert str(image) in done.stderr


_WHO_AM_I = """
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/auxv.h>
#include <unistd.h>
int main(void)
{
    uid_t r, e, s;
    gid_t rg, eg, sg;
    getresuid(&r, &e, &s);
    getresgid(&rg, &eg, &sg);
    printf("%d %d %d %d %d %d %lu\\n", r, e, s, rg, eg, sg, getauxval(AT_SECURE));
    return 0;
}
"""


@pytest.fixture(scope="module")
def raising(cluster: Cluster) -> str:
    """Return an environment whose image has setuid and setgid programs of root and another user."""
    tree, image = cluster.scratch / "raising", cluster.scratch / "raising.sqsh"
    for name in ("bin", "dev", "proc", "sys", "etc", "tmp", "run"):
        (tree / name).mkdir(parents=True)
    bob = pwd.getpwnam(BOB)
    _compile(_WHO_AM_I, tree / "bin" / "plain")
    for name, owner, mode in (
        ("setuid-root", 0, 0o4755),
        ("setgid-root", 0, 0o2755),
        ("setuid-other", bob.pw_uid, 0o4755),
        ("setgid-other", bob.pw_gid, 0o2755),
    ):
        program = tree / "bin" / name
        shutil.copy(tree / "bin" / "plain", program)
        os.chown(program, owner, owner)
        program.chmod(mode)
    subprocess.run(
        ["mksquashfs", str(tree), str(image), "-quiet", "-no-progress"], check=True, timeout=60
    )
    return str(cluster.write(f'image = "{image}"\n', name="raising.toml"))


def _compile(source: str, program: Path) -> None:
    compiler = ["gcc", "-static", "-x", "c", "-o", str(program), "-"]
    subprocess.run(compiler, input=source, text=True, check=True, timeout=60)


@pytest.mark.parametrize("what", ["setuid-root", "setgid-root", "setuid-other", "setgid-other"])
def test_setuid_and_setgid_programs_of_an_image_give_nothing(
    cluster: Cluster, raising: str, what: str
) -> None:
    entry = pwd.getpwnam(ALICE)
    own = " ".join([str(entry.pw_uid)] * 3 + [str(entry.pw_gid)] * 3)
    done = cluster.srun(f"--environment={raising}", what)
    assert (done.stdout, done.stderr) == (f"{own} 0\n", "")


def test_root_owns_an_image_and_a_user_writes_below_its_directories(cluster: Cluster) -> None:
    assert cluster.image("demo").stat().st_uid == 0
    edf = cluster.edf()
    done = cluster.srun(
        f"--environment={edf}", "sh", "-c", "mkdir /usr/mine && stat -c %U /usr/mine"
    )
    assert (done.stdout, done.stderr) == (f"{ALICE}\n", "")

"""Tests of `make check-arm64`: the second machine is an ARM one with pages of 16 KiB."""

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.vm import pair
from tests.vm.cluster import Cluster, errors, write

pytestmark = pytest.mark.vm_arm64

_PYTHON = "PYTHONPATH=/usr/lib/python3/dist-packages /opt/container-engine/libexec/python3"
# What depends on the processor or the size of pages: formats of libraries, numbers of system calls.
_UNITS = [
    *("tests/unit/node/libraries", "tests/unit/images/test_fakeroot.py"),
    *("tests/unit/images/test_cage.py", "tests/unit/images/test_squashfs.py"),
]
_ARM_NODES = 'image_architecture = "arm64"\n'
_CONTENT = "cd /; find usr -type f -perm -004 -print0 | sort -z | xargs -0 cksum | cksum"


@pytest.fixture
def sources(cluster: Cluster, tree: Path, tmp_path: Path) -> str:
    """Put the tree with its C tests on the second machine; return its directory."""
    machine, archive = cluster.second, tmp_path / "sources.tar"
    listed = "git ls-files -z --cached --others --exclude-standard"
    packed = f"{listed} | tar -c --null -T - -f {shlex.quote(str(archive))}"
    subprocess.run(packed, shell=True, cwd=tree, check=True)
    cluster.root(machine, "install -d -m 0755 /src")
    for file in (archive, pair.c_tests(tree, machine.architecture)):
        machine.copy(file, "/src/part.tar")
        cluster.root(machine, "cd /src && tar -xf part.tar && rm part.tar")
    return "/src"


def test_the_machines_are_of_two_architectures(cluster: Cluster) -> None:
    done = cluster.srun("-N2", "-l", "--environment=debian", "uname", "-m")
    assert sorted(done.stdout.splitlines()) == ["0: x86_64", "1: aarch64"], done.stderr
    assert errors(done.stderr) == []
    assert cluster.root(cluster.second, "getconf PAGESIZE") == "16384\n"


def test_ce_run_starts_a_container(cluster: Cluster) -> None:
    command = "ce run --environment=debian -- sh -c 'uname -m; exit 3'"
    done = cluster.second.ssh(command, "alice", 600)
    assert (done.returncode, done.stdout, errors(done.stderr)) == (3, "aarch64\n", []), done.stderr


def test_doctor_finds_no_fault(cluster: Cluster) -> None:
    done = cluster.second.ssh("ce doctor --node", "alice", 600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_has_the_same_content_as_its_file(cluster: Cluster) -> None:
    unpacked = "/var/tmp/unpacked"
    image = "/srv/apps/images/debian.sqsh"
    cluster.root(cluster.second, f"rm -rf {unpacked}; unsquashfs -q -n -d {unpacked} {image}")
    want = cluster.root(cluster.second, _CONTENT.replace("cd /", f"cd {unpacked}"))
    read = cluster.srun("-wvm2", "--environment=debian", "sh", "-c", _CONTENT)
    assert read.stdout == want, read.stderr


def test_an_image_for_another_architecture_is_refused_in_words(cluster: Cluster) -> None:
    cluster.root(cluster.first, "cp -u /srv/apps/images/debian.sqsh /srv/apps/images/x86.sqsh")
    for machine in cluster.pair.machines:
        write(machine, "/etc/edf/x86.toml", 'image = "/apps/images/x86.sqsh"\n')
    refused = (
        "uname: cannot be executed in the container: the image is for amd64, the node is arm64"
    )
    step = cluster.srun("-wvm2", "--environment=x86", "uname", "-m")
    run = cluster.second.ssh("ce run --environment=x86 -- uname -m", "alice", 600)
    for done, where in ((step, "vm2: "), (run, "")):
        assert done.returncode == 126, done.stdout + done.stderr
        assert errors(done.stderr) == [f"ce: error: {where}{refused}"]
        assert "ce: see: ce help image-architecture" in done.stderr


def test_names_are_those_of_the_architecture_that_the_site_says(cluster: Cluster) -> None:
    plan = "ce plan --json --container-image two"
    imported = "ce import -q /srv/apps/images/debian.sqsh two"
    for machine in cluster.pair.machines:
        done = machine.ssh(imported, "alice", 600)
        assert done.returncode == 0, done.stderr
    try:
        plain = cluster.first.ssh(plan, "alice")
        write(cluster.first, "/etc/container-engine/conf.d/arm.toml", _ARM_NODES)
        other = cluster.first.ssh(plan, "alice")
        step = cluster.srun("-wvm2", "--container-image=two", "uname", "-m")
    finally:
        cluster.first.ssh("rm -r /etc/container-engine; rm -r /home/alice/.edf_imagestore")
    assert "-amd64.sqsh" in plain.stdout
    assert "-arm64.sqsh" in other.stdout
    assert step.stdout == "aarch64\n", step.stderr


def test_c_tests(cluster: Cluster, sources: str) -> None:
    tests = f"{sources}/build/spank/tests"
    both = f"{tests}/fuzz 5 1 && CE_TEST_SECONDS=900 {tests}/tests"
    run = f"cd {sources}/spank_plugin/tests && {both}"
    done = cluster.second.ssh(run, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr


def test_unit_tests(cluster: Cluster, sources: str) -> None:
    # Debian's pytest is older than this tree's configuration requires.
    options = f"-q -c /dev/null --rootdir={sources} --import-mode=importlib -p no:cacheprovider"
    command = f"{_PYTHON} -m pytest {options} {shlex.join(_UNITS)}"
    done = cluster.second.ssh(f"cd {sources} && CE_TEST_ELF_EACH=200 {command}", timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr

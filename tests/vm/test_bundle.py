"""The bundle for ARM on the ARM machine of `make check-arm64`, without the distribution's programs.

It has a plugin for the Slurm of the machines.
"""

import shlex
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.images.oci import Member, layout
from tests.vm import pair
from tests.vm.cluster import STEP_S, Cluster, errors
from tests.vm.machine import Completed

pytestmark = pytest.mark.vm_arm64

_PREFIX = "/opt/container-engine"  # of the package, and of the bundle in its place
_ARCHIVE = "/var/tmp/bundle.tar"
_PLACE = "/var/tmp/a place"
_EDF = "/var/tmp/env.toml"
_PROGRAMS = "crun podman conmon skopeo mksquashfs unsquashfs tar2sqfs sqfs2tar zstd python3"
_LIBRARIES = "libfuse3.so.* libsquashfs.so.* liblzo2.so.*"
# What the engine would use of the distribution becomes a file that nobody may read or execute.
_DISTRIBUTION = " ".join(
    [
        *(f"/usr/bin/{name}" for name in _PROGRAMS.split()),
        *(f"/usr/lib/aarch64-linux-gnu/{name}" for name in _LIBRARIES.split()),
    ]
)
_HIDE = f"""
install -d /run/hidden && install -m 0 /dev/null /run/hidden/file && install -d /run/hidden/none
for file in $(realpath -e {_DISTRIBUTION} | sort -u); do mount --bind /run/hidden/file $file; done
"""
_SHOW = "sed -n 's, /hidden/[a-z]* \\([^ ]*\\) .*, \\1,p' /proc/self/mountinfo | cut -d' ' -f4"
_SHOWN_AGAIN = f"for file in $({_SHOW}); do umount $file; done"
_LISTED = "-xdev ! -name '*.pyc' -printf '%p %y %m %u %l\\n' | sort"
_OF_SITE = f"""
find /etc /usr/local /usr/bin /usr/sbin {_LISTED}
find /etc /usr/local -xdev -type f -print0 | sort -z | xargs -0 cksum
"""
_OF_ENGINE = f"find /opt {_LISTED}"
_C_PROGRAM = """
#include <stdio.h>
#include <sys/utsname.h>
#include <unistd.h>

int main(void)
{
	struct utsname names;

	uname(&names);
	printf("%s %ld\\n", names.machine, sysconf(_SC_PAGESIZE));
	return 7;
}
"""


@contextmanager
def hidden(cluster: Cluster, more: str = "true") -> Iterator[None]:
    """Take what the engine would use of the distribution away from the ARM machine."""
    try:
        cluster.root(cluster.second, f"{_HIDE}{more}")
        yield
    finally:
        cluster.root(cluster.second, _SHOWN_AGAIN)


@pytest.fixture
def archive(cluster: Cluster, tree: Path) -> str:
    """Put the bundle's archive on the ARM machine; return its path."""
    machine, made = cluster.second, pair.bundle(tree, cluster.second.architecture)
    wanted = f"{made.stat().st_size} {made.name}"
    if machine.ssh(f"cat {_ARCHIVE}.name").stdout.strip() != wanted:
        machine.copy(made, _ARCHIVE)
        cluster.root(machine, f"chmod 644 {_ARCHIVE}; echo {wanted} >{_ARCHIVE}.name")
    return _ARCHIVE


@pytest.fixture
def ce(cluster: Cluster, archive: str) -> Iterator[str]:
    """Yield the command ce of alice's bundle; the engine's package is hidden, too."""
    place = shlex.quote(_PLACE)
    unpack = f"mkdir {place} && tar -C {place} --strip-components 1 -xf {archive}"
    try:
        alice(cluster, f"umask 077; {unpack}")
        alice(cluster, f"echo 'image = \"/apps/images/debian.sqsh\"' >{_EDF}")
        with hidden(cluster, f"mount --bind /run/hidden/none {_PREFIX}"):
            assert cluster.second.ssh("ce version; python3 -V; crun -v", "alice").stdout == ""
            yield f"env PATH=/nonexistent {shlex.quote(f'{_PLACE}/bin/ce')}"
    finally:
        cluster.root(cluster.second, f"rm -rf {place}* {_EDF}")


def alice(cluster: Cluster, command: str) -> Completed:
    """Return a command of alice on the ARM machine; fail the test if it fails."""
    done = cluster.second.ssh(command, "alice", STEP_S)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done


def test_a_user_starts_a_container_from_the_bundle_alone(cluster: Cluster, ce: str) -> None:
    command = f"echo typed | {ce} run {_EDF} -- sh -c 'uname -m; cat; exit 3'"
    done = cluster.second.ssh(command, "alice", STEP_S)
    said = done.stdout, errors(done.stderr)
    assert (done.returncode, *said) == (3, "aarch64\ntyped\n", []), done.stderr


def test_doctor_starts_a_container_from_the_bundle(cluster: Cluster, ce: str) -> None:
    done = cluster.second.ssh(f"{ce} doctor --node", "alice", STEP_S)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_oci_archive_is_imported_and_run(cluster: Cluster, ce: str, tmp_path: Path) -> None:
    archive, image = "/var/tmp/small.oci.tar", shlex.quote(f"{_PLACE}.sqsh")
    cluster.second.copy(_small_image(tmp_path), archive)
    alice(cluster, f"{ce} import -o {image} oci-archive:{archive}")
    alice(cluster, f"echo 'image = \"{_PLACE}.sqsh\"' >{_EDF}")
    done = cluster.second.ssh(f"{ce} run {_EDF} -- /program", "alice", STEP_S)
    said = done.stdout, errors(done.stderr)
    assert (done.returncode, *said) == (7, "aarch64 16384\n", []), done.stderr


def _small_image(directory: Path) -> Path:
    """Make an archive of an OCI layout for ARM, with one static program."""
    program, archive = directory / "program", directory / "oci.tar"
    compile_ = ["aarch64-linux-gnu-gcc", "-static", "-x", "c", "-", "-o", str(program)]
    subprocess.run(compile_, input=_C_PROGRAM, text=True, check=True)
    made = layout(
        directory / "layout", [[Member("program", program.read_bytes(), mode=0o755)]], arch="arm64"
    )
    with tarfile.open(archive, "w") as packed:
        packed.add(made, ".")
    return archive


@pytest.fixture
def state(cluster: Cluster) -> Iterator[None]:
    """Check that the test leaves the ARM machine as it was."""
    before = cluster.root(cluster.second, _OF_SITE + _OF_ENGINE)
    yield
    assert cluster.root(cluster.second, _OF_SITE + _OF_ENGINE) == before


@pytest.mark.usefixtures("state")
def test_what_keeps_root_from_installing_is_said_line_by_line(
    cluster: Cluster, archive: str
) -> None:
    prefix = "/opt/bundle"
    unpack = f"mkdir {prefix} && tar -C {prefix} --strip-components 1 -xf {archive}"
    cluster.root(cluster.second, unpack)
    try:
        check, install = (
            cluster.second.ssh(f"{prefix}/sbin/ce-system-install {option}", timeout=STEP_S)
            for option in ("--check", "")
        )
    finally:
        cluster.root(cluster.second, f"rm -r {prefix}")
    failed = [line for line in check.stdout.splitlines() if line.startswith("failed ")]
    plugin, other, package = failed
    assert f" loads another installation: {_PREFIX}/lib/slurm/container_engine.so;" in plugin
    assert (
        f"ce: /usr/bin/ce is another program; remedy: remove it, or call {prefix}/bin/ce" in other
    )
    assert "package: dpkg-query knows an installed container-engine: " in package
    assert check.stdout.endswith(" 3 failed; nothing was changed\n")
    assert check.stdout.startswith(install.stdout)
    assert (check.returncode, install.returncode) == (1, 1)


@pytest.fixture
def installed(cluster: Cluster, archive: str) -> Iterator[None]:
    """Give the ARM machine the bundle in the place of the package, and hide the distribution."""
    machine, command = cluster.second, f"{_PREFIX}/sbin/ce-system-install"
    cluster.root(machine, "dpkg --remove container-engine")
    try:
        unpack = f"mkdir -p {_PREFIX} && tar -C {_PREFIX} --strip-components 1 -xf {archive}"
        cluster.root(machine, unpack)
        before = cluster.root(machine, _OF_SITE)
        with hidden(cluster):
            try:
                assert " 0 failed;" in cluster.root(machine, f"{command} --check")
                assert "installed: " in cluster.root(machine, command)
                yield
            finally:
                cluster.root(machine, f"{command} --remove")
        assert cluster.root(machine, _OF_SITE) == before
    finally:
        cluster.root(machine, f"rm -rf {_PREFIX}; dpkg -i container-engine.deb")


@pytest.mark.usefixtures("state", "installed")
def test_a_step_runs_with_the_plugin_and_programs_of_the_bundle(cluster: Cluster) -> None:
    plugin = f"{_PREFIX}/lib/slurm/container_engine.so"
    chosen = cluster.root(cluster.second, f"readlink {plugin}; ls /usr/bin/ce; true")
    assert chosen == "24.11/container_engine.so\n"
    script = ("sh", "-c", "uname -m; exit $((SLURM_PROCID + 3))")
    for machine in cluster.pair.machines:
        line = shlex.join(["srun", "-N2", "-l", "--environment=debian", *script])
        done = machine.ssh(line, "alice", STEP_S)
        said = sorted(done.stdout.splitlines()), errors(done.stderr)
        assert said == (["0: x86_64", "1: aarch64"], []), done.stderr
        assert done.returncode == 4
    done = cluster.second.ssh("ce doctor --node", "alice", STEP_S)
    assert done.returncode == 0, done.stdout + done.stderr

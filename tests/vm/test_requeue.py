"""A job that is requeued while it imports its image, and again when Slurm warns its script."""

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ce_sandbox import images
from ce_sandbox.layout import from_environment
from tests.slurm.polling import until
from tests.unit.images import oci
from tests.vm.cluster import STEP_S, Cluster, errors, write

pytestmark = pytest.mark.vm_long

# what takes so long to import that the job is requeued meanwhile, as gzip compresses it hardly
_LARGE = 64 << 20
_PORT = 5000
_OPEN = f'[[registry]]\nlocation = "vm1:{_PORT}"\ninsecure = true\n'
_REGISTRY = f'{{"version": 0.1, "storage": {{"inmemory": {{}}}}, "http": {{"addr": ":{_PORT}"}}}}'


@pytest.fixture
def image(cluster: Cluster, tmp_path: Path) -> Iterator[str]:
    """Yield the reference of an image in a registry on the first machine, with `sh` and `cat`."""
    file = images.provide(from_environment(os.environ), "busybox")
    busybox = subprocess.run(
        ["unsquashfs", "-cat", file, "bin/busybox"], capture_output=True, check=True
    ).stdout
    programs = [oci.link(f"bin/{name}", "busybox") for name in ("sh", "cat", "sleep")]
    large = oci.Member("large", os.urandom(_LARGE))
    members = [oci.directory("bin"), oci.Member("bin/busybox", busybox, mode=0o755)]
    layout = oci.layout(tmp_path / "layout", [[*members, *programs, large]], compressor="none")
    with tarfile.open(tmp_path / "layout.tar", "w") as archive:
        archive.add(layout, "layout")
    cluster.first.copy(tmp_path / "layout.tar", "/var/tmp/layout.tar")
    cluster.first.copy(Path(str(shutil.which("docker-registry"))), "/usr/local/bin/docker-registry")
    write(cluster.first, "/etc/registry.yml", _REGISTRY)
    for machine in cluster.pair.machines:
        write(machine, "/etc/containers/registries.conf.d/vm.conf", _OPEN)
    serve = "systemd-run --unit=registry /usr/local/bin/docker-registry serve /etc/registry.yml"
    reference = f"vm1:{_PORT}/large:1"
    cluster.root(cluster.first, f"chmod 0755 /usr/local/bin/docker-registry; {serve}")
    push = f"skopeo copy -q oci:layout:latest docker://{reference}"
    cluster.root(cluster.first, f"cd /var/tmp; tar -xf layout.tar; until {push}; do sleep 1; done")
    yield reference
    files = (
        "/var/tmp/layout* /srv/home/alice/.local/share/container-engine /srv/home/alice/large.toml"
    )
    cluster.root(cluster.first, f"systemctl stop registry; rm -rf {files}")
    for machine in cluster.pair.machines:
        cluster.root(machine, "rm /etc/containers/registries.conf.d/vm.conf")


def test_a_job_is_requeued_in_its_import_and_when_its_script_is_warned(
    cluster: Cluster, image: str
) -> None:
    """Slurm starts a requeued job after two minutes, and here warns the script after three."""
    write(cluster.first, "/srv/home/alice/large.toml", f'image = "{image}"', "0644")
    named = "srun --environment=./large.toml --container-name=a sh -c"
    script = (
        "#!/bin/bash\n"
        "trap 'echo warned; scancel -s TERM $SLURM_JOB_ID; wait; scontrol requeue $SLURM_JOB_ID'"
        " USR1\n"
        'echo "run ${SLURM_RESTART_COUNT:-0}"\n'
        f"{named} 'cat /mark 2>/dev/null || echo new; echo old >/mark'\n"
        f"{named} 'cat /mark'\n"
        '[ "$SLURM_RESTART_COUNT" != 2 ] || exit 0\n'
        f"""{named} 'trap "echo told; exit 0" TERM; sleep 4714 & wait' & wait; sleep 60\n"""
    )
    write(cluster.first, "/tmp/script", script, "0755")
    options = ["--parsable", "--requeue", "--open-mode=append", "-wvm2", "-D/home/alice"]
    options += ["--time=6", "--signal=B:USR1@180", "-o/home/alice/out.%j"]
    job = cluster.alice("sbatch", *options, "/tmp/script").strip()

    def said() -> list[str]:
        return cluster.root(cluster.first, f"cat /srv/home/alice/out.{job}; true").splitlines()

    importing = "pgrep -u alice -f 'skopeo|tar2sqfs|mksquashfs'; true"
    until("the import", lambda: cluster.root(cluster.second, importing), STEP_S)
    assert said() == ["run 0"]
    cluster.root(cluster.first, f"scontrol requeue {job}")
    until("the end of the job", lambda: cluster.state(job) == "COMPLETED", STEP_S)
    lines = [line for line in said() if ": " not in line]
    told = ["run 1", "new", "old", "warned", "told"]
    assert lines == ["run 0", *told, "run 2", "new", "old"], said()
    assert errors("\n".join(said())) == []
    drafts = "find /srv/home/alice/.local/share/container-engine/images/work -mindepth 1; true"
    assert cluster.root(cluster.first, drafts) == ""
    assert cluster.root(cluster.second, "find /tmp/ce-kept-* -mindepth 1; true") == ""

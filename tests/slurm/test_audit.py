"""Root's audit line for each step with a container, if the site wants it."""

import hashlib
import pwd
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import ALICE, Cluster
from tests.slurm.slurm_configurations import line_of, own_planner, plugins_on

pytestmark = pytest.mark.usefixtures("tidy")

PLAN = '{"version":99}'


@pytest.fixture
def audit(cluster: Cluster, n2: str, shared: Path, tmp_path: Path) -> Iterator[Path]:
    """Yield the audit file of the node n2."""
    path = tmp_path / "audit.log"
    line = f"{line_of(cluster)} prefix={cluster.prefix} audit={path}\n"
    with plugins_on(cluster, n2, shared, line):
        yield path


def test_each_step_with_a_container_has_one_line_of_roots(
    cluster: Cluster, demo: str, audit: Path, shared: Path
) -> None:
    script = "echo $SLURM_JOB_ID; [ -z $SLURM_CE_IMAGE ]"
    said = cluster.srun("-w", "n2", "-n2", f"--environment={demo}", "sh", "-c", script).stdout
    assert cluster.srun("-w", "n2", "true").returncode == 0
    conf = own_planner(cluster, shared, f"echo plan; printf %s '{PLAN}'")
    refused = cluster.srun("-w", "n2", f"--environment={demo}", "true", env=conf)
    assert refused.returncode == 125
    lines = audit.read_text().splitlines()
    uid = pwd.getpwnam(ALICE).pw_uid
    assert len(lines) == 2
    assert re.fullmatch(
        rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ host=\S+ job={said.split()[0]} step=0 uid={uid}"
        r" plan-sha256=[0-9a-f]{64} plan-bytes=\d+ user-says-image=/\S+/demo\.sqsh",
        lines[0],
    )
    known = hashlib.sha256(PLAN.encode()).hexdigest()
    assert lines[1].endswith(
        f" uid={uid} plan-sha256={known} plan-bytes={len(PLAN)} user-says-image=-"
    )
    status = audit.stat()
    assert (status.st_uid, status.st_mode & 0o777) == (0, 0o600)


def test_a_line_names_an_image_whatever_its_path(cluster: Cluster, audit: Path) -> None:
    odd = cluster.scratch / "a\nb\t c é.sqsh"
    odd.symlink_to(cluster.image("demo"))
    for _anew_and_cached in range(2):
        done = cluster.srun("-w", "n2", f"--container-image={odd}", "true")
        assert done.returncode == 0, done.stderr
    lines = audit.read_text().splitlines()
    assert [line.partition(" user-says-image=")[2] for line in lines] == [
        f"{cluster.scratch}/a?b??c???.sqsh"
    ] * 2


def test_an_audit_that_cannot_be_written_is_in_slurmds_log_and_stops_nobody(
    cluster: Cluster, demo: str, audit: Path
) -> None:
    audit.mkdir()
    done = cluster.srun("-w", "n2", f"--environment={demo}", "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
    assert f"container_engine: audit={audit}: Is a directory" in (
        cluster.dir / "log/slurmd-n2.log"
    ).read_text(errors="replace")

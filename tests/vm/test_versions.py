"""Packages of other versions: upgrades under running steps, and jobs of two versions."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.vm import pair
from tests.vm.cluster import READS, Cluster, errors

pytestmark = pytest.mark.vm_long

Upgrade = Callable[[dict[str, tuple[str, str]]], None]
_VERSION = "container_engine/__init__.py"
_NEWER = {_VERSION: ('__version__ = "', '__version__ = "9.')}
_OTHER_PLAN = {
    **_NEWER,
    "container_engine/plan/model.py": ("VERSION: Literal[1] = 1", "VERSION: Literal[2] = 2"),
    "container_engine/node/node_plan.py": ("PLAN_VERSIONS = (1,)", "PLAN_VERSIONS = (2,)"),
}


def _changed_tree(changes: dict[str, tuple[str, str]], to: Path) -> Path:
    """Copy the working tree with these texts replaced."""
    git = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(git, cwd=pair.ROOT, text=True).split("\0"):
        if (pair.ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(pair.ROOT / name, to / name)
    subprocess.run(["git", "init", "-q"], cwd=to, check=True)
    for name, (old, new) in changes.items():
        text = (to / name).read_text()
        assert old in text
        (to / name).write_text(text.replace(old, new))
    return to


@pytest.fixture
def upgrade(cluster: Cluster, tree: Path, tmp_path: Path) -> Iterator[Upgrade]:
    """Yield a function that gives the second machine a package of a changed tree; undo it."""

    def replace(changes: dict[str, tuple[str, str]]) -> None:
        changed = pair.package(_changed_tree(changes, tmp_path))
        cluster.pair.replace(cluster.second, changed)
        assert "9." in cluster.root(cluster.second, "ce --version")

    yield replace
    cluster.end_all()
    cluster.pair.install(tree)


def test_an_upgrade_disturbs_no_step_and_two_versions_share_a_job(
    cluster: Cluster, gated: str, upgrade: Upgrade
) -> None:
    step = ["-wvm2", f"--environment={gated}", "sh", "-c", f"{READS}; echo done; exit 3"]
    with cluster.started(*step) as job:
        job.wait_for("up\n")
        upgrade(_NEWER)
        cluster.root(cluster.second, "touch /gate/go")
        assert (job.wait(), job.out, errors(job.err)) == (3, "up\ndone\n", [])
    done = cluster.srun("-N2", "--environment=debian", "echo", "both")
    assert (done.returncode, done.stdout, errors(done.stderr)) == (0, "both\nboth\n", [])


def test_a_node_that_reads_other_plans_refuses_in_one_line(
    cluster: Cluster, upgrade: Upgrade
) -> None:
    upgrade(_OTHER_PLAN)
    done = cluster.srun("-N2", "--environment=debian", "echo", "started")
    assert done.returncode == 125
    assert "vm2: this node understands plans of version 2, not 1" in done.stderr
    assert len(errors(done.stderr)) == 1

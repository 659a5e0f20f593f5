"""Programs that a site chooses: Podman, the runtime, and one that gets a record of each step."""

import json
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from container_engine.tools import start_records
from tests.slurm.cluster import ALICE, BOB, ROOT, Cluster
from tests.slurm.job import job_id, started
from tests.slurm.leftovers import steps
from tests.slurm.polling import until

pytestmark = pytest.mark.usefixtures("tidy")


class Programs:
    """Programs of the site, which record that they were started."""

    def __init__(self, directory: Path, file: Path) -> None:
        self.directory, self._file = directory, file
        self.noted = directory / "noted"
        self.noted.mkdir()
        self.noted.chmod(0o777)

    def make(self, name: str, script: str) -> str:
        path = self.directory / name
        path.write_text(f"#!/bin/sh\n{script.replace('NOTE', f'{self.noted}/{name}')}\n")
        path.chmod(0o755)
        return str(path)

    def say(self, settings: str) -> None:
        self._file.write_text(settings)


@pytest.fixture
def programs(cluster: Cluster) -> Iterator[Programs]:
    directory = Path(tempfile.mkdtemp(dir=cluster.scratch))
    directory.chmod(0o755)
    file = cluster.prefix / "etc/container-engine/conf.d/90-programs-of-a-test.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    yield Programs(directory, file)
    file.unlink(missing_ok=True)


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "with libraries"])
@pytest.mark.parametrize(("way", "used"), [("crun", {"crun"}), ("podman", {"podman", "crun"})])
def test_the_sites_podman_and_runtime_start_the_container(
    cluster: Cluster, demo: str, programs: Programs, way: str, used: set[str], beside: bool
) -> None:
    podman = programs.make("podman", 'echo >>NOTE; exec /usr/bin/podman "$@"')
    runtime = programs.make("crun", 'echo >>NOTE; exec /usr/bin/crun "$@"')
    programs.say(f'start = "{way}"\npodman = "{podman}"\nruntime = "{runtime}"\n')
    more = ("--mpi=pmi2", "-n2") if beside else ()
    done = cluster.srun("-w", "n1", *more, f"--environment={demo}", "cat", "/etc/os-release")
    assert (done.returncode, "ID=ce-demo" in done.stdout) == (0, True), done.stderr
    assert {path.name for path in programs.noted.iterdir()} == used
    programs.say('runtime = "/nowhere/crun"\n')
    done = cluster.srun("-w", "n1", *more, f"--environment={demo}", "true")
    assert done.returncode == 125
    assert "runtime of the site: '/nowhere/crun' is not a program on this node" in done.stderr


def test_the_tracking_program_gets_one_record_per_step(
    cluster: Cluster, demo: str, programs: Programs
) -> None:
    tool = programs.make("track", 'cat >"NOTE.$SLURM_NODEID.$$"')
    programs.say(f'tracking_tool = ["{tool}"]\n')
    done = cluster.srun("-N2", f"--environment={demo}", "true")
    assert done.returncode == 0, done.stderr
    until("a record", lambda: list(programs.noted.iterdir()))
    [path] = programs.noted.iterdir()
    assert path.name.startswith("track.0.")
    until("all of it", lambda: path.read_text().endswith("\n"))
    record = json.loads(path.read_text())
    assert record["environment"] == demo
    [reads] = record["image_reads"]
    assert reads["path"] == record["image"]["path"] == str(cluster.image("demo"))
    assert reads["bytes"] > 0


@pytest.mark.parametrize("by", ["nodes", "a tracking program"])
def test_starts_are_counted_from_the_traces_of_all_users(
    cluster: Cluster, demo: str, programs: Programs, by: str
) -> None:
    guide = (ROOT / "docs/admin/monitoring.md").read_text()
    script = guide.partition("# counts a start\n")[2].partition("```")[0]
    place = programs.noted / "traces"
    place.mkdir()
    place.chmod(0o1777)
    tool = programs.make("count", script.replace("/shared/ce-starts", str(place)))
    programs.say(f'trace_dir = "{place}"\n' if by == "nodes" else f'tracking_tool = ["{tool}"]\n')
    for _number in range(2):
        assert cluster.srun("-N2", f"--environment={demo}", "true").returncode == 0
    until("the end of all steps", lambda: not steps())
    records = start_records.empty()
    start_records.Update(records, time.time() + 100).add(str(place))
    [[count, *times]] = records["images"].values()
    assert (count, [one for one in times if 0 < one < 10]) == (2, times)
    assert {"launch", "mount", "create", "init"} <= set(records["phases"])
    if by == "nodes":
        assert records["starts"] == {"ok": 4, "failed": 0}
        assert records["reads"]["bytes"] > 0
        assert records["running"] == []
        ce = str(cluster.prefix / "bin/ce")
        programs.say(f'trace_dir = "{place}"\nstarts_file = "{programs.noted}/starts.json"\n')
        blind = cluster.run([ce, "metrics"], user=BOB)
        assert blind.stdout.endswith("starts.json: 0 starts, 0 failed, 0 images, 0 nodes\n")
        assert f"ce: 2 steps cannot be read: run this where root can read {place}" in blind.stderr
    else:
        assert records["starts"] == {"ok": 2, "failed": 0}


def test_the_guides_tracking_program_writes_the_image_into_the_jobs_record(
    cluster: Cluster, demo: str, programs: Programs
) -> None:
    guide = (ROOT / "docs/admin/monitoring.md").read_text()
    scripts = re.findall(r"^```sh\n#!/bin/sh\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    [script] = [one for one in scripts if "comment=" in one]
    programs.say(f'tracking_tool = ["{programs.make("track", script)}"]\n')
    with started(cluster, "srun", f"--environment={demo}", "sh", "-c", "echo up; read line") as job:
        job.wait_for_lines(1)
        show = ["scontrol", "show", "job", job_id(cluster)]
        until("a comment", lambda: re.search("Comment=.*/demo.sqsh", cluster.run(show).stdout))


def test_a_saved_container_has_the_layout_that_the_site_chose(
    cluster: Cluster, demo: str, programs: Programs
) -> None:
    layout = programs.make("layout", ': >"$1"; stat -c "%i %U" "$1" >NOTE')
    programs.say(f'store_layout = ["{layout}", "{{file}}"]\n')
    saved = programs.noted / "saved.sqsh"
    with started(cluster, "srun", f"--environment={demo}", "sh", "-c", "echo up; read line") as job:
        job.wait_for_lines(1)
        done = cluster.run([f"{cluster.prefix}/bin/ce", "save", "-q", job_id(cluster), str(saved)])
    assert done.returncode == 0, done.stderr
    assert (programs.noted / "layout").read_text() == f"{saved.stat().st_ino} {saved.owner()}\n"


@pytest.fixture
def of_clusters(cluster: Cluster) -> Iterator[Path]:
    """Yield the directory for settings of single clusters; the sandbox is called ce-sandbox."""
    directory = cluster.prefix / "etc/container-engine/clusters.d"
    directory.mkdir()
    yield directory
    shutil.rmtree(directory)


def test_a_cluster_has_settings_of_its_own_in_the_files_of_all(
    cluster: Cluster, demo: str, of_clusters: Path
) -> None:
    ask = ("-n1", f"--environment={demo}", "printenv", "WHERE")
    (of_clusters / "elsewhere.toml").write_text('[env]\nWHERE = "elsewhere"\n')
    assert cluster.srun(*ask).stdout == ""
    (of_clusters / "ce-sandbox.toml").write_text('[env]\nWHERE = "here"\n')
    assert cluster.srun(*ask).stdout == "here\n"
    # a plan is cached for one cluster only
    other = of_clusters / "slurm.conf"
    text = (cluster.dir / "etc/slurm.conf").read_text()
    other.write_text(text.replace("ClusterName=ce-sandbox", "ClusterName=Elsewhere"))
    done = cluster.run(
        ["ce", "run", demo, "--", "printenv", "WHERE"], env={"SLURM_CONF": str(other)}
    )
    assert done.stdout == "elsewhere\n", done.stderr
    done = cluster.run(["ce", "config", "show"])
    assert f"{of_clusters}/ce-sandbox.toml" in done.stdout
    (of_clusters / "elsewhere.toml").write_text("tmpfs_siz = 1\n")
    done = cluster.run(["ce", "config", "check"])
    assert (done.returncode, "elsewhere.toml:1: unknown key 'tmpfs_siz'" in done.stdout) == (
        1,
        True,
    )
    assert cluster.srun(*ask).stdout == "here\n"


def test_the_documented_command_shows_whose_steps_a_node_runs(cluster: Cluster, demo: str) -> None:
    page = (ROOT / "docs/admin/monitoring.md").read_text(encoding="utf-8")
    command = page.partition("```sh\nps ")[2].partition("\n")[0]
    script = "echo $SLURM_JOB_ID; sleep 60"
    words = ("-w", "n1", f"--environment={demo}", "sh", "-c", script)
    with started(cluster, "srun", *words) as step:
        [job] = step.wait_for_lines(1)
        shown = cluster.run(["sh", "-c", f"ps {command}"]).stdout
        tracking = cluster.run(["scontrol", "show", "config"]).stdout
    lines = [line for line in shown.splitlines() if line.startswith(f"{ALICE} ")]
    assert lines, shown
    if "proctrack/cgroup" in tracking:
        assert any(f"/job_{job}/step_0" in line for line in lines), shown

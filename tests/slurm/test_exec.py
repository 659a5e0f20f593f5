"""`ce ps` and `ce exec`: list the containers, and run one more command in one of them."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import ALICE, BOB, Cluster, Completed
from tests.slurm.job import Job, started
from tests.slurm.polling import until

# salloc gives its command the option of its job under two names.
SLURMS = ("", "SLURM_SPANK_")

pytestmark = pytest.mark.usefixtures("tidy")


@pytest.fixture
def running(cluster: Cluster, shared: Path) -> Iterator[str]:
    """Yield the id of a two-node step that runs in a container with a mount and a variable."""
    edf = cluster.edf(
        f'mounts = ["{shared}:/data"]\nworkdir = "/data"\n[env]\nWORDS = "two words\\n=x"\n'
    )
    command = ("sh", "-c", "echo $SLURM_JOB_ID.$SLURM_STEP_ID; sleep 60")
    with started(cluster, "srun", "-N2", "-n2", f"--environment={edf}", *command) as job:
        step = job.wait_for_lines(2)[0]
        _wait_for_trace(cluster, step, job)
        yield step


def _wait_for_trace(cluster: Cluster, step: str, _job: Job) -> None:
    until("the step in ce ps", lambda: step in ce(cluster, "ps").stdout)


def ce(cluster: Cluster, *words: str, user: str = ALICE) -> Completed:
    return cluster.run([str(cluster.prefix / "bin/ce"), *words], user)


def test_ps_lists_a_running_step_with_its_nodes_and_environment(
    cluster: Cluster, running: str
) -> None:
    [step] = json.loads(ce(cluster, "ps", "--json").stdout)["steps"]
    assert (step["id"], step["nodes"], step["name"]) == (running, "n[1-2]", "sh")
    assert step["environment"].endswith(".toml")
    assert running not in ce(cluster, "ps", user=BOB).stdout


def test_exec_has_the_mounts_environment_and_directory_of_the_tasks(
    cluster: Cluster, running: str, shared: Path
) -> None:
    script = "printenv WORDS; pwd; echo $SLURMD_NODENAME; touch /data/made; exit 7"
    done = ce(cluster, "exec", running, "--", "sh", "-c", script)
    assert done.stdout == "two words\n=x\n/data\nn1\n"
    assert done.returncode == 7
    assert (shared / "made").exists()


def test_exec_needs_none_of_its_callers_streams(cluster: Cluster, running: str) -> None:
    line = f"{cluster.prefix}/bin/ce exec {running} -- sh -c 'exit 7'"
    for closed in ("<&-", ">&-", "2>&-"):
        assert cluster.run(["sh", "-c", f"{line} {closed}"]).returncode == 7, closed


def test_exec_goes_to_the_node_that_is_asked_for_also_from_a_job_with_an_environment(
    cluster: Cluster, running: str, demo: str
) -> None:
    job = running.partition(".")[0]
    around = {f"{name}_SLURM_SPANK_OPTION_container_engine_environment": demo for name in SLURMS}
    exec_ = [str(cluster.prefix / "bin/ce"), "exec", "-w", "n2", job, "--"]
    done = cluster.run([*exec_, "printenv", "SLURMD_NODENAME"], env=around)
    assert (done.stdout, done.returncode) == ("n2\n", 0)
    done = ce(cluster, "exec", "-w", "n3", job, "--", "true")
    assert done.returncode == 125
    assert "does not run on n3" in done.stderr


@pytest.fixture
def heterogeneous(cluster: Cluster, demo: str, shared: Path) -> Iterator[str]:
    """Yield the id of a job of two components; a step runs in each, and then one in both."""
    step = f"srun --overlap --environment={demo} --het-group"
    script = cluster.write(
        "#!/bin/sh\n#SBATCH -N1 -n1 -w n1\n#SBATCH hetjob\n#SBATCH -N1 -n1 -w n2\n"
        f"{step}=0 --container-name=first sleep 99 &\n"
        f"{step}=1 --container-name=second sleep 99 &\n"
        f"{step}=0,1 sleep 99 &\nwait\n"
    )
    done = cluster.run(["sbatch", "--parsable", f"--output={shared}/out", str(script)])
    try:
        until("four parts of steps", lambda: len(_steps(cluster)) == 4, 60)
        yield done.stdout.strip()
    finally:
        cluster.run(["scancel", done.stdout.strip()])


def _steps(cluster: Cluster) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(ce(cluster, "ps", "--json").stdout)["steps"]
    return found


def test_steps_of_a_heterogeneous_job_are_reached_in_each_component(
    cluster: Cluster, heterogeneous: str, shared: Path
) -> None:
    steps = {step["container"]: step for step in _steps(cluster)}
    assert steps["second"]["nodes"] == "n2"
    both = [step["id"] for step in _steps(cluster) if step["container"] == ""]
    assert both[0].startswith(f"{heterogeneous}.")
    where = ["printenv", "SLURMD_NODENAME"]
    for words, node in (
        (["first"], "n1"),
        (["second"], "n2"),
        ([steps["second"]["id"]], "n2"),
        ([both[0]], "n1"),
        (["-w", "n2", both[0]], "n2"),
    ):
        done = ce(cluster, "exec", *words, "--", *where)
        assert (done.stdout, done.returncode) == (f"{node}\n", 0), (words, done.stderr)
    job = steps["second"]["id"].partition(".")[0]
    for number, name in enumerate(("second", steps["second"]["id"], f"{job}.second")):
        done = ce(cluster, "save", name, str(shared / f"{number}.sqsh"))
        assert (done.returncode, (shared / f"{number}.sqsh").is_file()) == (0, True), done.stderr


def test_the_report_of_a_heterogeneous_job_is_about_the_nodes_of_all_components(
    cluster: Cluster, heterogeneous: str, shared: Path
) -> None:
    for job in (heterogeneous, f"{heterogeneous}+1", f"{heterogeneous}.0+1"):
        done = ce(cluster, "report", "-o", str(shared / job), job)
        assert done.returncode == 0, done.stderr
        assert "not in the report: doctor" not in done.stdout
        text = (shared / job).read_text()
        doctor = text.partition("==== doctor on the nodes of the job ====")[2]
        asked = {line.removesuffix(":") for line in doctor.splitlines() if line.startswith("n")}
        assert set(",".join(asked).split(",")) == {"n1", "n2"}, doctor
        assert "no answer" not in doctor
        assert f"step {heterogeneous}." in text.partition("==== traces ====")[2]


def test_exec_sees_what_only_the_container_has(cluster: Cluster, running: str) -> None:
    done = ce(cluster, "exec", running, "--", "cat", "/etc/os-release")
    assert "Container Engine demo" in done.stdout
    done = ce(cluster, "exec", running, "--", "no-such-command")
    assert done.returncode == 127


def test_exec_of_a_tool_that_only_the_node_has_is_answered_with_a_command_to_copy(
    cluster: Cluster, running: str
) -> None:
    done = ce(cluster, "exec", running, "--", "htop", "-d", "9")
    assert done.returncode == 127
    job = running.partition(".")[0]
    assert f"srun --overlap --jobid={job} htop -d 9\n" in done.stderr


def test_exec_of_a_step_that_does_not_run_is_refused_in_one_line(cluster: Cluster) -> None:
    done = ce(cluster, "exec", "999999.0", "--", "true")
    assert done.returncode == 125
    assert done.stderr.startswith("ce: error: 999999.0: no such step runs\n")


def test_nobody_gets_into_the_container_of_somebody_else(cluster: Cluster, running: str) -> None:
    done = ce(cluster, "exec", running, "--", "true", user=BOB)
    assert done.returncode == 125
    here = ("exec", "--here", "--node=n1", running, "--", "true")
    done = ce(cluster, *here, user=BOB)
    assert done.returncode == 125
    assert "no task of step" in done.stderr


def test_what_exec_started_ends_with_the_step(cluster: Cluster, running: str) -> None:
    job = running.partition(".")[0]
    words = shlex.join(["sh", "-c", "echo in; sleep 1000"])
    argv = f"exec {cluster.prefix}/bin/ce exec {running} -- {words}"
    with started(cluster, "sh", "-c", argv) as inside:
        assert inside.wait_for_lines(1) == ["in"]
        cluster.run(["scancel", job])
        assert inside.wait().returncode != 0

"""Many tasks, many steps, and the ways in which a job gets its allocation."""

import platform
import shlex
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, Completed, as_if_at_once, causes
from tests.slurm.job import batch, job_id, started

pytestmark = pytest.mark.usefixtures("tidy")

_HOST = platform.freedesktop_os_release()["ID"]
_WHO = ". /etc/os-release; echo $ID"
# Keeps only what Slurm's programs need.
_CLEAN = "env -i PATH=$PATH SLURM_CONF=$SLURM_CONF"


def _batch(cluster: Cluster, shared: Path, script: str, *options: str) -> Completed:
    """Run a batch job; return its end, with its own stdout and stderr."""
    file = cluster.write(f"#!/bin/bash\n{script}", mode=0o755)
    outputs = [f"--output={shared}/out", f"--error={shared}/err"]
    done = batch(cluster, *outputs, *options, str(file))
    assert done.returncode == 0, done.stderr + (shared / "err").read_text()
    done.stdout = (shared / "out").read_text()
    done.stderr = as_if_at_once((shared / "err").read_text())
    return done


def test_64_tasks_on_a_node_share_one_container(cluster: Cluster, demo: str) -> None:
    script = "echo $SLURM_PROCID $(readlink /proc/self/ns/mnt)"
    done = cluster.srun("-N1", "-n64", f"--environment={demo}", "sh", "-c", script)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert sorted(int(rank) for rank, _ in lines) == list(range(64))
    assert len({namespace for _, namespace in lines}) == 1


def test_20_steps_at_once_each_in_the_environment_it_asked_for(cluster: Cluster, demo: str) -> None:
    busybox = cluster.edf(image="busybox")
    steps = "".join(
        f"srun --overlap -N1 -n1 -w n{number % 2 + 1}"
        f" --environment={busybox if number % 4 == 0 else demo}"
        f" sh -c '. /etc/os-release; echo {number} $ID' & pids+=($!)\n"
        for number in range(20)
    )
    wait = 'code=0; for pid in "${pids[@]}"; do wait $pid || code=1; done; exit $code'
    done = cluster.run(["salloc", "-Q", "-N2", "bash", "-c", f"{steps}{wait}"], timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == sorted(
        f"{number} ce-{'busybox' if number % 4 == 0 else 'demo'}" for number in range(20)
    )


def test_a_batch_script_runs_steps_in_three_environments_that_know_their_nodes(
    cluster: Cluster, demo: str, shared: Path
) -> None:
    busybox = cluster.edf(image="busybox")
    words = "third ${SLURMD_NODENAME} ${SLURM_NODEID} ${SLURM_STEP_ID} ${SLURM_PROCID:-each}"
    other = cluster.edf(f'[env]\nWHICH = "{words}"\n')
    script = f"""
srun --environment={demo} sh -c '. /etc/os-release; echo $ID'
srun --environment={busybox} sh -c '. /etc/os-release; echo $ID'
srun --environment={other} sh -c '. /etc/os-release; echo $ID $WHICH'
"""
    done = _batch(cluster, shared, script, "-N2")
    lines = done.stdout.splitlines()
    assert lines[:4] == [*["ce-demo"] * 2, *["ce-busybox"] * 2]
    assert sorted(lines[4:]) == ["ce-demo third n1 0 2 each", "ce-demo third n2 1 2 each"]
    assert done.stderr == ""


def test_a_step_of_one_task_runs_on_one_of_two_nodes(cluster: Cluster, demo: str) -> None:
    step = shlex.join(["srun", "-N1", "-n1", f"--environment={demo}", "sh", "-c", _WHO])
    done = cluster.run(["salloc", "-Q", "-N2", "sh", "-c", step])
    assert (done.stdout, done.stderr) == ("ce-demo\n", "")


def test_a_step_may_overlap_another_one(cluster: Cluster, shared: Path, mounted: str) -> None:
    step = ["srun", "--overlap", f"--environment={mounted}", "sh", "-c"]
    first = f"touch {shared}/up; until [ -e {shared}/seen ]; do sleep 0.1; done; echo first"
    second = f"until [ -e {shared}/up ]; do sleep 0.1; done; echo second; touch {shared}/seen"
    both = f"{shlex.join([*step, first])} & {shlex.join([*step, second])}; wait"
    done = cluster.run(["salloc", "-Q", "-N1", "sh", "-c", both])
    # Each waits for the other; the order in which their sruns pass on output is undefined.
    assert (sorted(done.stdout.split()), done.stderr) == (["first", "second"], "")


def test_a_step_from_outside_a_job_has_an_environment_of_its_own(
    cluster: Cluster, demo: str
) -> None:
    busybox = cluster.edf(image="busybox")
    with started(cluster, "srun", f"--environment={demo}", "sh", "-c", "echo up; cat") as job:
        job.wait_for_lines(1)
        step = ["--overlap", f"--jobid={job_id(cluster)}", "sh", "-c", _WHO]
        assert cluster.srun(f"--environment={busybox}", *step).stdout == "ce-busybox\n"
        native = cluster.srun(*step)
        job.close_input()
        assert job.wait().returncode == 0
    assert native.stdout == cluster.srun("sh", "-c", _WHO).stdout


def test_jobs_of_an_array_have_the_environments_they_ask_for(
    cluster: Cluster, demo: str, shared: Path
) -> None:
    busybox = cluster.edf(image="busybox")
    script = f"""
environments=({demo} {busybox})
srun --environment=${{environments[$SLURM_ARRAY_TASK_ID % 2]}} sh -c '{_WHO}' \
    > {shared}/$SLURM_ARRAY_TASK_ID
"""
    _batch(cluster, shared, script, "--array=0-3")
    images = [(shared / str(number)).read_text().strip() for number in range(4)]
    assert images == ["ce-demo", "ce-busybox"] * 2


def test_steps_of_a_batch_job_inherit_its_environment_and_the_script_stays_on_the_host(
    cluster: Cluster, demo: str, shared: Path
) -> None:
    host = cluster.srun("sh", "-c", _WHO).stdout
    step = f"sh -c {shlex.quote(_WHO)}"
    script = f"{_WHO}\nsrun {step}\n{_CLEAN} srun --jobid=$SLURM_JOB_ID {step}\n"
    done = _batch(cluster, shared, script, "-N2", f"--environment={demo}")
    # Without options the second step, too, has one task on each node.
    assert (done.stdout, done.stderr) == (host + "ce-demo\n" * 4, "")


def test_steps_of_salloc_inherit_its_environment_and_the_command_stays_on_the_host(
    cluster: Cluster, demo: str
) -> None:
    host = cluster.srun("sh", "-c", _WHO).stdout
    script = f"{_WHO}; srun sh -c {shlex.quote(_WHO)}"
    done = cluster.run(["salloc", "-Q", f"--environment={demo}", "sh", "-c", script])
    assert (done.stdout, done.stderr) == (f"{host}ce-demo\n", "")


def test_what_is_started_in_a_job_is_in_its_environment_although_nothing_says_so_any_more(
    cluster: Cluster, demo: str
) -> None:
    who = f"sh -c {shlex.quote(_WHO)}"
    # Both the srun and the salloc start a new job.
    script = f"{_CLEAN} srun {who}; {_CLEAN} salloc -Q srun {who}; :"
    done = cluster.run(["salloc", "-Q", f"--environment={demo}", "bash", "-c", script])
    assert (done.returncode, done.stdout) == (0, "ce-demo\n" * 2), done.stderr


def test_a_job_that_was_sent_to_the_host_stays_there_although_nothing_says_so_any_more(
    cluster: Cluster, demo: str
) -> None:
    host = cluster.edf('image = ""\n', image=None)
    inner = f"{_CLEAN} srun --jobid=$SLURM_JOB_ID sh -c {shlex.quote(_WHO)}; :"
    outer = shlex.join(["salloc", "-Q", f"--environment={host}", "bash", "-c", inner])
    done = cluster.run(["salloc", "-Q", f"--environment={demo}", "bash", "-c", outer])
    assert (done.returncode, done.stdout) == (0, f"{_HOST}\n"), done.stderr


def test_a_step_may_ask_for_another_environment_than_its_job(cluster: Cluster, demo: str) -> None:
    busybox = cluster.edf(image="busybox")
    step = shlex.join(["srun", f"--environment={busybox}", "sh", "-c", _WHO])
    done = cluster.run(["salloc", "-Q", f"--environment={demo}", "sh", "-c", step])
    assert (done.stdout, done.stderr) == ("ce-busybox\n", "")


def test_components_of_a_heterogeneous_step_run_in_one_environment(
    cluster: Cluster, demo: str
) -> None:
    step = ["-N1", "-n1", f"--environment={demo}", "sh", "-c", f"{_WHO} $SLURM_PROCID"]
    both = shlex.join(["srun", *step, ":", *step])
    done = cluster.run(["salloc", "-Q", "-N2", "-n2", "sh", "-c", both])
    assert (sorted(done.stdout.splitlines()), done.stderr) == (["ce-demo 0", "ce-demo 1"], "")


@pytest.mark.parametrize(
    "words",
    [
        "salloc -Q -N2 -n2 srun -N1 -n1 {task} : -N1 -n1 {task}",
        "salloc -Q -N1 -n1 : -N1 -n1 srun --het-group=0,1 {task}",
        "srun -N2 -n2 {task}",
    ],
    ids=["step", "job", "neither"],
)
def test_an_environment_knows_the_node_of_each_component(cluster: Cluster, words: str) -> None:
    edf = cluster.edf('[env]\nHERE = "${SLURMD_NODENAME} ${SLURM_NODEID}"\n')
    show = 'echo "$SLURMD_NODENAME: $HERE"; test "$HERE" = "$SLURMD_NODENAME $SLURM_NODEID"'
    task = shlex.join([f"--environment={edf}", "sh", "-c", show])
    done = cluster.run(["sh", "-c", words.format(task=task)])
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert sorted(done.stdout.splitlines()) == ["n1: n1 0", "n2: n2 1"]


@pytest.mark.parametrize("program", ["srun", "salloc", "sbatch"])
def test_components_that_ask_for_two_environments_are_refused_in_one_line(
    cluster: Cluster, demo: str, program: str
) -> None:
    script = str(cluster.write("#!/bin/sh\n", mode=0o755))
    other = cluster.edf(image="busybox")
    first = [program, f"--environment={demo}", *([script] if program == "srun" else [])]
    done = cluster.run([*first, ":", f"--environment={other}", script])
    assert done.returncode == 125
    assert len(causes(done)) == 1
    assert f"'{demo}' for one component and '{other}' for another" in done.stderr


@pytest.mark.parametrize("first", [True, False])
def test_a_component_that_asks_for_none_is_refused(
    cluster: Cluster, demo: str, first: bool
) -> None:
    components = [["-n1", f"--environment={demo}", "true"], ["-n1", "true"]]
    one, other = components if first else reversed(components)
    done = cluster.run(["srun", *one, ":", *other])
    assert done.returncode == 125
    assert len(causes(done)) == 1
    assert f"'{demo}' for one component and none for another" in done.stderr


def test_the_environment_of_a_heterogeneous_script_is_that_above_its_components(
    cluster: Cluster, demo: str, shared: Path
) -> None:
    busybox = cluster.edf(image="busybox")
    script = cluster.write(
        "#!/bin/sh\n"
        f"#SBATCH -N1 -n1 --environment={demo}\n"
        "#SBATCH hetjob\n"
        "#SBATCH -N1 -n1\n"
        f"srun --het-group=0,1 sh -c {shlex.quote(_WHO)}\n"
        f"srun --het-group=1 --environment={busybox} sh -c {shlex.quote(_WHO)}\n",
        mode=0o755,
    )
    output = shared / "out"
    done = cluster.run(["sbatch", "-W", f"--output={output}", str(script)])
    assert done.returncode == 0, done.stderr
    assert output.read_text() == "ce-demo\nce-demo\nce-busybox\n"


def test_edf_is_another_name_of_the_option(cluster: Cluster, demo: str) -> None:
    done = cluster.srun(f"--edf={demo}", "sh", "-c", _WHO)
    assert (done.stdout, done.stderr) == ("ce-demo\n", "")


def test_an_environment_of_the_users_is_found_by_its_name(cluster: Cluster) -> None:
    directory = cluster.scratch / "edfs"
    directory.mkdir(exist_ok=True)
    cluster.edf(image="busybox", name="edfs/mine")
    done = cluster.srun("--environment=mine", "sh", "-c", _WHO, env={"EDF_PATH": str(directory)})
    assert (done.stdout, done.stderr) == ("ce-busybox\n", "")


def test_a_step_without_the_option_is_as_if_there_were_no_engine(cluster: Cluster) -> None:
    script = "readlink /proc/self/ns/mnt /proc/self/ns/user; pwd; env | grep -c SLURM_CE_"
    done = cluster.srun("-w", "n1", "sh", "-c", script)
    here = [Path(f"/proc/self/ns/{name}").readlink() for name in ("mnt", "user")]
    expected = [*map(str, here), str(cluster.home()), "0"]
    assert (done.stdout.splitlines(), done.stderr) == (
        expected,
        "srun: error: n1: task 0: Exited with exit code 1\n",
    )


def test_an_environment_without_an_image_leaves_the_step_on_the_host(cluster: Cluster) -> None:
    host = cluster.srun("sh", "-c", _WHO).stdout
    edf = cluster.edf('image = ""\n', image=None)
    done = cluster.srun(f"--environment={edf}", "sh", "-c", _WHO)
    assert done.stdout == host
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("ce: ")


# ---- the notice of where a script runs ---------------------------------------------------------


def test_sbatch_and_salloc_tell_where_the_script_runs(cluster: Cluster, demo: str) -> None:
    file = cluster.write("#!/bin/sh\nsrun true\n", mode=0o755)
    asked = [f"--environment={demo}", "-N1"]
    told = f"runs on the host; each srun in it runs in '{demo}'\n"
    done = cluster.run(["sbatch", "--parsable", "-o", "/dev/null", *asked, str(file)])
    assert (done.returncode, done.stderr) == (0, f"sbatch: the batch script {told}")
    done = cluster.run(["salloc", *asked, "true"])
    assert f"salloc: the shell {told}" in done.stderr
    done = cluster.run(["salloc", "-Q", *asked, "true"])
    assert done.stderr == ""


def test_a_script_without_srun_says_that_it_runs_on_the_host(
    cluster: Cluster, shared: Path, demo: str
) -> None:
    script = f"#SBATCH --environment={demo}\n{_WHO}\n"
    done = _batch(cluster, shared, script)
    assert done.stdout == f"{_HOST}\n"
    line, last = done.stderr.splitlines()
    assert line.startswith("ce: warning: ")
    assert "this script has no srun of its own: what is not started through srun" in line
    assert f"runs on the host, not in '{demo}'" in line
    assert "write srun before" in line
    assert last.startswith("ce: warning: ")
    assert f"no srun of this job used '{demo}': all of it ran on the host" in last
    done = _batch(cluster, shared, f"{script}srun true\n")
    assert done.stderr == ""


def test_a_job_whose_sruns_were_never_reached_says_so_at_its_end(
    cluster: Cluster, shared: Path, demo: str
) -> None:
    head = f"#SBATCH --environment={demo}\necho first >&2\n"
    done = _batch(cluster, shared, f"{head}if false; then srun true; fi\necho last >&2\n")
    first, last, warning = done.stderr.splitlines()
    assert (first, last) == ("first", "last")
    assert f"no srun of this job used '{demo}': all of it ran on the host" in warning
    inner = cluster.write("#!/bin/sh\nsrun true\n", mode=0o755)
    for script in (f": srun; {inner}\n", "srun -N2 true\n", "env -u HOME HOME=/ srun true\n"):
        assert _batch(cluster, shared, f"{head}{script}", "-N2").stderr == "first\n"
    # a tool that calls srun, which the script's text does not show
    warning, first = _batch(cluster, shared, f"{head}{inner}\n", "-N2").stderr.splitlines()
    assert (first, "all of it" in warning) == ("first", False)
    assert "also by a tool that it calls, runs on the host" in warning


def test_a_job_whose_environment_is_the_host_warns_of_nothing(
    cluster: Cluster, shared: Path
) -> None:
    edf = cluster.edf('image = ""\n', image=None)
    assert _batch(cluster, shared, f"#SBATCH --environment={edf}\nenv\n").stderr == ""

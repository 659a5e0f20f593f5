"""The working directory of tasks: the EDF's workdir, else the image's, else /."""

import os
import shutil

import pytest

from tests.slurm.cluster import Cluster, causes

pytestmark = pytest.mark.usefixtures("tidy")


def _cwd(cluster: Cluster, edf: str, *options: str) -> str:
    done = cluster.srun(*options, f"--environment={edf}", "pwd")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_a_workdir_tasks_start_in_the_root_directory(cluster: Cluster, demo: str) -> None:
    assert _cwd(cluster, demo) == "/\n"


def test_where_slurm_starts_is_not_where_the_task_is(cluster: Cluster, demo: str) -> None:
    done = cluster.srun("--chdir=/usr", f"--environment={demo}", "pwd")
    assert (done.returncode, done.stdout) == (0, "/\n")
    assert "--chdir is for the host: the task starts in '/', the environment's" in done.stderr


def test_tasks_start_in_the_workdir_of_the_edf(cluster: Cluster) -> None:
    assert _cwd(cluster, cluster.edf('workdir = "/usr/bin"\n'), "-n2") == "/usr/bin\n" * 2


def test_the_workdir_may_be_a_mount(cluster: Cluster) -> None:
    edf = cluster.edf(f'mounts = ["{cluster.scratch}:/data"]\nworkdir = "/data"\n')
    assert _cwd(cluster, edf) == "/data\n"


def test_the_workdir_may_name_the_directory_of_the_call(cluster: Cluster) -> None:
    home = cluster.home()
    edf = cluster.edf(f'mounts = ["{home}:{home}"]\nworkdir = "${{PWD}}"\n')
    done = cluster.srun(f"--environment={edf}", "pwd", env={"PWD": str(home)})
    assert (done.stdout, done.stderr) == (f"{home}\n", "")


def test_a_script_that_is_on_the_host_only_is_reported_once(cluster: Cluster, demo: str) -> None:
    work = cluster.home() / "work"
    work.mkdir()
    (work / "train.py").write_text("print('runs')\n")
    os.chown(work, work.parent.stat().st_uid, work.parent.stat().st_gid)
    words = ("-N2", "-n4", f"--chdir={work}")
    try:
        done = cluster.srun(*words, f"--environment={demo}", "python3", "train.py")
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("ce: ")]
        assert f"'train.py' is in '{work}' on the host, but not in '/'," in line
        assert 'write mounts = ["${PWD}"] and workdir = "${PWD}" into the environment' in line
        edf = cluster.edf('mounts = ["${PWD}"]\nworkdir = "${PWD}"\n')
        srun = ("srun", *words, f"--environment={edf}", "python3", "train.py")
        done = cluster.run(["sh", "-c", 'cd "$0" && exec "$@"', str(work), *srun])
        assert (done.stdout, done.stderr) == ("runs\n" * 4, "")
    finally:
        shutil.rmtree(work)


def test_a_relative_command_is_looked_for_in_the_workdir(cluster: Cluster) -> None:
    edf = cluster.edf('workdir = "/usr/bin"\n')
    done = cluster.srun(f"--environment={edf}", "./printenv", "SLURM_PROCID")
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_a_workdir_that_does_not_exist_is_an_error_that_names_it(cluster: Cluster) -> None:
    edf = cluster.edf('workdir = "/no/such/dir"\n')
    done = cluster.srun("-n2", f"--environment={edf}", "pwd")
    assert (done.returncode, done.stdout) == (125, "")
    assert len(causes(done)) == 1
    assert "'/no/such/dir'" in causes(done)[0]
    assert "No such file or directory" in causes(done)[0]

"""Programs that hooks run beside the tasks: nvidia_cuda_mps, a site's own, and dcgm."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.slurm import procfs
from tests.slurm.cluster import ALICE, BOB, ROOT, Cluster, causes
from tests.slurm.error_block import ErrorBlock
from tests.slurm.job import started
from tests.slurm.polling import until
from tests.slurm.site import Site

pytestmark = pytest.mark.usefixtures("tidy")
STAND_IN = ROOT / "tests/slurm/nvidia-cuda-mps-control"
MPS = '[annotations]\ncom.hooks.nvidia_cuda_mps.enabled = "true"\n'


def running(word: str) -> list[procfs.Process]:
    return [p for p in procfs.processes() if p.lives and word in p.command]


def pids(word: str) -> list[int]:
    return [process.pid for process in running(word)]


# ---- com.hooks.nvidia_cuda_mps ---------------------------------------------------------------


@pytest.fixture
def mps(site: Site) -> Site:
    """Return a site whose nodes have a stand-in for MPS; daemons write to `told` at their end."""
    program = site.programs / "nvidia-cuda-mps-control"
    program.write_bytes(STAND_IN.read_bytes())
    program.chmod(0o755)
    site.hook("nvidia_cuda_mps", f'settings.program = "{program}"\n', whole=False)
    return site


def mps_edf(site: Site, more: str = "") -> str:
    return site.edf(f'{more}env.MPS_TOLD = "{site.shared}/told"\n{MPS}')


def told(site: Site) -> list[str]:
    file = site.shared / "told"
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.parametrize("writable", ["true", "false"])
def test_mps_is_there_before_the_tasks_and_told_to_quit_after_them(
    cluster: Cluster, mps: Site, writable: str
) -> None:
    edf = mps_edf(mps, f"writable = {writable}\n")
    script = "echo $(ls $CUDA_MPS_PIPE_DIRECTORY; cat $CUDA_MPS_LOG_DIRECTORY/control.log)"
    done = cluster.srun("-n2", f"--environment={edf}", "sh", "-c", script)
    assert (done.stdout, done.stderr) == ("control started\n" * 2, "")
    said = until("the daemon to have quit", lambda: told(mps))
    assert said == [f"quit /opt/oci-hooks/nvidia_cuda_mps/pipe {ALICE}"]


def test_the_mps_daemons_of_two_users_on_one_node_do_not_meet(cluster: Cluster, mps: Site) -> None:
    (mps.shared / "told").touch()
    (mps.shared / "told").chmod(0o666)
    argv = ["srun", "-w", "n1", f"--environment={mps_edf(mps)}", "sh", "-c", "echo up; sleep 100"]
    with started(cluster, *argv) as mine, started(cluster, *argv, user=BOB) as theirs:
        mine.wait_for_lines(1)
        theirs.wait_for_lines(1)
        assert len({process.uid for process in running("mps-control -d")}) == 2
    until("both to have quit", lambda: len(told(mps)) == 2)
    assert {line.split()[2] for line in told(mps)} == {ALICE, BOB}


def test_a_daemon_that_serves_the_users_own_directory_is_used_and_left_alone(
    cluster: Cluster, mps: Site
) -> None:
    pipe = mps.shared / "pipe"
    pipe.mkdir()
    pipe.chmod(0o777)
    edf = mps_edf(mps, f'env.CUDA_MPS_PIPE_DIRECTORY = "{pipe}"\n')
    argv = ["-w", "n1", f"--environment={edf}", "sh", "-c"]
    with started(cluster, "srun", *argv, "echo up; sleep 100") as job:
        job.wait_for_lines(1)
        (daemon,) = pids("mps-control -d")
        done = cluster.srun(*argv, "ls $CUDA_MPS_PIPE_DIRECTORY")
        assert (done.returncode, done.stdout, done.stderr) == (0, "control\n", "")
        assert pids("mps-control -d") == [daemon]
        assert told(mps) == []
    until("the daemon's end", lambda: not pids("mps-control"))


def test_mps_that_does_not_start_fails_the_step_with_what_it_printed(
    cluster: Cluster, mps: Site
) -> None:
    edf = mps_edf(mps, "env.MPS_FAILS = '1'\n")
    done = cluster.srun(f"--environment={edf}", "true")
    words = (
        "hook nvidia_cuda_mps: service 'control' did not start: exit code 1",
        "it printed: MPS is not supported on this device",
    )
    ErrorBlock(done, "hook-service", *words)


def test_a_node_without_mps_says_what_is_missing(cluster: Cluster, site: Site) -> None:
    done = cluster.srun(f"--environment={site.edf(MPS)}", "true")
    assert done.returncode == 125
    missing = "'/usr/bin/nvidia-cuda-mps-control' does not exist on this node"
    assert missing in causes(done)[0]


def test_without_the_hook_nothing_points_to_mps(cluster: Cluster, mps: Site) -> None:
    done = cluster.srun(f"--environment={mps.edf()}", "printenv", "CUDA_MPS_PIPE_DIRECTORY")
    assert (done.stdout, done.returncode) == ("", 1)


def test_mps_ends_with_a_killed_slurmstepd(cluster: Cluster, mps: Site) -> None:
    argv = ["srun", f"--environment={mps_edf(mps)}", "sh", "-c", "echo up; sleep 100"]
    with started(cluster, *argv) as job:
        job.wait_for_lines(1)
        for pid in pids("slurmstepd: "):
            os.kill(pid, signal.SIGKILL)
        until("the daemon's end", lambda: not pids("mps-control"))
        assert len(told(mps)) == 1


def test_mps_ends_with_ce_run(cluster: Cluster, mps: Site) -> None:
    ce = str(cluster.prefix / "bin/ce")
    done = cluster.run([ce, "run", mps_edf(mps), "--", "sh", "-c", "wait; echo ended"])
    assert (done.stdout, done.returncode) == ("ended\n", 0)
    until("it to have quit", lambda: told(mps))


# ---- a service of the site's -----------------------------------------------------------------


def test_a_service_that_is_never_ready_fails_the_step_in_time(cluster: Cluster, site: Site) -> None:
    site.configure("start_timeout_s = 5\n")
    service = '[services.daemon]\ncommand = ["/bin/sh", "-c", "echo waiting; sleep 1000"]\n'
    site.hook("h", f'{service}ready = "/never"\n')
    done = cluster.srun(
        f"--environment={site.edf('annotations.com.hooks.h.enabled = true')}", "true"
    )
    assert done.returncode == 125
    said = "hook h: service 'daemon' did not start: not ready within 5 s; it printed: waiting"
    assert said in causes(done)[0]


def test_nothing_that_a_service_has_started_survives(cluster: Cluster, site: Site) -> None:
    daemon = "setsid sh -c 'setsid sleep 7654 & setsid sleep 7654' >/dev/null 2>&1 &"
    site.hook("h", f'[services.d]\ncommand = ["/bin/sh", "-c", "{daemon}"]\n')
    edf = site.edf("annotations.com.hooks.h.enabled = true")
    argv = ["srun", f"--environment={edf}", "sh", "-c", "echo up; sleep 100"]
    with started(cluster, *argv) as job:
        job.wait_for_lines(1)
        until("the daemons", lambda: len(pids("sleep 7654")) >= 2)
        cluster.cancel_all(ALICE)
        until("their end", lambda: not pids("sleep 7654"))


def test_startup_steps_can_use_a_service(cluster: Cluster, mps: Site) -> None:
    edf = mps_edf(mps, 'startup = ["ls $$CUDA_MPS_PIPE_DIRECTORY >/tmp/seen"]\n')
    assert cluster.srun(f"--environment={edf}", "cat", "/tmp/seen").stdout == "control\n"


# ---- com.hooks.dcgm --------------------------------------------------------------------------

DCGM = '[annotations]\ncom.hooks.dcgm.enabled = "true"\n'


@pytest.fixture
def dcgm(site: Site) -> Site:
    """Return a site whose nodes have libraries with the names of DCGM's."""
    place, own = site.programs / "lib", site.programs / "dcgm"
    place.mkdir()
    own.mkdir()
    (own / "conf").write_text("of the node\n")
    _library(place / "libdcgm.so.4", "libdcgm.so.4")
    _library(place / "libnvperf_dcgm_host.so", "libnvperf_dcgm_host.so")
    settings = f'[settings]\nlibraries = "{place}"\ndirectory = "{own}"\n'
    site.hook("dcgm", settings, whole=False)
    return site


def _library(path: Path, soname: str) -> None:
    argv = ["gcc", "-shared", f"-Wl,-soname,{soname}", "-o", str(path), "-x", "c", "-"]
    subprocess.run(argv, input="int version(void) { return 4; }\n", text=True, check=True)


@pytest.mark.parametrize("writable", ["true", "false"])
def test_dcgms_libraries_are_found_by_the_loader(
    cluster: Cluster, dcgm: Site, writable: str
) -> None:
    names = "'libdcgm.so.4', 'libnvperf_dcgm_host.so'"
    script = f"import ctypes; print([ctypes.CDLL(n).version() for n in ({names})])"
    edf = dcgm.edf(f"writable = {writable}\n{DCGM}")
    done = cluster.srun(f"--environment={edf}", "python3", "-c", script)
    assert (done.stdout, done.stderr) == ("[4, 4]\n", "")


def test_dcgms_directory_is_there_and_cannot_be_written(cluster: Cluster, dcgm: Site) -> None:
    own = dcgm.programs / "dcgm"
    own.chmod(0o777)
    script = f"cat {own}/conf; touch {own}/new"
    done = cluster.srun(f"--environment={dcgm.edf(DCGM)}", "sh", "-c", script)
    assert done.stdout == "of the node\n"
    assert "Read-only file system" in done.stderr


def test_a_node_without_dcgm_says_what_is_missing(cluster: Cluster, site: Site) -> None:
    site.hook("dcgm", f'settings.libraries = "{site.programs}"\n', whole=False)
    done = cluster.srun(f"--environment={site.edf(DCGM)}", "true")
    assert done.returncode == 125
    assert "libdcgm" in causes(done)[0]


def test_without_the_hook_there_is_no_dcgm(cluster: Cluster, dcgm: Site) -> None:
    done = cluster.srun(f"--environment={dcgm.edf()}", "ls", str(dcgm.programs / "dcgm"))
    assert done.returncode == 2

"""Steps whose users are root in their containers, where they install packages."""

from pathlib import Path

import pytest

from tests.slurm.cluster import BOB, Cluster
from tests.slurm.error_block import differing
from tests.slurm.job import started
from tests.slurm.polling import until
from tests.slurm.slurm_configurations import line_of, plugins_on
from tests.slurm.terminal import terminal

pytestmark = pytest.mark.usefixtures("tidy")

_LOOK = "chown 1234:77 /tmp/. && setpriv --reuid=77 --clear-groups stat -c %u:%g /tmp/."


def options(cluster: Cluster) -> list[str]:
    image = f"--container-image={cluster.image('debian')}"
    return [image, "--container-remap-root", "--container-writable"]


def test_packages_are_installed_at_a_terminal_and_by_ce_exec(cluster: Cluster) -> None:
    with terminal(cluster, "srun", "--pty", *options(cluster), "bash", "--norc") as screen:
        screen.type("PS1='ready''> '; export DEBIAN_FRONTEND=noninteractive\r")
        screen.wait_for("ready> ")
        screen.type("apt-get update && apt-get install -y openssh-client; echo install''ed $?\r")
        screen.wait_for("installed 0", 120)
        screen.type("su - -c 'command -v ssh; id -un'; echo step''=$SLURM_JOB_ID.$SLURM_STEP_ID\r")
        screen.wait_for(r"/usr/bin/ssh\s+root\s")
        step = screen.wait_for(r"step=[\d.]+").partition("=")[2]
        ce = str(cluster.prefix / "bin/ce")
        until("the step in ce ps", lambda: step in cluster.run([ce, "ps"]).stdout)
        script = "apt-get install -y iputils-ping >/dev/null && dpkg -s iputils-ping | grep ^Status"
        done = cluster.run([ce, "exec", step, "--", "sh", "-c", script])
        assert done.stdout == "Status: install ok installed\n", done.stderr
        screen.type("command -v ping; exit 7\r")
        screen.wait_for("/bin/ping")
        assert screen.wait() == 7


def test_every_task_of_a_step_is_root_in_its_way(cluster: Cluster, shared: Path) -> None:
    prolog = shared / "prolog"
    prolog.write_text("#!/bin/sh\n")
    prolog.chmod(0o755)
    programs = cluster.write(f"* sh -c '{_LOOK}'\n")
    common = ["srun", "-N2", "-n4", *options(cluster)]
    for words in (
        [*common, "sh", "-c", _LOOK],
        [*common, f"--task-prolog={prolog}", "sh", "-c", _LOOK],
        [*common, "--multi-prog", str(programs)],
    ):
        done = cluster.run(words)
        assert (done.returncode, done.stdout) == (0, "0:0\n" * 4), done.stderr


def test_it_works_where_tasks_may_gain_privileges(cluster: Cluster, shared: Path) -> None:
    line = f"{line_of(cluster)} prefix={cluster.prefix} no_new_privs=off\n"
    with differing("n2"), plugins_on(cluster, "n2", shared, line):
        script = f"{_LOOK}; grep NoNewPrivs /proc/self/status"
        done = cluster.run(["srun", "-w", "n2", *options(cluster), "sh", "-c", script])
    assert done.stdout.split() == ["0:0", "NoNewPrivs:", "0"], done.stderr


def test_a_user_who_is_root_inside_reaches_no_process_of_another_user(cluster: Cluster) -> None:
    with started(cluster, "srun", "-w", "n1", "sh", "-c", "echo $$; sleep 60", user=BOB) as job:
        pid = job.wait_for_lines(1)[0]
        script = (
            f"setpriv --reuid=1002 true; kill {pid}; cat /proc/{pid}/environ; "
            f"ls /proc/{pid}/root; nsenter -t {pid} -U true; echo tried"
        )
        done = cluster.run(["srun", "-w", "n1", *options(cluster), "sh", "-c", script])
    assert done.stdout == "tried\n"
    assert done.stderr.count("ermission denied") + done.stderr.count("not permitted") == 4

"""Containers that live with their job: later steps go on with them, or join them."""

import json
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.slurm.cluster import ALICE, BOB, Cluster, Completed, causes
from tests.slurm.error_block import ErrorBlock
from tests.slurm.polling import until

pytestmark = pytest.mark.usefixtures("tidy")

KEPT = Path("/tmp")


def job(cluster: Cluster, script: str, *words: str) -> Completed:
    """Run a script in an allocation; `set -e` lets the first failed step end it."""
    salloc = ("salloc", "--quiet", *(words or ("-N1",)))
    return cluster.run([*salloc, "sh", "-ec", script], timeout=120)


def assert_nothing_kept() -> None:
    until("the epilogs", lambda: not list(KEPT.glob("ce-kept-*/*")), 30)


def test_later_steps_go_on_with_what_earlier_ones_have_written(cluster: Cluster, demo: str) -> None:
    done = job(
        cluster,
        f"srun --environment={demo} --container-name=a sh -c "
        '"echo mine > /new; rm /etc/os-release; mkdir -m 700 /dir; echo x > /dir/f"\n'
        "srun --container-name=a sh -c 'cat /new /dir/f; ls /etc/os-release || rm -r /dir'\n"
        "srun --container-name=a sh -c 'ls -d /dir || echo no dir'\n"
        f"srun --environment={demo} sh -c 'ls /new || echo fresh'\n"
        f"srun --environment={demo} --container-name=b sh -c 'ls /new || echo another'\n",
        "-N2",
        "-n2",
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [lines.count(word) for word in ("mine", "x", "no dir", "fresh", "another")] == [2] * 5
    assert_nothing_kept()


def test_a_step_joins_one_that_runs_and_may_outlive_it(cluster: Cluster, shared: Path) -> None:
    edf = cluster.edf(f'mounts = ["{shared}"]\n')
    wait = "until [ -e {0} ]; do sleep 0.1; done"
    first = f"echo first > /file; touch {shared}/up; " + wait.format(f"{shared}/joined")
    # what is read after the first step's end comes from the second step's server alone
    second = (
        f"cat /file; touch {shared}/joined; " + wait.format(f"{shared}/over") + "; cat /file; "
        "find /usr -type f | xargs cat | wc -c"
    )
    done = job(
        cluster,
        f"srun -n1 --overlap --environment={edf} --container-name=c sh -c '{first}' &\n"
        f"{wait.format(f'{shared}/up')}\n"
        f"srun -n1 --overlap --container-name=c:exec sh -c '{second}' > {shared}/out & two=$!\n"
        f"wait %1; touch {shared}/over; wait $two; cat {shared}/out\n"
        f"srun -n1 --environment={edf} sh -c 'find /usr -type f | xargs cat | wc -c'\n",
    )
    assert done.returncode == 0, done.stderr
    *said, joined, fresh = done.stdout.splitlines()
    assert said == ["first", "first"]
    assert joined == fresh
    assert_nothing_kept()


def test_a_kept_container_may_mount_the_content_of_a_file(cluster: Cluster) -> None:
    edf = cluster.edf(f'mounts = ["{cluster.image("busybox")}:/opt/tools:sqsh"]\n')
    step = f"srun --environment={edf} --container-name=s"
    done = job(cluster, f"{step} touch /new\n{step} ls /opt/tools/bin/busybox /new\n")
    assert (done.returncode, done.stdout) == (0, "/new\n/opt/tools/bin/busybox\n"), done.stderr
    assert_nothing_kept()


def test_a_joining_step_is_warned_only_of_what_the_running_container_lacks(
    cluster: Cluster, shared: Path
) -> None:
    edf = cluster.edf(f'mounts = ["{shared}"]\nannotations.com.ce.root_remap = "true"\n')
    wait = "until [ -e {0} ]; do sleep 0.1; done"
    first = f"touch {shared}/up; {wait.format(f'{shared}/over')}"
    srun = "srun -n1 --overlap --container-name"
    done = job(
        cluster,
        f"{srun}=w --environment={edf} --container-mounts=/tmp:/t --container-writable"
        f" sh -c '{first}' &\n"
        f"{wait.format(f'{shared}/up')}\n"
        f"{srun}=w:exec true\n"
        f"{srun}=w --container-mounts=/tmp:/t,/tmp:/none sh -c 'ls -d /none || echo without'\n"
        f"touch {shared}/over; wait\n",
    )
    assert (done.returncode, done.stdout) == (0, "without\n"), done.stderr
    (warning,) = [line for line in done.stderr.splitlines() if line.startswith("ce:")]
    assert warning.partition(": ignoring ")[2] == (
        "--container-mounts (/none); it keeps what it was started with"
    )
    assert_nothing_kept()


def test_who_joins_has_what_start_up_lines_have_exported(cluster: Cluster, shared: Path) -> None:
    lines = ["echo x >> /ran", "export A=$$(cat /ran) OF_EDF=2", "unset GONE"]
    edf = cluster.edf(
        f'startup = {json.dumps(lines)}\nmounts = ["{shared}"]\n[env]\nOF_EDF = "1"\nGONE = "1"\n'
    )
    # an mpirun of MPICH works in each of them, as in any step of one node
    say = "echo $A $OF_EDF ${GONE-gone} $HYDRA_LAUNCHER $(cat /ran | wc -l)"
    step = f"srun -n1 --overlap --environment={edf} --container-name=j sh -c"
    wait = "until [ -e {0} ]; do sleep 0.1; done"
    first = f"{say}; touch {shared}/up; " + wait.format(f"{shared}/over")
    done = job(
        cluster,
        f"{step} '{first}' &\n{wait.format(f'{shared}/up')}\n"
        # the first one joins by Python, and what it has recorded is used by the others
        + f"{step} '{say}'\n" * 2
        + f"srun -n1 --overlap --container-name=j sh -c '{say}'\ntouch {shared}/over; wait\n"
        + f"{step} '{say}'\n",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["x 2 gone fork 1"] * 4 + ["x x 2 gone fork 2"]


def test_who_joins_has_the_ranks_of_its_own_step(cluster: Cluster, shared: Path) -> None:
    edf = cluster.edf(f'mounts = ["{shared}"]\n[annotations]\ncom.hooks.pytorch.enabled = "true"\n')
    say = "echo $WORLD_SIZE $RANK $LOCAL_RANK $MASTER_ADDR $(($MASTER_PORT % 16))"
    wait = "until [ -e {0} ]; do sleep 0.1; done"
    step = f"--overlap --environment={edf} --container-name=p sh -c"
    first = f"touch {shared}/up; " + wait.format(f"{shared}/over")
    done = job(
        cluster,
        f"srun -N1 -n1 {step} '{first}' &\n{wait.format(f'{shared}/up')}\n"
        # of two nodes, one has the container
        + f"srun -N2 -n4 {step} '{say}'\n" * 2
        + f"touch {shared}/over; wait\n",
        "-N2",
        "-n4",
    )
    assert done.returncode == 0, done.stderr
    for number in (1, 2):
        lines = done.stdout.splitlines()[4 * number - 4 : 4 * number]
        # the port ends in the number of the step
        assert sorted(lines) == [f"4 {rank} {rank % 2} n1 {number}" for rank in range(4)]


def test_who_joins_a_container_of_root_has_the_home_of_root(cluster: Cluster, shared: Path) -> None:
    wait = "until [ -e {0} ]; do sleep 0.1; done"
    first = f"touch {shared}/up; {wait.format(f'{shared}/over')}"
    srun = "srun -n1 --overlap --container-name=r"
    again = "sh -c 'echo \"$(id -u) $HOME\"'"
    edf = cluster.edf(f'mounts = ["{shared}"]\n')
    done = job(
        cluster,
        f"{srun} --environment={edf} --container-remap-root sh -c '{first}' &\n"
        f"{wait.format(f'{shared}/up')}\n"
        f"{srun} {again}\n{srun}:exec {again}\n{srun}:exec {again}\n"
        f"touch {shared}/over; wait\n",
    )
    assert (done.returncode, done.stdout) == (0, "0 /root\n" * 3), done.stderr
    assert_nothing_kept()


def test_a_running_container_is_entered_by_its_name(cluster: Cluster, shared: Path) -> None:
    edf = cluster.edf(f'mounts = ["{shared}"]\n')
    ce = cluster.prefix / "bin/ce"
    wait = "until [ -e {0} ]; do sleep 0.1; done"
    first = f"echo mine > /file; touch {shared}/up; {wait.format(f'{shared}/over')}"
    srun = "srun -n1 --overlap --container-name"
    done = job(
        cluster,
        f"{srun}=work --environment={edf} sh -c '{first}' &\n"
        f"{wait.format(f'{shared}/up')}\n"
        f"{ce} exec work -- cat /file\n"
        f"{ce} exec $SLURM_JOB_ID.work -- cat /file\n"
        f"{ce} ps $SLURM_JOB_ID\n"
        f"{ce} exec play -- true || echo refused\n"
        f"touch {shared}/over; wait\n",
    )
    assert done.returncode == 0, done.stderr
    *said, head, row, refused = done.stdout.splitlines()
    assert (said, refused) == (["mine", "mine"], "refused")
    assert (head.split()[-1], row.split()[-1]) == ("CONTAINER", "work")
    assert "'play': is not JOB, JOB.STEP or the name of a container that runs" in done.stderr
    assert_nothing_kept()


def test_a_killed_guard_ends_its_own_step_alone(cluster: Cluster, shared: Path) -> None:
    edf = cluster.edf(f'mounts = ["{shared}"]\n')
    wait = "until [ -e {0} ]; do sleep 0.1; done"
    first = f"touch {shared}/up; exec sleep 100"
    second = f"touch {shared}/joined; {wait.format(f'{shared}/over')}; cat /etc/passwd | wc -l"
    done = job(
        cluster,
        f"srun -n1 --overlap --environment={edf} --container-name=d sh -c '{first}' &\n"
        f"{wait.format(f'{shared}/up')}\n"
        f"srun -n1 --overlap --container-name=d sh -c '{second}' > {shared}/out & two=$!\n"
        f"{wait.format(f'{shared}/joined')}\n"
        "for pid in $(pgrep -u $(id -u) -x ce-guard); do"
        " if grep -q job_$SLURM_JOB_ID/step_0 /proc/$pid/cgroup; then break; fi; done\n"
        "kill -KILL $pid\n"
        f"wait %1 || true; touch {shared}/over; wait $two; cat {shared}/out\n",
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1
    assert "the process that guards the container was killed" in done.stderr
    assert_nothing_kept()


def test_the_mode_of_a_name_says_what_is_wanted(cluster: Cluster, demo: str) -> None:
    made = f"srun --environment={demo} --container-name=e"
    assert job(cluster, f"{made}:create true; {made}:no_exec true").returncode == 0
    ErrorBlock(job(cluster, f"{made} true; {made}:create true"), "container-name", "'e'", "already")
    ErrorBlock(job(cluster, f"{made} true; {made}:exec true"), "container-name", "'e'", "no step")
    other = f"srun --container-name=e --container-image={cluster.image('busybox')} true"
    ErrorBlock(job(cluster, f"{made} true; {other}"), "container-name", "'e'", "made it from")


def test_an_image_file_that_was_replaced_is_refused_however_the_container_is_used(
    cluster: Cluster, shared: Path
) -> None:
    image = shared / "own.sqsh"
    shutil.copyfile(cluster.image("demo"), image)
    edf = cluster.edf(f'image = "{image}"\nmounts = ["{shared}"]\n', image=None)
    srun = "srun -n1 --overlap --container-name=r"
    replace = f"cp {cluster.image('busybox')} {shared}/other; mv -f {shared}/other {image}"
    wait = f"until [ -e {shared}/up ]; do sleep 0.1; done"
    refused = "own.sqsh' has been replaced since this job made it"
    done = job(cluster, f"{srun} --environment={edf} touch /file; {replace}; {srun} ls /file")
    ErrorBlock(done, "container-name", "'r'", refused)
    shutil.copyfile(cluster.image("demo"), image)
    done = job(
        cluster,
        f"{srun} --environment={edf} sh -c 'touch {shared}/up; sleep 100' & {wait}; {replace}\n"
        f"{srun}:exec ls /file || echo refused\nscancel -s KILL $SLURM_JOB_ID.0; wait || true\n",
    )
    assert done.stdout == "refused\n", done.stderr
    assert refused in done.stderr


def test_a_step_that_must_not_join_has_mounts_of_its_own_over_the_same_files(
    cluster: Cluster, shared: Path
) -> None:
    wait = "until [ -e {0} ]; do sleep 0.1; done"
    edf = cluster.edf(f'mounts = ["{shared}"]\n')
    first = f"echo 1 > /one; touch {shared}/up; {wait.format(f'{shared}/two')}; cat /two; ls /extra"
    second = f"cat /one; echo 2 > /two; touch {shared}/two; sleep 2; cat /one; ls /extra"
    done = job(
        cluster,
        f"srun -n1 --overlap --environment={edf} --container-name=n sh -c '{first}' &\n"
        f"{wait.format(f'{shared}/up')}\n"
        "srun -n1 --overlap --container-name=n:no_exec --container-mounts="
        f"{shared}:/extra sh -c '{second}' > {shared}/out; wait; cat {shared}/out\n",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["2", "1", "1", "out", "two", "up"]
    assert_nothing_kept()


def test_a_container_cannot_be_joined_for_namespaces_that_it_has_not(
    cluster: Cluster, shared: Path
) -> None:
    srun = f"srun -n1 --overlap --environment={cluster.edf()} --container-name=u"
    done = job(
        cluster,
        f"{srun} --container-unshare=ipc sleep 1000 & sleep 4\n"
        f"{srun} --container-unshare=ipc readlink /proc/self/ns/ipc > {shared}/in\n"
        f"readlink /proc/self/ns/ipc > {shared}/out; ! cmp -s {shared}/in {shared}/out\n"
        f"{srun} --container-unshare=ipc,net true || echo refused\n"
        "scancel -s KILL $SLURM_JOB_ID.0; wait || true\n",
    )
    assert done.stdout == "refused\n", done.stderr
    assert "it runs already, and not in a separate network namespace" in done.stderr


def test_a_name_alone_needs_a_container_of_the_job(cluster: Cluster) -> None:
    done = job(cluster, "srun --container-name=never-made true")
    assert done.returncode == 125
    assert causes(done) == [
        "ce: error: --container-name: this job has no container 'never-made' to continue"
    ]


def test_a_name_of_an_environment_is_enough_for_a_later_step(cluster: Cluster) -> None:
    edf = cluster.edf('[annotations]\ncom.ce.container_name = "n"\n')
    done = job(cluster, f"srun --environment={edf} touch /new\nsrun --container-name=n ls /new\n")
    assert (done.returncode, done.stdout) == (0, "/new\n"), done.stderr


def test_an_environment_may_live_with_the_job_without_a_name(cluster: Cluster) -> None:
    edf = cluster.edf('annotations.com.ce.scope = "job"\n')
    same = f"srun --environment={edf}"
    done = job(cluster, f"{same} touch /mark; {same} ls /mark")
    assert (done.returncode, done.stdout) == (0, "/mark\n"), done.stderr


def test_no_component_of_a_heterogeneous_job_leaves_files(cluster: Cluster, demo: str) -> None:
    """Its steps have the id of the first component on all nodes; the epilogs have others."""
    step = f"srun --het-group=0,1 --environment={demo} --container-name=h sh -c"
    steps = f"{step} 'touch /$SLURMD_NODENAME'; {step} 'ls -d /n?'"
    done = cluster.run(["salloc", "-Q", "-N1", "-n1", ":", "-N1", "-n1", "sh", "-c", steps])
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["/n1", "/n2"]), done.stderr
    assert_nothing_kept()


# Slurm starts a requeued job after two minutes, once the credentials of its first run have ended.
@pytest.mark.soak
@pytest.mark.parametrize("by_name", [True, False], ids=["name", "scope"])
def test_a_requeued_job_begins_with_new_containers(
    cluster: Cluster, shared: Path, by_name: bool
) -> None:
    """The script is warned as by `sbatch --signal=B:USR1`, ends its step and requeues itself."""
    run = '[env]\nRUN = "${SLURM_RESTART_COUNT:-0}"\n'
    edf = cluster.edf(run + ("" if by_name else '[annotations]\ncom.ce.scope = "job"\n'))
    srun = f"srun --environment={edf}{' --container-name=r' * by_name} sh -c"
    waiting = cluster.edf(f'mounts = ["{shared}"]\n')
    output, waits = shared / "out", f"touch {shared}/up; while :; do sleep 0.2; done"
    script = cluster.write(
        "#!/bin/bash\n"
        "trap 'scancel -s TERM $SLURM_JOB_ID; wait $step; scontrol requeue $SLURM_JOB_ID' USR1\n"
        "srun --container-name=r true; echo alone $?\n"
        f"{srun} 'echo run $RUN $SLURM_RESTART_COUNT; cat /mark 2>/dev/null || echo new'\n"
        f"{srun} 'echo old > /mark'\n"
        f"{srun} 'cat /mark'\n"
        '[ -z "$SLURM_RESTART_COUNT" ] || exit 0\n'
        f"srun --environment={waiting} sh -c"
        f" 'trap \"echo told; exit 0\" TERM; {waits}' & step=$!\n"
        "wait $step; sleep 100\n",
        mode=0o755,
    )
    options = ["--parsable", "--requeue", "--open-mode=append", f"--output={output}"]
    number = cluster.run(["sbatch", *options, str(script)]).stdout.strip()
    until("the first run", (shared / "up").exists)
    assert cluster.run(["scancel", "--batch", "-s", "USR1", number]).returncode == 0
    until("its end", lambda: output.read_text().split().count("old") == 2 or None, 300)
    said = [line for line in output.read_text().splitlines() if ": " not in line]
    first, second = (["alone 125", run, "new", "old"] for run in ("run 0", "run 1 1"))
    assert said == [*first, "told", *second], output.read_text()
    assert_nothing_kept()


def test_what_was_kept_before_a_reboot_of_the_node_is_not_believed(
    cluster: Cluster, demo: str, shared: Path
) -> None:
    """A node whose power was lost has its disk again, and a job may come back to it."""
    now = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    step = f"srun --environment={demo} --container-name=k sh -c"
    look = "cat /mark 2>/dev/null || echo new; echo old > /mark"
    wait = f"touch {shared}/first; until [ -e {shared}/booted ]; do sleep 0.1; done"
    script = f"{step} '{look}'; {step} '{look}'; {wait}; {step} '{look}'; {step} '{look}'"
    with cluster.popen(["salloc", "-Q", "-N1", "-w", "n2", "sh", "-ec", script]) as running:
        until("the first steps", (shared / "first").exists, 40)
        files = [path for path in KEPT.glob("ce-kept-*/*/**/*") if path.is_file()]
        records = [path for path in files if now in path.read_text(errors="replace")]
        for record in records:
            record.write_text(record.read_text().replace(now, "0" * len(now)))
        (shared / "booted").touch()
        out, err = running.communicate(timeout=60)
    assert records
    assert out.split() == ["new", "old", "new", "old"], err
    assert_nothing_kept()


def test_mpi_works_in_a_step_that_joins(cluster: Cluster) -> None:
    srun = f"srun --overlap --environment={cluster.edf(image='openmpi')} --container-name=m"
    done = job(
        cluster,
        f"export UCX_TLS=sysv,self\n{srun} -n1 sleep 1000 & sleep 3\n"
        f"{srun} -n2 --mpi=pmix mpi-probe ring\nscancel -s KILL $SLURM_JOB_ID.0; wait || true\n",
        "-N1",
        "-n2",
    )
    assert done.stdout == "ring 1 allreduce 1\n", done.stderr


def test_enroots_commands_know_the_names_of_the_job(cluster: Cluster, demo: str) -> None:
    enroot = f"{cluster.prefix}/libexec/container-engine/compat/enroot"
    name = "pyxis_${SLURM_JOB_ID}_t"
    done = job(
        cluster,
        f"srun --environment={demo} --container-name=t sh -c "
        "'echo $CE_CONTAINER_NAME; ln -s etc /y; touch /x'\n"
        f"srun {enroot} list\n"
        f"srun -n1 --overlap --container-name=t sleep 1000 & sleep 4\n"
        f"pid=$(srun -n1 --overlap {enroot} list -f | awk -v n={name} '$1 == n {{print $2}}')\n"
        f"srun -n1 --overlap {enroot} exec $pid ls /x\n"
        f"srun -n1 --overlap {enroot} remove {name} || echo in use\n"
        f"srun -n1 --overlap {enroot} remove -f {name}; srun -n1 --overlap {enroot} list\n"
        f"srun -n1 --overlap {enroot} exec $pid ls /x\n"
        "srun --container-name=t true || echo gone\n"
        "scancel -s KILL $SLURM_JOB_ID.2; wait || true\n",
    )
    first, listed, *others = done.stdout.splitlines()
    assert first == "t"
    assert listed.startswith("pyxis_")
    assert listed.endswith("_t")
    assert others == ["/x", "in use", "/x", "gone"], done.stderr
    assert "container is running" in done.stderr


def test_outside_of_a_job_a_name_alone_joins_what_runs(cluster: Cluster, demo: str) -> None:
    done = job(
        cluster,
        f"srun -n1 --overlap --environment={demo} --container-name=o sh -c 'touch /x; sleep 99' &\n"
        "sleep 4; id=$SLURM_JOB_ID\n"
        "env -u SLURM_JOB_ID srun --jobid=$id -n1 --overlap --container-name=o ls /x\n"
        "scancel -s KILL $id.0; wait || true\n",
    )
    assert done.stdout == "/x\n", done.stderr
    done = cluster.run(["srun", "--container-name=o", "true"])
    refused = "container 'o': no step of this job runs in it on this node"
    assert (done.returncode, causes(done)[0].partition(": n")[2][3:]) == (125, refused)


def test_a_step_joins_the_container_of_another_one_that_gave_it_no_name(
    cluster: Cluster, shared: Path
) -> None:
    edf = cluster.edf(f'mounts = ["{shared}"]\n')
    wait = "until [ -e {0} ]; do sleep 0.1; done"
    first = f"echo mine > /file; touch {shared}/up; {wait.format(f'{shared}/down')}"
    done = job(
        cluster,
        f"srun -n1 --overlap --environment={edf} sh -c '{first}' & one=$!\n"
        f"{wait.format(f'{shared}/up')}\n"
        "srun -n1 --overlap --container-name=$SLURM_JOB_ID.0 sh -c 'cat /file; echo 2 > /two'\n"
        "srun -n1 --overlap --container-name=$SLURM_JOB_ID.0:exec cat /two\n"
        f"touch {shared}/down; wait $one\n"
        "srun -n1 --container-name=$SLURM_JOB_ID.0 true || echo over\n",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "mine\n2\nover\n"
    assert "no task of step" in done.stderr
    assert_nothing_kept()


# ---- the epilog ----------------------------------------------------------------------------------


@pytest.fixture
def planted(shared: Path) -> Path:
    """Leave a job's containers behind in Alice's directory; return the job's directory."""
    place = shared / f"ce-kept-{pwd.getpwnam(ALICE).pw_uid}" / "987654.n1"
    (place / "key").mkdir(parents=True)
    (place / "key" / "file").touch()
    for path in (place.parent, place, place / "key", place / "key" / "file"):
        shutil.chown(path, ALICE)
        path.chmod(0o700)
    return place


def epilog(cluster: Cluster, shared: Path) -> None:
    env = {"SLURM_JOB_ID": "987654", "SLURM_JOB_UID": str(pwd.getpwnam(ALICE).pw_uid)}
    words = [str(cluster.prefix / "libexec/container-engine/epilog"), str(shared)]
    subprocess.run(words, env={**cluster.environment(), **env}, check=True, timeout=30)


def test_the_epilog_removes_what_is_the_users_alone(
    cluster: Cluster, planted: Path, shared: Path
) -> None:
    epilog(cluster, shared)
    assert list(planted.parent.iterdir()) == []


@pytest.mark.parametrize(("owner", "mode"), [(BOB, 0o755), (ALICE, 0o777)])
def test_the_epilog_leaves_what_others_may_have_moved_there(
    cluster: Cluster, planted: Path, shared: Path, owner: str, mode: int
) -> None:
    """Bob may have moved Alice's files there, from a directory that both may write."""
    planted.parent.chmod(mode)
    shutil.chown(planted.parent, owner)
    epilog(cluster, shared)
    assert (planted / "key" / "file").exists()


def test_the_epilog_finds_what_lies_elsewhere_because_another_user_took_the_name(
    cluster: Cluster, planted: Path, shared: Path
) -> None:
    """Nobody else can guess the random name; others may have directories named in this form."""
    own = planted.parent.rename(f"{planted.parent}.0123456789abcdef")
    theirs = shared / f"{planted.parent.name}.fedcba9876543210"
    for path in (planted.parent, theirs):
        shutil.copytree(own, path)
        shutil.chown(path, BOB)
        path.chmod(0o777)
    epilog(cluster, shared)
    assert not own.exists()
    for path in (planted.parent, theirs):
        assert (path / planted.name / "key" / "file").exists()


def test_the_epilog_follows_no_link_to_the_directory(
    cluster: Cluster, planted: Path, shared: Path
) -> None:
    moved = planted.parent.rename(shared / "moved")
    planted.parent.symlink_to(moved)
    epilog(cluster, shared)
    assert (moved / planted.name / "key" / "file").exists()

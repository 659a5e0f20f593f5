"""Containers of tasks, com.ce.scope = "task"."""

from collections import Counter

from tests.vm.cluster import DROP_CACHES, READS, Cluster, errors

_TASKS = ["-wvm2", "-n3", "--overcommit"]
# one guard is the session's
_OURS = {"ce-guard": 4, "ce-image": 1, ".ce-init": 3, "sleep": 6}


def test_each_task_has_a_container_in_the_cgroup_of_the_step(cluster: Cluster, each: str) -> None:
    mine = "echo $SLURM_PROCID >/mine; touch /gate/$SLURM_PROCID"
    meet = "while [ $(ls /gate | wc -l) -lt 3 ]; do sleep 1; done; echo up $(cat /mine)"
    script = f"{mine}; {meet}; setsid sleep 4717 & exec sleep 4718"
    with cluster.started(*_TASKS, f"--environment={each}", "sh", "-c", script) as job:
        for number in range(3):
            job.wait_for(f"up {number}\n")
        placed = cluster.placed(cluster.second)
        assert Counter(name for name, _cgroup in placed if name in _OURS) == _OURS
        assert cluster.outside(cluster.second) == []
        cluster.root(cluster.first, "scancel -u alice")
        assert job.wait() != 0
        assert errors(job.err) == []
    cluster.assert_nothing_left()


def test_a_task_without_memory_ends_alone_and_the_others_read_their_image(
    cluster: Cluster, each: str
) -> None:
    hungry = "perl -e 'my $x = \"a\" x 400_000_000'; touch /gate/go; exit 3"
    script = f"if [ $SLURM_PROCID = 1 ]; then {hungry}; else {READS}; echo read; fi"
    options = [*_TASKS, "-K0", "--mem=250", f"--environment={each}"]
    done = cluster.srun(*options, "sh", "-c", script)
    assert sorted(done.stdout.split()) == ["read", "read", "up", "up"], done.stderr
    assert "Out Of Memory" in done.stderr or "oom_kill" in done.stderr
    assert done.returncode != 0
    assert errors(done.stderr) == []


def test_tasks_notice_neither_a_new_slurmd_nor_a_file_server_that_is_away(
    cluster: Cluster, each: str
) -> None:
    script = f"{READS}; echo done; exit $SLURM_PROCID"
    with cluster.started(*_TASKS, "-K0", f"--environment={each}", "sh", "-c", script) as job:
        job.wait_for("up\nup\nup\n")
        cluster.root(cluster.second, f"systemctl restart slurmd; {DROP_CACHES}")
        with cluster.without_server():
            cluster.root(cluster.second, "touch /gate/go; sleep 15")
            assert "done" not in job.out
        assert (job.wait(), job.out.count("done\n"), errors(job.err)) == (2, 3, [])

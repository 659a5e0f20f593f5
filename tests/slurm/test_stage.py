"""`ce stage`: copies of images in the memory of a job's nodes."""

from __future__ import annotations

import os
import re
import shutil
import signal
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest

from tests.slurm.cluster import BOB, sandbox
from tests.slurm.error_block import changed_on, differing
from tests.slurm.leftovers import helpers
from tests.slurm.polling import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.slurm.cluster import Cluster, Completed
    from tests.slurm.site import Site

pytestmark = pytest.mark.usefixtures("tidy", "apart")

_NODES = ("n1", "n2")
_WHO = "sh -c '. /etc/os-release; echo $ID'"
# runs until the test has looked
_STEP = """\
srun --environment=./train.toml sh -c '
touch up-$SLURMD_NODENAME
until test -e go; do sleep .1; done'
"""


@pytest.fixture(scope="module")
def apart(cluster: Cluster) -> Iterator[None]:
    """Give each node a memory of its own, which the machine's simulated nodes share."""
    del cluster
    with ExitStack() as nodes:
        for name in _NODES:
            nodes.enter_context(differing(name))
            _on(name, "mount", "-t", "tmpfs", "-o", "mode=1777,size=200M", "tmpfs", "/dev/shm")
        yield


def _on(node: str, *command: str) -> str:
    done = sandbox("node", node, *command)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _in_memory(node: str) -> list[str]:
    return _on(node, "find", "/dev/shm", "-type", "f").split()


@pytest.fixture
def here(cluster: Cluster, shared: Path) -> Iterator[Path]:
    """Return a directory with an environment `train`; look afterwards for what it has left."""
    for name in ("demo.sqsh", "data.sqsh"):
        shutil.copy(cluster.image("demo"), shared / name)
        os.chown(shared / name, cluster.login()["user"], -1)
    text = f'image = "{shared}/demo.sqsh"\nmounts = ["{shared}", "{shared}/data.sqsh:/data:sqsh"]\n'
    (shared / "train.toml").write_text(f'{text}workdir = "{shared}"\n')
    yield shared
    until("the epilogs", lambda: not any(map(_in_memory, _NODES)), 30)


def _script(here: Path, script: str) -> str:
    (here / "job").write_text(f"cd {here}\n{script}")
    return str(here / "job")


def _job(cluster: Cluster, here: Path, script: str, timeout: float = 120) -> Completed:
    return cluster.run(["salloc", "-QN2", "sh", _script(here, script)], timeout=timeout)


def _served() -> list[str]:
    """Return the path of the file of each server of an image."""
    found = [process.command.split() for process in helpers() if process.comm == "ce-image"]
    return [argv[1] for argv in found]


def _looked_at(cluster: Cluster, here: Path, script: str) -> tuple[Completed, list[str]]:
    """Run a job that ends with the step; return also what its servers have opened."""
    argv = ["salloc", "-QN2", "sh", _script(here, f"{script}{_STEP}")]
    done, opened = _ended(cluster, here, argv)
    assert done.returncode == 0, done.stderr
    return done, opened


def _ended(cluster: Cluster, here: Path, argv: list[str]) -> tuple[Completed, list[str]]:
    """Run what ends with the step; return also what its servers have opened."""
    with cluster.popen(argv) as process:
        until("the containers", lambda: all((here / f"up-{node}").exists() for node in _NODES), 90)
        opened = _served()
        (here / "go").touch()
        return process.finish("", 60, str), opened


@pytest.mark.parametrize("earlier", [0, 1])
def test_later_steps_read_the_copy_in_the_memory_of_their_node(
    cluster: Cluster, here: Path, earlier: int
) -> None:
    """With an earlier step, the start after it needs no Python."""
    before = "srun --environment=./train.toml true\n" * earlier
    script = f"{before}ce stage ./train.toml || exit\n"
    done, opened = _looked_at(cluster, here, script)
    assert len(opened) == 4
    assert all(path.startswith("/dev/shm/ce-kept-") for path in opened), opened
    assert done.stdout.count(": in the memory of n[1-2], after ") == 2
    assert done.stderr.count(" to n[1-2]\n") == 2


@pytest.mark.parametrize("earlier", [0, 1])
def test_steps_of_a_script_read_the_copies_though_an_earlier_step_read_the_shared_file(
    cluster: Cluster, here: Path, earlier: int
) -> None:
    """On the script's node, the job's holder keeps the image open for its steps."""
    before = "srun --environment=./train.toml true\n" * earlier
    script = f"#!/bin/sh\n{before}ce stage ./train.toml || exit\n"
    (here / "batch").write_text(f"{script}srun --environment=./train.toml true\n{_STEP}")
    argv = ["sbatch", "-QWN2", "-oout", f"--chdir={here}", str(here / "batch")]
    done, served = _ended(cluster, here, argv)
    opened = [path for path in served if path.startswith("/dev/shm/ce-kept-")]
    assert done.returncode == 0, (here / "out").read_text()
    assert len(opened) == 4, opened


def test_two_calls_copy_once_and_a_changed_file_is_copied_again(
    cluster: Cluster, here: Path
) -> None:
    again = "ce stage ./train.toml\n"
    done = _job(cluster, here, f"{again}{again}touch -d yesterday demo.sqsh\n{again}")
    sent = [line.partition(":")[2] for line in done.stderr.splitlines() if " to n[1-2]" in line]
    names = [line.split(":")[1].rpartition("/")[2] for line in done.stderr.splitlines()]
    assert (len(sent), names) == (3, ["demo.sqsh", "data.sqsh", "demo.sqsh"])


def test_a_file_that_has_changed_since_is_read_where_it_is(cluster: Cluster, here: Path) -> None:
    script = "ce stage ./train.toml || exit\ntouch -d yesterday demo.sqsh data.sqsh\n"
    _done, opened = _looked_at(cluster, here, script)
    assert sorted(set(opened)) == [str(here / "data.sqsh"), str(here / "demo.sqsh")]


def test_a_node_without_room_is_named_and_the_others_have_the_copy(
    cluster: Cluster, here: Path
) -> None:
    with changed_on(
        "n2", ["mount", "-t", "tmpfs", "-o", "size=1M,mode=1777", "x", "/dev/shm"], "/dev/shm"
    ):
        done = _job(cluster, here, "ce stage ./train.toml && srun --environment=./train.toml true")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("in the memory of n1, after") == 2
    assert done.stderr.count("ce: warning: n2: ") == 2
    assert done.stderr.count("/dev/shm has 1.0 MiB left") == 2


def test_a_job_with_too_little_memory_is_told_and_none_of_its_processes_is_killed(
    cluster: Cluster, here: Path
) -> None:
    job = ["salloc", "-QN2", "--mem=24M", "sh", _script(here, "ce stage ./train.toml")]
    done = cluster.run(job)
    assert done.returncode == 1
    why = re.findall(r"not in memory: the job has (\d+) MiB of memory left; their", done.stderr)
    assert why, done.stderr
    assert "killed" not in done.stderr


def _stop(cluster: Cluster, what: str) -> int:
    """Stop a process of n2: slurmd, or the one of a step that waits for a file. Return its ID."""
    found: list[int] = []

    def is_there() -> bool:
        found.extend(
            process.pid
            for process in helpers()
            if " stage --here -- keep " in process.command
            and process.environment().get("SLURMD_NODENAME") == "n2"
        )
        return bool(found)

    if what == "slurmd":
        found.append(int((cluster.dir / "run/slurmd-n2.pid").read_text()))
    else:
        until("a step that waits", is_there)
    os.kill(found[0], signal.SIGSTOP)
    return found[0]


@pytest.mark.parametrize("what", ["slurmd", "keep"])
def test_a_node_that_hangs_is_named_and_the_other_has_the_copy(
    cluster: Cluster, here: Path, what: str
) -> None:
    """It costs less than the limit, and no step is in the way of the next one."""
    script = "touch begun; until test -e go; do sleep .1; done\n" if what == "slurmd" else ""
    script += "ce stage --limit 45 ./train.toml && srun -N1 -n1 -w n1 true"
    with cluster.popen(["salloc", "-QN2", "sh", _script(here, script)]) as process:
        if what == "slurmd":
            until("the job", (here / "begun").exists)
        stopped = _stop(cluster, what)
        (here / "go").touch()
        try:
            done = process.finish("", 80, str)
        finally:
            with suppress(ProcessLookupError):
                os.kill(stopped, signal.SIGCONT)
    assert done.returncode == 0, done.stderr
    copied = re.findall(r"(?m)^.*/demo.sqsh: in the memory of (.*), after", done.stdout)
    assert copied == ["n1"], done.stderr
    named = "ce: warning: n2: .*/demo.sqsh is not in memory: no answer; their containers start"
    assert re.search(named, done.stderr), done.stderr


def test_two_calls_at_the_same_time_copy_once(cluster: Cluster, here: Path) -> None:
    script = "ce stage ./train.toml & ce stage ./train.toml; first=$?; wait $! && exit $first"
    done = _job(cluster, here, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": in the memory of n[1-2], after ") == 4
    assert done.stderr.count(" to n[1-2]\n") == 2, done.stderr


_KEY = '[annotations]\ncom.ce.stage = "memory"\n'


def _with_key(here: Path, site: Site, more: str = "", value: str = "memory") -> None:
    with (here / "train.toml").open("a") as file:
        file.write(_KEY.replace("memory", value))
    site.configure(f"stage_nodes = 2\n{more}")


def test_with_the_key_the_first_step_of_a_large_job_copies_the_image_for_all_steps(
    cluster: Cluster, here: Path, site: Site
) -> None:
    _with_key(here, site)
    steps = "srun -N1 -n1 --environment=./train.toml true\n" * 3
    done, opened = _looked_at(cluster, here, steps)
    assert {path.startswith("/dev/shm/ce-kept-") for path in opened if "data" not in path} == {True}
    assert str(here / "data.sqsh") in opened
    assert done.stderr.count("demo.sqsh: 24 MiB to n[1-2]\n") == 1, done.stderr
    assert done.stdout == ""


def test_with_the_key_an_image_that_has_been_replaced_is_copied_again(
    cluster: Cluster, here: Path, site: Site
) -> None:
    """The earlier copy is of the same path."""
    _with_key(here, site)
    script = f"srun --environment=./train.toml {_WHO}\n"
    script += f"cp {cluster.image('busybox')} new && mv new demo.sqsh\n"
    script += f"srun --environment=./train.toml {_WHO}\n"
    done, opened = _looked_at(cluster, here, script)
    assert sorted(done.stdout.split()) == sorted(2 * ["ce-demo", "ce-busybox"])
    assert {path.startswith("/dev/shm/ce-kept-") for path in opened if "data" not in path} == {True}
    assert done.stderr.count("demo.sqsh: ") == 2, done.stderr


def test_with_the_value_all_mounts_are_copied_too(cluster: Cluster, here: Path, site: Site) -> None:
    _with_key(here, site, value="all")
    done, opened = _looked_at(cluster, here, "")
    assert len(opened) == 4
    assert all(path.startswith("/dev/shm/ce-kept-") for path in opened), opened
    assert done.stderr.count(" to n[1-2]\n") == 2, done.stderr


@pytest.mark.parametrize("what", ["small", "none", "refused"])
def test_with_the_key_other_jobs_start_from_the_shared_file(
    cluster: Cluster, here: Path, site: Site, what: str
) -> None:
    more = '[policy]\nmount_sources = ["/"]\n' if what == "refused" else ""
    _with_key(here, site, more)
    if what == "small":
        site.configure("stage_nodes = 3\n")
    elif what == "none":
        text = (here / "train.toml").read_text()
        (here / "train.toml").write_text(text.replace('"memory"', '"none"'))
    done, opened = _looked_at(cluster, here, "")
    assert str(here / "demo.sqsh") in opened
    assert " to n[1-2]" not in done.stderr
    assert done.stderr.count("ce: warning: the images are not copied to the job's nodes: ") == (
        what == "refused"
    )


@pytest.mark.parametrize("first", [0, 1])
def test_the_end_of_a_job_takes_nothing_from_another_one_of_the_user(
    cluster: Cluster, here: Path, first: int
) -> None:
    """The fixture looks that both ends free all memory."""
    script = """\
ce stage ./train.toml || exit
srun --environment=./train.toml sh -c "touch up-$1-\\$SLURMD_NODENAME
until test -e go-$1; do sleep .1; done; cat /data/bin/* >/dev/null" || exit
test -e alone || exit 0
"""
    job = ["salloc", "-QN2", "sh", _script(here, f"{script}{_STEP}")]
    with cluster.popen([*job, "0"]) as one, cluster.popen([*job, "1"]) as other:
        up = [here / f"up-{number}-{node}" for number in (0, 1) for node in _NODES]
        until("the containers", lambda: all(path.exists() for path in up), 90)
        assert [len(_in_memory(node)) for node in _NODES] == [4, 4]
        (here / f"go-{first}").touch()
        done = (one, other)[first].finish("", 60, str)
        assert done.returncode == 0, done.stderr
        until("its epilogs", lambda: [len(_in_memory(node)) for node in _NODES] == [2, 2], 30)
        (here / "alone").touch()
        (here / f"go-{1 - first}").touch()
        until("a step", lambda: all((here / f"up-{node}").exists() for node in _NODES), 60)
        opened = _served()
        (here / "go").touch()
        done = (other, one)[first].finish("", 60, str)
    assert done.returncode == 0, done.stderr
    assert len(opened) == 4
    assert all(path.startswith("/dev/shm/ce-kept-") for path in opened), opened


def test_a_node_that_has_lost_its_copies_reads_the_shared_file_and_can_be_sent_them_again(
    cluster: Cluster, here: Path
) -> None:
    """As after a reboot of the node."""
    script = "ce stage ./train.toml || exit\n"
    script += "touch staged; until test -e lost; do sleep .1; done\n"
    again = f"{_STEP}ce stage ./train.toml\n"
    with cluster.popen(["salloc", "-QN2", "sh", _script(here, f"{script}{again}")]) as process:
        until("the copies", (here / "staged").exists, 90)
        for file in _in_memory("n2"):
            _on("n2", "rm", "-f", file)
        (here / "lost").touch()
        until("the containers", lambda: all((here / f"up-{node}").exists() for node in _NODES), 90)
        opened = _served()
        (here / "go").touch()
        done = process.finish("", 90, str)
    assert done.returncode == 0, done.stderr
    assert sorted(path for path in opened if not path.startswith("/dev/shm/")) == [
        str(here / "data.sqsh"),
        str(here / "demo.sqsh"),
    ]
    assert len(opened) == 4
    assert done.stderr.count(" to n2\n") == 2, done.stderr


def test_a_heterogeneous_job_has_no_copies_and_is_told(cluster: Cluster, here: Path) -> None:
    """The script of sbatch has the first component's list of nodes, but that of salloc has none."""
    stage = "ce stage ./train.toml"
    script = f"{stage}; SLURM_JOB_NODELIST=n1 {stage}; "
    script += f"srun --het-group=0,1 --environment=./train.toml {_WHO}"
    job = ["salloc", "-Q", "-N1", ":", "-N1", "sh", _script(here, script)]
    done = cluster.run(job, timeout=120)
    assert (done.returncode, done.stdout) == (0, 2 * "ce-demo\n"), done.stderr
    assert done.stderr.count("ce: error: stage: this job is heterogeneous\n") == 2, done.stderr


def test_a_directory_of_another_user_gets_no_copy(cluster: Cluster, here: Path) -> None:
    """The node would not look there, and that user could read or replace what arrives."""
    place = f"/dev/shm/ce-kept-{cluster.login()['user']}"
    _on("n2", "rm", "-rf", place)
    _on("n2", "install", "-d", "-o", BOB, "-m", "1777", place)
    try:
        done = _job(cluster, here, "ce stage ./train.toml && srun --environment=./train.toml true")
    finally:
        _on("n2", "rm", "-rf", place)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("in the memory of n1, after") == 2, done.stdout
    assert len(re.findall(f"ce: warning: n2: .*: {place} is not", done.stderr)) == 2, done.stderr


# Slurm starts a requeued job after two minutes, once the credentials of its first run have ended.
@pytest.mark.soak
def test_a_requeued_job_copies_again_and_has_the_image_of_now(
    cluster: Cluster, here: Path, site: Site
) -> None:
    _with_key(here, site)
    step = f"srun --environment=./train.toml {_WHO}"
    first = f"{step}; cp {cluster.image('busybox')} new; mv new demo.sqsh"
    first += "; scontrol requeue $SLURM_JOB_ID; sleep 100"
    script = f'[ -n "$SLURM_RESTART_COUNT" ] || {{ {first}; }}\n{step}\n{_STEP}'
    (here / "batch").write_text(f"#!/bin/sh\n{script}")
    options = ["-N2", "--requeue", "--open-mode=append", "-o", "out", f"--chdir={here}"]
    with cluster.popen(["sbatch", "-QW", *options, str(here / "batch")]) as process:
        until("the containers", lambda: all((here / f"up-{node}").exists() for node in _NODES), 300)
        opened = _served()
        kept = [len(_in_memory(node)) for node in _NODES]
        (here / "go").touch()
        done = process.finish("", 60, str)
    text = (here / "out").read_text()
    assert done.returncode == 0, text
    assert [line for line in text.splitlines() if line in {"ce-demo", "ce-busybox"}] == [
        *2 * ["ce-demo"],
        *2 * ["ce-busybox"],
    ]
    assert text.count(" to n[1-2]\n") == 2, text
    assert kept == [1, 1]
    copies = [path for path in opened if path.startswith("/dev/shm/ce-kept-")]
    assert len(copies) == 2, opened


def test_content_that_differs_is_not_used(cluster: Cluster, here: Path) -> None:
    (here / "other.sqsh").write_bytes(b"x" * (here / "demo.sqsh").stat().st_size)
    keep = f"ce stage --here -- keep $SLURM_JOB_ID..1 {here}/demo.sqsh sha256:{'0' * 64}"
    script = "srun ce stage --here -- look demo.sqsh\n"
    script += f"sbcast other.sqsh /dev/shm/ce-kept-$(id -u)/$SLURM_JOB_ID..1 && srun {keep}"
    done = _job(cluster, here, script)
    why = "failed the copy differs from the image that was imported"
    for node in _NODES:
        assert f"ce-stage: {node} 0 {why}\n" in done.stdout


def test_a_cancelled_job_leaves_nothing(cluster: Cluster, here: Path) -> None:
    """The fixture looks: the file is on its way, and no step waits for it any more."""
    script = "srun ce stage --here -- look demo.sqsh\n"
    script += "sbcast demo.sqsh /dev/shm/ce-kept-$(id -u)/$SLURM_JOB_ID..1\n"
    done = _job(cluster, here, f"{script}scancel $SLURM_JOB_ID")
    assert done.stdout.count("wanted") == 2


@pytest.mark.parametrize("rule", ["site_images_only = true", 'mount_sources = ["/"]'])
def test_a_rule_of_the_site_is_named(cluster: Cluster, here: Path, site: Site, rule: str) -> None:
    site.configure(f"[policy]\n{rule}\n")
    done = _job(cluster, here, "ce stage ./train.toml")
    name = rule.partition(" ")[0]
    assert f"the site has a rule for images or mounts, {name}" in done.stderr
    assert done.returncode == 1


def test_outside_of_a_job_it_says_so(cluster: Cluster) -> None:
    done = cluster.run(["ce", "stage", "demo"])
    assert (done.returncode, "stage: this is no job" in done.stderr) == (1, True)

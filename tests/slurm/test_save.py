"""`ce save`: an image of what a running container has become, whole or as a difference."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.slurm.cluster import ALICE, BOB, Cluster, Completed
from tests.slurm.job import started
from tests.slurm.polling import until

pytestmark = pytest.mark.usefixtures("tidy")

SCRIPT = """
mkdir /mine && echo written > /mine/file && ln /mine/file /mine/hard
echo changed > /etc/os-release && rm /etc/debian_version && rm -r /usr/share/doc 2>/dev/null
mkdir -p /usr/share/doc && echo new > /usr/share/doc/new
mkfifo /mine/pipe; echo x > /tmp/here
while :; do date; sleep 0.01; done > /mine/log & echo $SLURM_JOB_ID.$SLURM_STEP_ID; sleep 100
"""
LOOK = "cat /mine/file /etc/os-release /usr/share/doc/new; ls /usr/share/doc /etc/debian_version"


def ce(cluster: Cluster, *words: str, user: str = ALICE) -> Completed:
    return cluster.run([str(cluster.prefix / "bin/ce"), *words], user)


@contextmanager
def running(
    cluster: Cluster, more: str = "", edf: str = "", image: str = "busybox"
) -> Iterator[str]:
    """Yield the id of a step in whose container something was written."""
    mounts = 'mounts = ["/var/tmp:/far/away", "/etc/hosts:/own/hosts"]\n'
    edf = edf or cluster.edf(f"{mounts}{more}", image)
    command = ("sh", "-c", SCRIPT)
    with started(cluster, "srun", "-n1", f"--environment={edf}", *command) as job:
        step = job.wait_for_lines(1)[0]
        until("the step in ce ps", lambda: step in ce(cluster, "ps").stdout)
        yield step


def members(image: Path) -> dict[str, str]:
    """Return the mode and owner of each path of the image."""
    argv = ["unsquashfs", "-lln", "-d", "", str(image)]
    said = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout
    found = re.findall(r"^([-dlcp]\S*) (\S+) .*? \d\d:\d\d (\S+)", said, re.MULTILINE)
    return {path: f"{mode} {owner}" for mode, owner, path in found}


@pytest.mark.parametrize("way", ["crun", "podman"])
def test_a_container_is_saved_whole_and_as_a_difference(
    cluster: Cluster, shared: Path, way: str
) -> None:
    whole, difference = shared / "whole.sqsh", shared / "difference.sqsh"
    with running(cluster, f'annotations.com.ce.start = "{way}"\n', image="demo") as step:
        done = ce(cluster, "save", "-q", step, str(whole))
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"{whole}: ")
        digest = done.stdout.split("sha256:")[1].strip()
        assert whole.with_name("whole.sqsh.sha256").read_text().startswith(digest)
        done = ce(cluster, "save", "--difference", step, str(difference))
        assert done.returncode == 0, done.stderr
        assert f'"{difference}"]' in done.stderr
    written = members(difference)
    assert all(owner.split()[1] == "0/0" for owner in written.values())
    left_out = {"/far", "/own", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/etc/mtab"}
    assert left_out & set(written) == set()
    assert "/home" not in written
    assert "/etc/passwd" not in written
    assert written["/etc/debian_version"].startswith("c")
    assert "whole" not in str(list(shared.glob(".ce-save-*")))
    base = cluster.image("demo")
    expected = "written\nchanged\nnew\nnew\n"
    for images in ([whole], [base, difference]):
        edf = cluster.edf(f"image = {json.dumps([str(image) for image in images])}", image=None)
        done = cluster.srun("-n1", f"--environment={edf}", "sh", "-c", LOOK)
        assert done.stdout.replace("/usr/share/doc:\n", "") == expected
        assert "'/etc/debian_version': No such file" in done.stderr


def test_an_image_keeps_the_settings_of_its_base(cluster: Cluster, shared: Path) -> None:
    base, saved = shared / "base.sqsh", shared / "saved.sqsh"
    base.symlink_to(cluster.image("busybox"))
    config = {"Env": ["PATH=/bin:/own", "X=1"], "WorkingDir": "/tmp", "Labels": {"by": "me"}}
    base.with_name("base.sqsh.json").write_text(json.dumps({"os": "linux", "config": config}))
    edf = cluster.edf(f'image = "{base}"\n', image=None)
    with running(cluster, edf=edf) as step:
        assert ce(cluster, "save", step.partition(".")[0], str(saved)).returncode == 0
    own = json.loads(saved.with_name("saved.sqsh.json").read_text())
    assert own == {"os": "linux", "config": {**config, "Entrypoint": []}}


def test_no_file_is_replaced_unless_that_is_wanted(cluster: Cluster, shared: Path) -> None:
    there = shared / "there.sqsh"
    there.write_text("mine")
    with running(cluster) as step:
        done = ce(cluster, "save", step, str(there))
        assert done.returncode == 1
        assert f"'{there}': exists" in done.stderr
        assert "--force replaces it" in done.stderr
        assert there.read_text() == "mine"
        there.chmod(0o666)
        assert ce(cluster, "save", "--force", step, str(there)).returncode == 0
    assert there.read_bytes().startswith(b"hsqs")


@pytest.mark.parametrize("mode", [0o777, 0o1777], ids=["open", "sticky"])
def test_what_others_have_put_in_its_place_leads_an_image_nowhere_else(
    cluster: Cluster, shared: Path, mode: int
) -> None:
    place, own = shared / "place", shared / "own"
    place.mkdir()
    place.chmod(mode)
    own.write_text("mine")
    shutil.chown(own, ALICE)
    for suffix in ("", ".json", ".sha256"):
        cluster.run(["ln", "-s", str(own), f"{place}/x.sqsh{suffix}"], user=BOB)
    with running(cluster) as step:
        done = ce(cluster, "save", "-q", step, str(place / "x.sqsh"))
        assert "exists" in done.stderr
        done = ce(cluster, "save", "-q", "--force", step, str(place / "x.sqsh"))
        assert done.returncode == (1 if mode == 0o1777 else 0), done.stderr
    assert own.read_text() == "mine"
    assert not list(place.glob(".*"))
    found = sorted(place.iterdir())
    assert [path.name for path in found] == ["x.sqsh", "x.sqsh.json", "x.sqsh.sha256"]
    assert {path.is_symlink() for path in found} == {mode == 0o1777}


def test_only_ones_own_containers_are_saved(cluster: Cluster, shared: Path) -> None:
    with running(cluster) as step:
        done = ce(cluster, "save", step, str(shared / "x.sqsh"), user=BOB)
        assert done.returncode == 1
        assert "no such step runs" in done.stderr
    done = ce(cluster, "save", "999999", str(shared / "x.sqsh"))
    assert "no such step runs" in done.stderr
    assert not (shared / "x.sqsh").exists()


def test_a_container_is_saved_at_the_end_of_its_step(cluster: Cluster, shared: Path) -> None:
    saved = shared / "mine.sqsh"
    option = f"--container-save={saved}"
    script = "echo 1 > /one; [ $SLURM_PROCID != 0 ] || rm /bin/zcat"
    edf = cluster.edf(image="busybox")
    done = cluster.srun("-n2", "-N1", f"--environment={edf}", option, "sh", "-c", script)
    assert done.returncode == 0
    assert re.fullmatch(rf"ce: saved: n\d: {saved}: .*, sha256:\w+\n", done.stderr), done.stderr
    # saved to the same file again: it is now the image, and the command fails
    image = f"--container-image={saved}"
    script = "cat /one; echo 2 > /two; exit 3"
    done = cluster.srun(image, "--container-writable", option, "sh", "-c", script)
    assert (done.returncode, done.stdout) == (3, "1\n"), done.stderr
    done = cluster.srun(image, "sh", "-c", "cat /one /two; ls /bin/zcat")
    assert done.stdout == "1\n2\n"
    assert "No such file" in done.stderr
    assert list(shared.glob(".ce-save-*")) == []


def test_what_cannot_be_saved_at_the_end_is_told(cluster: Cluster, shared: Path) -> None:
    edf = cluster.edf(f'mounts = ["{shared}"]\n', "busybox")
    srun = (f"--environment={edf}", f"--container-save={shared}/no/x.sqsh")
    done = cluster.srun(*srun, "touch", f"{shared}/ran")
    assert done.returncode == 125
    assert f"--container-save: '{shared}/no' does not exist on node n" in done.stderr
    assert "ce: see: ce help container-save" in done.stderr
    assert not (shared / "ran").exists()
    done = cluster.srun("-N2", srun[0], f"--container-save={shared}/x.sqsh", "true")
    assert f"--container-save: 2 nodes would write the same image '{shared}/x" in done.stderr
    (shared / "no").mkdir(mode=0o777)
    (shared / "no").chmod(0o777)
    shared.chmod(0o777)
    done = cluster.srun("-n1", *srun, "mv", f"{shared}/no", f"{shared}/away")
    assert done.returncode == 0
    assert re.search(r"^ce: error: n\d: --container-save: ", done.stderr, re.MULTILINE)


def test_each_node_saves_its_own_container(cluster: Cluster, shared: Path) -> None:
    script = "echo $SLURMD_NODENAME > /where"
    edf = cluster.edf(image="busybox")
    srun = ("-N2", f"--environment={edf}", f"--container-save={shared}/%N.sqsh")
    assert cluster.srun(*srun, "sh", "-c", script).returncode == 0
    for node in ("n1", "n2"):
        image = f"--container-image={shared}/{node}.sqsh"
        assert cluster.srun("-n1", image, "cat", "/where").stdout == f"{node}\n"


def test_a_step_that_is_cancelled_saves_nothing(cluster: Cluster, shared: Path) -> None:
    saved = shared / "x.sqsh"
    option = f"--container-save={saved}"
    command = ("sh", "-c", "trap '' TERM; echo $SLURM_JOB_ID; sleep 100")
    edf = cluster.edf(image="busybox")
    with started(cluster, "srun", "-n1", f"--environment={edf}", option, *command) as job:
        number = job.wait_for_lines(1)[0]
        assert cluster.run(["scancel", "-s", "KILL", number]).returncode == 0
        until("the end", lambda: not cluster.run(["squeue", "-h", "-j", number]).stdout, 60)
    assert not saved.exists()


@pytest.mark.parametrize("name", [(), ("--container-name=k",)])
def test_a_task_ended_by_sigterm_replaces_no_image(
    cluster: Cluster, shared: Path, name: tuple[str, ...]
) -> None:
    """Slurm sends SIGTERM first, and leaves time in which a small container could be saved."""
    saved = shared / "x.sqsh"
    saved.write_text("before")
    saved.chmod(0o666)
    shared.chmod(0o777)
    command = ("sh", "-c", "echo $SLURM_JOB_ID; exec sleep 100")
    edf = cluster.edf(image="busybox")
    options = (f"--environment={edf}", f"--container-save={saved}", *name)
    with started(cluster, "srun", "-n1", *options, *command) as job:
        number = job.wait_for_lines(1)[0]
        assert cluster.run(["scancel", number]).returncode == 0
        said = job.wait(60).stderr
        until("the end", lambda: not cluster.run(["squeue", "-h", "-j", number]).stdout, 60)
    assert "--container-save: nothing was saved: a task was ended by SIGTERM" in said
    assert saved.read_text() == "before"
    assert list(shared.glob(".ce-save-*")) == []


def test_what_is_said_at_the_end_of_a_step_whose_task_died_of_a_signal_arrives(
    cluster: Cluster, shared: Path
) -> None:
    """Slurm drops what such a task prints last, natively too."""
    edf = cluster.edf(image="busybox")
    script = cluster.write(
        f"for _ in 1 2 3 4 5; do srun -n1 --environment={edf} --container-save={shared}/x.sqsh"
        " sh -c 'kill -TERM $$'; done\n"
    )
    said = cluster.run(["salloc", "-Q", "-N1", "-n1", "sh", str(script)]).stderr
    assert said.count("nothing was saved: a task was ended by SIGTERM") == 5, said
    assert said.count("ce: see: ce help container-save") == 5


KEPT = """
write='echo 1 > /one; rm /bin/zcat; echo x >> /etc/passwd'
srun -n1 --environment={edf} --container-name=k sh -c "$write"
srun -n1 --container-name=k --container-save={out}/end.sqsh sh -c 'echo 2 > /two'
{ce} save $SLURM_JOB_ID.k {out}/between.sqsh
run='echo 3 > /three; touch {out}/up; until [ -e {out}/down ]; do sleep 0.2; done'
srun -n1 --overlap --container-name=k sh -c "$run" & one=$!
until [ -e {out}/up ]; do sleep 0.1; done
{ce} save $SLURM_JOB_ID.k {out}/running.sqsh
{ce} save -q $SLURM_JOB_ID {out}/step.sqsh
{ce} save $SLURM_JOB_ID.other {out}/none.sqsh || echo none
touch {out}/down; wait $one
"""


def test_a_container_that_lives_with_its_job_is_saved_whether_it_runs_or_not(
    cluster: Cluster, shared: Path
) -> None:
    edf = cluster.edf(f'mounts = ["{shared}"]\n', "busybox")
    script = KEPT.format(edf=edf, out=shared, ce=cluster.prefix / "bin/ce")
    done = cluster.run(["salloc", "-Q", "-N1", "sh", "-ec", script], timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "none"
    look = f"cat /one /two /three; grep -c -e ^x -e ^{ALICE} /etc/passwd; ls /bin/zcat"
    for name, written in {"end": "12", "between": "12", "running": "123", "step": "123"}.items():
        image = f"--container-image={shared}/{name}.sqsh"
        done = cluster.srun("-n1", image, "sh", "-c", look)
        assert done.stdout.split() == [*written, "2"], done.stderr
        assert "/bin/zcat: No such file" in done.stderr


BOTH = """
srun -n1 --environment={edf} --container-name=k true
{ce} save $SLURM_JOB_ID.k {out}/x.sqsh & one=$!
{ce} save $SLURM_JOB_ID.k {out}/x.sqsh || echo refused
wait $one || echo refused
{ce} save $SLURM_JOB_ID.other {out}/none.sqsh || [ -e {out}/none.sqsh ] || echo nothing
"""


def test_of_two_that_save_a_container_of_a_job_at_once_one_is_refused(
    cluster: Cluster, shared: Path
) -> None:
    edf = cluster.edf(image="busybox")
    script = BOTH.format(edf=edf, out=shared, ce=cluster.prefix / "bin/ce")
    done = cluster.run(["salloc", "-Q", "-N1", "sh", "-ec", script], timeout=200)
    assert done.returncode == 0, done.stderr
    found = [line for line in done.stdout.splitlines() if line in ("refused", "nothing")]
    assert found == ["refused", "nothing"]
    assert done.stderr.count(f"'{shared}/x.sqsh': exists") == 1
    assert (shared / "x.sqsh").read_bytes().startswith(b"hsqs")


ELSEWHERE = """
srun -N1 -n1 -w n2 --environment={edf} --container-name=k touch /mine
{ce} save $SLURM_JOB_ID.k {out}/first.sqsh || echo refused
{ce} save -w n2 $SLURM_JOB_ID.k {out}/second.sqsh
srun -N1 -n1 -w n1 --container-name=k:create true && echo still none
"""


def test_a_node_without_the_container_makes_none_to_save(cluster: Cluster, shared: Path) -> None:
    ce_path = cluster.prefix / "bin/ce"
    script = ELSEWHERE.format(edf=cluster.edf(image="busybox"), out=shared, ce=ce_path)
    done = cluster.run(["salloc", "-Q", "-N2", "sh", "-c", script], timeout=200)
    assert done.stdout.splitlines()[:1] == ["refused"], done.stderr
    assert done.stdout.splitlines()[-1] == "still none", done.stderr
    assert (
        "ce: error: n1: container 'k': this job has no such container on this node" in done.stderr
    )
    assert "ce save -w NODE" in done.stderr
    assert not (shared / "first.sqsh").exists()
    image = f"--container-image={shared}/second.sqsh"
    assert cluster.srun("-n1", image, "ls", "/mine").stdout == "/mine\n"


LOOP = """
run='touch {out}/up; until [ -e {out}/down ]; do sleep 0.2; done'
srun -n1 --overlap --environment={edf} --container-name=k sh -c "$run" & one=$!
until [ -e {out}/up ]; do sleep 0.1; done
seq 2 | while read number; do
    {ce} save -q $SLURM_JOB_ID.k {out}/name$number.sqsh
    {ce} save -q $SLURM_JOB_ID {out}/step$number.sqsh
done
touch {out}/down; wait $one
"""


def test_the_input_of_a_script_is_left_to_its_other_commands(
    cluster: Cluster, shared: Path
) -> None:
    edf = cluster.edf(f'mounts = ["{shared}"]\n', "busybox")
    script = LOOP.format(edf=edf, out=shared, ce=cluster.prefix / "bin/ce")
    done = cluster.run(["salloc", "-Q", "-N1", "sh", "-ec", script], timeout=200)
    assert done.returncode == 0, done.stderr
    saved = sorted(file.name for file in shared.glob("*.sqsh"))
    assert saved == ["name1.sqsh", "name2.sqsh", "step1.sqsh", "step2.sqsh"]

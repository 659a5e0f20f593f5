"""Hooks in repeated starts: the container is the same, and no Python starts on the node.

The first start looks into the image, the second uses what was found, and the third does all of it
without Python.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from container_engine.node import slurm_step
from tests.integration.libraries import build
from tests.recorded import parsed, write
from tests.slurm.cluster import ALICE
from tests.slurm.job import job_id, started
from tests.slurm.test_hook_network import NCCL, Network
from tests.slurm.test_hook_network import network as network  # noqa: PLC0414  # a fixture
from tests.slurm.test_starts_again import _ALL, _SETTLED_S, Node, answers_of
from tests.slurm.test_starts_again import node as node  # noqa: PLC0414  # a fixture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.slurm.cluster import Cluster, Completed

pytestmark = pytest.mark.usefixtures("tidy")

_HOOK = """
version = 1
release = "1"
summary = "s"
help = "h"
[edits.x]
devices = [{ path = "DIR/devices/nul*" }]
mounts = [{ source = "DIR/shown", target = "/shown" }]
libraries = [{ files = ["DIR/libs/lib*.so.1"] }]
refresh = true
env = { MINE = "yes" }
prepend = { MY_PATH = ["/mine"] }
[checks.x]
kind = "loadable"
subject = "libmine.so.1"
"""
_SCRIPT = (
    f"{_ALL}; sha256sum /etc/ld.so.cache; ls -R /.container-engine /shown; stat -c %t:%n $1/nul*"
)


class Site:
    """A site with one hook, and an environment that has it."""

    def __init__(self, node: Node, image: Path, text: str = "") -> None:
        self.node, self.directory, self.image = node, node.directory, image
        cluster = node.cluster
        self.catalog = cluster.prefix / "share/container-engine/hooks-of-a-test"
        (self.directory / "libs").mkdir()
        (self.directory / "shown").mkdir()
        # not in /dev, which tests of other sandboxes on this machine use at the same time
        self.devices = self.directory / "devices"
        self.devices.mkdir()
        self.device("null")
        self.library = build(self.directory / "libs/libmine.so.1", "libmine.so.1")
        self.configure()
        text = f'image = "{image}"\n{text}[annotations]\ncom.hooks.mine.enabled = "true"\n'
        self.edf = cluster.edf(text, image=None)
        self.hook(_HOOK)

    def configure(self, more: str = "") -> None:
        self.node.configure(f'hook_catalog = ["{self.catalog}"]\n{more}')

    def hook(self, text: str) -> None:
        file = self.catalog / "mine/hook.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("DIR", str(self.directory)))
        time.sleep(_SETTLED_S)

    def device(self, name: str) -> None:
        """Make a device node, which is another name of /dev/null."""
        os.mknod(self.devices / name, 0o20666, os.makedev(1, 3))
        (self.devices / name).chmod(0o666)

    def is_python(self, *argv: str) -> bool:
        return self.node.is_python(self.edf, *argv)

    def answers(self) -> list[Path]:
        """Return the answers of looks into this test's image."""
        place = answers_of(ALICE) / "libraries"
        return [path for path in place.glob("*") if str(self.directory) in path.read_text()]

    def step(self, edf: str) -> tuple[str, ...]:
        """Return the arguments of a step that prints what hooks change in its container."""
        return (f"--environment={edf}", "bash", "-c", _SCRIPT, "bash", str(self.devices))

    def starts(self, edf: str) -> tuple[Completed, Completed, Completed]:
        """Return the first start, the second, and the next one without Python."""
        step = self.step(edf)
        (first, is_python), (again, _is_python) = self.node.srun(*step), self.node.srun(*step)
        assert is_python
        for _ in range(6):
            last, is_python = self.node.srun(*step)
            if not is_python:
                return first, again, last
            time.sleep(_SETTLED_S)
        raise AssertionError("Python at each start")

    def know(self) -> None:
        """Start until the next step starts no Python."""
        for _ in range(8):
            if not self.is_python():
                return
            time.sleep(_SETTLED_S)
        raise AssertionError("Python at each start")


@contextmanager
def with_hook(node: Node, image: Path, text: str = "") -> Iterator[Site]:
    """Yield a site whose environment has a hook, this image and more lines."""
    site = Site(node, image, text)
    try:
        yield site
    finally:
        shutil.rmtree(site.catalog)


@pytest.fixture
def site(node: Node, cluster: Cluster) -> Iterator[Site]:
    with with_hook(node, cluster.image("debian")) as site:
        yield site


def test_the_container_is_the_same_without_a_look_and_without_python(site: Site) -> None:
    first, again, last = site.starts(site.edf)
    assert (first.returncode, first.stderr) == (0, "")
    assert "MINE=yes" in first.stdout
    assert "libmine.so.1" in first.stdout
    assert (again.stdout, again.stderr) == (first.stdout, "")
    assert (last.stdout, last.stderr) == (first.stdout, "")


@pytest.mark.parametrize(
    "text",
    [
        "writable = false\n",
        "mounts = ['DIR/over:/usr/local/lib']\n",
        "mounts = ['IMAGE:/more:sqsh']\n",
        "[env]\nLD_LIBRARY_PATH = '/usr/local/lib'\nPATH = '/bin:/usr/bin'\n",
        "[annotations]\ncom.ce.root_remap = 'true'\n",
        "[annotations]\n\"com.ce.scope\" = 'task'\n",
    ],
    ids=["read-only", "bind", "squashfs", "variables", "root", "task"],
)
def test_the_container_is_the_same_in_each_kind_of_environment(site: Site, text: str) -> None:
    build(site.directory / "over/libmine.so.1", "libmine.so.1", symbol="other")
    image = site.image
    text = text.replace("DIR", str(site.directory)).replace("IMAGE", str(image))
    if "[annotations]" not in text:
        text += "[annotations]\n"
    edf = site.node.cluster.edf(
        f'image = "{image}"\n{text}com.hooks.mine.enabled = "true"\n', image=None
    )
    time.sleep(_SETTLED_S)
    first, again, last = site.starts(edf)
    assert (first.returncode, first.stderr) == (0, "")
    assert "libmine.so.1" in first.stdout
    assert (again.stdout, again.stderr) == (first.stdout, "")
    assert (last.stdout, last.stderr) == (first.stdout, "")


@pytest.mark.parametrize("damage", ["fifo", "libraries", "files", "deep", "removed", "huge"])
def test_a_damaged_answer_of_a_look_is_none(site: Site, damage: str) -> None:
    command = site.step(site.edf)
    first, _is_python = site.node.srun(*command)
    [recorded] = site.answers()
    place = recorded.parents[1]
    aside = site.directory / "aside"
    if damage == "fifo":
        recorded.unlink()
        os.mkfifo(recorded, 0o600)
        shutil.chown(recorded, recorded.parent.owner())
    elif damage == "deep":
        write(recorded, parsed(recorded)._replace(result=b"[" * (1 << 19)))
    elif damage == "huge":
        with recorded.open("ab") as file:
            file.truncate(8 << 30)
    elif damage == "removed":
        shutil.rmtree(place / "files")
    else:
        shutil.move(place / damage, aside)
        (place / damage).symlink_to(aside)
    try:
        for _ in range(2):
            done, _is_python = site.node.srun(*command)
            assert (done.stdout, done.stderr) == (first.stdout, "")
    finally:
        if aside.exists():
            (place / damage).unlink()
            shutil.rmtree(aside)


def test_a_trace_tells_of_the_hooks_all_the_same(site: Site, cluster: Cluster) -> None:
    site.know()
    done, is_python = site.node.srun(f"--environment={site.edf}", "printenv", "SLURM_JOB_ID")
    assert not is_python
    ce = str(cluster.prefix / "bin/ce")
    told = json.loads(cluster.run([ce, "trace", done.stdout.strip(), "--json"]).stdout)
    [here] = told["nodes"]
    assert [hook["name"] for hook in here["hooks"]] == ["mine"]
    assert here["variables"]["hooks"] == ["MINE", "MY_PATH"]


def _another_library(site: Site) -> None:
    build(site.library, "libmine.so.1", symbol="new")


def _one_more(site: Site) -> None:
    build(site.library.with_name("libmore.so.1"), "libmore.so.1")


def _another_source(site: Site) -> None:
    (site.directory / "shown").rename(site.directory / "aside")
    (site.directory / "shown").mkdir()


@pytest.mark.parametrize("change", [_another_library, _one_more, _another_source])
def test_what_hooks_find_differently_on_the_node_starts_python(site: Site, change: object) -> None:
    site.know()
    assert callable(change)
    change(site)
    assert site.is_python()


def test_another_release_with_the_same_file_starts_python(site: Site) -> None:
    """Releases may share a file by hard links and differ in what the file needs beside it."""
    releases, current = site.directory / "releases", site.directory / "current"
    for name in ("1", "2"):
        (releases / name).mkdir(parents=True)
    made = build(releases / "1/libmine.so.1", "libmine.so.1")
    os.link(made, releases / "2/libmine.so.1")
    current.symlink_to("releases/1")
    site.hook(_HOOK.replace("DIR/libs/lib*.so.1", "DIR/current/libmine.so.1"))
    site.know()
    (site.directory / "new").symlink_to("releases/2")
    (site.directory / "new").rename(current)
    script = "grep -o releases/[12] /proc/self/mountinfo | sort -u"
    done, is_python = site.node.srun(f"--environment={site.edf}", "sh", "-c", script)
    assert (done.stdout, is_python) == ("releases/2\n", True), done.stderr


def test_a_link_that_leads_nowhere_starts_python(site: Site) -> None:
    """The source of a hook's optional mount has appeared, but cannot be mounted."""
    later = site.directory / "apart/later"
    later.parent.mkdir()
    more = f'{{ source = "{later}", target = "/later", optional = true }}, {{ source = "DIR/shown"'
    site.hook(_HOOK.replace('{ source = "DIR/shown"', more))
    site.know()
    later.symlink_to("nowhere")
    done, is_python = site.node.srun(f"--environment={site.edf}", "true")
    assert (done.returncode, is_python) == (125, True)
    later.unlink()
    site.know()


def test_a_mount_of_a_hook_that_has_other_flags_starts_python(site: Site) -> None:
    shown = str(site.directory / "shown")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755,noexec", "t", shown], check=True)
    try:
        time.sleep(_SETTLED_S)
        site.know()
        subprocess.run(["mount", "-o", "remount,exec", shown], check=True)
        assert site.is_python()
    finally:
        subprocess.run(["umount", shown], check=True)


def test_what_is_in_a_mount_of_a_hook_is_nobodys_business(site: Site) -> None:
    site.know()
    (site.directory / "shown/more").touch()
    assert not site.is_python()


def test_a_device_that_has_come_starts_python(site: Site) -> None:
    site.know()
    site.device("null-too")
    done, is_python = site.node.srun(f"--environment={site.edf}", "ls", str(site.devices))
    assert (done.stdout.split(), is_python) == (["null", "null-too"], True)


def test_a_device_that_has_gone_starts_python(site: Site) -> None:
    site.device("null-too")
    site.know()
    (site.devices / "null-too").unlink()
    done, is_python = site.node.srun(f"--environment={site.edf}", "ls", str(site.devices))
    assert (done.stdout, is_python) == ("null\n", True), done.stderr


def test_a_variable_of_the_step_that_hooks_extend_starts_python(site: Site) -> None:
    site.know()
    done, is_python = site.node.srun(
        "--export=ALL,MY_PATH=/own", f"--environment={site.edf}", "printenv", "MY_PATH"
    )
    assert (done.stdout, is_python) == ("/mine:/own\n", True)
    assert site.is_python("--export=ALL,LD_LIBRARY_PATH=/own")
    site.know()


def test_what_a_user_has_made_up_does_not_count_where_the_site_has_rules(site: Site) -> None:
    site.know()
    [recorded] = site.answers()
    answer = parsed(recorded)
    steps = json.loads(answer.result)
    root = next(words[-2] for words in steps if words[0] == "root-bind")
    steps.append(["root-bind", "/etc/shells", root, "/made-up"])
    write(recorded, answer._replace(result=json.dumps(steps).encode()))
    rule = f'[policy]\nmount_sources = ["{site.directory}"]\n'
    command = (f"--environment={site.edf}", "sh", "-c", "ls / | grep made-up")
    for more, printed in ("", "made-up\n"), (rule, ""):
        site.configure(more)
        done, is_python = site.node.srun(*command)
        assert (done.stdout, is_python) == (printed, True), done.stderr


@pytest.mark.parametrize(
    "more",
    [
        '[checks.y]\nkind = "loadable"\nsubject = "libnone.so.1"\n',
        '[checks.y]\nkind = "group"\nsubject = "ALICE"\n'.replace("ALICE", ALICE),
        '[edits.y]\nenv = { JOB = "{node.job}" }\n',
        '[services.y]\ncommand = ["true"]\n',
        '[edits.y]\nmounts = [{ source = "/sys/class/ne*", target = "/of-kernel" }]\n',
    ],
    ids=["warning", "group", "job", "service", "kernel"],
)
def test_hooks_that_have_something_to_say_or_to_ask_are_always_pythons(
    site: Site, more: str
) -> None:
    site.hook(_HOOK + more)
    assert [site.is_python() for _ in range(4)] == [True] * 4


# ---- devices, and torch.distributed ------------------------------------------------------------

_MASTER = "echo $WORLD_SIZE $RANK $MASTER_ADDR $MASTER_PORT $SLURM_JOB_ID $SLURM_STEP_ID"


class Gpus:
    """A node with a CDI file, as of a driver, and an environment with it and the hook pytorch."""

    def __init__(self, node: Node, image: Path) -> None:
        self.node, self.directory = node, node.directory
        # CDI files in a place that others may write are not trusted
        self.directory.chmod(0o755)
        (self.directory / "driver").mkdir()
        (self.directory / "cdi").mkdir()
        self.library = build(self.directory / "driver/libgpu.so.1.2", "libgpu.so.1")
        self.device = self.directory / "gpu0"
        os.mknod(self.device, 0o20666, os.makedev(1, 3))
        self.device.chmod(0o666)
        self.file = self.directory / "cdi/gpu.json"
        self.write("first")
        node.configure(f'cdi_dirs = ["{self.directory}/cdi"]\n')
        text = f'image = "{image}"\ndevices = ["example.com/gpu=all"]\n'
        text += '[annotations]\ncom.hooks.pytorch.enabled = "true"\n'
        self.edf = node.cluster.edf(text, image=None)

    def write(self, value: str) -> None:
        target = "/usr/lib/libgpu.so.1.2"
        edits = {
            "env": [f"DRIVER={value}"],
            "deviceNodes": [{"path": "/dev/gpu0", "hostPath": str(self.device)}],
            "mounts": [
                {"hostPath": str(self.library), "containerPath": target, "options": ["ro"]},
                {"hostPath": "/run/of-no-daemon", "containerPath": "/run/of-no-daemon"},
            ],
        }
        devices = [{"name": "all", "containerEdits": edits}]
        spec = {"cdiVersion": "0.6.0", "kind": "example.com/gpu", "devices": devices}
        self.file.write_text(json.dumps(spec))
        time.sleep(_SETTLED_S)

    def step(self, script: str, *argv: str) -> tuple[list[str], bool]:
        """Run a step of this shell script. Return the lines of its output, and if it was Python."""
        words = (*argv, f"--environment={self.edf}", "sh", "-c", script)
        done, is_python = self.node.srun(*words)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout.splitlines(), is_python

    def know(self, *argv: str) -> None:
        """Start until the next such step starts no Python."""
        for _ in range(8):
            if not self.step("true", *argv)[1]:
                return
            time.sleep(_SETTLED_S)
        raise AssertionError("Python at each start")


@pytest.fixture
def gpus(node: Node, cluster: Cluster) -> Gpus:
    return Gpus(node, cluster.image("debian"))


def test_devices_and_their_libraries_are_the_same_without_python(gpus: Gpus) -> None:
    script = f"{_ALL}; sha256sum /etc/ld.so.cache; ls -l /usr/lib/libgpu*; stat -c %t:%T /dev/gpu0"
    script = script.replace("-e ^_=", "-e ^_= -e MASTER_PORT")
    first, is_python = gpus.step(script)
    assert is_python
    assert "DRIVER=first" in first
    assert any("/usr/lib/libgpu.so.1 " in f"{line} " for line in first)
    gpus.know()
    again, is_python = gpus.step(script)
    assert not is_python
    assert again == first


def test_devices_the_network_and_the_job_together_start_without_python(
    gpus: Gpus, network: Network, cluster: Cluster
) -> None:
    network.set_up()
    text = 'env = { OF_JOB = "job ${SLURM_JOB_ID}" }\n' + Path(gpus.edf).read_text()
    static = NCCL.partition("\n")[2] + 'com.hooks.aws_ofi_nccl.variant = "cuda12"\n'
    Path(gpus.edf).write_text(text + static)
    script = f"echo $OF_JOB; echo $DRIVER; echo $NCCL_NET; ls {network.devices} | wc -l"
    with started(cluster, "srun", "-wn1", "sh", "-c", "echo up; exec sleep infinity") as held:
        held.wait_for_lines(1)
        job = job_id(cluster)
        argv = (f"--jobid={job}", "--overlap")
        gpus.know(*argv)
        lines, is_python = gpus.step(script, *argv)
        assert (lines, is_python) == ([f"job {job}", "first", "AWS Libfabric", "4"], False)


def test_each_step_has_a_port_of_its_own_for_torch_without_python(gpus: Gpus) -> None:
    gpus.know("-n2")
    ports = set()
    for _ in range(3):
        lines, is_python = gpus.step(_MASTER, "-n2")
        assert not is_python
        assert [line.split()[:3] for line in sorted(lines)] == [["2", "0", "n1"], ["2", "1", "n1"]]
        [(port, job, step)] = {tuple(line.split()[3:]) for line in lines}
        assert port == slurm_step.port({"SLURM_JOB_ID": job, "SLURM_STEP_ID": step})
        ports.add(port)
    assert len(ports) == 3


def test_another_number_of_tasks_starts_python(gpus: Gpus) -> None:
    gpus.know("-n2")
    lines, is_python = gpus.step("echo $WORLD_SIZE", "-n3")
    assert (lines, is_python) == (["3"] * 3, True)
    lines, is_python = gpus.step("echo $WORLD_SIZE", "-n3")
    assert (lines, is_python) == (["3"] * 3, False)


def test_another_master_starts_python(gpus: Gpus, cluster: Cluster) -> None:
    gpus.know("-n2")
    argv = (f"--environment={gpus.edf}", "sh", "-c", "echo $MASTER_ADDR $WORLD_SIZE")
    for nodes in "n1,n2", "n2":
        count = str(len(nodes.split(",")))
        done = cluster.srun("-w", nodes, f"-N{count}", "-n2", *argv)
        assert done.stdout.splitlines() == [f"{nodes[:2]} 2"] * 2, done.stderr


def test_a_cdi_file_that_changes_starts_python(gpus: Gpus) -> None:
    gpus.know()
    gpus.write("other")
    lines, is_python = gpus.step("echo $DRIVER")
    assert (lines, is_python) == (["other"], True)


def test_another_driver_starts_python(gpus: Gpus) -> None:
    gpus.know()
    (gpus.directory / "new").mkdir()
    build(gpus.directory / "new/libgpu.so.1.2", "libgpu.so.1", symbol="new")
    (gpus.directory / "new/libgpu.so.1.2").rename(gpus.library)
    wanted = gpus.library.read_bytes()
    lines, is_python = gpus.step("sha256sum < /usr/lib/libgpu.so.1.2")
    assert (lines, is_python) == ([f"{sha256(wanted).hexdigest()}  -"], True)


def test_a_device_of_cdi_that_is_another_one_starts_python(gpus: Gpus) -> None:
    gpus.know()
    gpus.device.unlink()
    os.mknod(gpus.device, 0o20666, os.makedev(1, 5))
    gpus.device.chmod(0o666)
    lines, is_python = gpus.step("stat -c %t:%T /dev/gpu0")
    assert (lines, is_python) == (["1:5"], True)


def test_a_device_of_cdi_that_is_gone_is_explained_as_ever(gpus: Gpus) -> None:
    gpus.know()
    gpus.device.unlink()
    done, is_python = gpus.node.srun(f"--environment={gpus.edf}", "true")
    assert (done.returncode, is_python) == (125, True)
    assert f"device node '{gpus.device}': No such file or directory" in done.stderr

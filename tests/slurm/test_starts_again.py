"""A step that starts a container as an earlier one did: no Python starts on the node.

Where Python is needed, ce-guard becomes the launcher. Here a script takes the launcher's place,
records each start and executes it.
"""

import json
import os
import pwd
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.recorded import fault
from tests.slurm.cluster import ALICE, BOB, Cluster, Completed, causes
from tests.slurm.error_block import differing, mounted_on
from tests.slurm.leftovers import steps
from tests.slurm.polling import until

pytestmark = pytest.mark.usefixtures("tidy")

# A file that changed less long ago is not trusted: its next change might go unnoticed.
_SETTLED_S = 2.2


# Python and no shell, which might reap the guard's parent before the launcher does
_NOTING = """#!/usr/bin/python3 -ISE
import os, sys
os.write(os.open("{noted}", os.O_WRONLY | os.O_APPEND), b"x")
os.execv("{launcher}", ["{launcher}", *sys.argv[1:]])
"""


def answers_of(user: str) -> Path:
    """Return the directory of a user's answers on this machine."""
    return Path(f"/var/tmp/ce-answers-{pwd.getpwnam(user).pw_uid}")


class Node:
    """A node on which starts of Python are counted."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster, self.directory = cluster, directory
        self._launcher = cluster.prefix / "libexec/container-engine/launcher"
        self._aside = self._launcher.with_name("launcher.aside")
        self._noted = directory / "noted"
        self._noted.touch()
        self._noted.chmod(0o666)
        self.conf = cluster.prefix / "etc/container-engine/conf.d/90-of-a-test.toml"
        self._way = self.conf.with_name("80-way-of-a-test.toml")

    def __enter__(self) -> Self:
        self.conf.parent.mkdir(parents=True, exist_ok=True)
        # whatever the site has chosen: starts by Podman are not repeated without Python
        self._way.write_text('start = "crun"\n')
        self._launcher.rename(self._aside)
        text = _NOTING.format(noted=self._noted, launcher=self._aside)
        self._launcher.write_text(text)
        self._launcher.chmod(0o755)
        return self

    def __exit__(self, *_error: object) -> None:
        self._aside.rename(self._launcher)
        for file in (self.conf, self._way):
            file.unlink(missing_ok=True)

    @property
    def pythons(self) -> int:
        """Return how often Python has started."""
        return self._noted.stat().st_size

    def srun(self, *argv: str, user: str = ALICE) -> tuple[Completed, bool]:
        """Run a step; return also whether Python started."""
        before, others = self.pythons, set(steps())
        done = self.cluster.srun("-w", "n1", *argv, user=user)
        until("the end of the step", lambda: others.issuperset(steps()))
        return done, self.pythons != before

    def is_python(self, edf: str, *argv: str, user: str = ALICE) -> bool:
        """Run a step in this environment; return whether Python started."""
        done, is_python = self.srun(*argv, f"--environment={edf}", "true", user=user)
        assert done.returncode == 0, done.stderr
        return is_python

    def known(self, text: str = "", image: Path | None = None) -> str:
        """Return an environment in which the next step starts no Python."""
        name = self.image() if image is None else image
        edf = self.cluster.edf(f'image = "{name}"\n{text}', image=None)
        time.sleep(_SETTLED_S)
        assert self.is_python(edf)
        # more than once where something that a start looks at was changed a moment ago
        assert any(not self.is_python(edf) for _ in range(8)), "Python at each start"
        return edf

    def image(self) -> Path:
        """Return an image of this test's own."""
        path = Path(tempfile.mkdtemp(dir=self.directory)) / "own.sqsh"
        path.parent.chmod(0o755)
        shutil.copy(self.cluster.image("demo"), path)
        return path

    def configure(self, text: str) -> None:
        self.conf.write_text(text)

    def answers(self, user: str = ALICE) -> list[Path]:
        starts = answers_of(user) / "starts"
        return sorted(starts.glob("[!.]*"), key=lambda path: path.stat().st_mtime_ns)


@pytest.fixture
def node(cluster: Cluster, shared: Path) -> Iterator[Node]:
    with Node(cluster, shared) as node:
        yield node


_ALL = (
    "sed 's/^[0-9]* [0-9]* [0-9:]* //; s/master:[0-9]*//; s/sandbox-[^ ]*//' /proc/self/mountinfo;"
    " env | grep -v -e SLURM_ -e ^_= | sort; id; ulimit -a;"
    " grep -e ^Cap -e NoNewPrivs -e Seccomp: /proc/self/status;"
    " cat /etc/passwd /etc/group /etc/hostname /run/.containerenv; pwd;"
    " stat -c '%n %A %u %g' /* /dev/*; umask"
)


def test_a_user_whom_no_file_of_the_node_names_starts_without_python(
    node: Node, shared: Path
) -> None:
    """Name the user by libnss-extrausers, a source of users beside the files, as SSSD is."""
    shutil.copytree("/etc", etc := shared / "etc", symlinks=True)
    (source := shared / "extrausers").mkdir()
    entries = {}
    for name in "passwd", "group":
        lines = Path("/etc", name).read_text().splitlines(keepends=True)
        entries[name] = next(line for line in lines if line.startswith(f"{ALICE}:"))
        (etc / name).write_text("".join(line for line in lines if line != entries[name]))
        (source / name).write_text(entries[name])
    (etc / "nsswitch.conf").write_text("passwd: extrausers files\ngroup: extrausers files\n")
    with (
        differing("n1"),
        mounted_on("n1", str(etc), "/etc"),
        mounted_on("n1", str(source), "/var/lib/extrausers"),
    ):
        edf = node.known()
        shell = pwd.getpwnam(ALICE).pw_shell
        (source / "passwd").write_text(entries["passwd"].replace(f":{shell}", ":/bin/other"))
        look = (f"--environment={edf}", "grep", f"^{ALICE}:", "/etc/passwd")
        done, is_python = node.srun(*look)
        assert done.stdout.endswith(":/bin/other\n"), done.stderr
        assert is_python
        assert node.srun(*look)[0].stdout == done.stdout
        assert not node.is_python(edf)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "writable = false\nworkdir = '/usr'\n",
        "[env]\nA = 'b c'\nGONE = ''\n",
        "[annotations]\ncom.ce.root_remap = 'true'\n",
        "mounts = ['/usr/share:/there:ro', '/not/there:/x:nofail']\n",
        "devices = ['/dev/null', '/dev/full']\n",
        "startup = ['export A=\"1 2\" B=$$PWD; unset LANG', "
        "'export S=\"$$(grep SigIgn /proc/self/status)\"', 'cd /; exit 0']\n",
        "[annotations.com.ce]\nunshare = 'net,ipc,uts,pid,sys'\n",
        "[annotations.com.ce]\nmemory_limit = '1g'\npids_limit = 99\ntime_limit_s = 99\n",
    ],
    ids=[
        "nothing",
        "read-only",
        "variables",
        "root",
        "mounts",
        "devices",
        "startup",
        "unshare",
        "limits",
    ],
)
def test_the_container_is_the_same_without_python(node: Node, text: str) -> None:
    image = node.image()
    edf = node.cluster.edf(f'image = "{image}"\n{text}', image=None)
    time.sleep(_SETTLED_S)
    first, is_python = node.srun(f"--environment={edf}", "sh", "-c", _ALL)
    assert (first.returncode, is_python) == (0, True), first.stderr
    again, is_python = node.srun(f"--environment={edf}", "sh", "-c", _ALL)
    assert not is_python
    assert (again.returncode, again.stderr) == (0, first.stderr)
    assert again.stdout.splitlines() == first.stdout.splitlines()


@pytest.mark.parametrize(
    "path", ["node/container/specification.py", "node/start/launcher.py", "base/variables.py"]
)
def test_a_file_of_the_engine_that_is_replaced_is_noticed(
    cluster: Cluster, node: Node, path: str
) -> None:
    edf = node.known()
    module = cluster.module(path)
    shutil.copy2(module, new := module.with_suffix(".new"))
    new.replace(module)
    assert node.is_python(edf)


def test_a_file_that_is_overwritten_in_place_with_its_old_time_is_noticed(
    cluster: Cluster, node: Node
) -> None:
    edf = node.known()
    module = cluster.module("node/container/specification.py")
    found = module.stat()
    module.write_bytes(module.read_bytes())
    os.utime(module, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert node.is_python(edf)


def test_each_node_and_all_tasks_start_without_python(cluster: Cluster, node: Node) -> None:
    edf = node.known()
    done, is_python = node.srun("-n4", f"--environment={edf}", "printenv", "SLURM_PROCID")
    assert (sorted(done.stdout.split()), is_python) == (["0", "1", "2", "3"], False)
    two = cluster.srun("-N2", "-n4", f"--environment={edf}", "printenv", "SLURM_NODEID")
    assert sorted(two.stdout.split()) == ["0", "0", "1", "1"]


def test_a_container_for_each_task_starts_without_python(node: Node) -> None:
    edf = node.known('writable = true\n[annotations]\n"com.ce.scope" = "task"\n')
    script = "touch /here && readlink /proc/self/ns/mnt"
    done, is_python = node.srun("-n4", "-O", f"--environment={edf}", "sh", "-c", script)
    assert (len(set(done.stdout.split())), done.stderr, is_python) == (4, "", False)


@pytest.mark.parametrize("scope", ["step", "task"])
def test_limits_hold_without_python(node: Node, scope: str) -> None:
    limits = f"[annotations.com.ce]\nscope = '{scope}'\ntime_limit_s = 3\npids_limit = 9\n"
    edf = node.known(limits)
    script = "ulimit -u; ls -d /proc/[0-9]* | wc -l; exec sleep 60"
    done, is_python = node.srun(f"--environment={edf}", "bash", "-c", script)
    most, count = done.stdout.split()
    assert (most, is_python, done.returncode) == ("11", False, 137)
    assert int(count) < 9
    assert "the container was ended: it ran for longer than the 3 s" in done.stderr
    assert done.stderr.count("ce: see: ce help container-limit") == 1


def test_a_trace_tells_of_such_a_start_what_it_tells_of_others(
    cluster: Cluster, node: Node
) -> None:
    edf = node.known()
    done, is_python = node.srun(f"--environment={edf}", "printenv", "SLURM_JOB_ID")
    assert not is_python
    ce = str(cluster.prefix / "bin/ce")
    told = cluster.run([ce, "trace", done.stdout.strip()]).stdout
    for phase in ("plan", "launch", "mount", "create", "environment", "first join"):
        assert f"\n{phase}" in told
    other, is_python = node.srun("-mcyclic", f"--environment={edf}", "printenv", "SLURM_JOB_ID")
    assert not is_python
    told = cluster.run([ce, "diff", done.stdout.strip(), other.stdout.strip()]).stdout
    assert told.startswith('+ slurm.SLURM_DISTRIBUTION = "cyclic')
    assert told.count("\n") == 1


def test_an_image_that_is_replaced_starts_python(node: Node) -> None:
    image = node.image()
    edf = node.known(image=image)
    shutil.copy(image, f"{image}.new")
    os.rename(f"{image}.new", image)
    assert node.is_python(edf)


def test_a_configuration_that_changes_starts_python(node: Node) -> None:
    edf = node.known()
    node.configure("start_timeout_s = 120\n")
    assert node.is_python(edf)


def test_the_source_of_a_mount_that_is_replaced_starts_python(node: Node) -> None:
    source = node.directory / "source"
    source.mkdir()
    (source / "file").touch()
    edf = node.known(f"mounts = ['{source}:/there']\n")
    # the directory's contents do not matter
    (source / "more").touch()
    assert not node.is_python(edf)
    source.rename(node.directory / "old")
    source.mkdir()
    assert node.is_python(edf)


def test_a_source_that_is_gone_is_explained_as_ever(node: Node) -> None:
    source = node.directory / "source"
    source.mkdir()
    edf = node.known(f"mounts = ['{source}:/there']\n")
    source.rmdir()
    done, is_python = node.srun(f"--environment={edf}", "true")
    assert (done.returncode, is_python) == (125, True)
    assert f"mount source '{source}': does not exist" in "".join(causes(done))


def test_an_environment_that_changes_starts_python(node: Node) -> None:
    edf = node.known("[env]\nA = '1'\n")
    path = Path(edf)
    path.write_text(path.read_text().replace("'1'", "'2'"))
    done, is_python = node.srun(f"--environment={edf}", "printenv", "A")
    assert (done.stdout, is_python) == ("2\n", True)


def test_a_variable_of_the_step_that_chooses_mpirun_starts_python(node: Node) -> None:
    edf = node.known()
    done, is_python = node.srun(
        "--export=ALL,HYDRA_LAUNCHER=ssh", f"--environment={edf}", "printenv", "HYDRA_LAUNCHER"
    )
    assert (done.stdout, is_python) == ("ssh\n", True)


def test_another_user_has_answers_of_their_own(node: Node) -> None:
    edf = node.known()
    assert node.is_python(edf, user=BOB)
    assert not node.is_python(edf, user=BOB)
    for user in (ALICE, BOB):
        [*_, recorded] = node.answers(user)
        for path, mode in (
            (recorded, 0o600),
            (recorded.parent, 0o700),
            (recorded.parent.parent, 0o700),
        ):
            status = path.stat()
            assert (status.st_uid, status.st_mode & 0o777) == (pwd.getpwnam(user).pw_uid, mode)


@pytest.mark.parametrize("name", ["podman", "runtime"])
def test_another_podman_or_runtime_starts_python(node: Node, name: str) -> None:
    program = node.directory / name
    actual = {"podman": "podman", "runtime": "crun"}[name]
    program.write_text(f'#!/bin/sh\nexec {actual} "$@"\n')
    program.chmod(0o755)
    node.configure(f'{name} = "{program}"\n')
    edf = node.known()
    program.write_text(f'#!/bin/sh\n\nexec {actual} "$@"\n')
    assert node.is_python(edf)


def test_a_rule_for_images_is_asked_whatever_is_recorded(node: Node) -> None:
    edf = node.known()
    node.configure('image_stores = ["/nowhere"]\n[policy]\nsite_images_only = true\n')
    done, _is_python = node.srun(f"--environment={edf}", "true")
    assert done.returncode != 0
    assert "policy.site_images_only" in done.stderr
    node.configure('[policy]\nmount_sources = ["/usr"]\n')
    # even if the policy admits this environment
    assert node.is_python(edf)
    assert node.is_python(edf)


@pytest.mark.parametrize("damage", ["short", "bit", "larger", "mode", "link", "owner", "directory"])
def test_an_answer_that_is_not_what_it_was_is_not_used(node: Node, damage: str) -> None:
    edf = node.known()
    [*_, recorded] = node.answers()
    text, alice = recorded.read_bytes(), pwd.getpwnam(ALICE)
    if damage == "short":
        recorded.write_bytes(text[:-1])
    elif damage == "bit":
        recorded.write_bytes(text[:-100] + bytes([text[-100] ^ 1]) + text[-99:])
    elif damage == "larger":
        with recorded.open("ab") as file:
            file.truncate(5 << 20)
    elif damage == "mode":
        recorded.chmod(0o644)
    elif damage == "link":
        recorded.rename(recorded.with_name("aside"))
        recorded.symlink_to("aside")
    elif damage == "owner":
        os.chown(recorded, pwd.getpwnam(BOB).pw_uid, alice.pw_gid)
    elif damage == "directory":
        recorded.parent.chmod(0o755)
    assert node.is_python(edf)
    if damage == "directory":
        recorded.parent.chmod(0o700)
    # The answer has been written again, unless the directory was not private.
    assert not node.is_python(edf) or damage == "directory"


@pytest.mark.parametrize("count", [15, pytest.param(300, marks=pytest.mark.soak)])
def test_random_faults_of_answers_never_start_another_container(node: Node, count: int) -> None:
    chance = random.Random(seed := os.environ.get("FAULTS_SEED") or f"{time.time_ns()}")
    steps = []
    for text in ("[env]\nA = '1'\n", "workdir = '/usr'\nmounts = ['/usr/share:/there']\n"):
        words = (f"--environment={node.known(text)}", "sh", "-c", _ALL)
        [*_, file] = node.answers()
        steps.append((words, file, node.srun(*words)[0].stdout))
    for number in range(count):
        (words, file, expected), (others, other, of_other) = chance.sample(steps, 2)
        name = fault(chance, file, other)
        where = f"FAULTS_SEED={seed}, {number}: {name}"
        done, is_python = node.srun(*words)
        assert (done.stdout, is_python) == (expected, True), where
        if (beside := file.with_suffix(".1")).exists():
            beside.replace(file)  # an answer for other variables, as the damaged one seemed to be
        assert node.srun(*others)[0].stdout == of_other, where


@pytest.mark.parametrize(
    "text",
    [
        "startup = ['echo ${SLURM_JOB_ID}']\n",
        "[annotations]\ncom.ce.start = 'podman'\n",
        "[annotations]\ncom.hooks.slurm.enabled = 'true'\n",
    ],
    ids=["startup", "podman", "hook"],
)
def test_a_start_that_asks_the_node_is_always_pythons(node: Node, text: str) -> None:
    edf = node.cluster.edf(text)
    assert node.is_python(edf)
    assert node.is_python(edf)


def test_a_deferred_string_has_the_value_of_its_own_step(node: Node) -> None:
    edf = node.known("workdir = '${SLURM_JOB_NAME:+/tmp}'\n[env]\nOF_STEP = '${SLURM_JOB_NAME}'\n")

    def is_python(name: str) -> bool:
        show = f"--environment={edf}", "sh", "-c", "echo $OF_STEP; pwd"
        done, is_python = node.srun("-J", name, *show)
        assert done.stdout.split() == [name, "/tmp"], done.stderr
        return is_python

    for name in ("a", "b"):
        assert is_python(name)
    assert not any(map(is_python, ("a", "b", "a")))


def test_an_entrypoint_runs_once_in_each_start(node: Node) -> None:
    image, log, value = node.image(), node.directory / "log", node.directory / "value"
    log.touch()
    log.chmod(0o666)
    value.write_text("a")
    script = f'echo x >>{log}; export LEFT=$(cat {value}); exec "$@"'
    config = {"config": {"Entrypoint": ["sh", "-c", script, "sh"]}}
    Path(f"{image}.json").write_text(json.dumps(config))
    edf = node.known(f"mounts = ['{log.parent}:{log.parent}']\nentrypoint = true\n", image)
    show = (f"--environment={edf}", "sh", "-c", f"echo $LEFT; wc -l <{log}")
    for left, is_known in (("a", [True]), ("b", [False, False, True])):
        value.write_text(left)
        log.write_text("")
        shown = [node.srun(*show) for _ in is_known]
        assert [not is_python for _done, is_python in shown] == is_known
        # once more where it has left something else than what is recorded
        more = 0 if left == "a" else 1
        expected = [f"{left}\n{number + more}\n" for number in range(1, 1 + len(shown))]
        assert [done.stdout for done, _is_python in shown] == expected


def test_start_up_steps_run_once_in_each_start(node: Node) -> None:
    log, flag = (node.directory / name for name in ("log", "flag"))
    log.touch()
    log.chmod(0o666)
    lines = (
        f"echo $$SLURM_JOB_ID >>{node.directory}/log; export RUN=run-$$SLURM_JOB_ID SLURM_JOB_ID=0",
        f"unset GONE; test ! -e {node.directory}/flag || {{ echo why; false; }}",
    )
    text = f"mounts = ['{node.directory}:{node.directory}']\nstartup = {[*lines]}\n"
    edf = node.known(f"{text}[env]\nGONE = 'x'\n")
    log.write_text("")
    show = (f"--environment={edf}", "sh", "-c", "echo $RUN ${GONE-gone} $SLURM_JOB_ID")
    shown = [node.srun(*show) for _ in range(2)]
    jobs = log.read_text().split()
    assert len({*jobs}) == 2
    assert [(done.stdout, done.stderr, is_python) for done, is_python in shown] == [
        (f"run-{job} gone {job}\n", "", False) for job in jobs
    ]
    flag.touch()
    done, is_python = node.srun(*show)
    # Python explains, but does not run them again
    assert (done.returncode, is_python, len(log.read_text().split())) == (125, True, 3)
    expected = f"{edf}:3: '{lines[1].replace('$$', '$')}': start-up step failed: exit code 1"
    assert f"{expected}; it printed: why" in done.stderr
    flag.unlink()
    assert not node.is_python(edf)


def test_a_container_that_is_saved_is_always_pythons(node: Node) -> None:
    """The launcher stays until the container ends, to save it."""
    saved = node.directory / "saved.sqsh"
    edf = node.cluster.edf(f"[annotations]\ncom.ce.container_save = '{saved}'\n")
    for _ in range(2):
        done, is_python = node.srun(f"--environment={edf}", "true")
        assert done.returncode == 0, done.stderr
        assert is_python
        assert saved.exists()
        saved.unlink()


def test_the_first_step_in_a_kept_container_is_always_pythons(node: Node) -> None:
    kept = node.cluster.edf("[annotations]\ncom.ce.scope = 'job'\n")
    assert node.is_python(kept)
    assert node.is_python(kept)

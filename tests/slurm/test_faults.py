"""Random faults during the start of a step.

The command must run in its container or not at all; nothing may be left; the store must be sound
and other users' jobs untouched. The seed is printed; FAULTS_SEED repeats a run, FAULTS_RUNS is the
number of rounds of the long test.
"""

import os
import pwd
import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.integration.registry import Registry, serving
from tests.slurm import faults
from tests.slurm.cluster import ALICE, BOB, Cluster
from tests.slurm.forge import Forge
from tests.slurm.job import Job, started
from tests.slurm.leftovers import left, public_files
from tests.slurm.polling import until
from tests.slurm.procfs import Process, processes
from tests.slurm.test_hooks_again import Site, with_hook
from tests.slurm.test_starts_again import Node
from tests.unit.images.oci import Member, link

_GONE_WITHIN_S = 5
_STEP_ENDS_WITHIN_S = 60  # Slurm's own time limits for a step that does not end
# The shell itself finds out where it is: a separate program could be killed, and its failure would
# not show where it ran.
_SCRIPT = """
if read -r name </etc/os-release; then
    case $name in *'Container Engine demo'*) echo inside ;; *) echo OUTSIDE ;; esac
else
    echo gone
fi >> "$0"
sleep 0.3
"""
_STARTERS = {"ce-task", "launcher", "launcher.aside", "podman", "crun"}
# Files that a launch writes in the user's home.
_WRITTEN = (".cache/container-engine", ".local/state/container-engine")


def _patience() -> float:
    """Return the factor by which other work may slow down this machine now."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _new_public_files(before: set[Path]) -> set[Path]:
    """Return new public files, except the empty one of an interrupted `crun start`.

    crun leaves it in /tmp if it is killed while it copies itself; Podman starts it and gives it no
    other directory.
    """
    new = {path for path in public_files() - before if path.exists()}
    return {p for p in new if not (p.match("/tmp/crun.??????") and p.stat().st_size == 0)}


def _probe_lines(shared: Path) -> str:
    """Return the lines of the environment for the command that reports where it runs."""
    return f'workdir = "/"\nmounts = ["{shared}:{shared}"]\n'


class _Round:
    """One start of two tasks with one fault, and its outcome."""

    def __init__(self, site: Site, seed: str, members: list[Member], linked: Path) -> None:
        self._site, self._members, self._linked = site, members, linked
        self._cluster, self._shared = site.node.cluster, site.directory
        self.fault = faults.choose(random.Random(seed))
        shared = self._shared
        self._marker = shared / "marker"
        self._image = site.image if self.fault.again else shared / "image.sqsh"
        self._store = shared / "store"
        self._alice = pwd.getpwnam(ALICE)
        self._before = public_files()

    def run(self) -> str:
        """Return "ran" or "did not run"; raise AssertionError with any violation."""
        self._marker.unlink(missing_ok=True)
        with ExitStack() as stack:
            if self.fault.imports:
                said = self._import(stack)
            elif self.fault.again:
                said = self._again(stack)
            else:
                whole = self._cluster.image("demo")
                shutil.copyfile(self._linked if "links" in self.fault.way else whole, self._image)
                said = self._start(self._edf(str(self._image)), {}, stack)
        if self.fault.ends_a_daemon or self.fault.kind == "pause a daemon":
            faults.bring_up()
        return said

    def _edf(self, image: str) -> str:
        text = f'image = "{image}"\n{_probe_lines(self._shared)}'
        if self.fault.kind == "leave little room":
            text += f'annotations."com.ce.tmpfs_size" = "{4 + int(self.fault.choice * 200)}k"\n'
        if "links" in self.fault.way:
            text = text.replace("mounts = [", f'mounts = ["{self._shared}:/data/made", ')
            text += 'startup = ["true"]\nenv.HOME = "/home/me"\n'
        if "podman" in self.fault.way:
            text += 'annotations."com.ce.start" = "podman"\n'
        return self._cluster.edf(text, image=None)

    def _again(self, stack: ExitStack) -> str:
        """Start what the node knows from earlier starts, and say whether Python started."""
        whole = self._cluster.image("demo")
        if not self._image.exists() or self._image.stat().st_size != whole.stat().st_size:
            shutil.copyfile(whole, self._image)
        self._site.know()
        before = self._site.node.pythons
        said = self._start(self._site.edf, {}, stack)
        return f"{said} ({'Python' if self._site.node.pythons != before else 'no Python'})"

    def _start(self, edf: str, env: Mapping[str, str], stack: ExitStack) -> str:
        cluster, fault = self._cluster, self.fault
        step = ["-w", "n1", "-n2", f"--environment={edf}", "sh", "-c", _SCRIPT, str(self._marker)]
        argv = ["srun", *step]
        if fault.kind == "allow few processes":
            argv = ["prlimit", f"--nproc={1 + int(fault.choice * 30)}", *argv]
        full = self._store if fault.imports else self._small_home(stack)
        with started(cluster, *argv, env=env) as job:
            scene = faults.Scene(
                *(cluster, ALICE, self._alice.pw_uid, self._image, full),
                lambda: job.process.poll() is not None,
            )
            hit = faults.inflict(fault, scene)
            self._wait(job)
        self._until_nothing_is_left(hit)
        said = self._marker.read_text().split() if self._marker.exists() else []
        assert set(said) <= {"inside", "gone"}, f"{fault}, {hit}: {said}"
        return "ran" if "inside" in said else "did not run"

    def _small_home(self, stack: ExitStack) -> Path:
        places = [self._cluster.home() / name for name in _WRITTEN]
        if self.fault.kind == "fill the home":
            assert self._cluster.run(["mkdir", "-p", *map(str, places)]).returncode == 0
            user = self._alice
            stack.enter_context(faults.small_file_system(places, user.pw_uid, user.pw_gid, "256k"))
        return places[-1]

    def _wait(self, job: Job) -> None:
        """Wait for srun; cancel the job if it hangs.

        After a killed slurmstepd srun waits for the end of the job, natively too.
        """
        try:
            job.wait(self.fault.lasts_s + 4 * _patience())
        except AssertionError:
            self._cluster.cancel_all(ALICE)
            job.wait(_STEP_ENDS_WITHIN_S * _patience())
        self._cluster.cancel_all(ALICE)

    def _until_nothing_is_left(self, hit: str) -> None:
        """Wait until nothing is left, at most five seconds after Slurm has ended the step."""
        uid = self._alice.pw_uid

        def is_over() -> bool:
            return not _steps_of_others_than(BOB)

        def is_gone() -> bool:
            own = [p for p in processes() if p.lives and p.uid == uid and p.comm != "squeue"]
            return not (own or _left_of_alice(self._cluster) or _new_public_files(self._before))

        try:
            until("the end of the step", is_over, _STEP_ENDS_WITHIN_S * _patience())
            until("the end of all", is_gone, _GONE_WITHIN_S * _patience())
        except AssertionError as error:
            own = [f"{p.pid} {p.state} {p.command or p.comm}" for p in processes() if p.uid == uid]
            found = [
                *own,
                *_left_of_alice(self._cluster),
                *map(str, _new_public_files(self._before)),
            ]
            raise AssertionError(f"{self.fault}, {hit}: {error}; {found}") from None

    # ---- with an image that must be imported first -------------------------------------------

    def _import(self, stack: ExitStack) -> str:
        """Launch with an import and the fault, launch again without it, then check the store."""
        self._store.mkdir(exist_ok=True)
        user = self._alice
        os.chown(self._store, user.pw_uid, user.pw_gid)
        if self.fault.kind == "fill the store":
            size = f"{100 + int(self.fault.choice * 3000)}k"
            places = [self._store]
            with (
                faults.small_file_system(places, user.pw_uid, user.pw_gid, size),
                self._registry() as registry,
            ):
                said = self._imported(registry, stack)
                (self._store / "filler").unlink(missing_ok=True)
                self._check_store()
                return said
        with self._registry() as registry:
            said = self._imported(registry, stack)
        with self._registry() as registry:
            again = self._imported_again(registry)
        assert again == "inside\ninside\n", f"{self.fault}: {again}"
        self._check_store()
        shutil.rmtree(self._store)
        return said

    @contextmanager
    def _registry(self) -> Iterator[Registry]:
        with TemporaryDirectory() as home, serving(Path(home)) as registry:
            registry.push(Path(home) / "image", "faults:1", self._members)
            known = Path(home) / ".config/containers/registries.conf"
            (self._shared / ".config/containers").mkdir(parents=True, exist_ok=True)
            shutil.copyfile(known, self._shared / ".config/containers/registries.conf")
            yield registry

    def _environment(self) -> dict[str, str]:
        # the home has a configuration that allows this registry without TLS
        return {"EDF_IMAGESTORE": str(self._store), "HOME": str(self._shared)}

    def _imported(self, registry: Registry, stack: ExitStack) -> str:
        edf = self._edf(f"{registry.address}/faults:1")
        return self._start(edf, self._environment(), stack)

    def _imported_again(self, registry: Registry) -> str:
        text = f'image = "{registry.address}/faults:1"\nworkdir = "/"\n'
        edf = self._cluster.edf(text, image=None)
        script = "grep -q 'Container Engine demo' /etc/os-release && echo inside"
        step = [f"--environment={edf}", "-n2", "sh", "-c", script]
        done = self._cluster.srun(*step, env=self._environment(), timeout=120)
        return done.stdout + done.stderr.partition("ce: error")[2]

    def _check_store(self) -> None:
        ce = str(self._cluster.prefix / "bin/ce")
        done = self._cluster.run([ce, "store", "check"], env=self._environment())
        wrong = [line for line in done.stdout.splitlines() if _is_damage(line)]
        assert done.returncode == 0 or not wrong, f"{self.fault}: {done.stdout}{done.stderr}"


def _is_damage(line: str) -> bool:
    """Check whether a line of the store's report is damage.

    A killed import may leave its work, which the next import of the image removes.
    """
    kept = ("left by an import that was ended", "which is gone")
    return line.startswith("/") and not any(word in line for word in kept)


def _steps_of_others_than(user: str) -> list[Process]:
    uid = pwd.getpwnam(user).pw_uid
    steps = [p for p in processes() if p.lives and p.comm == "slurmstepd"]
    parents = {p.parent for p in processes() if p.uid == uid}
    return [step for step in steps if step.pid not in parents]


def _left_of_alice(cluster: Cluster) -> list[str]:
    """Return Alice's leftovers only, since the bystander's container may still run."""
    uid = pwd.getpwnam(BOB).pw_uid
    bobs = {str(process.pid) for process in processes() if process.uid == uid}
    stepds = {str(p.parent) for p in processes() if p.uid == uid}
    mine = [line for line in left(cluster) if not any(f" {pid}:" in line for pid in bobs | stepds)]
    return [line for line in mine if " open in slurmstepd" not in line]


def _runnable(cluster: Cluster) -> list[Member]:
    """Return a layer with a shell in the image's PATH, made from the sandbox's smallest image."""
    with TemporaryDirectory() as work:
        root = Path(work) / "root"
        argv = ["unsquashfs", "-q", "-n", "-d", str(root), str(cluster.image("busybox"))]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        program = Member("opt/bin/busybox", (root / "bin/busybox").read_bytes(), mode=0o755)
    names = ("sh", "grep", "sleep")
    release = Member("etc/os-release", b'PRETTY_NAME="Container Engine demo (imported)"\n')
    return [program, release, *(link(f"opt/bin/{name}", "busybox") for name in names)]


def _with_links(forge: Forge) -> Path:
    """Return an image in which mount points and HOME are behind links that dangle."""
    forge.put("etc/os-release", 'PRETTY_NAME="Container Engine demo (with links)"\n')
    for name, target in (("home", "var/home"), ("data", "/far/./up/../data"), ("far", "srv/far")):
        forge.link(name, target)
    return forge.image()


@pytest.fixture
def site(cluster: Cluster, shared: Path) -> Iterator[Site]:
    """Yield a site with an environment that the node repeats, of an image that may be damaged."""
    image = shared / "again.sqsh"
    shutil.copyfile(cluster.image("demo"), image)
    with Node(cluster, shared) as node, with_hook(node, image, _probe_lines(shared)) as site:
        yield site


def _rounds(site: Site, demo: str, forge: Forge, count: int) -> None:
    cluster = site.node.cluster
    seed = os.environ.get("FAULTS_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"FAULTS_SEED={seed}", flush=True)
    ended: Counter[str] = Counter()
    members, linked = _runnable(cluster), _with_links(forge)
    script = "echo up $$; read line; echo alive $line"
    # The bystander also runs on the node that the faults hit.
    step = ["-N2", f"--environment={demo}", "sh", "-c", script]
    with started(cluster, "srun", *step, user=BOB) as bystander:
        ups = bystander.wait_for_lines(2)
        alive = until("the bystander's start to be over", _bystander_at_rest)
        for number in range(count):
            a_round = _Round(site, f"{seed}-{number}", members, linked)
            print(f"{number}: {a_round.fault}", flush=True)
            try:
                again = " (again)" if a_round.fault.again else ""
                again += f" ({a_round.fault.way})" if a_round.fault.way else ""
                ended[f"{a_round.fault.kind}{again}: {a_round.run()}"] += 1
                _check_bystander(cluster, bystander, alive, a_round.fault)
            except AssertionError as error:
                raise AssertionError(f"FAULTS_SEED={seed}, round {number}: {error}") from None
        bystander.write("and well\n")
        bystander.close_input()
        done = bystander.wait()
    lines = sorted(done.stdout.splitlines())
    assert lines == sorted([*ups, *["alive and well"] * 2]), done.stderr
    assert sum(ended.values()) == count
    print("\n".join(f"{times:4d}  {how}" for how, times in sorted(ended.items())))


def _check_bystander(
    cluster: Cluster, bystander: Job, alive: set[tuple[int, str]], fault: faults.Fault
) -> None:
    now = _named(_of_bystander())
    if now != alive:
        time.sleep(_GONE_WITHIN_S)  # time for Slurm's log entries
        logs = [cluster.dir / "log" / f"{name}.log" for name in ("slurmctld", "slurmd-n1")]
        said = [bystander.err, *(log.read_text(errors="replace")[-6000:] for log in logs)]
        lost = sorted(alive - now) + sorted(now - alive)
        raise AssertionError("\n".join([f"{fault}: touched another job: {lost}", *said]))


def _bystander_at_rest() -> set[tuple[int, str]] | None:
    """Return the bystander's processes, or None while a program that starts containers runs.

    Such a program may end after the tasks' first output.
    """
    alive = _of_bystander()
    for process in alive:
        if process.comm in _STARTERS or (process.comm == "ce-guard" and not process.is_first):
            return None
    return _named(alive)


def _of_bystander() -> list[Process]:
    """Return all of the bystander's processes: tasks, and those that hold its containers."""
    uid = pwd.getpwnam(BOB).pw_uid
    return [p for p in processes() if p.uid == uid and p.lives]


def _named(alive: list[Process]) -> set[tuple[int, str]]:
    return {(process.pid, process.comm) for process in alive}


def test_random_faults_run_nothing_outside_and_leave_nothing(
    site: Site, demo: str, forge: Forge
) -> None:
    _rounds(site, demo, forge, 8)


@pytest.mark.soak
def test_many_random_faults_run_nothing_outside_and_leave_nothing(
    site: Site, demo: str, forge: Forge
) -> None:
    _rounds(site, demo, forge, int(os.environ.get("FAULTS_RUNS") or 500))

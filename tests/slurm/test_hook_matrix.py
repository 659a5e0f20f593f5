"""Matrix of the built-in hooks.

Each is enabled, disabled, given a wrong parameter, used on a node without its part, in a container
that cannot be written and in an image with musl. Hooks that are compatible share a step; each is
judged by one line of the step's output.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.slurm.cluster import ROOT, Cluster, Completed
from tests.slurm.hardware import PLUGIN, Hardware, aside
from tests.slurm.job import batch
from tests.slurm.site import site_on

FI_INFO = "/usr/bin/fi_info"
NONE = "none"
NODES = "the node's"
# The kinds of step in which a hook is tried: the node's own network software excludes an artifact.
HOST, ARTIFACT, BATCH = "host", "artifact", "batch"


@dataclass(frozen=True)
class Case:
    """One hook and its expected behaviour.

    `shows` is a command of a task that prints `shown` and fails if the hook is off; @ is the
    directory of the node's parts and PROBE a program that opens libraries. `wrong` is a line of an
    EDF and its error. `missing` is what the node lacks, or a line of the EDF in its place, and its
    error. `musl` is the command's output with musl, and `musl_says` a warning or error.
    """

    shows: str
    shown: str
    wrong: tuple[str, str]
    missing: tuple[str, str]
    enabled: str = 'com.hooks.NAME.enabled = "true"'
    step: str = HOST
    musl: str | None = None
    musl_says: str = ""


def _setting(hook: str, name: str) -> tuple[str, str]:
    line = f'com.hooks.{hook}.{name} = "/home/mine"'
    return line, f"annotations.com.hooks.{hook}.{name}: '{name}' is a setting of the site"


def _library(name: str) -> str:
    return f"PROBE {name} whose"


ABSENT = "does not exist on this node"
CASES = {
    "amd_gpu": Case(
        "test -c @/dev/kfd && test -c @/dev/dri/renderD128 && echo devices",
        "devices",
        _setting("amd_gpu", "group"),
        ("dev/kfd", f"hook amd_gpu: device '@/dev/kfd' {ABSENT}"),
    ),
    "aws_ofi_nccl": Case(
        f'PROBE libnccl-net.so {PLUGIN} && echo "$NCCL_NET"',
        "the node's cuda12 AWS Libfabric",
        ('com.hooks.aws_ofi_nccl.variant = "cuda"', "unknown value 'cuda', did you mean 'cuda"),
        (
            "plugin/cuda12",
            f"hook aws_ofi_nccl: library '@/plugin/cuda12/libnccl-net.so' {ABSENT}",
        ),
        'com.hooks.aws_ofi_nccl = { enabled = "true", variant = "cuda12" }',
        musl=NONE,
        musl_says="hook aws_ofi_nccl: libnccl-net.so cannot be loaded in this container",
    ),
    "batch_script": Case(
        'test -n "$SLURM_CE_INSIDE" && test -r "$0" && . /etc/os-release && echo "$ID"',
        "ce-demo",
        (
            'com.hooks.batch_script.enable = "true"',
            "unknown annotation 'com.hooks.batch_script.enable', did you mean"
            " 'com.hooks.batch_script.enabled'?",
        ),
        ("", ""),
        "",
        BATCH,
        musl="ce-musl",
    ),
    "cxi": Case(
        f"test -c @/dev/cxi1 && {FI_INFO} -p cxi | grep -m1 -o 'fabric: cxi'",
        "fabric: cxi",
        _setting("cxi", "libfabric"),
        (
            "fabric/libfabric.so.1",
            f"hook cxi: library '@/fabric/libfabric.so.1' {ABSENT}",
        ),
        # fi_info is the node's, and made for glibc.
        musl=NONE,
        musl_says="hook cxi: libfabric.so.1 cannot be loaded in this container",
    ),
    "dcgm": Case(
        f"{_library('libdcgm.so.4')} && test -d @/dcgm",
        NODES,
        _setting("dcgm", "directory"),
        ("lib/libdcgm.so.4", f"hook dcgm: library '@/lib/libdcgm*.so*' {ABSENT}"),
    ),
    "gdrcopy": Case(
        f"test -c @/dev/gdrdrv && {_library('libgdrapi.so.2')}",
        NODES,
        _setting("gdrcopy", "libraries"),
        ("dev/gdrdrv", f"hook gdrcopy: device '@/dev/gdrdrv' {ABSENT}"),
    ),
    "infiniband": Case(
        "test -c @/dev/infiniband/uverbs0 && PROBE libibverbs.so.1 >/dev/null && echo loaded"
        " && for driver in /usr/lib/*/libibverbs/*.so; do test -e $driver || echo no $driver; done",
        "loaded",
        _setting("infiniband", "other_libraries"),
        ("dev/infiniband", f"hook infiniband: device '@/dev/infiniband/*' {ABSENT}"),
        musl=NONE,
        musl_says="hook infiniband: libibverbs.so.1 cannot be loaded in this container",
    ),
    "mpich_abi": Case(
        _library("libmpi.so.12"),
        NODES,
        _setting("mpich_abi", "library"),
        ("lib/libmpi.so.12", f"hook mpich_abi: library '@/lib/libmpi.so.12' {ABSENT}"),
    ),
    "ncu": Case(
        "ncu run",
        "the node's run",
        _setting("ncu", "driver"),
        ("ncu", "hook ncu: mount source '@/ncu' does not exist"),
        musl="",
        musl_says="works only in images with glibc, and this one has musl",
    ),
    "netstack": Case(
        f"PROBE libnccl-net.so {PLUGIN}",
        "the artifact's",
        ('com.hooks.netstack.source = "artefact"', "'artefact', did you mean 'artifact'?"),
        (
            'com.hooks.netstack = { source = "artifact", version = "26.2" }',
            "there is no '26.2' in @/netstack/",
        ),
        'com.hooks.netstack.source = "artifact"\ncom.hooks.aws_ofi_nccl.enabled = "true"',
        ARTIFACT,
    ),
    "nsys": Case(
        "nsys run",
        "the node's run",
        _setting("nsys", "paranoid"),
        ("nsys", "hook nsys: mount source '@/nsys' does not exist"),
        musl="",
        musl_says="works only in images with glibc, and this one has musl",
    ),
    "nvidia_cuda_mps": Case(
        'ls "$CUDA_MPS_PIPE_DIRECTORY"',
        "control",
        _setting("nvidia_cuda_mps", "program"),
        (
            "bin/nvidia-cuda-mps-control",
            "hook nvidia_cuda_mps: mount source '@/bin/nvidia-cuda-mps-control' does not exist",
        ),
        # Its programs need glibc. The stand-in is a bash script; the musl image has no bash.
        musl="",
        musl_says="it needs '/bin/bash', which does not exist",
    ),
    "pmi2": Case(
        'test -n "$PMI_FD" && test -e "/proc/self/fd/$PMI_FD" && echo "rank $PMI_RANK"',
        "rank 0",
        ('com.hooks.pmi2.enabled = "yes"', "'yes' does not enable the hook"),
        ("", ""),
        "",
        ARTIFACT,
    ),
    "pmix": Case(
        'test -d "$PMIX_SERVER_TMPDIR" && echo "rank $PMIX_RANK"',
        "rank 0",
        ('com.hooks.pmix.enabld = "true"', "did you mean 'com.hooks.pmix.enabled'?"),
        ("", ""),
        "",
    ),
    "pytorch": Case(
        'test -n "$MASTER_PORT" && echo "$RANK of $WORLD_SIZE"',
        "0 of 1",
        ('com.hooks.pytorch.master_port = "0"', "'0' is not the number of a port"),
        ("", ""),
    ),
    "pytorch_remap_vars": Case(
        'test -n "$RANK" && echo "$RANK $LOCAL_RANK"',
        "0 0",
        ('com.pyxis.pytorch_remap_vars = "1"', "only the exact word 'true'"),
        ("", ""),
        'com.pyxis.pytorch_remap_vars = "true"',
        ARTIFACT,
    ),
    "rocprof": Case(
        '"$ROCPROF" run',
        "the node's run",
        _setting("rocprof", "directory"),
        ("rocm", "hook rocprof: mount source '@/rocm' does not exist"),
    ),
    "slurm": Case(
        "sinfo -h -o %N",
        "n[1-2]",
        _setting("slurm", "path"),
        ("/nonexistent", "sinfo: the host has no such program in /nonexistent"),
    ),
    "ssh": Case(
        'ssh "$SLURMD_NODENAME" echo in',
        "in",
        ('com.hooks.ssh.port = "99999"', "'99999' is not the number of a port"),
        (
            "libexec",
            "' does not exist on this node: the container engine was installed without the ssh",
        ),
    ),
    "ucx": Case(
        _library("libucp.so.0"),
        NODES,
        _setting("ucx", "libraries"),
        ("lib", "hook ucx: libucp.so.0 is not in this container (MPI would use TCP)"),
    ),
    "xpmem": Case(
        f"test -c @/dev/xpmem && {_library('libxpmem.so.0')}",
        NODES,
        _setting("xpmem", "other_libraries"),
        ("dev/xpmem", f"hook xpmem: device '@/dev/xpmem' {ABSENT}"),
    ),
}

NAMES = pytest.mark.parametrize("name", CASES)


class Nodes:
    """The cluster with stand-ins for hardware. Each step runs once and is shared by the tests."""

    def __init__(self, cluster: Cluster, hardware: Hardware) -> None:
        self.cluster, self.hardware = cluster, hardware
        self._done: dict[tuple[str, str], Completed] = {}

    def text(self, text: str, libc: str = "glibc") -> str:
        probe = str(self.hardware.probes[libc])
        return text.replace("@", str(self.hardware.dir)).replace("PROBE", probe)

    def edf(self, *lines: str, libc: str = "glibc", before: str = "") -> str:
        mounts = [str(self.hardware.probes[libc]), *([FI_INFO] if libc == "glibc" else [])]
        image = {"glibc": "demo", "musl": "musl"}[libc]
        text = f"mounts = {mounts}\n{before}\n[annotations]\n"
        return self.cluster.edf(text + "\n".join(lines) + "\n", image=image)

    def script(self, names: list[str], libc: str = "glibc") -> str:
        lines = [
            f"out=$( {{ {CASES[name].shows}; }} 2>/dev/null ) || out={NONE}; echo {name} $out"
            for name in names
        ]
        return self.text("\n".join(lines), libc)

    def step(self, how: str, step: str) -> Completed:
        """Run all hooks of a kind of step, unless done; `how` is a column of the matrix."""
        if (how, step) not in self._done:
            self._done[how, step] = self._run(how, step)
        return self._done[how, step]

    def _run(self, how: str, step: str) -> Completed:
        names = [name for name, case in CASES.items() if case.step == step]
        libc = "musl" if how == "musl" else "glibc"
        if libc == "musl":
            names = [name for name in names if CASES[name].musl != ""]
        lines = [switched(name, how) for name in names]
        before = "writable = false" if how == "read-only" else ""
        edf, script = self.edf(*lines, libc=libc, before=before), self.script(names, libc)
        if step == BATCH:
            return self._batch(edf, script)
        # Debian's Slurm 26.05 has no PMIx
        listed = self.cluster.srun("--mpi=list")
        has_pmix = "pmix" in listed.stdout + listed.stderr
        mpi = "--mpi=pmix" if step == HOST and has_pmix else "--mpi=pmi2"
        return self.cluster.srun(mpi, "-N1", "-n1", f"--environment={edf}", "sh", "-c", script)

    def _batch(self, edf: str, script: str) -> Completed:
        output = self.hardware.site.shared / "output"
        file = self.cluster.write(f"#!/bin/sh\n{script}\n", mode=0o755)
        words = ("-N1", "-o", str(output), f"--environment={edf}", str(file))
        done = batch(self.cluster, *words)
        done.stdout += output.read_text()
        output.unlink()
        return done


def switched(name: str, how: str) -> str:
    """Return the line of an environment that turns a hook on or off."""
    case = CASES[name]
    if how == "disabled":
        off = "com.pyxis.pytorch_remap_vars" if name == "pytorch_remap_vars" else ""
        return f'{off or f"com.hooks.{name}.enabled"} = "false"'
    return case.enabled.replace("NAME", name)


def shown(done: Completed, name: str) -> str:
    """Return the output of the hook's command."""
    lines = [line.partition(" ") for line in done.stdout.splitlines()]
    found = [text for first, _space, text in lines if first == name]
    assert len(found) == 1, done.stdout + done.stderr
    return found[0]


@pytest.fixture(scope="module")
def nodes(cluster: Cluster) -> Iterator[Nodes]:
    with site_on(cluster) as site:
        site.configure('batch_script = "inside"\n')
        yield Nodes(cluster, Hardware(site))


def test_every_built_in_hook_has_a_row() -> None:
    assert sorted(CASES) == sorted(path.parent.name for path in ROOT.glob("hooks/*/hook.toml"))


@NAMES
def test_enabled(nodes: Nodes, name: str) -> None:
    done = nodes.step("enabled", CASES[name].step)
    assert shown(done, name) == CASES[name].shown
    assert done.stderr == ""


@NAMES
def test_disabled(nodes: Nodes, name: str) -> None:
    done = nodes.step("disabled", CASES[name].step)
    if name == "batch_script":
        # The script cannot be read if its hook is off.
        assert done.returncode != 0
        assert NONE not in done.stdout
    else:
        assert shown(done, name) == NONE


@NAMES
def test_in_a_container_that_cannot_be_written(nodes: Nodes, name: str) -> None:
    done = nodes.step("read-only", CASES[name].step)
    assert shown(done, name) == CASES[name].shown
    assert done.stderr == ""


@NAMES
def test_in_an_image_with_musl(nodes: Nodes, name: str) -> None:
    case = CASES[name]
    if case.musl == "":
        edf = nodes.edf(switched(name, "musl"), libc="musl")
        done = nodes.cluster.srun("-N1", f"--environment={edf}", "true")
        assert done.returncode == 125
    else:
        done = nodes.step("musl", case.step)
        assert shown(done, name) == (case.shown if case.musl is None else case.musl)
    of_this = [line for line in done.stderr.splitlines() if f" hook {name}: " in line]
    assert len(of_this) == bool(case.musl_says), done.stderr
    assert all(case.musl_says in line for line in of_this)


def test_a_wrong_parameter_is_told_at_submit(nodes: Nodes) -> None:
    edfs = {name: nodes.edf(case.wrong[0]) for name, case in CASES.items()}
    done = nodes.cluster.run([f"{nodes.cluster.prefix}/bin/ce", "validate", *edfs.values()])
    for name, edf in edfs.items():
        told = [line for line in done.stderr.splitlines() if f"{edf}:5: " in line]
        assert any(nodes.text(CASES[name].wrong[1]) in line for line in told), done.stderr


@contextmanager
def lacking(nodes: Nodes, name: str) -> Iterator[str]:
    """Take away from a node what the hook needs; yield the environment's line."""
    what, site = CASES[name].missing[0], nodes.hardware.site
    enabled = switched(name, "enabled")
    if name == "netstack":
        yield what
    elif name == "slurm":
        file = site.hook("slurm", f'settings.path = "{what}"\n', whole=False)
        yield enabled
        shutil.rmtree(file.parent)
    elif name == "ssh":
        programs = nodes.cluster.prefix / "libexec/container-engine/ssh"
        with aside(programs):
            yield enabled
    else:
        with aside(nodes.hardware.dir / what):
            yield enabled


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.missing[0]])
def test_what_the_node_lacks_is_told_with_the_hooks_name(nodes: Nodes, name: str) -> None:
    with lacking(nodes, name) as line:
        edf = nodes.edf(line)
        done = nodes.cluster.srun("-N1", f"--environment={edf}", "sh", "-c", CASES[name].shows)
    (said,) = [one for one in done.stderr.splitlines() if one.startswith(("ce: error", "ce: warn"))]
    assert nodes.text(CASES[name].missing[1]) in said
    if name not in ("slurm", "ucx"):
        assert (done.returncode, done.stdout) == (125, "")


@pytest.mark.parametrize(
    ("name", "means"),
    [("nsys", "nsys cannot sample processors"), ("ncu", "ncu would end with ERR_NVGPUCTRPERM")],
)
def test_a_profiler_says_what_the_node_does_not_allow(nodes: Nodes, name: str, means: str) -> None:
    nodes.hardware.allow(paranoid=3, admin_only=1)
    edf = nodes.edf(switched(name, "enabled"))
    done = nodes.cluster.srun("-N1", f"--environment={edf}", name, "run")
    nodes.hardware.allow()
    assert (done.returncode, done.stdout) == (0, "the node's run\n")
    (said,) = done.stderr.splitlines()
    assert f"hook {name}: check " in said
    assert f": {means}: cat " in said


def test_hooks_that_ask_for_nothing_do_nothing_where_slurm_says_nothing(nodes: Nodes) -> None:
    names = [name for name, case in CASES.items() if not case.missing[0]]
    edf = nodes.edf(*(switched(name, "enabled") for name in names))
    argv = [f"{nodes.cluster.prefix}/bin/ce", "run", edf, "--", "sh", "-c", nodes.script(names)]
    done = nodes.cluster.run(argv)
    assert (done.returncode, done.stderr) == (0, "")
    assert {name: shown(done, name) for name in names} == dict.fromkeys(names, NONE)

"""com.hooks.cxi and com.hooks.aws_ofi_nccl, with stand-ins for real devices and plugins."""

import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, Completed, causes

pytestmark = pytest.mark.usefixtures("tidy", "network")

FABRIC = f"/usr/lib/{platform.machine()}-linux-gnu/libfabric.so.1"
FI_INFO = "/usr/bin/fi_info"
NCCL = '[annotations]\ncom.hooks.aws_ofi_nccl.enabled = "true"\n'
OPENED = 'import ctypes; ctypes.CDLL("libnccl-net.so").ncclNetPlugin_v8; print("opened")'
SITE = """\
[settings]
libfabric = "{fabric}"
[edits.devices]
devices = [{{ path = "{devices}/cxi*", optional = true }}]
[checks.transport]
needed_by = "NONE"
[checks.memlock]
subject = "{memlock}"
[checks.device]
subject = "{devices}/cxi*"
severity = "{severity}"
"""


class Network:
    """The site's hooks and the node's devices."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.devices = directory / "dev"
        # what Slurm's plugin for Slingshot sets to 0 for steps with --network=disable_rdzv_get
        self.driver = directory / "rdzv_get_en"

    def set_up(self, devices: int = 4, severity: str = "warn", memlock: str = "1") -> None:
        shutil.rmtree(self.devices, ignore_errors=True)
        self.devices.mkdir()
        for number in range(devices):
            # A device is identified by its type and numbers; these are /dev/null's.
            name = str(self.devices / f"cxi{number}")
            subprocess.run(["mknod", "-m", "666", name, "c", "1", "3"], check=True)
        text = SITE.format(fabric=FABRIC, devices=self.devices, severity=severity, memlock=memlock)
        self.write("cxi", text)
        self.driver.write_text("0\n")
        plugins = f'[settings]\ndirectory = "{self.directory}/plugin/{{variant}}"\n'
        checks = 'rendezvous.file = "{}=0"\ntransport.needed_by = "NONE"\n'
        self.write("aws_ofi_nccl", f"{plugins}[checks]\n{checks.format(self.driver)}")

    def write(self, hook: str, text: str) -> None:
        file = self.directory / "hooks.d" / hook / "hook.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def plugin(self, variant: str) -> None:
        path = self.directory / "plugin" / variant / "libnccl-net.so"
        path.parent.mkdir(parents=True)
        argv = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path), "-Wl,--no-as-needed"]
        source = 'const char *ncclNetPlugin_v8 = "AWS Libfabric";\n'
        needs = ["-x", "none", FABRIC]
        subprocess.run([*argv, *needs], input=source, text=True, check=True)


@pytest.fixture(scope="module")
def network(cluster: Cluster) -> Iterator[Network]:
    directory = Path(tempfile.mkdtemp(prefix="network-", dir=cluster.scratch))
    directory.chmod(0o755)
    site = cluster.prefix / "etc/container-engine/conf.d/test-network.toml"
    site.parent.mkdir(parents=True, exist_ok=True)
    made = Network(directory)
    for variant in ("cuda-dl", "cuda12"):
        made.plugin(variant)
    site.write_text(f'hook_catalog = ["{directory}/hooks.d"]\n')
    try:
        yield made
    finally:
        site.unlink()


def edf(cluster: Cluster, annotations: str = NCCL) -> str:
    return cluster.edf(f'mounts = ["{FI_INFO}:{FI_INFO}"]\n{annotations}')


def said(text: str) -> list[str]:
    """Return the engine's lines without the names of nodes."""
    return [re.sub(r"^(ce: \w+: )n\d+: ", r"\1", line) for line in text.splitlines()]


def test_the_plugin_implies_the_network_and_all_is_there_on_every_node(
    cluster: Cluster, network: Network
) -> None:
    network.set_up()
    script = (
        f"{FI_INFO} --version | grep ^libfabric:; ls {network.devices} | wc -l;"
        f" echo $NCCL_NET; python3 -c '{OPENED}'"
    )
    static = NCCL + 'com.hooks.aws_ofi_nccl.variant = "cuda12"\n'
    done = cluster.srun("-N2", "-n2", f"--environment={edf(cluster, static)}", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    own = subprocess.run([FI_INFO, "--version"], capture_output=True, text=True, check=True)
    shown = next(line for line in own.stdout.splitlines() if line.startswith("libfabric: "))
    assert lines == sorted(2 * [shown, "4", "AWS Libfabric", "opened"])
    assert done.stderr == ""


def test_a_node_without_devices_says_so_once_and_the_job_runs(
    cluster: Cluster, network: Network
) -> None:
    network.set_up(devices=0)
    cxi = '[annotations]\ncom.hooks.cxi.enabled = "true"\n'
    done = cluster.srun("-N2", "-n4", f"--environment={edf(cluster, cxi)}", "echo", "runs")
    assert done.stdout == 4 * "runs\n", done.stderr
    assert set(said(done.stderr)) == {
        f"ce: warning: hook cxi: no device '{network.devices}/cxi*' on this node (this node has no"
        " Slingshot device: MPI and NCCL would use TCP)"
    }
    # One line per node, not one per task.
    assert len(done.stderr.splitlines()) <= 2


@pytest.mark.parametrize("image", ["musl", "static"])
def test_an_image_that_cannot_use_the_nodes_library_runs_and_says_so(
    cluster: Cluster, network: Network, image: str
) -> None:
    network.set_up()
    environment = cluster.edf('[annotations]\ncom.hooks.cxi.enabled = "true"\n', image=image)
    program = ["/bin/probe"] if image == "static" else ["busybox", "echo", "runs"]
    done = cluster.srun("-N1", f"--environment={environment}", *program)
    assert done.returncode == 0, done.stderr
    [line] = said(done.stderr)
    assert line.startswith("ce: warning: hook cxi: libfabric.so.1 ")
    assert line.endswith("(MPI and NCCL would use TCP)")


def test_a_container_that_cannot_be_written_has_the_network_too(
    cluster: Cluster, network: Network
) -> None:
    network.set_up()
    cxi = '[annotations]\ncom.hooks.cxi.enabled = "true"\n'
    environment = edf(cluster, f"writable = false\n{cxi}")
    done = cluster.srun("-N1", f"--environment={environment}", FI_INFO, "--version")
    assert "libfabric: " in done.stdout, done.stderr
    assert done.stderr == ""


def test_a_hook_that_is_turned_off_brings_nothing(cluster: Cluster, network: Network) -> None:
    network.set_up()
    off = '[annotations]\ncom.hooks.cxi.enabled = "false"\n'
    done = cluster.srun("-N1", f"--environment={edf(cluster, off)}", "ls", "/.container-engine/lib")
    assert done.returncode != 0
    assert "No such file or directory" in done.stderr


def test_where_the_site_says_so_a_node_without_devices_fails_the_step(
    cluster: Cluster, network: Network
) -> None:
    network.set_up(devices=0, severity="fail")
    done = cluster.srun("-N1", "-n2", f"--environment={edf(cluster)}", "echo", "ran")
    assert done.returncode == 125
    assert done.stdout == ""
    [cause] = causes(done)
    assert f"hook cxi: no device '{network.devices}/cxi*' on this node" in cause


def test_the_dynamic_variant_in_an_image_without_cuda_is_found_before_the_tasks_start(
    cluster: Cluster, network: Network
) -> None:
    network.set_up()
    done = cluster.srun("-N1", f"--environment={edf(cluster)}", "echo", "runs")
    assert done.stdout == "runs\n"
    [line] = said(done.stderr)
    assert line == (
        "ce: warning: hook aws_ofi_nccl: libcudart.so is not in this container (NCCL would use TCP:"
        " this variant loads the image's CUDA runtime by that name)"
    )


def test_a_low_limit_of_locked_memory_is_told_with_what_to_set(
    cluster: Cluster, network: Network
) -> None:
    network.set_up(memlock="64")
    environment = edf(cluster, '[annotations]\ncom.hooks.cxi.enabled = "true"\n')
    script = 'ulimit -l $1; shift; exec srun -N1 "$@" sh -c "ulimit -l"'

    def run(limit: str) -> Completed:
        return cluster.run(["sh", "-c", script, "sh", limit, f"--environment={environment}"])

    assert (run("64").stdout, run("64").stderr) == ("64\n", "")
    # what was recorded does not hide it
    done = run("63")
    assert done.stdout == "63\n"
    [line] = said(done.stderr)
    assert line == (
        "ce: warning: hook cxi: tasks can lock 63 KiB of memory (ulimit -l), and need 64: ulimit -l"
        " 64 in the job script raises it (registering buffers fails, so that MPI and NCCL end or"
        " are slow; administrators set LimitMEMLOCK=infinity for slurmd, and"
        " PropagateResourceLimitsExcept=MEMLOCK in slurm.conf)"
    )
    # beyond what slurmd has as its hard limit, only an administrator can help
    network.set_up(memlock=str(1 << 50))
    assert f", and need {1 << 50} (registering" in run("63").stderr


RENDEZVOUS = (
    " (FI_CXI_RDZV_PROTO=alt_read has no effect, and NCCL is slow: say srun"
    " --network=disable_rdzv_get)"
)


def test_a_profile_with_alt_read_asks_the_driver_or_the_step_for_what_it_needs(
    cluster: Cluster, network: Network
) -> None:
    network.set_up()
    static = NCCL + 'com.hooks.aws_ofi_nccl.variant = "cuda12"\n'
    step = ("-N1", f"--environment={edf(cluster, static)}", "true")
    assert cluster.srun(*step).stderr == ""
    network.driver.write_text("1\n")
    # the option is no proof where the driver says otherwise
    [line] = said(cluster.srun("--network=disable_rdzv_get", *step).stderr)
    wrong = f"{network.driver} on this node is 1, not 0"
    assert line == f"ce: warning: hook aws_ofi_nccl: {wrong}{RENDEZVOUS}"
    network.driver.unlink()
    [line] = said(cluster.srun(*step).stderr)
    lacks = "the step does not have SLURM_NETWORK=*disable_rdzv_get*"
    assert line == f"ce: warning: hook aws_ofi_nccl: {lacks}{RENDEZVOUS}"
    assert cluster.srun("--network=job_vni,disable_rdzv_get", *step).stderr == ""
    own = f'env = {{ FI_CXI_RDZV_PROTO = "default" }}\n{static}'
    assert cluster.srun("-N1", f"--environment={edf(cluster, own)}", "true").stderr == ""


def test_a_variant_that_the_site_does_not_have_on_its_nodes_is_named(
    cluster: Cluster, network: Network
) -> None:
    network.set_up()
    other = NCCL + 'com.hooks.aws_ofi_nccl.variant = "cuda13"\n'
    done = cluster.srun("-N1", f"--environment={edf(cluster, other)}", "echo", "ran")
    assert done.returncode == 125
    [cause] = causes(done)
    assert f"library '{network.directory}/plugin/cuda13/libnccl-net.so' does not exist" in cause

"""Before the tasks, libraries are asked what they would use: fine ones, and broken ones.

Both libfabric and NCCL's plugin are tests/slurm/played_network.c.
"""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.libraries import run
from tests.slurm.cluster import ALICE, ROOT, Cluster, Completed, causes
from tests.slurm.site import Site, site_on
from tests.slurm.test_starts_again import _SETTLED_S, Node
from tests.slurm.test_starts_again import node as node  # noqa: PLC0414  # a fixture

pytestmark = pytest.mark.usefixtures("tidy")

_HOOKS = """
settings.{setting} = "{place}"
[checks]
device.subject = "/dev/null"
memlock.subject = "1"
rendezvous.needed_by = "NONE"
glibc.subject = ""
transport = {{ limit_s = {limit}, severity = "{severity}" }}
"""
_ON = """[annotations.com.hooks.aws_ofi_nccl]
enabled = "true"
variant = "cuda12"
"""
_FABRIC = "ce: warning: n1: hook cxi: check transport: MPI and NCCL would use TCP: ce-ask"
_NET = "ce: warning: n1: hook aws_ofi_nccl: check transport: NCCL would use TCP, or end: ce-ask"
_FAILED = "ended with exit code 1, not 0; it printed:"
_SAYS = {
    "NO_DEVICE": (
        f"{_FABRIC} {_FAILED} fi_getinfo failed with -61",
        f"{_NET} {_FAILED} the plugin AWS Libfabric offers no device",
    ),
    "OTHER": (
        f"{_FABRIC} {_FAILED} libfabric offers no device of the provider cxi, only tcp",
        f"{_NET} {_FAILED} the plugin AWS Libfabric would use eth0, and no device cxi*",
    ),
    "HANGS": (f"{_FABRIC} did not pass within 1.5 s", f"{_NET} did not pass within 1.5 s"),
    "CRASHES": (f"{_FABRIC} was ended by SIGABRT", f"{_NET} was ended by SIGABRT"),
    "EXITS": (
        f"{_FABRIC} did not print 'provider cxi, device '",
        f"{_NET} did not print 'device 0: '; it printed: ncclNetPlugin_v8: AWS Libfabric",
    ),
    "LEAVES": (),
    "FINE": (),
}


class Network:
    """A site whose node has these two libraries."""

    def __init__(self, site: Site) -> None:
        self.site, self.place = site, site.programs.parent / "network"
        self.place.mkdir()

    def build(self, how: str) -> None:
        for name in ("libfabric.so.1", "libnccl-net.so"):
            made, source = self.place / f"{name}.new", ROOT / "tests/slurm/played_network.c"
            flags = (f"-DHOW={how}", f"-Wl,-soname,{name}")
            run("gcc", "-shared", "-fPIC", "-Werror", *flags, "-o", made, source)
            made.rename(self.place / name)

    def configure(self, severity: str = "warn", limit: float = 1.5) -> None:
        values = {"severity": severity, "limit": limit}
        fabric = _HOOKS.format(setting="libfabric", place=self.place / "libfabric.so.1", **values)
        self.site.hook("cxi", fabric.replace('rendezvous.needed_by = "NONE"\n', ""), whole=False)
        plugin = _HOOKS.format(setting="directory", place=self.place, **values)
        plugin = plugin.replace('device.subject = "/dev/null"\nmemlock.subject = "1"\n', "")
        self.site.hook("aws_ofi_nccl", plugin, whole=False)

    def step(self, edf: str = "") -> Completed:
        return self.step_of(edf)[1]

    def step_of(self, edf: str) -> tuple[str, Completed]:
        path = self.site.cluster.edf(f"{edf}{_ON}", image="debian")
        return path, self.site.cluster.srun("-wn1", f"--environment={path}", "echo", "ran")


@pytest.fixture(scope="module")
def network(cluster: Cluster) -> Iterator[Network]:
    with site_on(cluster) as site:
        yield Network(site)


def left() -> str:
    """Return the user's processes that ask or were asked."""
    argv = ["pgrep", "-u", ALICE, "-f", "net libnccl-net.so cxi|fabric cxi"]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize("how", _SAYS)
def test_what_a_library_would_use_is_told_before_the_tasks(network: Network, how: str) -> None:
    network.configure()
    network.build(how)
    done = network.step()
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert done.stderr.splitlines() == [*_SAYS[how]]
    assert left() == ""


def test_a_library_that_has_changed_is_asked_again(network: Network) -> None:
    network.configure()
    network.build("FINE")
    for how in ("FINE", "FINE", "NO_DEVICE"):
        network.build(how)
        assert bool(network.step().stderr) == (how == "NO_DEVICE")


def test_a_site_refuses_steps_without_its_network(network: Network) -> None:
    network.configure(severity="fail")
    network.build("OTHER")
    done = network.step()
    assert (done.returncode, done.stdout) == (125, "")
    assert all("only tcp" in cause or "would use eth0" in cause for cause in causes(done))


def test_a_variable_that_chooses_another_plugin_or_name_is_told(network: Network) -> None:
    network.configure()
    network.build("FINE")
    edf, done = network.step_of('env = { NCCL_NET_PLUGIN = "none" }\n')
    assert done.stderr == f"{_NET} {_FAILED} NCCL_NET_PLUGIN is none (from {edf}:2)\n"
    edf, done = network.step_of('env = { NCCL_NET = "Socket" }\n')
    name = "the plugin's name is 'AWS Libfabric', and NCCL_NET is 'Socket'"
    assert done.stderr == f"{_NET} {_FAILED} {name} (from {edf}:2)\n"


@pytest.fixture
def verbs(network: Network) -> str:
    """Return text of an environment whose node has cards of InfiniBand and of RoCE."""
    place = network.place / "verbs"
    place.mkdir(exist_ok=True)
    source = ROOT / "tests/slurm/played_verbs.c"
    run("gcc", "-shared", "-fPIC", "-Werror", "-o", place / "libibverbs.so.1", source)
    hook = f"""
settings = {{ libraries = "{place}", other_libraries = "{place}" }}
[edits.devices]
devices = [{{ path = "/dev/null" }}]
[edits.environment]
env = {{ NCCL_IB_HCA = "mlx5_0,mlx5_1" }}
[checks]
device.subject = "/dev/null"
memlock.subject = "1"
"""
    network.site.hook("infiniband", hook, whole=False)
    return '[annotations]\ncom.hooks.infiniband.enabled = "true"\n[env]\n'


def test_what_turns_infiniband_off_is_told_with_its_place(network: Network, verbs: str) -> None:
    says = "ce: warning: n1: hook infiniband: check nccl: NCCL would not use InfiniBand: ce-ask"
    cluster = network.site.cluster
    debian = cluster.image("debian")

    def said(
        text: str, env: dict[str, str] | None = None, image: Path | None = None
    ) -> tuple[str, str]:
        edf = cluster.edf(f'image = "{image or debian}"\n{verbs}{text}', image=None)
        done = cluster.srun("-wn1", f"--environment={edf}", "echo", "ran", env=env)
        assert (done.returncode, done.stdout) == (0, "ran\n")
        return edf, done.stderr.removeprefix(f"{says} {_FAILED} ").removesuffix("\n")

    edf, line = said('NCCL_IB_DISABLE = "1"\n')
    assert line == f"NCCL_IB_DISABLE=1 chooses TCP (from {edf}:5)"
    # twice, for the first verdict is believed
    assert said("")[1] == said("")[1] == ""
    ports = "mlx5_0:2, mlx5_10:2, roce0:2"
    line = said("", {"NCCL_IB_DISABLE": "1"})[1]
    assert line == "NCCL_IB_DISABLE=1 chooses TCP (from srun's environment)"
    own = network.place / "own.sqsh"
    shutil.copy(debian, own)
    config = {"Env": ["NCCL_SOCKET_IFNAME=ib9", "PATH=/usr/bin:/bin"]}
    own.with_name("own.sqsh.json").write_text(json.dumps({"config": config}))
    no_interface = "NCCL_SOCKET_IFNAME=ib9 names no interface that is up, and NCCL would end"
    assert said("", image=own)[1] == f"{no_interface} (from the image)"
    hook = network.site.catalog / "infiniband/hook.toml"
    hook.write_text(hook.read_text().replace("mlx5_0,mlx5_1", "mlx4_0"))
    has_none = f"NCCL_IB_HCA=mlx4_0 leaves TCP: it has none of the active ports {ports}"
    assert said("")[1] == f"{has_none} (from hook infiniband)"


def test_a_start_whose_verdicts_are_believed_needs_no_python(network: Network, node: Node) -> None:
    network.configure()
    network.build("FINE")
    # starts with OCI hooks of the site are not repeated
    node.configure("hooks_dirs = []\n")
    edf = network.site.cluster.edf(_ON, image="debian")
    time.sleep(_SETTLED_S)
    assert any(not node.is_python(edf) for _ in range(8)), "Python at each start"
    # what the user's shell chooses counts, also where a verdict was believed
    env = {"NCCL_NET_PLUGIN": "none"}
    done = network.site.cluster.srun("-wn1", f"--environment={edf}", "true", env=env)
    place = "(from srun's environment)"
    assert done.stderr == f"{_NET} {_FAILED} NCCL_NET_PLUGIN is none {place}\n"

"""Other configurations of Slurm, for a user's srun or for one node, and others' plugins."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.slurm.cluster import ROOT, Cluster, start_again
from tests.slurm.error_block import mounted_on


def own_stack(cluster: Cluster, directory: Path, *lines: str) -> dict[str, str]:
    """Return variables that give srun a plugstack.conf of these lines; nodes have the cluster's."""
    stack, conf = directory / "plugstack.conf", directory / "slurm.conf"
    stack.write_text("".join(f"{line}\n" for line in lines))
    text = (cluster.dir / "etc" / "slurm.conf").read_text()
    conf.write_text(re.sub(r"(?m)^PlugStackConfig=.*$", f"PlugStackConfig={stack}", text))
    return {"SLURM_CONF": str(conf)}


def own_planner(cluster: Cluster, directory: Path, script: str) -> dict[str, str]:
    """Return variables that give srun the engine's plugin with a shell script as its planner."""
    planner = directory / "libexec" / "container-engine" / "plan"
    planner.parent.mkdir(parents=True, exist_ok=True)
    planner.write_text(f"#!/bin/sh\n{script}\n")
    planner.chmod(0o755)
    return own_stack(cluster, directory, f"{line_of(cluster)} prefix={directory}")


def line_of(cluster: Cluster) -> str:
    """Return the engine's line in plugstack.conf, without arguments."""
    return f"required {cluster.prefix}/lib/slurm/container_engine.so"


def disturbing(directory: Path) -> Path:
    """Build a plugin that disturbs ours (see disturbing.c)."""
    plugin = directory / "disturbing.so"
    source = ROOT / "tests/slurm/disturbing.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", plugin, source, "-lpthread"], check=True)
    return plugin


@contextmanager
def plugins_on(cluster: Cluster, node: str, shared: Path, text: str) -> Iterator[None]:
    """Replace the node's plugstack.conf by this text."""
    stack = shared / "plugstack"
    stack.write_text(text)
    with mounted_on(node, str(stack), str(cluster.dir / "etc/plugstack.conf")):
        yield


@contextmanager
def configured(cluster: Cluster, node: str, line: str) -> Iterator[None]:
    """Restart a node's slurmd with one more line in its configuration.

    `scontrol reconfigure` is not enough: the nodes follow at some later time, and for some moments
    Slurm does not know where munged is. A message that arrives then is lost, and if it reports the
    end of a step, the node is drained.
    """
    conf = cluster.dir / "etc" / "slurm.conf"
    before = conf.read_text()
    conf.write_text(before + line)
    try:
        start_again(node)
        yield
    finally:
        conf.write_text(before)
        start_again(node)

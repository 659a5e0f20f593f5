"""`sandbox/up`: start the cluster, or change the running one as requested."""

import argparse
import hashlib
import os
import socket

from ce_sandbox import config, daemons, demo, machine
from ce_sandbox.layout import MAX_NODES, Layout, SandboxError

_MANY = 64  # more nodes than that leave munged and slurmctld no processor


def node_count(text: str) -> int:
    """Parse a number of nodes from a command line."""
    count = int(text)
    if not 1 <= count <= MAX_NODES:
        raise argparse.ArgumentTypeError(f"{count} is not from 1 to {MAX_NODES}")
    return count


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="sandbox/up",
        description="Start a Slurm cluster on this machine, or change the running one.",
        epilog="CE_SANDBOX_DIR names its directory (default: /var/lib/ce-sandbox); those of"
        " different directories have users and ports of their own and can run at once.",
    )
    known = f"nodes, 1 to {MAX_NODES} (default: as now, or 2)"
    parser.add_argument("-n", "--nodes", type=node_count, metavar="N", help=known)
    parser.add_argument(
        "--tracking",
        choices=config.TRACKINGS,
        help="how Slurm follows the processes of a step (default: as now; else by cgroups where"
        " this machine has those of version 1)",
    )
    parser.add_argument(
        "--prepare", action="store_true", help="make users and the demo image, start nothing"
    )
    return parser.parse_args(argv)


def prepare(layout: Layout) -> None:
    """Create what the cluster needs: directories, users, machine settings, the demo image.

    Needs root. Whatever exists is kept, so that a second call costs little.
    """
    if os.geteuid() != 0:
        raise SandboxError("sandbox/up: needs root: slurmd starts tasks as other users")
    make_directories(layout)
    for change in machine.needed_settings():
        machine.apply(change)
        machine.record(layout, change)
    for change in machine.needed_accounts(layout):
        machine.apply(change)
    demo.provide(layout)


def bring_up(layout: Layout, nodes: int | None, tracking: str | None = None) -> int:
    """Make the prepared cluster run with this many nodes; return their number.

    The default number is the present one, or else 2. `tracking` is how Slurm tracks processes; its
    default is the present value, or else what the machine has. Daemons that run as they should are
    left alone.
    """
    before = configured_nodes(layout)
    count = nodes or before or 2
    make_node_directories(layout, count)
    if write_configuration(layout, count, tracking or chosen_tracking(layout)) and before:
        stop_outdated(layout)
    daemons.make_munge_key(layout)
    start(layout, count)
    return count


def configured_nodes(layout: Layout) -> int:
    """Return the number of nodes of the last `up`, or 0 if there was none."""
    try:
        text = layout.slurm_conf.read_text()
    except OSError:
        return 0
    count = text.partition("NodeName=n[1-")[2].partition("]")[0]
    return int(count) if count.isdecimal() else 0


def chosen_tracking(layout: Layout) -> str:
    """Return the process tracking of the last `up`, or else the best that this machine has."""
    best = config.CGROUP if machine.has_controllers() else config.LINUXPROC
    try:
        text = layout.slurm_conf.read_text()
    except OSError:
        return best
    before = text.partition("ProctrackType=proctrack/")[2].partition("\n")[0]
    return before if before in config.TRACKINGS else best


def make_directories(layout: Layout) -> None:
    layout.dir.mkdir(parents=True, exist_ok=True)
    layout.dir.chmod(0o755)
    plain = [layout.etc, layout.run, layout.log, layout.state, layout.spool, layout.tmp]
    for path in [*plain, layout.images, layout.cache, layout.dir / "home"]:
        path.mkdir(mode=0o755, exist_ok=True)


def make_node_directories(layout: Layout, nodes: int) -> None:
    for name in config.node_names(nodes):
        (layout.spool / name).mkdir(mode=0o755, exist_ok=True)
        (layout.tmp / name).mkdir(exist_ok=True)
        (layout.tmp / name).chmod(0o1777)


def write_configuration(layout: Layout, nodes: int, tracking: str) -> bool:
    """Write the configuration files; return True if any of them has changed."""
    engine = installed_engine(layout)
    host = config.Host(socket.gethostname().partition(".")[0], machine.is_loopback())
    files = {
        layout.slurm_conf: config.slurm_conf(layout, nodes, host, engine, tracking),
        layout.cgroup_conf: config.cgroup_conf(),
        layout.plugstack: config.plugstack_conf(layout, engine),
    }
    changed = False
    for path, text in files.items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            changed = True
    return changed


def installed_engine(layout: Layout) -> config.Engine:
    if not layout.plugin.exists():
        return config.Engine(plugin_id=None, has_epilog=False)
    digest = hashlib.sha256(layout.plugin.read_bytes()).hexdigest()
    return config.Engine(plugin_id=digest, has_epilog=layout.epilog.exists())


def stop_outdated(layout: Layout) -> None:
    """Stop a cluster with an old configuration; jobs end, as their nodes may no longer exist."""
    daemons.cancel_jobs(layout)
    daemons.stop_slurm(layout)


def start(layout: Layout, nodes: int) -> None:
    munged, slurmctld, *slurmds = daemons.all_daemons(layout, nodes)
    daemons.start_missing(layout, [munged])
    daemons.wait_for_munged(layout)
    # slurmctld asks all nodes as it starts, and counts those that do not listen yet as failed
    daemons.start_missing(layout, [*slurmds, slurmctld])
    if nodes > _MANY:
        daemons.put_first(layout)
    daemons.wait_for_nodes(layout, nodes)


def main(argv: list[str], layout: Layout) -> int:
    args = arguments(argv)
    prepare(layout)
    if args.prepare:
        return 0
    count = bring_up(layout, args.nodes, args.tracking)
    nodes = "1 node is" if count == 1 else f"{count} nodes are"
    print(f"sandbox: {nodes} up in {layout.dir}; commands run as {layout.users[0]}")
    if not layout.plugin.exists():
        print("sandbox: the engine is not installed there: make sandbox-engine installs it")
    return 0

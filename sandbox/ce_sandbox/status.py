"""`sandbox/status`: print what is running, and return it as an exit code."""

import argparse

from ce_sandbox import daemons
from ce_sandbox.layout import Layout
from ce_sandbox.up import configured_nodes

UP, PARTLY, DOWN = 0, 1, 3


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="sandbox/status",
        description="Show the state of the sandbox's cluster.",
        epilog="exit status: 0 all is up, 1 something is not, 3 nothing runs",
    )
    return parser.parse_args(argv)


def main(argv: list[str], layout: Layout) -> int:
    arguments(argv)
    count = configured_nodes(layout)
    if not count:
        print(f"sandbox: none in {layout.dir}; start it with sandbox/up")
        return DOWN
    running = daemons.pids(daemons.all_daemons(layout, count))
    states = daemons.node_states(layout)
    print(f"directory  {layout.dir}")
    print(f"engine     {engine_line(layout)}")
    print(f"users      {' '.join(layout.users)}")
    for name, pids in running.items():
        node = states.get(name.removeprefix("slurmd-"), "unknown")
        state = f"{node:12}" if name.startswith("slurmd-") else " " * 12
        print(f"{name:10} {state} {'pid ' + str(pids[0]) if pids else 'not running'}")
    if not any(running.values()):
        return DOWN
    usable = len(states) == count and all(map(daemons.is_usable, states.values()))
    return UP if usable and all(running.values()) else PARTLY


def engine_line(layout: Layout) -> str:
    return str(layout.prefix) if layout.plugin.exists() else "not installed (make install)"

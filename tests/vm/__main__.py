"""Commands for the two machines by hand: `python -m tests.vm` prints them."""

import shlex
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

from tests.vm import pair
from tests.vm.alone import alone
from tests.vm.machine import MachineError

_USAGE = """usage: python -m tests.vm COMMAND
  build [TREE]           make the disks and the packages of a tree (default: this one), with network
  up [TREE]              start both machines and install the engine of a tree
  install [TREE]         replace the engine of the machines that run
  ssh N[:USER] COMMAND   run a command on machine N, as root or USER
  monitor N COMMAND      give QEMU's monitor of machine N a command
  versions               print what the second machine has, for the table of tested systems
  off N, on N            cut the power of machine N; switch it on again
  down                   stop the machines and forget their disks
CE_VM_SECOND=arm64 makes the second one of that architecture, by emulation."""


def main(argv: list[str]) -> int:
    verb, *rest = argv or ["help"]
    if verb not in _VERBS:
        print(_USAGE)
        return 2
    try:
        with alone() if verb in _ALONE else nullcontext():
            return _VERBS[verb](rest)
    except MachineError as err:
        print(f"vm: error: {err}", file=sys.stderr)
        return 1


def _build(argv: list[str]) -> int:
    pair.made()
    for name in dict.fromkeys(pair.ARCHITECTURES):
        print(pair.package(_tree(argv), name))
    return 0


def _up(argv: list[str]) -> int:
    machines = pair.made()
    machines.up()
    machines.install(_tree(argv))
    return 0


def _install(argv: list[str]) -> int:
    pair.made().install(_tree(argv))
    return 0


def _tree(argv: list[str]) -> Path:
    return Path(argv[0]) if argv else pair.ROOT


def _ssh(argv: list[str]) -> int:
    number, _, user = argv[0].partition(":")
    machine = pair.made().machines[int(number) - 1]
    return subprocess.call(machine.ssh_argv(" ".join(argv[1:]), user or "root"))


def _monitor(argv: list[str]) -> int:
    print(pair.made().machines[int(argv[0]) - 1].monitor(" ".join(argv[1:])))
    return 0


def _off(argv: list[str]) -> int:
    pair.made().machines[int(argv[0]) - 1].cut_power()
    return 0


def _on(argv: list[str]) -> int:
    machines = pair.made()
    machines.machines[int(argv[0]) - 1].start()
    machines.up()
    return 0


def _versions(_argv: list[str]) -> int:
    script = (pair.ROOT / "tests/systems/versions").read_text()
    print(pair.made().second.ssh(f"bash -c {shlex.quote(script)} versions /apps").stdout)
    return 0


def _down(_argv: list[str]) -> int:
    pair.made().down()
    return 0


_VERBS = {
    "build": _build,
    "up": _up,
    "install": _install,
    "ssh": _ssh,
    "monitor": _monitor,
    "off": _off,
    "on": _on,
    "versions": _versions,
    "down": _down,
}

# Commands that must not run beside a test run; the others may.
_ALONE = {"up", "install", "down"}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Making, starting and stopping the two machines, and installing an engine on them."""

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.vm.machine import Machine, MachineError, until

ROOT = Path(__file__).resolve().parents[2]
_DISK = ROOT / "tests/vm/disk"
# The tests are about the second machine's architecture.
ARCHITECTURES = ("amd64", os.environ.get("CE_VM_SECOND") or "amd64")
# Allows for an emulated processor that others use, too.
BOOT_S = 1200
_INSTALL_S = 900
# names of directories of disks; the first group identifies the recipe
_MADE = re.compile(r"(vm-[0-9a-f]{16})(-[a-z0-9]+)?")
_INSTALL = """
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get -qq -y --reinstall --allow-downgrades install ./container-engine.deb >install.log 2>&1 ||
    { cat install.log; exit 1; }
grep -q ^Epilog= /etc/slurm/slurm.conf ||
    echo Epilog=/opt/container-engine/libexec/container-engine/epilog >>/etc/slurm/slurm.conf
"""


@dataclass(frozen=True)
class Pair:
    """Both machines; the first is the controller, the file server and where users submit."""

    machines: tuple[Machine, ...]

    @property
    def first(self) -> Machine:
        return self.machines[0]

    @property
    def second(self) -> Machine:
        return self.machines[1]

    def up(self) -> None:
        """Start machines that do not run, and wait until Slurm has both nodes."""
        for machine in self.machines:
            machine.start()
        for machine in self.machines:
            self.await_login(machine)
        self.await_idle()

    def await_login(self, machine: Machine) -> None:
        """Wait until root and alice can log in to the machine."""
        try:
            until(
                f"a login on {machine.name}",
                lambda: _alive(machine) and machine.answers(),
                BOOT_S,
                5,
            )
        except MachineError as err:
            raise MachineError(f"{err}; its console ends:\n{_end(machine.console)}") from None

    def await_idle(self, within_s: float = BOOT_S) -> None:
        """Wait until both nodes are idle."""
        states = "sinfo -h -N -o '%N %t'"
        try:
            until("two idle nodes", lambda: self._idle(states), within_s, 3)
        except MachineError as err:
            said = self.first.ssh(f"{states}; scontrol show nodes | grep -i reason")
            raise MachineError(f"{err}: {said.stdout}{said.stderr}") from None

    def _idle(self, states: str) -> bool:
        return self.first.ssh(states).stdout.split() == ["vm1", "idle", "vm2", "idle"]

    def install(self, tree: Path) -> None:
        """Install the engine of a tree as the administrator's page says, unless it is installed."""
        packages = {name: package(tree, name) for name in ARCHITECTURES}
        with ThreadPoolExecutor() as both:
            done = list(both.map(lambda m: _install(m, packages[m.architecture]), self.machines))
        if any(done):
            self.first.ssh("scontrol reconfigure")
            self.await_idle()

    def replace(self, machine: Machine, package: Path) -> None:
        """Install another package of the engine on a machine, whatever runs on it."""
        machine.copy(package, "container-engine.deb")
        done = machine.ssh("rm -f installed; dpkg -i container-engine.deb", timeout=_INSTALL_S)
        if done.returncode:
            raise MachineError(f"{machine.name}: {done.stdout}{done.stderr}")

    def down(self) -> None:
        """Stop both and delete their disks, and those of other recipes that no machine uses."""
        for machine in self.machines:
            machine.remove()
        for other in self.first.made.parent.glob("vm-*"):
            known = _MADE.fullmatch(other.name)
            if known and known[1] != self.first.made.name and not _any_runs(other):
                shutil.rmtree(other)


def made() -> Pair:
    """Return the machines of this tree's recipe; build their disks if they do not exist."""
    disks = [Path(_printed_by(_DISK, name)) for name in ARCHITECTURES]
    parts = enumerate(zip(ARCHITECTURES, disks, strict=True), 1)
    return Pair(tuple(Machine(n, name, disk / "run", disk) for n, (name, disk) in parts))


def package(tree: Path = ROOT, architecture: str = ARCHITECTURES[0]) -> Path:
    """Return the package of a tree; build it if it does not exist."""
    return Path(_printed_by(_DISK, architecture, "--package", str(tree.resolve())))


def c_tests(tree: Path, architecture: str) -> Path:
    """Return an archive of a tree with its C tests; build it if it does not exist."""
    return Path(_printed_by(_DISK, architecture, "--c-tests", str(tree.resolve())))


def bundle(tree: Path, architecture: str) -> Path:
    """Return a tree's bundle as a tar archive; build it if it does not exist."""
    return Path(_printed_by(_DISK, architecture, "--bundle", str(tree.resolve())))


def _any_runs(disk: Path) -> bool:
    return any(Machine(n, "", disk / "run", disk).pid for n in (1, 2))


def _printed_by(*argv: str | Path) -> str:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise MachineError(f"{Path(argv[0]).name} failed")
    return done.stdout.strip()


def _install(machine: Machine, package: Path) -> bool:
    """Install the package; return False if it was already installed."""
    if machine.ssh("cat installed").stdout.strip() == package.name:
        return False
    machine.copy(package, "container-engine.deb")
    done = machine.ssh(_INSTALL + f"echo {package.name} >installed", timeout=_INSTALL_S)
    if done.returncode:
        raise MachineError(f"{machine.name}: {done.stdout}{done.stderr}")
    return True


def _alive(machine: Machine) -> bool:
    if machine.pid is None:
        raise MachineError(f"{machine.name} has ended")
    return True


def _end(file: Path) -> str:
    try:
        return "\n".join(file.read_text(errors="replace").splitlines()[-20:])
    except OSError as err:
        return os.strerror(err.errno or 0)

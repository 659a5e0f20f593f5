"""A virtual machine: QEMU, with no network but its ssh port here and a cable to the other."""

import os
import select
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

Completed = subprocess.CompletedProcess[str]
_SSH_PORT = 2200
_CABLE_PORT = 5600
_CPUS = 2
_MEMORY_MB = 3072
_KERNEL = "root=/dev/vda rw mitigations=off quiet net.ifnames=0"


@dataclass(frozen=True)
class _Board:
    """A kind of machine that QEMU emulates."""

    program: str
    kernel: str  # the kernel's parameters
    options: tuple[str, ...]


# With more threads, and with cmpxchg16b, QEMU 7.2 of Debian 12 crashes the kernel of Debian 13.
_X86 = ("-accel", "tcg,thread=single,tb-size=512", "-cpu", "max,la57=off,-cx16")
# The architecture's own algorithm for pointer authentication is many times as slow.
_ARM_CPU = ("-cpu", "max,pauth-impdef=on")
_ARM = ("-machine", "virt,gic-version=3", "-accel", "tcg,tb-size=512", *_ARM_CPU)
_BOARDS = {
    # The kernel panics if QEMU gets no processor while it compares its clocks.
    "amd64": _Board("qemu-system-x86_64", "console=ttyS0 no_timer_check", _X86),
    "arm64": _Board("qemu-system-aarch64", "console=ttyAMA0", _ARM),
}
# Not chosen by the existence of /dev/kvm: with nested virtualization a machine may start and then
# break.
_HARDWARE = ("-accel", "kvm", "-cpu", "host")


class MachineError(Exception):
    """A machine that cannot be started or does not answer."""


@dataclass(frozen=True)
class Machine:
    """Machine `number`: files are in `directory`, the disk and kernel it starts from in `made`."""

    number: int
    architecture: str  # as Debian names it
    directory: Path
    made: Path

    @property
    def name(self) -> str:
        return f"vm{self.number}"

    @property
    def console(self) -> Path:
        return self.directory / f"{self.name}.console"

    @property
    def pid(self) -> int | None:
        """The pid of its QEMU, or None if it does not run."""
        try:
            pid = int((self.directory / f"{self.name}.pid").read_text())
            running = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if b"qemu" in running and str(self._monitor).encode() in running else None

    @property
    def _monitor(self) -> Path:
        return self.directory / f"{self.name}.monitor"

    @property
    def _disk(self) -> Path:
        return self.directory / f"{self.name}.qcow2"

    def start(self) -> None:
        """Power it on, with its previous disk or else a copy of the one it was made with."""
        if self.pid is not None:
            return
        self._refuse_a_used_port()
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self._disk.exists():
            base = ["-b", str(self.made / "disk.img"), "-F", "raw"]
            _checked(["qemu-img", "create", "-q", "-f", "qcow2", *base, str(self._disk)])
        _checked(self._qemu())

    def _refuse_a_used_port(self) -> None:
        port = _SSH_PORT + self.number
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as err:
                why = _user_of(f"hostfwd=tcp:127.0.0.1:{port}-") or err.strerror
                raise MachineError(f"{self.name}: port {port}: {why}") from None

    def cut_power(self) -> None:
        """Kill it, as a loss of power does; what it had not written is lost."""
        pid = self.pid
        if pid is None:
            return
        # The disk is locked until QEMU has ended as a whole; its command line is gone before that.
        end = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(end, signal.SIGKILL)
            if not select.select([end], [], [], 30)[0]:
                raise MachineError(f"{self.name}: QEMU {pid} does not end")
        finally:
            os.close(end)

    def reboot(self, within_s: float) -> None:
        """Reboot it cleanly, and wait until its new system answers."""
        before = self._boot()
        self.ssh("systemctl reboot")
        until(f"the reboot of {self.name}", lambda: self._boot() not in ("", before), within_s, 5)

    def _boot(self) -> str:
        """Return the identity of this boot; "" if it does not answer."""
        for user in ("root", "alice"):
            # A shared connection to the previous boot would wait for an answer.
            quiet = subprocess.DEVNULL
            argv = [*self.ssh_argv("", user), "-O", "exit"]
            subprocess.call(argv, stdin=quiet, stdout=quiet, stderr=quiet)
        try:
            return self.ssh("cat /proc/sys/kernel/random/boot_id").stdout.strip()
        except AssertionError:  # a system that is going down can keep a connection and say nothing
            return ""

    def remove(self) -> None:
        """Power it off and delete its disk."""
        self.cut_power()
        for file in self.directory.glob(f"{self.name}.*"):
            # ssh removes its sockets itself once their machine is gone
            file.unlink(missing_ok=True)

    def monitor(self, command: str) -> str:
        """Send QEMU's monitor a command, such as `set_link cluster off`; return its output."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(str(self._monitor))
            _answer(connection)
            connection.sendall(f"{command}\n".encode())
            return _answer(connection)

    def ssh(self, command: str, user: str = "root", timeout: float = 120) -> Completed:
        """Run a command line on it, to its end; fail the test if that takes too long."""
        try:
            return subprocess.run(
                self.ssh_argv(command, user),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
            )
        except subprocess.TimeoutExpired as err:
            raise AssertionError(
                f"{self.name}: runs after {timeout:g} s: {command}\n{err.stdout!r}{err.stderr!r}"
            ) from None

    def ssh_argv(self, command: str, user: str = "root") -> list[str]:
        connection = self.directory / f"{self.name}.{user}"
        _remove_dead(connection)
        options = {
            "IdentityFile": self.made / "key",
            "Port": _SSH_PORT + self.number,
            "UserKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "no",
            "LogLevel": "ERROR",
            "BatchMode": "yes",
            "ConnectTimeout": 60,
            "ServerAliveInterval": 30,
            "ServerAliveCountMax": 10,
            "ControlPath": connection,
        }
        given = [f"-o{key}={value}" for key, value in options.items()]
        return ["ssh", "-F", "none", *given, f"{user}@127.0.0.1", *([command] if command else [])]

    def answers(self) -> bool:
        """Check that root and alice can log in; leave connections for later commands."""
        return all(self._connects(user) for user in ("root", "alice"))

    def _connects(self, user: str) -> bool:
        quiet = subprocess.DEVNULL
        # Use an existing connection: a handshake takes seconds on an emulated processor.
        argv = self.ssh_argv("", user)
        if subprocess.call([*argv, "-O", "check"], stdin=quiet, stdout=quiet, stderr=quiet) == 0:
            return True
        master = [*argv, "-M", "-N", "-f"]
        return subprocess.call(master, stdin=quiet, stdout=quiet, stderr=quiet) == 0

    def copy(self, file: Path, target: str) -> None:
        """Copy a file of this host to the path `target` on the virtual machine."""
        with file.open("rb") as source:
            done = subprocess.run(
                self.ssh_argv(f"cat > {shlex.quote(target)}"),
                stdin=source,
                capture_output=True,
                text=True,
                timeout=300,
            )
        if done.returncode:
            raise MachineError(f"{self.name}: {target}: {done.stderr.strip()}")

    def _qemu(self) -> list[str]:
        mac = f"mac=52:54:00:09:00:0{self.number}"
        mine, other = (_CABLE_PORT + n for n in (self.number, 3 - self.number))
        ssh = f"hostfwd=tcp:127.0.0.1:{_SSH_PORT + self.number}-:22"
        cable = (
            f"local.type=inet,local.host=127.0.0.1,local.port={mine},"
            f"remote.type=inet,remote.host=127.0.0.1,remote.port={other}"
        )
        board = _BOARDS[self.architecture]
        hardware = self.architecture == "amd64" and os.environ.get("CE_VM_KVM")
        return [
            board.program,
            *(_HARDWARE if hardware else board.options),
            *("-smp", str(_CPUS), "-m", str(_MEMORY_MB)),
            *("-nodefaults", "-no-user-config", "-display", "none", "-daemonize"),
            *("-kernel", str(self.made / "vmlinuz"), "-initrd", str(self.made / "initrd")),
            *("-append", f"{_KERNEL} {board.kernel} systemd.hostname={self.name}"),
            *("-drive", f"file={self._disk},if=virtio"),
            *("-serial", f"file:{self.console}"),
            *("-monitor", f"unix:{self._monitor},server,nowait"),
            *("-pidfile", str(self.directory / f"{self.name}.pid")),
            *("-netdev", f"user,id=host,restrict=on,{ssh}"),
            *("-device", f"virtio-net-pci,netdev=host,mac=52:54:00:aa:00:0{self.number}"),
            *("-netdev", f"dgram,id=cable,{cable}"),
            *("-device", f"virtio-net-pci,id=cluster,netdev=cable,{mac}"),
            *("-device", "virtio-rng-pci"),
        ]


def until(what: str, ask: Callable[[], object], within_s: float, pause_s: float = 0.5) -> None:
    """Poll until `ask` returns true; raise MachineError if the time is up."""
    deadline = time.monotonic() + within_s
    while not ask():
        if time.monotonic() > deadline:
            raise MachineError(f"waited {within_s:g} s for {what}")
        time.sleep(pause_s)


def _user_of(forwarded: str) -> str:
    """Return a clause that names the virtual machine with this port, "" if none is found."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            options = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "-pidfile" in options and any(forwarded in option for option in options):
            directory = Path(options[options.index("-pidfile") + 1]).parent
            return (
                f"the virtual machine in {directory} (process {process.name}) has it;"
                " `make vm-down` in the tree that started it stops it"
            )
    return ""


def _remove_dead(connection: Path) -> None:
    """Remove the socket of a connection whose ssh has been killed: others would report it."""
    with socket.socket(socket.AF_UNIX) as probe, suppress(FileNotFoundError):
        try:
            probe.connect(str(connection))
        except ConnectionRefusedError:
            connection.unlink()


def _answer(connection: socket.socket) -> str:
    """Return all that the monitor prints up to its prompt."""
    said = b""
    while not said.endswith(b"(qemu) "):
        piece = connection.recv(65536)
        if not piece:
            break
        said += piece
    return said.decode(errors="replace")


def _checked(argv: list[str]) -> str:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise MachineError(f"{shlex.join(argv)}: {done.stderr.strip()}")
    return done.stdout

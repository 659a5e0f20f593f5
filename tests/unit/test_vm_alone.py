"""Runs of virtual machines of two trees: the second one is refused."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.vm.alone import alone
from tests.vm.machine import Machine, MachineError

_HOLD = """
import sys
from tests.vm.alone import alone
with alone(name):
    print("held", flush=True)
    sys.stdin.read()
"""
# a number that no machine has
_NUMBER = 777


def test_a_second_run_is_refused_with_the_tree_of_the_first_one() -> None:
    name = f"\0container-engine-vm-test-{os.getpid()}"
    argv = [sys.executable, "-c", f"name = {name!r}\n{_HOLD}"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        refused = f"process {other.pid} in {os.getcwd()} uses the virtual machines"
        with pytest.raises(MachineError, match=refused), alone(name):
            pass
        other.communicate("")
    with alone(name):
        pass


def test_a_file_that_ssh_removes_first_holds_up_no_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / f"vm{_NUMBER}.root"
    monkeypatch.setattr(Path, "glob", lambda _directory, _pattern: iter([gone]))
    Machine(_NUMBER, "amd64", tmp_path, tmp_path).remove()


@pytest.mark.parametrize("of_machine", [True, False])
def test_a_port_that_is_used_is_refused_in_one_line(tmp_path: Path, *, of_machine: bool) -> None:
    machine = Machine(_NUMBER, "amd64", tmp_path / "mine", tmp_path)
    there = tmp_path / "other"
    forward = f"user,hostfwd=tcp:127.0.0.1:{2200 + _NUMBER}-:22"
    options = ["-netdev", forward, "-pidfile", str(there / "vm.pid")] if of_machine else []
    # a program that waits, by the command line of a machine
    argv = ["qemu", "-c", "echo up; read line", *options]
    with (
        socket.create_server(("127.0.0.1", 2200 + _NUMBER)),
        subprocess.Popen(
            argv, executable="/bin/sh", stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other,
    ):
        assert other.stdout is not None
        assert other.stdout.readline() == b"up\n"  # its command line can be read from now on
        with pytest.raises(MachineError) as refused:
            machine.start()
        other.communicate(b"")
    assert str(refused.value) == f"vm{_NUMBER}: port {2200 + _NUMBER}: " + (
        f"the virtual machine in {there} (process {other.pid}) has it;"
        " `make vm-down` in the tree that started it stops it"
        if of_machine
        else "Address already in use"
    )

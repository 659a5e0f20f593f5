"""One run of the virtual machines at a time, as all trees' machines have the same ports."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.vm.machine import MachineError

# An abstract socket's name is unique in the network namespace, as ports are; the socket ends with
# its process.
_NAME = "\0container-engine-vm"


@contextmanager
def alone(name: str = _NAME) -> Iterator[None]:
    """Keep other runs away during the block. Raise MachineError if there is one."""
    with socket.socket(socket.AF_UNIX) as mine:
        try:
            mine.bind(name)
        except OSError:
            pid = _holder(name)
            raise MachineError(
                f"process {pid} in {_directory(pid)} uses the virtual machines; one run at a time"
            ) from None
        mine.listen()
        yield


def _holder(name: str) -> int:
    with socket.socket(socket.AF_UNIX) as other:
        try:
            other.connect(name)
        except OSError:
            return 0  # it has just ended
        credentials = other.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[0])


def _directory(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError as err:
        return f"an unknown directory ({os.strerror(err.errno or 0)})"

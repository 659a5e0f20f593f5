"""A user's file system that accepts every request and answers none: mute_fuse.py DIRECTORY."""

import array
import os
import socket
import struct
import sys

_INIT = 26
_HEADER = struct.Struct("<IIQ")  # of a request: length, operation, unique
_ANSWER = struct.Struct("<IiQIIIIHHIIHHI28x")


def _mount(directory: str) -> int:
    """Mount a FUSE file system by fusermount3; return the descriptor of its device."""
    ours, theirs = socket.socketpair()
    os.set_inheritable(theirs.fileno(), True)
    environment = {**os.environ, "_FUSE_COMMFD": str(theirs.fileno())}
    argv = ["fusermount3", "-o", "rw,nosuid,nodev,fsname=mute", "--", directory]
    pid = os.posix_spawnp(argv[0], argv, environment)
    assert os.waitpid(pid, 0)[1] == 0
    _data, ancillary, _flags, _address = ours.recvmsg(1, socket.CMSG_SPACE(4))
    return array.array("i", ancillary[0][2])[0]


def main() -> None:
    device = _mount(sys.argv[1])
    print("mounted", flush=True)
    while True:
        request = os.read(device, 1 << 18)
        _length, operation, unique = _HEADER.unpack_from(request)
        if operation == _INIT:
            answer = (_ANSWER.size, 0, unique, 7, 31, 1 << 16, 0, 8, 8, 1 << 16, 1, 0, 0, 0)
            os.write(device, _ANSWER.pack(*answer))


main()

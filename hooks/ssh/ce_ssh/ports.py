"""Find free ports, the process that listens on a port, and the address to listen on."""

from __future__ import annotations

import fcntl
import os
from _socket import (
    AF_INET,
    AF_INET6,
    AF_UNIX,
    IPPROTO_IPV6,
    IPV6_V6ONLY,
    SO_REUSEADDR,
    SOCK_DGRAM,
    SOCK_STREAM,
    SOL_SOCKET,
    inet_ntoa,
    inet_pton,
    socket,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTEN = "0A"
_EADDRINUSE, _EACCES = 98, 13
_SIOCGIFADDR = 0x8915
_NAME_BYTES, _REQUEST_BYTES, _ADDRESS = 15, 40, slice(20, 24)


def address_of(where: str) -> str:
    """Return the IP address that `where` names: an address itself, or an interface's IPv4 address.

    Raise OSError if the interface does not exist or has no address.
    """
    for family in (AF_INET, AF_INET6):
        try:
            inet_pton(family, where)
        except OSError:
            continue
        return where
    probe = socket(AF_INET, SOCK_DGRAM)
    try:
        name = where.encode()[:_NAME_BYTES].ljust(_REQUEST_BYTES, b"\0")
        return inet_ntoa(fcntl.ioctl(probe, _SIOCGIFADDR, name)[_ADDRESS])
    finally:
        probe.close()


def claim(port: int) -> socket | None:
    """Reserve a port among this node's launches until the socket is closed.

    Return None if another launch has reserved it. A server listens on IPv4 and IPv6, one after the
    other: without the reservation, each of two servers that start at the same moment could get one
    half of a port, and even a check of the port could take it from a server.
    """
    held = socket(AF_UNIX, SOCK_STREAM)
    try:
        held.bind(f"\0container-engine/port/{port}")
    except OSError:
        held.close()
        return None
    return held


def is_free(port: int) -> bool:
    """Check that no process listens on the port, by IPv4 or by IPv6 if the node has it."""
    return all(_can_listen(family, port) for family in (AF_INET, AF_INET6))


def _can_listen(family: int, port: int) -> bool:
    try:
        probe = socket(family, SOCK_STREAM)
    except OSError:
        return True  # this node lacks this version of IP
    try:
        probe.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        if family == AF_INET6:
            probe.setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, 1)
        probe.bind(("", port))
        probe.listen(1)
    except OSError as error:
        return error.errno not in (_EADDRINUSE, _EACCES)
    finally:
        probe.close()
    return True


def listeners(process: Callable[[], int], port: int) -> tuple[bool, bool]:
    """Return whether the process listens on the port, and whether another one of this node does.

    `process` returns its ID, and is called after the sockets are known: until the program listens,
    its ID may change (inside/programs.py, Process.program).
    """
    inodes = {inode for table in _TABLES for inode in _listening(table, port)}
    own = inodes & _sockets(process()) if inodes else inodes
    return bool(own), inodes > own


def _listening(table: str, port: int) -> list[str]:
    try:
        with open(table, encoding="ascii") as file:
            rows = [line.split() for line in file.readlines()[1:]]
    except FileNotFoundError:
        return []
    ending = f":{port:04X}"
    return [row[9] for row in rows if row[3] == _LISTEN and row[1].endswith(ending)]


def _sockets(pid: int) -> set[str]:
    directory = f"/proc/{pid}/fd"
    try:
        names = os.listdir(directory)
    except OSError:
        return set()  # the process has ended
    links = [_link(f"{directory}/{name}") for name in names]
    return {link[8:-1] for link in links if link.startswith("socket:[")}


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""  # closed in the meantime

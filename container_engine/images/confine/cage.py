"""Confine a program that parses images of others on the host where a user plans or imports.

After `Cage.close`, the program and its children have a limit on memory, no capability but that to
read files, and no way to gain another, to write or change a file, to use the network, or to reach
another process: an image that exploits a fault in the program's parser can only change its output.
The filter lists the calls that are refused, not those that are allowed, because it is not known
which ones a distribution's programs need.

ctypes takes 15 ms to import, which a plan at a site with a scanner need not wait for.
"""

from __future__ import annotations

import errno
import os
import resource
import struct
from typing import NamedTuple

# A command prefix for namespaces in which the user is root, and which end with their creator: the
# program ends when this process is killed; --kill-child ends its remaining children, too.
OWN_NAMESPACES = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"),
)


_LOAD, _BITS, _EQUAL, _RETURN = 0x20, 0x45, 0x15, 0x06  # of classic BPF, as in linux/bpf_common.h
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16  # in struct seccomp_data
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_PR_CAPBSET_DROP, _DAC_READ_SEARCH, _CAPABILITIES = 24, 2, 64

MOST_MEMORY = 4 << 30
_MOST_WRITTEN = 1 << 20  # bytes of messages


class _Machine(NamedTuple):
    """The numbers of a machine: its AUDIT_ARCH and system calls.

    `refused` calls fail with EPERM, `unknown` ones with ENOSYS. `opens` maps each call that may
    open a file only for reading to the argument with its flags.
    """

    audit: int
    refused: tuple[int, ...]
    unknown: tuple[int, ...]
    opens: dict[int, int]


_MACHINES = {
    "x86_64": _Machine(
        0xC000003E,
        (
            *(41, 53),  # socket socketpair
            *(62, 101, 129, 200, 234, 297),  # kill ptrace rt_sigqueueinfo tkill tgkill …
            *(310, 311, 424, 434, 438),  # process_vm_readv process_vm_writev pidfd_*
            *(76, 77, 82, 83, 84, 85, 86, 87, 88, 90, 91, 92, 93, 94, 132, 133),  # truncate … mknod
            *(188, 189, 190, 197, 198, 199, 235),  # setxattr … fremovexattr utimes
            *(258, 259, 260, 261, 263, 264, 265, 266, 268, 280, 316, 452),  # mkdirat … fchmodat2
            *(
                155,
                161,
                165,
                166,
                272,
                308,
                428,
                429,
                430,
                432,
                442,
            ),  # chroot mount unshare setns …
            *(248, 249, 250, 298, 321, 323, 425),  # keys perf_event_open bpf userfaultfd io_uring
        ),
        (435, 437),  # clone3 openat2: their flags are in memory; programs do without
        {2: 1, 257: 2},
    ),
    "aarch64": _Machine(
        0xC00000B7,
        (
            *(198, 199),
            *(129, 117, 138, 130, 131, 240),
            *(270, 271, 424, 434, 438),
            *(45, 46, 33, 34, 35, 36, 37, 38, 52, 53, 54, 55, 88, 276, 452),
            *(5, 6, 7, 14, 15, 16),
            *(51, 41, 39, 40, 97, 268, 428, 429, 430, 432, 442),
            *(217, 218, 219, 241, 280, 282, 425),
        ),
        (435, 437),
        {56: 2},
    ),
}


def program(machine: str) -> bytes:
    """Return the filter; it refuses nothing on an unknown machine."""
    numbers = _MACHINES.get(machine, _Machine(0, (), (), {}))
    if not numbers.audit:
        return struct.pack("HBBI", _RETURN, 0, 0, _ALLOW)
    code = [(_LOAD, 0, 0, _ARCH_AT), (_EQUAL, 1, 0, numbers.audit)]
    # calls of another architecture have other numbers
    code += [_refusal(errno.EPERM), (_LOAD, 0, 0, _NUMBER_AT)]
    if machine == "x86_64":
        code += [(0x35, 0, 1, 0x40000000), _refusal(errno.EPERM)]  # calls of x32 have this bit
    for calls, number in ((numbers.refused, errno.EPERM), (numbers.unknown, errno.ENOSYS)):
        for call in calls:
            code += [(_EQUAL, 0, 1, call), _refusal(number)]
    for call, flags in numbers.opens.items():
        code += [(_EQUAL, 0, 4, call), (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * flags)]
        code += [(_BITS, 0, 1, _WRITES), _refusal(errno.EPERM), (_RETURN, 0, 0, _ALLOW)]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def _refusal(number: int) -> tuple[int, int, int, int]:
    return (_RETURN, 0, 0, _REFUSE | number)


class Cage:
    """A cage, prepared in the parent; its child calls `close` before it becomes the program."""

    def __init__(self) -> None:
        import ctypes

        from container_engine.images.confine import fakeroot

        self._install, self._filter = fakeroot.install, program(os.uname().machine)
        self._libc = ctypes.CDLL(None, use_errno=True)

    def close(self) -> None:
        """Confine this process and all that it becomes. Raise OSError."""
        for kind, most in (
            (resource.RLIMIT_AS, MOST_MEMORY),
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_FSIZE, _MOST_WRITTEN),
        ):
            hard = resource.getrlimit(kind)[1]
            new = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (new, new))
        # root's programs have only capabilities of the bounding set; for other users this fails
        for capability in range(_CAPABILITIES):
            if capability != _DAC_READ_SEARCH:
                self._libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
        self._install(self._filter)

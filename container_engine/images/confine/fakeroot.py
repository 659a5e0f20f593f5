"""`python3 fakeroot.py PROGRAM ARGUMENT…`: runs a program for which some system calls do nothing.

It is for builds in a user namespace with a single user. Changing an owner, becoming another user
and making a device fail there, which aborts package managers. A seccomp filter, which all children
inherit, makes them succeed without an effect. In an image all files belong to root anyway.

Standard library only, because it also runs by its path.
"""

import ctypes
import os
import struct
import sys

_LOAD, _AND, _EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06  # of classic BPF, as in linux/bpf_common.h
_ALLOW, _PRETEND = 0x7FFF0000, 0x00050000  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO with errno 0
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _MODE_FILTER = 22, 38, 2
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16  # in struct seccomp_data
_TYPE, _CHARACTER, _BLOCK = 0o170000, 0o020000, 0o060000

# machine: AUDIT_ARCH_*, calls that do nothing, {mknod and its like: which argument is the mode}
MACHINES = {
    "x86_64": (
        0xC000003E,
        # chown fchown lchown fchownat setuid setgid setreuid setregid setgroups setresuid setresgid
        (92, 93, 94, 260, 105, 106, 113, 114, 116, 117, 119),
        {133: 1, 259: 2},
    ),
    "aarch64": (0xC00000B7, (54, 55, 146, 144, 145, 143, 159, 147, 149), {33: 2}),
}


def program(machine: str) -> bytes:
    """Return the filter. Raise KeyError for an unknown machine."""
    audit, nothing, devices = MACHINES[machine]
    code = [(_LOAD, 0, 0, _ARCH_AT), (_EQUAL, 1, 0, audit), (_RETURN, 0, 0, _ALLOW)]
    code.append((_LOAD, 0, 0, _NUMBER_AT))
    for number in nothing:
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _PRETEND)]
    for number, mode in devices.items():
        code += [(_EQUAL, 0, 9, number), *_device(mode)]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def _device(mode: int) -> list[tuple[int, int, int, int]]:
    """Return nine instructions that pretend to make a device.

    They let through the device 0, 0, by which a layer hides a file: users may make that one.
    """
    return [
        (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * mode),
        (_AND, 0, 0, _TYPE),
        (_EQUAL, 2, 0, _CHARACTER),
        (_EQUAL, 1, 0, _BLOCK),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * (mode + 1)),
        (_EQUAL, 0, 1, 0),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _PRETEND),
    ]


def install(code: bytes) -> None:
    """Install the filter for this process and all its descendants. Raise OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    instructions = ctypes.create_string_buffer(code, len(code))
    described = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(instructions))
    for option, value, argument in (
        (_PR_SET_NO_NEW_PRIVS, 1, None),
        (_PR_SET_SECCOMP, _MODE_FILTER, ctypes.create_string_buffer(described, len(described))),
    ):
        if libc.prctl(option, value, argument, 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def main(arguments: list[str]) -> None:
    machine = os.uname().machine
    if machine in MACHINES:
        install(program(machine))
    os.execvp(arguments[0], arguments)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Checks the kernel and its settings, read below `root`, which is `/` except in tests."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING

from container_engine.tools.doctor.finding import Finding, failed, ok, warning

if TYPE_CHECKING:
    from pathlib import Path

_NEEDED = (5, 11)  # overlay with userxattr in a user namespace
_ALL_MAY = 0o666
_NAMESPACES = 2  # the guard's and crun's
_APPARMOR = "apparmor_restrict_unprivileged_userns"
# where a site installs the engine's AppArmor profile
_PROFILE = "etc/apparmor.d/ce-guard"


def look(root: Path) -> Iterator[Finding]:
    """Yield all findings of this module, in the order in which a start needs what they check."""
    yield _version(root)
    yield _user_namespaces(root)
    yield _cgroups(root)
    yield _fuse(root / "dev/fuse")
    yield _shared_root(root)
    yield _queues(root)
    yield _terminals(root / "dev/pts/ptmx")


def _read(path: Path) -> str:
    """Return the text of a small kernel file, or "" if it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _version(root: Path) -> Finding:
    release = _read(root / "proc/sys/kernel/osrelease")
    found = re.match(r"(\d+)\.(\d+)", release)
    needed = ".".join(map(str, _NEEDED))
    if found is None:
        return warning("kernel", f"unknown release '{release}'", f"Linux {needed} is needed")
    if (int(found[1]), int(found[2])) < _NEEDED:
        text = f"{release}: too old for overlay mounts of ordinary users"
        return failed("kernel", text, f"Linux {needed} or later")
    return ok("kernel", release)


def _user_namespaces(root: Path) -> Finding:
    check = "user namespaces"
    settings = root / "proc/sys"
    for kind in ("pid", "mnt", "user"):
        limit = _read(settings / f"user/max_{kind}_namespaces")
        if limit.isdigit() and int(limit) < _NAMESPACES:
            remedy = f"sysctl -w user.max_{kind}_namespaces=65536, and a file in /etc/sysctl.d"
            needed = f"a container needs {_NAMESPACES}"
            return failed(check, f"user.max_{kind}_namespaces is {limit}: {needed}", remedy)
    name = "unprivileged_userns_clone"
    if _read(settings / "kernel" / name) == "0":
        remedy = f"sysctl -w kernel.{name}=1, and a file in /etc/sysctl.d"
        return failed(check, f"kernel.{name} is 0: not for ordinary users", remedy)
    if _read(settings / "kernel" / _APPARMOR) not in ("", "0"):
        return _under_apparmor(check, (root / _PROFILE).exists())
    return ok(check, f"{limit or 'some'} allowed")


def _under_apparmor(check: str, has_profile: bool) -> Finding:
    if has_profile:
        return ok(check, f"allowed to the guard, and so to all users, by /{_PROFILE}")
    remedy = (
        f"cp PREFIX/share/container-engine/apparmor /{_PROFILE}; apparmor_parser -r /{_PROFILE};"
        f" or sysctl -w kernel.{_APPARMOR}=0, and a file in /etc/sysctl.d"
    )
    return failed(check, f"kernel.{_APPARMOR} is 1: not for ordinary users", remedy)


def _cgroups(root: Path) -> Finding:
    cgroups = root / "sys/fs/cgroup"
    if (cgroups / "cgroup.controllers").exists():
        return ok("cgroups", "version 2")
    left = _read(cgroups / "unified/cgroup.controllers")
    if left:
        name = left.split()[0]
        remedy = f"mkdir -p {cgroups / name} && mount -t cgroup -o {name} cgroup {cgroups / name}"
        return failed("cgroups", f"hybrid with '{left}' in the unified part: crun refuses", remedy)
    return ok("cgroups", "version 1" if cgroups.is_dir() else "none")


def _fuse(path: Path) -> Finding:
    check = "/dev/fuse"
    remedy = 'modprobe fuse; chmod 0666 /dev/fuse, and a udev rule: KERNEL=="fuse", MODE="0666"'
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        return failed(check, f"not there: {error.strerror}", remedy)
    if mode & _ALL_MAY != _ALL_MAY:
        return failed(check, f"mode {mode:04o}: ordinary users cannot open it", remedy)
    return ok(check, f"mode {mode:04o}")


def _mounts(root: Path) -> list[list[str]]:
    return [line.split() for line in _read(root / "proc/self/mountinfo").splitlines()]


def _shared_root(root: Path) -> Finding:
    check = "mount of /"
    top = [fields for fields in _mounts(root) if fields[4] == "/"]
    if not top:
        return warning(check, "cannot be seen", "look at /proc/self/mountinfo")
    if any(field.startswith("shared:") for field in top[-1][6:9]):
        return ok(check, "shared")
    text = "private: what the host mounts later does not reach containers, Podman warns"
    return warning(check, text, "mount --make-rshared /")


def _queues(root: Path) -> Finding:
    check = "/dev/mqueue"
    if any(fields[4] == check for fields in _mounts(root)):
        return ok(check, "mounted")
    remedy = "mkdir -p /dev/mqueue && mount -t mqueue mqueue /dev/mqueue"
    return failed(check, "not mounted: containers share the host's message queues", remedy)


def _terminals(path: Path) -> Finding:
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except OSError as error:
        mode, reason = 0, f"{path}: {error.strerror}"
    else:
        reason = f"mode {mode:04o}: tmux, script and sshd inside containers get no terminal"
    if mode & _ALL_MAY == _ALL_MAY:
        return ok("/dev/pts/ptmx", f"mode {mode:04o}")
    remedy = "mount -o remount,ptmxmode=666 /dev/pts, and in /etc/fstab; not needed for srun --pty"
    return warning("/dev/pts/ptmx", reason, remedy)

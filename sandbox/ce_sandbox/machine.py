"""Changes that `up` makes on the machine outside its own directory; each can describe itself."""

import grp
import os
import pwd
import socket
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ce_sandbox.layout import PROJECT_GROUP, Layout, SandboxError

FUSE = Path("/dev/fuse")
MQUEUE = Path("/dev/mqueue")
CGROUPS = Path("/sys/fs/cgroup")
KERNEL = Path("/proc/sys/kernel")


@dataclass(frozen=True)
class Change:
    """One change that this machine needs: a description for the user, and the function to run."""

    describe: str
    execute: Callable[[], None]


def needed_settings() -> list[Change]:
    """Return the changes of settings that this machine still needs, which nothing takes back."""
    return [
        *_fuse(),
        *_user_namespaces(),
        *cgroup_changes(CGROUPS),
        *_shared_root(),
        *_mqueue(),
    ]


def needed_accounts(layout: Layout) -> list[Change]:
    """Return the group and the users that this machine still needs."""
    return [*_group(), *_users(layout)]


def apply(change: Change) -> None:
    """Print a change, and make it."""
    print(f"sandbox: changes this machine: {change.describe}", flush=True)
    change.execute()


def record(layout: Layout, change: Change) -> None:
    """Write down a change that stays until the machine is booted again."""
    path = _record(layout)
    before = path.read_text() if path.exists() else ""
    path.write_text(f"{before}{change.describe}\n")


def recorded(layout: Layout) -> list[str]:
    """Return the changes since the machine was booted."""
    path = _record(layout)
    return path.read_text().splitlines() if path.exists() else []


def _record(layout: Layout) -> Path:
    return layout.dir / f"changes-{(KERNEL / 'random/boot_id').read_text().strip()}"


def _command(*argv: str) -> Change:
    def execute() -> None:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            reason = done.stderr.strip() or f"exit status {done.returncode}"
            raise SandboxError(f"{' '.join(argv)}: {reason}")

    return Change(" ".join(argv), execute)


def _fuse() -> list[Change]:
    """Let ordinary users open /dev/fuse, to mount their images."""
    if not FUSE.exists():
        return [
            _command("mknod", str(FUSE), "c", "10", "229"),
            _command("chmod", "0666", str(FUSE)),
        ]
    if stat.S_IMODE(FUSE.stat().st_mode) & 0o666 != 0o666:
        return [_command("chmod", "0666", str(FUSE))]
    return []


def _user_namespaces() -> list[Change]:
    """Allow user namespaces to ordinary users.

    Some kernels forbid them, or allow them only to listed programs (Ubuntu).
    """
    wanted = {"unprivileged_userns_clone": "1", "apparmor_restrict_unprivileged_userns": "0"}
    changes = []
    for name, value in wanted.items():
        setting = KERNEL / name
        if setting.exists() and setting.read_text().strip() != value:
            changes.append(_command("sysctl", "-q", "-w", f"kernel.{name}={value}"))
    return changes


def cgroup_changes(root: Path) -> list[Change]:
    """Mount the unified tree's controllers as version 1 where cgroups are hybrid.

    crun refuses to run while the unified tree has a controller.
    """
    try:
        controllers = (root / "unified" / "cgroup.controllers").read_text().split()
    except OSError:
        return []
    changes = []
    for name in controllers:
        target = root / name
        if not target.is_dir():
            changes.append(_command("mkdir", str(target)))
        changes.append(_command("mount", "-t", "cgroup", "-o", name, "cgroup", str(target)))
    return changes


def has_controllers(root: Path = CGROUPS) -> bool:
    """Check whether Slurm can track steps by cgroups of its own making here.

    Slurm needs version 1 for this. Where only version 2 exists, systemd owns the tree, and a
    cluster started by hand is not a systemd service.
    """
    needed = ("freezer", "memory", "devices", "cpuacct")
    return all((root / name).is_mount() and os.access(root / name, os.W_OK) for name in needed)


def _shared_root() -> list[Change]:
    """Make `/` a shared mount, as systemd does and Podman requires."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[4] == "/" and not any(field.startswith("shared:") for field in fields[6:9]):
            return [_command("mount", "--make-rshared", "/")]
    return []


def _mqueue() -> list[Change]:
    """Mount the message queues that a container in the host's IPC namespace gets."""
    if MQUEUE.is_mount():
        return []
    changes = [] if MQUEUE.is_dir() else [_command("mkdir", str(MQUEUE))]
    return [*changes, _command("mount", "-t", "mqueue", "mqueue", str(MQUEUE))]


def _group() -> list[Change]:
    try:
        grp.getgrnam(PROJECT_GROUP)
    except KeyError:
        return [_command("groupadd", PROJECT_GROUP)]
    return []


def _users(layout: Layout) -> list[Change]:
    changes = []
    for user in layout.users:
        groups = [PROJECT_GROUP] if user == layout.users[0] else []
        try:
            entry = pwd.getpwnam(user)
        except KeyError:
            changes.append(_useradd(user, layout.home(user), groups))
            continue
        if entry.pw_dir != str(layout.home(user)):
            raise SandboxError(
                f"user {user}: home is {entry.pw_dir}, not {layout.home(user)}",
                "another sandbox made this user; remove that one with CE_SANDBOX_DIR=… "
                "sandbox/down --purge",
            )
        if groups and grp.getgrnam(PROJECT_GROUP).gr_gid not in os.getgrouplist(user, entry.pw_gid):
            changes.append(_command("usermod", "-aG", ",".join(groups), user))
    return changes


def _useradd(user: str, home: Path, groups: list[str]) -> Change:
    """Return the change that adds an ordinary user, without Debian's default subordinate ids."""
    no_subids = ("-K", "SUB_UID_COUNT=0", "-K", "SUB_GID_COUNT=0")
    more = ("-G", ",".join(groups)) if groups else ()
    home_options = ("-m", "-d", str(home), "-s", "/bin/bash")
    return _command("useradd", "-U", *home_options, *no_subids, *more, user)


def removals(layout: Layout) -> list[Change]:
    """Return the changes that remove the users and their group; machine settings stay."""
    changes = []
    for user in layout.users:
        try:
            entry = pwd.getpwnam(user)
        except KeyError:
            continue
        if entry.pw_dir == str(layout.home(user)):
            changes.append(_command("userdel", user))
            # recorded starts of nodes, steps of ce build, containers and copies of images of jobs
            places = (
                "/var/tmp/ce-answers",
                "/var/tmp/ce-build",
                "/tmp/ce-kept",
                "/dev/shm/ce-kept",
            )
            left = [f"{place}-{entry.pw_uid}" for place in places]
            changes += [_command("rm", "-r", path) for path in left if Path(path).exists()]
    try:
        members = grp.getgrnam(PROJECT_GROUP).gr_mem
    except KeyError:
        return changes
    if set(members) <= set(layout.users):
        changes.append(_command("groupdel", PROJECT_GROUP))
    return changes


def is_loopback() -> bool:
    """Check whether this machine's name means 127.0.0.1."""
    try:
        return socket.gethostbyname(socket.gethostname()) == "127.0.0.1"
    except OSError:
        return False

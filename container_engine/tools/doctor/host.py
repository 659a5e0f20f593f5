"""Checks of a host: its kernel, the programs that start a container, and the image stores."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from container_engine.base.errors import CeError, UserError
from container_engine.base.process import CommandError, find, output, reason
from container_engine.base.variables import PATH
from container_engine.images import free_space
from container_engine.images.store import lease
from container_engine.tools import start_records
from container_engine.tools.doctor.finding import Finding, failed, ok, warning

if TYPE_CHECKING:
    from pathlib import Path

_NEEDED = (5, 11)  # overlay with userxattr in a user namespace
_ALL_MAY = 0o666
_NAMESPACES = 2  # the guard's and crun's
APPARMOR = "apparmor_restrict_unprivileged_userns"
# where a site installs the engine's AppArmor profile
_PROFILE = "etc/apparmor.d/ce-guard"


def look_at_kernel(root: Path) -> Iterator[Finding]:
    """Check the kernel below `root`, in the order in which a start needs what is checked."""
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
    if _read(settings / "kernel" / APPARMOR) not in ("", "0"):
        return _under_apparmor(check, (root / _PROFILE).exists())
    return ok(check, f"{limit or 'some'} allowed")


def _under_apparmor(check: str, has_profile: bool) -> Finding:
    if has_profile:
        return ok(check, f"allowed to the guard, and so to all users, by /{_PROFILE}")
    remedy = (
        f"cp PREFIX/share/container-engine/apparmor /{_PROFILE}; apparmor_parser -r /{_PROFILE};"
        f" or sysctl -w kernel.{APPARMOR}=0, and a file in /etc/sysctl.d"
    )
    return failed(check, f"kernel.{APPARMOR} is 1: not for ordinary users", remedy)


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


Verdict: TypeAlias = Callable[[str, str, str], Finding]

_TIMEOUT_S = 20


class _Program(NamedTuple):
    name: str
    package: str
    oldest: tuple[int, ...]  # the oldest version that the tests were run with
    version: tuple[str, ...] = ("--version",)


_NODE = (
    _Program("podman", "podman", (4, 3)),
    _Program("crun", "crun", (1, 8)),
    _Program("conmon", "conmon", (2, 1)),
)
_SUBMIT = (
    _Program("skopeo", "skopeo", (1, 9)),
    _Program("tar2sqfs", "squashfs-tools-ng", (1, 0)),
    _Program("mksquashfs", "squashfs-tools", (4, 5), ("-version",)),
    _Program("unsquashfs", "squashfs-tools", (4, 5), ("-version",)),
    _Program("zstd", "zstd", (1, 4)),
)


_NO_CHOICE: Mapping[str, str] = MappingProxyType({})


def look_at_programs(
    env: Mapping[str, str],
    path: str = PATH,
    site: Mapping[str, str] = _NO_CHOICE,
    *,
    is_crun_enough: bool = False,
) -> Iterator[Finding]:
    """Check the programs that a compute node must have; `site` has the paths that the site chose.

    If crun is enough to start containers, the absence of another program is only a warning.
    """
    absent = dict.fromkeys(("podman", "conmon"), warning) if is_crun_enough else {}
    with tempfile.TemporaryDirectory(prefix="ce-doctor-") as runtime:
        # both set, as in a session: crun and Podman need them even to print their versions
        own = {**env, "PATH": path, "XDG_RUNTIME_DIR": runtime, "HOME": runtime}
        for program in _NODE:
            verdict = absent.get(program.name, failed)
            yield _check(program, own, verdict, site.get(program.name))


def look_at_podmans_files(root: Path, hooks_dirs: Iterable[str]) -> Iterator[Finding]:
    """Warn of an administrator's settings of Podman below `root` that have no effect here."""
    of_site = root / "etc/containers"
    for path in (of_site / "containers.conf", *sorted(of_site.glob("containers.conf.d/*.conf"))):
        if path.exists():
            remedy = "docs/admin/podman.md has the setting of the engine for each of its own"
            yield warning("containers.conf", f"{path}: not for containers of the engine", remedy)
    for path in (root / "usr/share/containers/oci/hooks.d", of_site / "oci/hooks.d"):
        if any(path.glob("*.json")) and str(path) not in hooks_dirs:
            text = f"{path}: its hooks do not run in containers of the engine"
            yield warning("OCI hooks", text, "add it to hooks_dirs")


def look_for_imports(env: Mapping[str, str], path: str = PATH) -> Iterator[Finding]:
    """Check the programs for imports of images; the absence of one is only a warning."""
    yield from (_check(program, {**env, "PATH": path}, warning) for program in _SUBMIT)


def _check(
    program: _Program, env: Mapping[str, str], absent: Verdict, chosen: str | None = None
) -> Finding:
    where = find(chosen or program.name, env["PATH"])
    if where is None and chosen:
        return absent(program.name, f"'{chosen}' is not a program", "correct the site's setting")
    if where is None:
        return absent(program.name, f"not in {env['PATH']}", f"install {program.package}")
    try:
        said = output([where, *program.version], env, _TIMEOUT_S).decode(errors="replace")
    except CommandError as error:
        # unsquashfs -version exits with 1
        if not error.stdout:
            return failed(program.name, str(error), f"reinstall {program.package}")
        said = error.stdout.decode(errors="replace")
    except CeError as error:
        return failed(program.name, str(error), f"reinstall {program.package}")
    return _judge(program, said, where)


def _judge(program: _Program, said: str, where: str) -> Finding:
    found = re.search(r"\d+(?:\.\d+)+", said)
    if found is None:
        return warning(program.name, f"{where}: unknown version", f"reinstall {program.package}")
    numbers = tuple(map(int, found[0].split(".")))
    if numbers[: len(program.oldest)] < program.oldest:
        oldest = ".".join(map(str, program.oldest))
        text = f"{found[0]}: older than all that was tested"
        return warning(program.name, text, f"{oldest} or later is known to work")
    return ok(program.name, found[0])


_STORE = "image store"
_ROOM = 20 << 30  # bytes: a large image and its layers
_LOCK_LIMIT_S = 10
_GIB = 1 << 30


def look_at_store(root: str, env: Mapping[str, str]) -> Iterator[Finding]:
    """Check the user's own store `root`."""
    yield _usable(root)
    yield _purges(root, env)


def look_at_site_stores(stores: Iterable[str]) -> Iterator[Finding]:
    """Check that this user can read the site's stores. Root can read them whatever their modes."""
    for path in stores:
        check = "site store"
        if not os.path.isdir(path):
            remedy = "is its file system mounted here? if it is, correct image_stores"
            yield failed(check, f"{path} is not there", remedy)
        elif not os.access(path, os.R_OK | os.X_OK):
            yield failed(check, f"{path} cannot be read", f"chmod a+rx {path}")
        elif not os.listdir(path):
            text = f"{path} is empty"
            yield failed(
                check, text, "is its file system mounted here? if it is, import an image into it"
            )
        else:
            yield ok(check, path)


def _usable(root: str) -> Finding:
    place = root
    while not os.path.exists(place):
        place = os.path.dirname(place) or "/"
    if not os.access(place, os.W_OK | os.X_OK):
        text = f"{root}: {place} cannot be written"
        return failed(_STORE, text, "set EDF_IMAGESTORE to a directory of yours that nodes share")
    if place == root and (problem := _lock_problem(root)):
        return failed(_STORE, f"{root}: {problem}", "another file system may serve better")
    free = free_space.free(place)
    if free is not None and free < _ROOM:
        text = f"{root}: {free / _GIB:.1f} GiB free"
        return warning(_STORE, text, "`ce gc` makes room; images need some GiB each")
    return ok(_STORE, f"{root}{'' if place == root else ' (created when needed)'}")


def _lock_problem(root: str) -> str | None:
    """Take a lock as an import does; return the problem, or None."""
    name = os.path.join(root, "locks", f"doctor-{os.getpid()}")
    try:
        with lease.held(name, "ce doctor", _LOCK_LIMIT_S, lambda _holder, _s: None):
            return None
    except UserError as error:
        return error.message
    except OSError as error:
        return f"cannot be locked: {reason(error)}"


def _purges(root: str, env: Mapping[str, str]) -> Finding:
    scratch = env.get("SCRATCH")
    if scratch and (root + "/").startswith(scratch.rstrip("/") + "/"):
        remedy = "where old files are purged, run `ce gc --keep-alive` now and then"
        return warning("purges", f"the image store is below SCRATCH ({scratch})", remedy)
    return ok("purges", "the image store is not below SCRATCH")


def look_at_starts(path: str, env: Mapping[str, str]) -> Iterator[Finding]:
    """Compare this node's starts with those of the cluster, by the site's records.

    There is a finding only if the site keeps records, and they have enough starts of this node.
    """
    if not path:
        return
    node = env.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]
    try:
        records = start_records.load(path)
    except UserError as error:
        yield warning("starts", str(error), error.hint or "ce metrics writes it")
        return
    known = start_records.usual(records, "nodes", node)
    if known is None:
        return
    factor = f"{known.median:.1f} times the median of the images"
    text = f"{node} starts in {factor} ({known.starts} starts)"
    if node in start_records.slow_nodes(records):
        yield warning("starts", text, "ce trace JOB on a slow start shows the phase")
    else:
        yield ok("starts", text)

"""One container of a node: its paths, its mounts and all else that its creation needs."""

from __future__ import annotations

import os
import pwd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    # of the guard's specification: a name and its arguments
    Operation = tuple[str, Sequence[str]]

INIT_NAME = ".ce-init"
INIT_PATH = "/dev/" + INIT_NAME
# the same program; by this name it first runs the entrypoint of a user who is root inside
_ROOT_PATH = "/dev/.ce-root"
# pyxis' annotation: show the output of an entrypoint
ENTRYPOINT_LOG = "com.pyxis.entrypoint_log"
# the annotation of --container-save: the image to be made at the end of the step
SAVE = "com.ce.container_save"
# must match spank_plugin/guard/guard_report.c
HOOKS_STDERR = "hooks.err"
HOOKS_REQUEST = "hooks.json"
# of the session's files those that each container has for itself
_OF_EACH = frozenset(["root", "init.pid", HOOKS_STDERR, HOOKS_REQUEST])
# a file of the session that is made when the engine has written all its files into the image
BEGUN = "begun"
# of a container that lives with its job, each start leaves both, with its number: STARTED.0
STARTED = "started"
# The session's directory, short: Podman refuses a runroot of more than 50 characters and puts
# sockets there. The guard is process 1 of the session and has that working directory.
SHORT_SESSION = "/proc/1/cwd"
# of Podman and crun
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The host's files that name hosts. A node without one of them gives its containers this instead,
# as Podman does for /etc/hosts: an image's own would name the machine that it was made on.
HOSTS_FILES = {
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "/etc/resolv.conf": "",
}
_PROPAGATIONS = frozenset(
    ["private", "rprivate", "slave", "rslave", "shared", "rshared", "unbindable", "runbindable"]
)
# settings of a tmpfs, the same for Podman and crun but for a prefix
TMPFS_SETTINGS = ("size=", "mode=")
# huge pages, which crun alone hands on
TMPFS_HUGE = "huge="
_FLAGS = frozenset(["ro", "rw", "nosuid", "nodev", "noexec", "suid", "dev", "exec"])


class Paths:
    """The paths of files and directories in the session's private mount namespace.

    `podman` and `runtime` are the site's programs; the latter is "" for crun as PATH has it.
    `written` is the directory for what the container writes; `begun` are files that are made when
    the engine has written its own there. `lacking` are those of HOSTS_FILES that the node lacks.
    `own` is the directory of what each container has for itself: the session's, unless there is
    one for each task (`for_each`).
    """

    __slots__ = (
        *("begun", "init", "lacking", "own", "podman", "runtime", "server", "session", "written"),
    )

    def __init__(
        self,
        session: str,
        libexec: str,
        podman: str = "",
        runtime: str = "",
        *,
        for_each: bool = False,
    ) -> None:
        self.session = session
        self.written = self.own = f"{session}/own" if for_each else session
        self.begun = [f"{self.own}/{BEGUN}"]
        self.lacking = [path for path in HOSTS_FILES if not os.path.exists(path)]
        self.podman = podman or "podman"
        self.runtime = runtime
        self.init = f"{libexec}/ce-init"
        self.server = f"{libexec}/ce-image"

    def at(self, name: str) -> str:
        return f"{self.own if name in _OF_EACH else self.session}/{name}"

    def replaced(self) -> dict[str, str]:
        """Return the path of what replaces each file of `lacking`."""
        return {path: self.at(path.rpartition("/")[2]) for path in self.lacking}


class NodeMount:
    """A mount of the container as this node makes it, all its strings literal."""

    __slots__ = ("kind", "options", "source", "target")

    def __init__(self, kind: str, source: str, target: str, options: Sequence[str]) -> None:
        self.kind = kind
        self.source = source
        self.target = target
        self.options = options

    @property
    def flags(self) -> list[str]:
        """The options that the kernel knows; a SquashFS file is read-only in any case."""
        found = [option for option in self.options if option in _FLAGS]
        return [*found, "ro"] if self.kind == "squashfs" and "ro" not in found else found

    @property
    def propagation(self) -> str:
        """Return how later mounts below the source and below the target see one another.

        rslave: what the host mounts below the source (autofs, a file system) appears inside.
        """
        found = [option for option in self.options if option in _PROPAGATIONS]
        return found[-1] if found else "rslave"

    @property
    def is_recursive(self) -> bool:
        """Return whether what is mounted below the source comes with it."""
        return "bind" not in self.options or "rbind" in self.options


class Person:
    """The user's entries in the container's /etc/passwd and /etc/group, on this host."""

    def __init__(
        self, uid: int, gid: int, passwd: str, group: str, home: str, host: str = ""
    ) -> None:
        self.uid = uid
        self.gid = gid
        self.passwd = passwd
        self.group = group
        self.home = home
        self.host = host


def person_of(edf: Mapping[str, str | None]) -> Person:
    """Return this process's user, whose home is that of the environment if it sets one."""
    uid, gid = os.getuid(), os.getgid()
    try:
        entry = pwd.getpwuid(uid)
        name, gecos, home, shell = entry.pw_name, entry.pw_gecos, entry.pw_dir, entry.pw_shell
    except KeyError:
        # a node may run jobs of users who are not in its password database
        name, gecos, home, shell = f"user{uid}", "", "/", "/bin/sh"
    # "*" and not "x", which sends PAM to a line of /etc/shadow that the image does not have: an
    # sshd that the user starts would then log nobody in
    line = f"{name}:*:{uid}:{gid}:{gecos}:{home}:{shell or '/bin/sh'}"
    group = f"{_group_name(gid, name)}:x:{gid}:"
    return Person(uid, gid, line, group, edf.get("HOME") or home, os.uname().nodename)


def _group_name(gid: int, otherwise: str) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return otherwise


class Container:
    """The parts of one container, with everything filled in that only the node knows."""

    def __init__(  # noqa: PLR0913  # the parts of a container
        self,
        *,
        ids: tuple[int, int],
        writable: bool,
        entrypoint: Sequence[str],
        mounts: Sequence[NodeMount],
        devices: Sequence[str],
        annotations: Mapping[str, str],
        oci_hooks: Sequence[Mapping[str, Any]] = (),
        unshared: Sequence[str] = (),
    ) -> None:
        self.uid, self.gid = ids
        self.writable = writable
        self.entrypoint = entrypoint
        self.mounts = mounts
        self.devices = devices
        self.annotations = annotations
        self.is_heard = bool(entrypoint) and annotations.get(ENTRYPOINT_LOG) == "true"
        # "net", "ipc", "uts", "pid": namespaces of its own
        self.unshared = unshared
        # as in oci-hooks(5), those that apply, in their order
        self.oci_hooks = oci_hooks


def command(container: Container) -> list[str]:
    """Return the command line of the first process."""
    return [*([_ROOT_PATH] if _is_filtered(container) else []), *container.entrypoint, INIT_PATH]


def _is_filtered(container: Container) -> bool:
    """Return whether the entrypoint needs the filter that the tasks have (common/fakeroot.h)."""
    return bool(container.entrypoint) and container.uid == 0


def system_mounts(paths: Paths, container: Container) -> list[NodeMount]:
    """Return mounts for terminals, the init, and the host's /proc unless it has its own."""
    root = NodeMount("bind", paths.init, _ROOT_PATH, ("ro",))
    host = NodeMount("bind", paths.at("proc"), "/proc", ("rslave",))
    return [
        *([] if "pid" in container.unshared else [host]),
        NodeMount("bind", "/dev/pts", "/dev/pts", ("rslave",)),
        NodeMount("bind", paths.init, INIT_PATH, ("ro",)),
        *([root] if _is_filtered(container) else []),
    ]


def names(paths: Paths, container: Container) -> list[NodeMount]:
    """Return mounts of the files that name hosts, unless the user or a hook mounts others there."""
    sources = {
        **{path: path for path in HOSTS_FILES},
        **paths.replaced(),
        # Podman's own would have the ID of the container, which is not the name of any host
        "/etc/hostname": paths.at("hostname"),
    }
    # Podman refuses two mounts on one path
    taken = {mount.target for mount in container.mounts}
    return [
        # the flags of the session's tmpfs, which crun 1.21 drops
        NodeMount(
            "bind", source, path, ("nosuid", "nodev") if source.startswith(paths.session) else ()
        )
        for path, source in sources.items()
        if path not in taken
    ]


def annotations_of(container: Container, paths: Paths) -> Mapping[str, str]:
    """Add the annotation for crun's file of the OCI hooks' stderr, which the guard reports."""
    if not container.oci_hooks:
        return container.annotations
    return {**container.annotations, "run.oci.hooks.stderr": paths.at(HOOKS_STDERR)}

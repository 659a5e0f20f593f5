"""Describe one container of a node: its paths, its mounts and all else that its creation needs."""

from __future__ import annotations

import os
import pwd

from container_engine.base.variables import BROUGHT, PATH
from container_engine.node.node_plan import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from container_engine.oci.runtime import HookFile

    # one line of the guard's specification: the name of an operation and its arguments
    Operation = tuple[str, Sequence[str]]

INIT_NAME = ".ce-init"
INIT_PATH = "/dev/" + INIT_NAME
# The same program. Under this name it runs an entrypoint for a user who is root inside, with the
# filter of spank_plugin/common/seccomp.h.
_ENTRY_PATH = "/dev/.ce-entry"
# must match spank_plugin/guard/guard_report.c
HOOKS_STDERR = "hooks.err"
HOOKS_REQUEST = "hooks.json"
# the session's files that each container has for itself
_OF_EACH = frozenset(["root", "init.pid", HOOKS_STDERR, HOOKS_REQUEST])
# the session's file that is made once the engine has written all its own files into the container
BEGUN = "begun"
# Each start of a container that lives with its job leaves two files with its number there:
# STARTED.0, made before the engine writes, and BEGUN.0.
STARTED = "started"
# A short path of the session's directory: Podman refuses a runroot of more than 50 characters and
# puts sockets there. The guard, process 1 of the session, has it as its working directory.
SHORT_SESSION = "/proc/1/cwd"
# The host's files that name hosts, with the content that containers get on a node that lacks one,
# as Podman does for /etc/hosts: the image's own file would name the machine it was made on.
HOSTS_FILES = {
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "/etc/resolv.conf": "",
}
_PROPAGATIONS = frozenset(
    ["private", "rprivate", "slave", "rslave", "shared", "rshared", "unbindable", "runbindable"]
)
# settings of a tmpfs; Podman's have the prefix "tmpfs-"
TMPFS_SETTINGS = ("size=", "mode=")
# a further setting, huge pages, which only crun passes on
TMPFS_HUGE = "huge="
# directories that get a tmpfs in a read-only container, unless something else is mounted there
READ_ONLY_TMPFS = ("/run", "/tmp", "/var/tmp")
# the file by which programs recognize that they are in a container
CONTAINERENV = "/run/.containerenv"
_FLAGS = frozenset(["ro", "rw", "nosuid", "nodev", "noexec", "suid", "dev", "exec"])


def searched(program: str, libexec: str = "") -> list[str]:
    """Return the paths at which a program of the node is looked for, up to where it is.

    With `libexec`, one that a bundle of the engine brings is found first.
    """
    if "/" in program:
        return [program]
    own = [f"{libexec}/{BROUGHT}"] if libexec else []
    paths = [f"{directory}/{program}" for directory in (*own, *PATH.split(":"))]
    there = next((at for at, path in enumerate(paths) if os.access(path, os.X_OK)), len(paths))
    return paths[: there + 1]


def answers_place(kind: str) -> str:
    """Return the node's directory for this user's recorded answers of one kind, such as "starts".

    An answer is valid for one node and one boot only, so the home would be the wrong place:
    hundreds of nodes would write to its file server at once, and quotas limit the number of files.
    /var/tmp is the node's even for jobs that have a /tmp of their own. If another user has made
    the directory first, nothing is recorded.
    """
    # must match spank_plugin/guard/step_answers.h
    return f"/var/tmp/ce-answers-{os.geteuid()}/{kind}"


class Paths:
    """The paths of files and directories in the session's private mount namespace.

    `podman` and `runtime` are the site's programs; `runtime` is "" for the crun of PATH, unless a
    bundle brings one. `written` is the directory for what the container writes; `begun` are the
    files that are made once the engine has written its own files there. `lacking` are the
    HOSTS_FILES that the node lacks. `own` is the directory of what each container has for itself:
    the session's own, or one below it if each task has a container (`for_each`).
    """

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
        own = f"{libexec}/{BROUGHT}/crun"
        self.runtime = runtime or (own if os.access(own, os.X_OK) else "")
        self.libexec = libexec
        self.init = f"{libexec}/ce-init"
        self.server = f"{libexec}/ce-image"

    def at(self, name: str) -> str:
        return f"{self.own if name in _OF_EACH else self.session}/{name}"

    def replaced(self) -> dict[str, str]:
        """Return, for each file of `lacking`, the session's file that replaces it."""
        return {path: self.at(path.rpartition("/")[2]) for path in self.lacking}


class NodeMount(Frozen):
    """A mount of the container as this node makes it, all its strings literal.

    `origin` is where a plan has it from, "" for a mount of hooks or the engine.
    """

    kind: str
    source: str
    target: str
    options: Sequence[str]
    origin: str = ""

    @property
    def flags(self) -> list[str]:
        """The options that the kernel knows; a SquashFS file is read-only in any case."""
        found = [option for option in self.options if option in _FLAGS]
        return [*found, "ro"] if self.kind == "squashfs" and "ro" not in found else found

    @property
    def propagation(self) -> str:
        """Return whether mounts made later on one side, host or container, appear on the other.

        With the default, rslave, the host's mounts (autofs) appear inside, and not vice versa.
        """
        found = [option for option in self.options if option in _PROPAGATIONS]
        return found[-1] if found else "rslave"

    @property
    def is_recursive(self) -> bool:
        """Return whether mounts below the source are mounted with it."""
        return "bind" not in self.options or "rbind" in self.options


class Person(Frozen):
    """The user on this host: IDs, lines for the container's /etc/passwd and /etc/group, home.

    `home` is that of the user database, `host` this host's name.
    """

    uid: int
    gid: int
    passwd: str
    group: str
    home: str
    host: str = ""


def person_of_process() -> Person:
    """Return this process's user."""
    uid, gid = os.getuid(), os.getgid()
    try:
        entry = pwd.getpwuid(uid)
        name, gecos, home, shell = entry.pw_name, entry.pw_gecos, entry.pw_dir, entry.pw_shell
    except KeyError:
        # a node may run jobs of users who are not in its password database
        name, gecos, home, shell = f"user{uid}", "", "/", "/bin/sh"
    # not "x", for which PAM looks for a line in /etc/shadow: the image has none, and an sshd that
    # the user starts would refuse every login
    line = f"{name}:*:{uid}:{gid}:{gecos}:{home}:{shell or '/bin/sh'}"
    group = f"{_group_name(gid, name)}:x:{gid}:"
    return Person(uid, gid, line, group, home, os.uname().nodename)


def _group_name(gid: int, otherwise: str) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return otherwise


class Parts(Frozen):
    """What one container is made of, with everything that only the node knows filled in."""

    uid: int
    gid: int
    writable: bool
    entrypoint: Sequence[str]
    # where the image wants its entrypoint to start; `begin` is where tasks start
    workdir: str
    mounts: Sequence[NodeMount]
    devices: Sequence[str]
    annotations: Mapping[str, str]
    # definitions as in oci-hooks(5), of hooks that apply, in the order in which they run
    oci_hooks: Sequence[HookFile] = ()
    # "net", "ipc", "uts", "pid": namespaces of its own; "sys": an empty /sys
    unshared: Sequence[str] = ()
    # paths at which tasks expect a directory: HOME, the image's WORKDIR
    directories: Sequence[str] = ()
    begin: str = "/"
    # the user's, for the entrypoint
    umask: int = 0o022
    # the limit of what the session and the container may write to memory
    tmpfs_size: str = "50%"
    by_podman: bool = False
    # its memory in bytes, processes, milliseconds; 0 is no limit. None: nobody looks at them
    limits: tuple[int, int, int] | None = None
    # the descriptor of a file for what the guard sees of it, or -1
    outcome: int = -1
    # Podman's; "" for one that it makes up
    name: str = ""


def command(container: Parts) -> list[str]:
    """Return the command line of the container's first process."""
    before = [_ENTRY_PATH, container.workdir] if _is_prepared(container) else []
    return [*before, *container.entrypoint, INIT_PATH]


def _is_prepared(container: Parts) -> bool:
    """Return whether the entrypoint needs what ce-init does as `.ce-entry`.

    That is a working directory, which the runtime would make where a mount hides it, and for root
    the filter of seccomp.h.
    """
    return bool(container.entrypoint) and (container.uid == 0 or container.workdir != "/")


def system_mounts(paths: Paths, container: Parts) -> list[NodeMount]:
    """Return mounts of terminals, the init, and of /proc and /sys where they are not the usual."""
    entry = NodeMount("bind", paths.init, _ENTRY_PATH, ("ro",))
    empty = NodeMount("tmpfs", "tmpfs", "/sys", ("ro", "noexec"))
    host = NodeMount("bind", paths.at("proc"), "/proc", ("rslave",))
    return [
        *([] if "pid" in container.unshared else [host]),
        *([empty] if "sys" in container.unshared else []),
        NodeMount("bind", "/dev/pts", "/dev/pts", ("rslave",)),
        NodeMount("bind", paths.init, INIT_PATH, ("ro",)),
        *([entry] if _is_prepared(container) else []),
    ]


def names(paths: Paths, container: Parts) -> list[NodeMount]:
    """Return mounts of the files that name hosts, unless the user or a hook mounts others there."""
    sources = {
        **{path: path for path in HOSTS_FILES},
        **paths.replaced(),
        # Podman's own file would contain the ID of the container, which is not a host's name
        "/etc/hostname": paths.at("hostname"),
    }
    # Podman refuses two mounts on one path
    taken = {mount.target for mount in container.mounts}
    return [
        # crun 1.21 drops the flags of the session's tmpfs unless they are repeated
        NodeMount(
            "bind", source, path, ("nosuid", "nodev") if source.startswith(paths.session) else ()
        )
        for path, source in sources.items()
        if path not in taken
    ]


def annotations_of(container: Parts, paths: Paths) -> Mapping[str, str]:
    """Return the annotations; with OCI hooks, one names the file for their stderr.

    The guard reports its content.
    """
    if not container.oci_hooks:
        return container.annotations
    return {**container.annotations, "run.oci.hooks.stderr": paths.at(HOOKS_STDERR)}

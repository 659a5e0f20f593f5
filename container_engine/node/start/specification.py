"""The guard's specification: the operations that make one container, in order. Pure.

ce-guard executes these operations and knows nothing else. The format is its own: NUL-terminated
strings; for each operation the name, the number of arguments in decimal, and the arguments.
"""

from __future__ import annotations

from container_engine.node.report.failure import LaunchError
from container_engine.node.start import podman
from container_engine.node.start.podman import Bind, Container, Paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Operation = tuple[str, Sequence[str]]


# crun 1.8 applies these to a bind mount only together with ro (see spank_plugin/guard/guard_bind.c)
_FORGOTTEN = frozenset(["nosuid", "nodev", "noexec"])


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


class HooksWork:
    """The operations of hooks: `before` Podman starts, and `beside` it while it starts.

    The program `gate` holds the container's runtime back until the latter are done.
    """

    __slots__ = ("before", "beside", "gate")

    def __init__(
        self, before: Sequence[Operation], beside: Sequence[Operation] = (), gate: str = ""
    ) -> None:
        self.before, self.beside, self.gate = before, beside, gate


def operations(
    paths: Paths,
    image: str,
    container: Container,
    container_environment: Mapping[str, str],
    person: Person,
    tmpfs_size: str,
    hooks: HooksWork | None = None,
) -> list[Operation]:
    hooks = hooks or HooksWork(())
    gate = [paths.gate] if hooks.beside else []
    served, binds = _served_mounts(paths, container.mounts)
    flagged, container.mounts = _flagged_mounts(paths, binds)
    runtime = hooks.gate if gate else ""
    configuration = podman.configuration(paths, container, container_environment, runtime)
    engine_environment = podman.environment(paths, person.uid, person.gid)
    return [
        ("session", [tmpfs_size, paths.session]),
        # the servers of all files start before the first of them is waited for
        ("fuse", [paths.server, image, paths.at("image")]),
        *(("fuse", [paths.server, source, directory]) for source, directory in served),
        *(("environment", pair) for pair in engine_environment.items()),
        ("dir", [paths.at("home")]),
        ("dir", [paths.at("xdg")]),
        ("file", [paths.at("containers.conf"), configuration]),
        ("file", [paths.at("storage.conf"), podman.STORAGE_CONFIGURATION]),
        ("overlay", [paths.at(d) for d in ("image", "changes", "work", "root")]),
        *(("served", [directory]) for _source, directory in served),
        *flagged,
        *_person(paths, person),
        *hooks.before,
        *(("gate", [fifo]) for fifo in gate),
        ("podman", podman.arguments(paths, container)),
        *hooks.beside,
        *(("pass", [fifo]) for fifo in gate),
        ("container", [paths.at("init.pid"), podman.INIT_NAME]),
    ]


def _served_mounts(
    paths: Paths, mounts: Sequence[Bind]
) -> tuple[list[tuple[str, str]], list[Bind]]:
    """Replace each SquashFS mount by a server's directory and a bind mount of it."""
    served: list[tuple[str, str]] = []
    binds = []
    for mount in mounts:
        source = mount.source
        if mount.kind == "squashfs":
            source = paths.at(f"squashfs{len(served)}")
            served.append((mount.source, source))
        binds.append(Bind(mount.kind, source, mount.target, mount.options))
    return served, binds


def _flagged_mounts(paths: Paths, mounts: Sequence[Bind]) -> tuple[list[Operation], list[Bind]]:
    """Let the guard bind the mounts whose flags the runtime would drop, with these flags."""
    steps: list[Operation] = []
    binds = []
    for mount in mounts:
        source = mount.source
        if mount.kind == "bind" and _FORGOTTEN.intersection(mount.options):
            source = paths.at(f"bind{len(steps)}")
            steps.append(("bind", [mount.source, source, *mount.options]))
        binds.append(Bind(mount.kind, source, mount.target, mount.options))
    return steps, binds


def _person(paths: Paths, person: Person) -> list[Operation]:
    root = paths.at("root")
    entries: list[Operation] = [
        ("root-entry", [root, "/etc/passwd", str(person.uid), person.passwd]),
        ("root-entry", [root, "/etc/group", str(person.gid), person.group]),
        ("file", [paths.at("hostname"), f"{person.host}\n"]),
    ]
    if person.home.startswith("/"):
        entries.append(("root-dir", [root, person.home]))
    return entries


def encode(steps: Sequence[Operation]) -> bytes:
    """Encode the operations. Raise LaunchError for a NUL: it would begin another operation."""
    strings = []
    for name, arguments in steps:
        if any("\0" in argument for argument in arguments):
            message = f"a NUL character in what the container is made of ({name})"
            raise LaunchError(message, "internal-error")
        strings += [name, str(len(arguments)), *arguments]
    return b"".join(string.encode("utf-8", "surrogateescape") + b"\0" for string in strings)

"""The guard's specification: the operations that make one container, in order. Pure.

ce-guard executes these operations and knows nothing else. The format is a sequence of
NUL-terminated strings: for each operation its name, the number of its arguments in decimal, and the
arguments.
"""

from __future__ import annotations

from container_engine.base.errors import LaunchError
from container_engine.node.container.description import (
    CONTAINERENV,
    HOSTS_FILES,
    INIT_NAME,
    READ_ONLY_TMPFS,
    NodeMount,
    names,
    system_mounts,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from container_engine.node.container.description import Operation, Parts, Paths, Person

    Creator = Callable[[Paths, Parts, Mapping[str, str], Person], tuple[list[Operation], Operation]]


# what crun 1.8 does not apply, or not below the source (spank_plugin/guard/guard_session.c)
_FORGOTTEN = frozenset(["ro", "nosuid", "nodev", "noexec"])
_APT_FILE = "/etc/apt/apt.conf.d/99container-engine"


def operations(  # all that a container is made of
    paths: Paths,
    images: Sequence[str],
    container: Parts,
    container_environment: Mapping[str, str],
    person: Person,
    hooks: Sequence[Operation] = (),
    again: Sequence[Operation] = (),
) -> list[Operation]:
    """Return the operations of a start; those of `hooks` follow the mount of the container's root.

    `images` are the paths of the SquashFS files, the base first. `again`, if not empty, replaces
    the operations that serve and mount them, because another step's guard has already done so.
    """
    roots = [paths.at(f"image{number or ''}") for number in range(len(images))]
    served, flagged, mounts = _prepared_mounts(paths, container.mounts)
    container = container.but(mounts=mounts)
    create = _creator(container)
    prepare, creation = create(paths, container, container_environment, person)
    fuses = [] if again else zip(images, roots, strict=True)
    pids = [one for one in container.unshared if one == "pid"]
    written = [f"{paths.written}/changes", f"{paths.written}/work"]
    overlay: Operation = ("overlay", [*written, paths.at("root"), *roots])
    of_node, of_root = _person(paths, person)
    return [
        *_limits(container),
        ("session", [container.tmpfs_size, paths.session]),
        # the servers of all files start before the first of them is waited for
        *(("fuse", [paths.server, *pair]) for pair in fuses),
        *(("fuse", [paths.server, source, directory]) for source, directory in served),
        *prepare,
        *(("served", [directory]) for _source, directory in served),
        *flagged,
        *of_node,
        *_each(paths, container),
        *(again or [overlay]),
        *of_root,
        *_root(paths, container),
        *hooks,
        *_places(paths, container),
        # container_archive.py leaves out of a saved image what was written before these files
        *(("file", [path, ""]) for path in paths.begun),
        creation,
        ("container", [paths.at("init.pid"), INIT_NAME, container.begin, *pids]),
    ]


def _limits(container: Parts) -> list[Operation]:
    """Return the operation by which the guard notes what becomes of the container, if it is to.

    `ce run --json` asks for it without limits.
    """
    is_asked = container.limits is None and container.outcome >= 0
    limits = (0, 0, 0) if is_asked else container.limits
    return [] if limits is None else [("limits", [*map(str, (*limits, container.outcome))])]


def _each(paths: Paths, container: Parts) -> list[Operation]:
    """Return the operations after which all others are carried out for each task's container."""
    if paths.own == paths.session:
        return []
    return [("dir", [paths.own]), ("each", [container.tmpfs_size, paths.own])]


def _creator(container: Parts) -> Creator:
    """Return what creates the container: crun itself, or Podman where that is wanted or needed."""
    # only Podman runs precreate hooks, which change the configuration that it makes
    if container.by_podman or any("precreate" in hook["stages"] for hook in container.oci_hooks):
        from container_engine.node.container.podman import creation
    else:
        from container_engine.node.container.crun import creation
    return creation


def _prepared_mounts(
    paths: Paths, mounts: Sequence[NodeMount]
) -> tuple[list[tuple[str, str]], list[Operation], list[NodeMount]]:
    """Return (file, directory) of the image servers to start, the guard's binds, and the mounts.

    A SquashFS file is then mounted from its server's directory, and a source with flags that the
    runtime would drop from where the guard has bound it.
    """
    served: list[tuple[str, str]] = []
    flagged: list[Operation] = []
    replaced = []
    for mount in mounts:
        source = mount.source
        if mount.kind == "squashfs":
            source = paths.at(f"squashfs{len(served)}")
            served.append((mount.source, source))
        elif mount.kind == "bind" and _FORGOTTEN.intersection(mount.options):
            source = paths.at(f"bind{len(flagged)}")
            flagged.append(("bind", [mount.source, source, *mount.options]))
        replaced.append(NodeMount(mount.kind, source, mount.target, mount.options))
    return served, flagged, replaced


def _person(paths: Paths, person: Person) -> tuple[list[Operation], list[Operation]]:
    """Return the operations for files about user and node, outside the container's root and in it.

    The first are done before the root is mounted.
    """
    root = paths.at("root")
    files: list[Operation] = [
        ("file", [paths.at("hostname"), f"{person.host}\n"]),
        *(("file", [file, HOSTS_FILES[path]]) for path, file in paths.replaced().items()),
    ]
    entries: list[Operation] = [
        ("root-entry", [root, "/etc/passwd", str(person.uid), person.passwd]),
        ("root-entry", [root, "/etc/group", str(person.gid), person.group]),
        # df and mount read /etc/mtab; the image's own file stays
        ("root-link", [root, "/etc/mtab", "/proc/mounts"]),
    ]
    return files, entries


def _places(paths: Paths, container: Parts) -> list[Operation]:
    """Return the operations that make the container's mount points and directories in the image.

    The runtime would not follow an image's symlink whose target is missing. What is below another
    mount is left to it: that is not in the image.
    """
    root = paths.at("root")
    # the destinations, each with a path of the same kind: "/" for a directory
    kinds = dict.fromkeys(("/dev", "/proc", "/sys"), "/")
    kinds |= dict.fromkeys(() if container.writable else READ_ONLY_TMPFS, "/")
    kinds[CONTAINERENV] = paths.init
    for mount in (*system_mounts(paths, container), *names(paths, container), *container.mounts):
        kinds[mount.target] = "/" if mount.kind == "tmpfs" else mount.source
    for device in container.devices:
        outside, _colon, inside = device.partition(":")
        kinds[inside or outside] = outside
    placed = {target: kinds[target] for target in kinds if not _is_below(target, kinds)}
    return [
        *(("root-place", [root, target, source]) for target, source in placed.items()),
        ("root-devices", [root]),
        # as crun.py and Podman sort them
        ("root-order", [root, *sorted(placed, key=lambda target: target.count("/"))]),
        *(
            ("root-dir", [root, path])
            for path in dict.fromkeys(container.directories)
            if path.startswith("/") and path not in kinds and not _is_below(path, kinds)
        ),
    ]


def _is_below(path: str, others: Collection[str]) -> bool:
    """Check whether a directory above the path is one of `others`."""
    above = path.rstrip("/").rpartition("/")[0]
    while above:
        if above in others:
            return True
        above = above.rpartition("/")[0]
    return False


def _root(paths: Paths, container: Parts) -> list[Operation]:
    """Return a setting for apt-get if it runs as root of a container that has no other user.

    For downloads it would become the user `_apt`, and give up because it cannot.
    """
    if container.uid != 0:
        return []
    return [("root-setting", [paths.at("root"), _APT_FILE, 'APT::Sandbox::User "root";\n'])]


def encode(steps: Sequence[Operation]) -> bytes:
    """Encode the operations. Raise LaunchError for a NUL: it would begin another operation."""
    strings = []
    for name, arguments in steps:
        if any("\0" in argument for argument in arguments):
            message = f"a NUL character in '{name}'"
            raise LaunchError(message, see="internal-error")
        strings += [name, str(len(arguments)), *arguments]
    return b"".join(string.encode("utf-8", "surrogateescape") + b"\0" for string in strings)

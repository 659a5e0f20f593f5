"""Turn a plan into an OCI configuration and crun's command line: the quick way to a container.

The container is the one that Podman would make from the same plan (podman.py): its configuration
is what Podman writes, without what Podman needs for containers that outlive their command.
tests/integration/test_two_ways.py compares the two from inside and outside.
"""

from __future__ import annotations

import os

from container_engine.base.variables import PATH
from container_engine.node.container.description import (
    CONTAINERENV,
    READ_ONLY_TMPFS,
    SHORT_SESSION,
    TMPFS_HUGE,
    TMPFS_SETTINGS,
    annotations_of,
    command,
    names,
    system_mounts,
)
from container_engine.node.plan_json import to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from container_engine.node.container.description import (
        NodeMount,
        Operation,
        Parts,
        Paths,
        Person,
    )
    from container_engine.oci.runtime import Hook, Mount, Spec

# Podman's default set, which an entrypoint has if users are root in their containers
_CAPABILITIES = [
    f"CAP_{name}"
    for name in (
        *("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE"),
        *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    )
]
_TMPFS = ("rw", "rprivate", "nosuid", "nodev", "tmpcopyup")
_NAME = "ce"
# OCI's names of namespaces; a PID namespace is missing here, since each container has one
_UNSHARED = {"net": "network", "ipc": "ipc", "uts": "uts"}
_CONTAINERENV = ".containerenv"


def creation(
    paths: Paths, container: Parts, environment: Mapping[str, str], person: Person
) -> tuple[list[Operation], Operation]:
    """Return the guard's operations that prepare the creation of a container, and its creation."""
    bundle = paths.at("bundle")
    configuration = _configuration(paths, container, environment, person)
    return [
        ("environment", ["PATH", PATH]),
        # crun copies itself into that directory, else into /tmp, where a kill would leave the copy
        ("environment", ["_LIBCONTAINER_STATEDIR", paths.at("home")]),
        ("dir", [paths.at("home")]),
        ("dir", [bundle]),
        ("file", [f"{bundle}/config.json", to_json(configuration)]),
        ("file", [paths.at(_CONTAINERENV), ""]),
    ], (
        "crun",
        [
            *(paths.runtime or "crun", f"--root={_state(paths)}", "--cgroup-manager=disabled"),
            *("run", "--detach", "--no-new-keyring", f"--bundle={bundle}"),
            *(f"--pid-file={paths.at('init.pid')}", _NAME),
        ],
    )


def _state(paths: Paths) -> str:
    """Return the directory of the runtime's state, a different one if each task has a container."""
    return f"{SHORT_SESSION if paths.own == paths.session else paths.own}/run"


def _configuration(
    paths: Paths, container: Parts, environment: Mapping[str, str], person: Person
) -> Spec:
    uid, gid = container.uid, container.gid
    is_shared = any(one.propagation in ("shared", "rshared") for one in container.mounts)
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": uid, "gid": gid, "umask": container.umask, "additionalGids": [gid]},
            "args": command(container),
            "env": [
                f"{name}={value}"
                for name, value in {"PATH": PATH, "HOSTNAME": person.host, **environment}.items()
            ],
            "cwd": "/",
            "capabilities": _capabilities(uid),
        },
        "root": {"path": paths.at("root"), "readonly": not container.writable},
        "mounts": _mounts(paths, container),
        "hooks": _hooks(container),
        "annotations": annotations_of(container, paths),
        "linux": {
            "uidMappings": [{"containerID": uid, "hostID": 0, "size": 1}],
            "gidMappings": [{"containerID": gid, "hostID": 0, "size": 1}],
            "namespaces": [
                {"type": kind}
                for kind in (
                    "pid",
                    "mount",
                    "user",
                    *(_UNSHARED[one] for one in container.unshared if one in _UNSHARED),
                )
            ],
            # a shared mount needs a shared root
            "rootfsPropagation": "shared" if is_shared else "rslave",
            "maskedPaths": ["/sys/kernel"],
        },
    }


def _capabilities(uid: int) -> dict[str, list[str]]:
    sets = ("bounding", "effective", "permitted") if uid == 0 else ("bounding",)
    return dict.fromkeys(sets, _CAPABILITIES)


def _hooks(container: Parts) -> dict[str, list[Hook]]:
    """Return the OCI hooks of each stage, in their order."""
    hooks: dict[str, list[Hook]] = {}
    for definition in container.oci_hooks:
        for stage in definition["stages"]:
            hooks.setdefault(stage, []).append(definition["hook"])
    return hooks


def _mounts(paths: Paths, container: Parts) -> list[Mount]:
    """Return all mounts, parents before children; of several on one path, only the last."""
    given = [
        _mount("tmpfs", "tmpfs", "/dev", "nosuid", "strictatime", "mode=755", "size=64m"),
        *_system(container),
        *_shared_memory(container),
        *_processes(container),
        *([] if container.writable else (_tmpfs(path) for path in READ_ONLY_TMPFS)),
        *map(_translated, system_mounts(paths, container)),
        *map(_translated, names(paths, container)),
        *map(_translated, container.mounts),
        *map(_device, container.devices),
    ]
    last = {mount["destination"]: mount for mount in given}
    # if /run is a directory of the host, the mount point would be created in it, and stay
    if "/run" not in last or last["/run"]["type"] == "tmpfs":
        last[CONTAINERENV] = _mount(
            "bind", paths.at(_CONTAINERENV), CONTAINERENV, "rprivate", "bind"
        )
    return sorted(last.values(), key=lambda mount: mount["destination"].count("/"))


def _system(container: Parts) -> list[Mount]:
    """Return the mounts of /sys: the node's, or one that shows the container's own network.

    An empty one is among system_mounts.
    """
    flags = ("nosuid", "noexec", "nodev", "ro")
    if "sys" in container.unshared:
        return []
    if "net" not in container.unshared:
        return [_bind("/sys", "rprivate", *flags)]
    return [
        _mount("sysfs", "sysfs", "/sys", *flags),
        _bind("/sys/fs/cgroup", "rprivate", *flags),
    ]


def _shared_memory(container: Parts) -> list[Mount]:
    """Return the mounts of shared memory and message queues, the node's or the container's own."""
    if "ipc" not in container.unshared:
        flags = ("rprivate", "nosuid", "noexec", "nodev", "rw")
        return [_bind(path, *flags) for path in (*_queues(), "/dev/shm")]
    return [
        _mount("mqueue", "mqueue", "/dev/mqueue", "nosuid", "noexec", "nodev"),
        _mount("tmpfs", "shm", "/dev/shm", "nosuid", "noexec", "nodev", "mode=1777"),
    ]


def _processes(container: Parts) -> list[Mount]:
    """Return the mount of the container's own /proc if PIDs are unshared.

    Otherwise system_mounts has a mount of the host's.
    """
    if "pid" not in container.unshared:
        return []
    return [_mount("proc", "proc", "/proc", "nosuid", "noexec", "nodev")]


def _queues() -> list[str]:
    """Return the directory of POSIX message queues, or [] if the host does not have it."""
    return ["/dev/mqueue"] if os.path.isdir("/dev/mqueue") else []


def _translated(mount: NodeMount) -> Mount:
    flags = mount.flags
    if mount.kind == "tmpfs":
        sizes = [
            option for option in mount.options if option.startswith((*TMPFS_SETTINGS, TMPFS_HUGE))
        ]
        return _tmpfs(mount.target, *sizes, *flags)
    flags += _flags_of_source(mount, flags)
    mode = () if "ro" in flags else ("rw",)
    kind = "rbind" if mount.is_recursive else "bind"
    if mount.kind == "squashfs":
        # crun drops the flags with which the guard has mounted the file
        flags += ["nosuid", "nodev"]
    return _mount("bind", mount.source, mount.target, *flags, *mode, mount.propagation, kind)


# a flag of a mount, how statvfs reports it, and the option that takes it away
_INHERITED = (
    ("nosuid", os.ST_NOSUID, "suid"),
    ("nodev", os.ST_NODEV, "dev"),
    ("noexec", os.ST_NOEXEC, "exec"),
)


def _flags_of_source(mount: NodeMount, given: Sequence[str]) -> list[str]:
    """Return the flags of the source's mount that the options do not mention.

    crun 1.21 gives a bind mount only the flags that are named. The kernel keeps the flags of the
    host's mounts in any case, but not those of the session's.
    """
    try:
        found = os.statvfs(mount.source).f_flag
    except OSError:
        return []  # it exists only in the session
    if f"{mount.source}/".startswith("/proc/"):
        # the session's own /proc, which the guard mounts with all three flags
        found |= os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC
    return [
        name
        for name, flag, contrary in _INHERITED
        if found & flag and name not in given and contrary not in given
    ]


def _device(device: str) -> Mount:
    """Return the mount of HOST[:INSIDE]: without privileges, a device is a bind mount."""
    outside, _colon, inside = device.partition(":")
    return _mount("bind", outside, inside or outside, "slave", "nosuid", "noexec", "rw", "rbind")


def _bind(path: str, *options: str) -> Mount:
    return _mount("bind", path, path, *options, "rbind")


def _tmpfs(path: str, *options: str) -> Mount:
    """Return a tmpfs with Podman's options, except those that `options` contradict."""
    contrary = {"ro": "rw", "suid": "nosuid", "dev": "nodev"}
    left_out = {contrary.get(option, option) for option in options}
    return _mount("tmpfs", "tmpfs", path, *options, *(o for o in _TMPFS if o not in left_out))


def _mount(kind: str, source: str, destination: str, *options: str) -> Mount:
    return {"destination": destination, "type": kind, "source": source, "options": list(options)}

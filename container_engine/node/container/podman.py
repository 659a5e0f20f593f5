"""Turn a plan into Podman's command line and configuration files. Pure.

No value of the environment appears on the command line, which every user of the node can read: the
environment is in a containers.conf of the session. That file also keeps out the user's and the
machine's container configuration, and takes lists whose values contain commas: Podman 4 would split
such a value of an option at its commas, as CSV, while Podman 5 takes it literally.
"""

from __future__ import annotations

from container_engine.base.variables import PATH
from container_engine.node.container.description import (
    SHORT_SESSION,
    TMPFS_SETTINGS,
    NodeMount,
    annotations_of,
    command,
    names,
    system_mounts,
)
from container_engine.node.plan_json import to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from container_engine.node.container.description import Operation, Parts, Paths, Person


_HOOKS = "hooks.d"
_NO_CGROUPS = NodeMount("tmpfs", "tmpfs", "/sys/fs/cgroup", ("ro", "noexec"))


def creation(
    paths: Paths, container: Parts, environment: Mapping[str, str], person: Person
) -> tuple[list[Operation], Operation]:
    """Return the guard's operations that prepare the creation of a container, and its creation."""
    programs = program_environment(paths, person.uid, person.gid)
    hooks: list[Operation] = [
        ("file", [f"{paths.at(_HOOKS)}/{number:04}.json", to_json(hook)])
        for number, hook in enumerate(container.oci_hooks)
    ]
    return [
        *(("environment", pair) for pair in programs.items()),
        *(("dir", [paths.at(name)]) for name in ("home", "xdg")),
        ("file", [paths.at("containers.conf"), configuration(paths, container, environment)]),
        ("file", [paths.at("storage.conf"), STORAGE_CONFIGURATION]),
        ("file", [paths.at("podman"), _question(paths, programs)]),
        *([("dir", [paths.at(_HOOKS)]), *hooks] if hooks else []),
    ], ("podman", arguments(paths, container))


def arguments(paths: Paths, container: Parts) -> list[str]:
    """Return the whole command line, Podman first."""
    return [
        paths.podman,
        *_engine(),
        "run",
        *_isolation(container),
        *(
            argument
            for mount in (
                *system_mounts(paths, container),
                *names(paths, container),
                *container.mounts,
            )
            for argument in ("--mount", _mount(mount))
        ),
        *(argument for device in container.devices for argument in _device(device)),
        # Podman mounts the node's cgroups even there
        *(["--mount", _mount(_NO_CGROUPS)] if "sys" in container.unshared else []),
        *([f"--name={container.name}"] if container.name else []),
        "--pidfile",
        paths.at("init.pid"),
        "--rootfs",
        paths.at("root"),
        *command(container),
    ]


def _engine() -> list[str]:
    """Return Podman's global options: among others an empty store of its own in the session."""
    return [
        f"--root={SHORT_SESSION}/store",
        f"--runroot={SHORT_SESSION}/run",
        f"--tmpdir={SHORT_SESSION}/tmp",
        "--storage-driver=vfs",
        "--events-backend=none",
        "--cgroup-manager=cgroupfs",
        "--runtime=crun",
        "--log-level=error",
    ]


def _isolation(container: Parts) -> list[str]:
    uid, gid = container.uid, container.gid
    return [
        "--detach",
        # no cgroups: Slurm has put the processes into its own; Podman then needs a PID namespace
        "--cgroups=disabled",
        "--cgroupns=host",
        f"--network={'none' if 'net' in container.unshared else 'host'}",
        *(
            f"--{one}={'private' if one in container.unshared else 'host'}"
            for one in ("ipc", "uts")
        ),
        f"--uidmap={uid}:0:1",
        f"--gidmap={gid}:0:1",
        f"--user={uid}:{gid}",
        "--no-hosts",
        "--passwd=false",
        # passthrough: an entrypoint's output goes to the guard and from there to the launcher,
        # which shows it as the reason if the entrypoint fails
        f"--log-driver={'passthrough' if container.entrypoint else 'none'}",
        # a filter on the idle init would protect nothing: the tasks that join don't have it
        "--security-opt=seccomp=unconfined",
        "--security-opt=label=disable",
        "--security-opt=apparmor=unconfined",
        "--security-opt=unmask=ALL",
        # which Podman does by itself where the network is the node's
        *(["--security-opt=mask=/sys/kernel"] if "net" in container.unshared else []),
        "--workdir=/",
        *([] if container.writable else ["--read-only"]),
    ]


def _device(device: str) -> list[str]:
    """Return the options for a device, with --mount for a path that needs quoting.

    A rootless device is a bind mount in any case, and all versions of Podman parse --mount alike.
    """
    if _csv(device) == device:
        return ["--device", device]
    return ["--mount", _mount(NodeMount("bind", device, device, ("dev",)))]


def _mount(mount: NodeMount) -> str:
    if mount.kind == "tmpfs":
        fields = ["type=tmpfs", f"destination={mount.target}", *_tmpfs_options(mount)]
    else:
        fields = ["type=bind", f"source={mount.source}", f"destination={mount.target}"]
        fields += _bind_options(mount)
    return ",".join(_csv(field) for field in fields)


def _bind_options(mount: NodeMount) -> list[str]:
    options = [*mount.flags, f"bind-propagation={mount.propagation}"]
    return options if mount.is_recursive else [*options, "bind-nonrecursive=true"]


def _tmpfs_options(mount: NodeMount) -> list[str]:
    sizes = [f"tmpfs-{option}" for option in mount.options if option.startswith(TMPFS_SETTINGS)]
    return [*sizes, *mount.flags]


def _csv(field: str) -> str:
    """Quote a field of the comma-separated list that --mount takes, if necessary."""
    if '"' in field or "," in field or "\n" in field:
        return '"' + field.replace('"', '""') + '"'
    return field


def program_environment(paths: Paths, uid: int, gid: int) -> dict[str, str]:
    """Return the environment of the Podman process.

    The `_CONTAINERS_*` variables tell Podman that it already is in its user namespace; they are
    internal to Podman, and a test pins them for each version.
    """
    return {
        "PATH": PATH,
        "HOME": paths.at("home"),
        "XDG_RUNTIME_DIR": paths.at("xdg"),
        "TMPDIR": paths.at("home"),
        "CONTAINERS_CONF": paths.at("containers.conf"),
        "CONTAINERS_STORAGE_CONF": paths.at("storage.conf"),
        "_CONTAINERS_USERNS_CONFIGURED": "done",
        "_CONTAINERS_ROOTLESS_UID": str(uid),
        "_CONTAINERS_ROOTLESS_GID": str(gid),
        # Podman lives for a tenth of a second: collecting garbage costs more than it saves
        "GOGC": "off",
        "GOMEMLIMIT": "256MiB",
    }


def _question(paths: Paths, programs: Mapping[str, str]) -> str:
    """Return a script that asks Podman about the container, in the session's namespaces.

    Elsewhere Podman does not know of it: the store is the session's. See docs/admin/podman.md.
    """
    words = [*(f"{name}={value}" for name, value in programs.items()), paths.podman, *_engine()]
    quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    return f'exec env -i {quoted} "$@"\n'


def configuration(
    paths: Paths,
    container: Parts,
    container_environment: Mapping[str, str],
) -> str:
    """Return the session's containers.conf."""
    annotations = annotations_of(container, paths)
    return (
        "[containers]\n"
        f"env = {_toml_list(_pairs(container_environment))}\n"
        f"annotations = {_toml_list(_pairs(annotations))}\n"
        f'umask = "{container.umask:04o}"\n'
        "default_sysctls = []\n"
        "keyring = false\n"
        # Locks in shared memory would outlive the session.
        '[engine]\nlock_type = "file"\nservice_timeout = 0\n'
        f"hooks_dir = {_toml_list([paths.at(_HOOKS)] if container.oci_hooks else [])}\n"
        # crun copies itself into that directory, else into /tmp, where a kill would leave the copy
        f'conmon_env_vars = ["PATH={PATH}", "_LIBCONTAINER_STATEDIR={SHORT_SESSION}/home"]\n'
    ) + (f"[engine.runtimes]\ncrun = [{_toml_string(paths.runtime)}]\n" if paths.runtime else "")


STORAGE_CONFIGURATION = f"""\
[storage]
driver = "vfs"
graphroot = "{SHORT_SESSION}/store"
runroot = "{SHORT_SESSION}/run"
"""


def _pairs(values: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in sorted(values.items())]


def _toml_list(values: Sequence[str]) -> str:
    entries = ",\n".join(map(_toml_string, values))
    return f"[\n{entries}\n]"


def _toml_string(text: str) -> str:
    escaped = "".join(
        f"\\u{ord(c):04x}" if c < " " or c == "\x7f" else "\\" + c if c in '"\\' else c
        for c in text
    )
    return f'"{escaped}"'

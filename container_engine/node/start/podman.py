"""Turn a plan into Podman's command line: the only module that knows Podman. Pure.

No value of the environment appears on the command line, which every user of the node can read: the
environment is in a containers.conf of the session. That file also keeps out the user's and the
machine's container configuration, and has lists whose values may hold a comma: as an option,
Podman 4 takes such a value for a line of a CSV file, Podman 5 takes it literally.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INIT_NAME = ".ce-init"
# pyxis' annotation: show the output of an entrypoint
ENTRYPOINT_LOG = "com.pyxis.entrypoint_log"
# must match spank_plugin/guard/guard_report.c
HOOKS_STDERR = "hooks.err"
INIT_PATH = "/dev/" + INIT_NAME
# The session's directory for Podman, which refuses a runroot of more than 50 characters and puts
# sockets there: the guard is process 1 of the session and has that working directory.
_SHORT_SESSION = "/proc/1/cwd"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PROPAGATIONS = frozenset(
    ["private", "rprivate", "slave", "rslave", "shared", "rshared", "unbindable", "runbindable"]
)
_PASSED_OPTIONS = frozenset(["ro", "rw", "nosuid", "nodev", "noexec", "suid", "dev", "exec"])


class Paths:
    """The paths of files and directories in the session's private mount namespace."""

    __slots__ = ("init", "server", "session")

    def __init__(self, session: str, libexec: str) -> None:
        self.session = session
        self.init = f"{libexec}/ce-init"
        self.server = f"{libexec}/ce-image"

    @property
    def gate(self) -> str:
        """The fifo for which spank_plugin/programs/crun_gate.c waits."""
        return self.at("gate")

    def at(self, name: str) -> str:
        return f"{self.session}/{name}"


class Bind:
    """A mount of the container, all its strings literal."""

    __slots__ = ("kind", "options", "source", "target")

    def __init__(self, kind: str, source: str, target: str, options: Sequence[str]) -> None:
        self.kind = kind
        self.source = source
        self.target = target
        self.options = options


class Container:
    """The parts of one container, with everything filled in that only the node knows."""

    def __init__(
        self,
        *,
        ids: tuple[int, int],
        writable: bool,
        entrypoint: Sequence[str],
        mounts: Sequence[Bind],
        devices: Sequence[str],
        annotations: Mapping[str, str],
        hooks_dirs: Sequence[str],
    ) -> None:
        self.uid, self.gid = ids
        self.writable = writable
        self.entrypoint = entrypoint
        self.mounts = mounts
        self.devices = devices
        self.annotations = annotations
        self.is_heard = bool(entrypoint) and annotations.get(ENTRYPOINT_LOG) == "true"
        self.hooks_dirs = hooks_dirs


def arguments(paths: Paths, container: Container) -> list[str]:
    """Return the whole command line, `podman` first."""
    return [
        "podman",
        *_engine(),
        "run",
        *_isolation(container),
        *(
            argument
            for bind in (*_system_mounts(paths), *_names(paths, container), *container.mounts)
            for argument in ("--mount", _mount(bind))
        ),
        *(argument for device in container.devices for argument in _device(device)),
        "--pidfile",
        paths.at("init.pid"),
        "--rootfs",
        paths.at("root"),
        *container.entrypoint,
        INIT_PATH,
    ]


def _engine() -> list[str]:
    """Return the options of Podman itself: a store of its own, empty, below the session."""
    return [
        f"--root={_SHORT_SESSION}/store",
        f"--runroot={_SHORT_SESSION}/run",
        f"--tmpdir={_SHORT_SESSION}/tmp",
        "--storage-driver=vfs",
        "--events-backend=none",
        "--cgroup-manager=cgroupfs",
        "--runtime=crun",
        "--log-level=error",
    ]


def _isolation(container: Container) -> list[str]:
    uid, gid = container.uid, container.gid
    return [
        "--detach",
        # no cgroups: the processes are Slurm's; in exchange Podman requires a PID namespace
        "--cgroups=disabled",
        "--cgroupns=host",
        "--network=host",
        "--ipc=host",
        "--uts=host",
        f"--uidmap={uid}:0:1",
        f"--gidmap={gid}:0:1",
        f"--user={uid}:{gid}",
        "--no-hosts",
        "--passwd=false",
        # passthrough: to the guard, which passes it to the launcher; if an entrypoint fails, its
        # output is the reason
        f"--log-driver={'passthrough' if container.entrypoint else 'none'}",
        # a filter on the idle init would protect nothing: the tasks that join don't have it
        "--security-opt=seccomp=unconfined",
        "--security-opt=label=disable",
        "--security-opt=apparmor=unconfined",
        "--security-opt=unmask=ALL",
        "--workdir=/",
        *([] if container.writable else ["--read-only"]),
    ]


def _device(device: str) -> list[str]:
    """Return the options for a device, with --mount for a path that needs quoting.

    Rootless, a device is a bind mount, and all versions of Podman read --mount alike.
    """
    if _csv(device) == device:
        return ["--device", device]
    return ["--mount", _mount(Bind("bind", device, device, ("dev",)))]


def _system_mounts(paths: Paths) -> list[Bind]:
    """Return mounts for terminals, the init, and the host's /proc instead of the session's."""
    return [
        Bind("bind", paths.at("proc"), "/proc", ("rslave",)),
        Bind("bind", "/dev/pts", "/dev/pts", ("rslave",)),
        Bind("bind", paths.init, INIT_PATH, ("ro",)),
    ]


def _names(paths: Paths, container: Container) -> list[Bind]:
    """Return mounts of the files that name hosts, unless the user or a hook mounts others there."""
    sources = {
        "/etc/hosts": "/etc/hosts",
        "/etc/resolv.conf": "/etc/resolv.conf",
        # Podman's own would have the ID of the container, which is not the name of any host
        "/etc/hostname": paths.at("hostname"),
    }
    # Podman refuses two mounts on one path
    taken = {bind.target for bind in container.mounts}
    return [Bind("bind", source, path, ()) for path, source in sources.items() if path not in taken]


def _mount(bind: Bind) -> str:
    if bind.kind == "tmpfs":
        fields = ["type=tmpfs", f"destination={bind.target}", *_tmpfs_options(bind.options)]
    else:
        fields = ["type=bind", f"source={bind.source}", f"destination={bind.target}"]
        fields += _bind_options(bind)
    return ",".join(_csv(field) for field in fields)


def _bind_options(bind: Bind) -> list[str]:
    options = [option for option in bind.options if option in _PASSED_OPTIONS]
    propagation = [option for option in bind.options if option in _PROPAGATIONS]
    # rslave: later mounts of the host below the source (autofs, a file system) appear inside
    options.append(f"bind-propagation={propagation[-1] if propagation else 'rslave'}")
    if "bind" in bind.options and "rbind" not in bind.options:
        options.append("bind-nonrecursive=true")
    if bind.kind == "squashfs" and "ro" not in options:
        options.append("ro")
    return options


def _tmpfs_options(options: Sequence[str]) -> list[str]:
    named = {"size": "tmpfs-size", "mode": "tmpfs-mode"}
    result = []
    for option in options:
        key, equals, value = option.partition("=")
        if key in named and equals:
            result.append(f"{named[key]}={value}")
        elif option in _PASSED_OPTIONS:
            result.append(option)
    return result


def _csv(field: str) -> str:
    """Quote a field of the comma-separated list that --mount takes."""
    if '"' in field or "," in field or "\n" in field:
        return '"' + field.replace('"', '""') + '"'
    return field


def _with_hooks_stderr(container: Container, paths: Paths) -> Mapping[str, str]:
    """Add the annotation for crun's file of the OCI hooks' stderr, which the guard reports."""
    if not container.hooks_dirs:
        return container.annotations
    return {**container.annotations, "run.oci.hooks.stderr": paths.at(HOOKS_STDERR)}


def environment(paths: Paths, uid: int, gid: int) -> dict[str, str]:
    """Return the environment of the Podman process.

    The `_CONTAINERS_*` variables tell Podman that it already is in its user namespace; they are
    internal to Podman, and a test pins them for each version.
    """
    return {
        "PATH": _PATH,
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


def configuration(
    paths: Paths,
    container: Container,
    container_environment: Mapping[str, str],
    runtime: str = "",
) -> str:
    """Return the session's containers.conf. `runtime` is a program to run in place of crun."""
    annotations = _with_hooks_stderr(container, paths)
    return (
        "[containers]\n"
        f"env = {_toml_list(_pairs(container_environment))}\n"
        f"annotations = {_toml_list(_pairs(annotations))}\n"
        "default_sysctls = []\n"
        "keyring = false\n"
        # Locks in shared memory would outlive the session.
        '[engine]\nlock_type = "file"\nservice_timeout = 0\n'
        f"hooks_dir = {_toml_list(container.hooks_dirs)}\n"
        # crun copies itself into that directory, else into /tmp, where a kill would leave the copy
        f'conmon_env_vars = ["PATH={_PATH}", "_LIBCONTAINER_STATEDIR={_SHORT_SESSION}/home"]\n'
    ) + (f"[engine.runtimes]\ncrun = [{_toml_string(runtime)}]\n" if runtime else "")


STORAGE_CONFIGURATION = f"""\
[storage]
driver = "vfs"
graphroot = "{_SHORT_SESSION}/store"
runroot = "{_SHORT_SESSION}/run"
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

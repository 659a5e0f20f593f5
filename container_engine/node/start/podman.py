"""A plan as Podman's command line: the only module that knows Podman. Pure.

No value of the environment appears on the command line, which every user of the node can read: the
environment goes through a containers.conf of the session's own. That file also keeps the user's and
the machine's container configuration out, and has lists whose values may hold a comma: as an
option, Podman 4 takes such a value for a line of a CSV file, Podman 5 takes it as it is.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INIT_NAME = ".ce-init"
# pyxis' annotation: what an entrypoint prints is shown
ENTRYPOINT_LOG = "com.pyxis.entrypoint_log"
# spank_plugin/guard/guard_report.c knows it too
HOOKS_STDERR = "hooks.err"
INIT_PATH = "/dev/" + INIT_NAME
# The session's directory for Podman, which refuses a runroot of more than 50 characters and puts
# sockets there: the guard is process 1 of the session and stands in that directory.
_SHORT_SESSION = "/proc/1/cwd"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PROPAGATIONS = frozenset(
    ["private", "rprivate", "slave", "rslave", "shared", "rshared", "unbindable", "runbindable"]
)
_PASSED_OPTIONS = frozenset(["ro", "rw", "nosuid", "nodev", "noexec", "suid", "dev", "exec"])


class Paths:
    """Where things are in the session's private mount namespace."""

    __slots__ = ("init", "server", "session")

    def __init__(self, session: str, libexec: str) -> None:
        self.session = session
        self.init = f"{libexec}/ce-init"
        self.server = f"{libexec}/ce-image"

    @property
    def gate(self) -> str:
        """What spank_plugin/programs/crun_gate.c waits for."""
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
    """What one container is made of, after everything the node alone knows has been filled in."""

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
    """The whole command line, `podman` first."""
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
    """Options of Podman itself: a store of its own, below the session, with nothing in it."""
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
        # no cgroups: the processes are Slurm's; a PID namespace is what Podman asks for in exchange
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
        # passthrough: to the guard, which hands it to the launcher; where an entrypoint fails, what
        # it printed is the reason
        f"--log-driver={'passthrough' if container.entrypoint else 'none'}",
        # a filter on the idle init protects nothing: the tasks that join don't have it
        "--security-opt=seccomp=unconfined",
        "--security-opt=label=disable",
        "--security-opt=apparmor=unconfined",
        "--security-opt=unmask=ALL",
        "--workdir=/",
        *([] if container.writable else ["--read-only"]),
    ]


def _device(device: str) -> list[str]:
    """Without privileges a device is a bind mount, and all Podmans read --mount alike."""
    if _csv(device) == device:
        return ["--device", device]
    return ["--mount", _mount(Bind("bind", device, device, ("dev",)))]


def _system_mounts(paths: Paths) -> list[Bind]:
    """The host's /proc instead of one with the session's process numbers; terminals; the init."""
    return [
        Bind("bind", paths.at("proc"), "/proc", ("rslave",)),
        Bind("bind", "/dev/pts", "/dev/pts", ("rslave",)),
        Bind("bind", paths.init, INIT_PATH, ("ro",)),
    ]


def _names(paths: Paths, container: Container) -> list[Bind]:
    """The files that name hosts, where neither the user nor a hook mounts others on them."""
    sources = {
        "/etc/hosts": "/etc/hosts",
        "/etc/resolv.conf": "/etc/resolv.conf",
        # Podman's own has the number of the container, which is nobody's name
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
    # rslave: what the host mounts below the source later (autofs, a file system) appears inside
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
    """A field of the comma-separated list that --mount takes."""
    if '"' in field or "," in field or "\n" in field:
        return '"' + field.replace('"', '""') + '"'
    return field


def _with_hooks_stderr(container: Container, paths: Paths) -> Mapping[str, str]:
    """crun puts into that file what OCI hooks print on stderr; the guard reports it."""
    if not container.hooks_dirs:
        return container.annotations
    return {**container.annotations, "run.oci.hooks.stderr": paths.at(HOOKS_STDERR)}


def environment(paths: Paths, uid: int, gid: int) -> dict[str, str]:
    """The environment of the Podman process.

    The `_CONTAINERS_*` variables tell it that it already is in its user namespace; they are
    internal to Podman and pinned by a test with each version.
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
        # it lives for a tenth of a second: collecting garbage costs more than the memory is worth
        "GOGC": "off",
        "GOMEMLIMIT": "256MiB",
    }


def configuration(
    paths: Paths,
    container: Container,
    container_environment: Mapping[str, str],
    runtime: str = "",
) -> str:
    """The session's containers.conf. `runtime` is a program in place of crun."""
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
        # crun makes a copy of itself in that directory, else in /tmp, where it would stay if killed
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

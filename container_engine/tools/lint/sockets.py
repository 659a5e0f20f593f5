"""Advises on Unix sockets in directories of a network file system. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.edf.model import Mount, Problem
    from container_engine.tools.lint.subject import Subject

# variables with the path of a socket, or of a directory where programs make some under fixed names
_NAMES = (
    *("CUDA_MPS_PIPE_DIRECTORY", "JUPYTER_RUNTIME_DIR", "RAY_TMPDIR", "SSH_AUTH_SOCK"),
    *("TMUX_TMPDIR", "VSCODE_IPC_HOOK_CLI", "XDG_RUNTIME_DIR"),
)
# directories where programs make sockets whatever the variables are
_PLACES = ("/tmp", "/run", "/var/run", "/dev/shm")
_WHY = "a socket there is visible on all nodes but answers on one only, or cannot be created"


def sockets(subject: Subject) -> Iterator[Problem]:
    """Warn of variables and mounts that place sockets on a network file system.

    The kind of a file system is that seen on this host; for an unknown one there is no warning.
    """
    origin = subject.edf.image_origin
    if origin is None or subject.edf.image == "":
        return
    for mount in subject.edf.mounts:
        kind = _network(subject, mount.source) if mount.kind == "bind" else ""
        if kind and mount.target in _PLACES:
            message = f"puts '{mount.source}', on {kind}, in the place of {mount.target}: {_WHY}"
            yield mount.origin.warning("mounts", message, "mount it elsewhere")
    said = {entry.name: entry for entry in subject.edf.env}
    for name in _NAMES:
        entry = said.get(name)
        value = entry.value if entry is not None else subject.variables.get(name, "")
        source = _on_host(subject, value) if isinstance(value, str) else ""
        kind = _network(subject, source)
        if kind:
            whose = "" if entry is not None else "your shell's value "
            message = f"{whose}leads to '{source}' on {kind}: {_WHY}"
            hint = f'{name} = "/tmp" is each container\'s own, "" removes it'
            yield (entry.origin if entry else origin).warning(f"env.{name}", message, hint)


def _network(subject: Subject, path: object) -> str:
    return subject.network(path) if isinstance(path, str) and path.startswith("/") else ""


def _on_host(subject: Subject, path: str) -> str:
    """Return the path on the host of a path in the container; "" for what is not mounted."""
    mounts = [mount for mount in subject.edf.mounts if _is_below(path, mount)]
    if not mounts:
        return ""
    mount = max(mounts, key=lambda mount: len(str(mount.target)))
    if mount.kind != "bind" or not isinstance(mount.source, str):
        return ""
    return mount.source + path[len(str(mount.target)) :]


def _is_below(path: str, mount: Mount) -> bool:
    target = mount.target
    return isinstance(target, str) and f"{path}/".startswith(f"{target.rstrip('/')}/")

"""Advises on network software without its hook or beside it, and on Unix sockets. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from container_engine.edf.entries import on_host
from container_engine.edf.model import EnvEntry, Mount, Problem
from container_engine.tools.lint.subject import Subject

_PLUGINS_HOOK, _FABRICS_HOOK, _STACK = "aws_ofi_nccl", "cxi", "netstack"
_UNLESS = "unless the image has its own"
_NVSHMEM = "NVSHMEM_LIBFABRIC_"
_TUNING = ("FI_CXI_", "FI_MR_CACHE_", "FI_PROVIDER", "OFI_NCCL_", _NVSHMEM)
# parts of paths on a host that users mount for its network software
_PLUGIN_PARTS = ("aws-ofi-nccl", "aws-ofi-ccl", "libnccl-net", "librccl-net")
_FABRIC_PARTS = ("libfabric", "libcxi")
_OWN_STACK = ("alps-extended", "alps-images", "alps_extended")
# a library in a system directory of the host
_HOST_LIBRARY = re.compile(r"/(?:usr/)?lib(?:64)?/(?:[^/]+/)?([^/]+\.so(?:\.[^/]*)?)")


def network(subject: Subject) -> Iterator[Problem]:
    """Warn of settings without the network hook they need, and of mounts beside such a hook.

    Also warn of a choice of software without a hook that uses it, and of an option that srun needs.
    """
    active = {hook.name for hook in subject.hooks}
    has_plugin = any(_part(mount, _PLUGIN_PARTS) for mount in subject.edf.mounts)
    if not (_PLUGINS_HOOK in active or has_plugin or _is_declined(subject)):
        yield from _tuned_in_vain(subject, has_fabric=_FABRICS_HOOK in active)
    if _FABRICS_HOOK in active:
        yield from _brought_twice(subject, has_plugin=_PLUGINS_HOOK in active)
        yield from _libraries_by_hand(subject)
        yield from _own_stack(subject)
    elif _STACK in active and _PLUGINS_HOOK not in active:
        yield from _unused_stack(subject)
    yield from _wants_option(subject)


def _is_declined(subject: Subject) -> bool:
    """Check whether an annotation turns one of the network hooks off."""
    hooks = (_PLUGINS_HOOK, _FABRICS_HOOK)
    return any(subject.switched(hook) == "false" for hook in hooks)


def _tuned_in_vain(subject: Subject, *, has_fabric: bool) -> Iterator[Problem]:
    enable = subject.turn_on(_PLUGINS_HOOK)
    net = next((entry for entry in subject.edf.env if entry.name == "NCCL_NET"), None)
    if net is not None and net.value == "AWS Libfabric":
        message = "NCCL fails if it does not find this plugin, and no hook provides it"
        yield net.origin.warning("env.NCCL_NET", message, f"{enable}, {_UNLESS}")
    elif net is not None and net.value == "Socket":
        message = "lets NCCL use TCP, which is far slower than the network of the nodes"
        yield net.origin.warning("env.NCCL_NET", message, f"{enable}, {_UNLESS}")
    elif not has_fabric:
        known = subject.profiles(_PLUGINS_HOOK).values()
        names = {name for profile in known for name in profile if name.startswith("NCCL_NET")}
        tuned = [entry for entry in subject.edf.env if _is_tuning(entry, names)]
        for entry in tuned[:1]:
            more = f" (and {len(tuned) - 1} more)" if len(tuned) > 1 else ""
            message = f"tunes network software that no hook provides{more}"
            is_nvshmem = all(one.name.startswith(_NVSHMEM) for one in tuned)
            enable = subject.turn_on(_FABRICS_HOOK) if is_nvshmem else enable
            yield entry.origin.warning(f"env.{entry.name}", message, f"{enable}, {_UNLESS}")


def _wants_option(subject: Subject) -> Iterator[Problem]:
    for entry in subject.edf.env:
        if (entry.name, entry.value) == ("FI_CXI_RDZV_PROTO", "alt_read"):
            message = "alt_read needs steps whose network option has disable_rdzv_get"
            hint = "start them with srun --network=disable_rdzv_get, unless the site does so itself"
            yield entry.origin.warning(f"env.{entry.name}", message, hint)


def _is_tuning(entry: EnvEntry, names: set[str]) -> bool:
    return entry.value != "" and (entry.name in names or entry.name.startswith(_TUNING))


def _part(mount: Mount, parts: tuple[str, ...]) -> str | None:
    text = f"{mount.source} {mount.target}".lower()
    return next((part for part in parts if part in text), None)


def _brought_twice(subject: Subject, *, has_plugin: bool) -> Iterator[Problem]:
    for mount in subject.edf.mounts:
        part = _part(mount, _PLUGIN_PARTS)
        if part is not None and not has_plugin:
            message = f"mounts {part} by hand, and the node's libfabric comes from the hook"
            hint = f"{subject.turn_on(_PLUGINS_HOOK)} in its place, whose plugin fits the node"
            yield mount.origin.warning("mounts", message, hint)
        elif part := part or _part(mount, _FABRIC_PARTS):
            hook = _PLUGINS_HOOK if part in _PLUGIN_PARTS else _FABRICS_HOOK
            message = f"mounts {part} by hand, which the hook {hook} provides"
            yield mount.origin.warning("mounts", message, "remove the mount, or the hook")


def _libraries_by_hand(subject: Subject) -> Iterator[Problem]:
    """Yield advice on libraries of the host that users mount because libfabric needs them."""
    found = []
    for mount in subject.edf.mounts:
        source = mount.source if isinstance(mount.source, str) else ""
        match = _HOST_LIBRARY.fullmatch(source)
        if match and not _part(mount, _PLUGIN_PARTS + _FABRIC_PARTS):
            found.append((mount.origin, match[1]))
    if found:
        names = ", ".join(name for _origin, name in found)
        message = f"mounts libraries of the host by hand ({names})"
        hint = (
            f"the hook {_FABRICS_HOOK} provides what libfabric needs and the image lacks: "
            "remove those that are there for it"
        )
        yield found[0][0].warning("mounts", message, hint)


def _own_stack(subject: Subject) -> Iterator[Problem]:
    origin = subject.edf.image_origin
    text = (subject.edf.image_text or "").lower()
    if origin is not None and any(word in text for word in _OWN_STACK):
        message = (
            f"this image has its own network software, and the hook {_FABRICS_HOOK} replaces it"
        )
        hint = f"remove the annotations of {_FABRICS_HOOK} and {_PLUGINS_HOOK}"
        yield origin.warning("image", message, hint)


def _unused_stack(subject: Subject) -> Iterator[Problem]:
    """Yield advice on a choice of software for hooks of which none is on."""
    prefix = f"{subject.site_context.hooks[_STACK].annotation}."
    entry = next((one for one in subject.edf.annotations if one.key.startswith(prefix)), None)
    if entry is not None:
        message = f"has no effect: neither {_FABRICS_HOOK} nor {_PLUGINS_HOOK} is on"
        hint = f"remove the line, or {subject.turn_on(_FABRICS_HOOK)}"
        yield entry.origin.warning(entry.key, message, hint)


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
    if origin is None or not subject.has_image:
        return
    for mount in subject.edf.mounts:
        kind = subject.network_of(mount.source) if mount.kind == "bind" else ""
        if kind and mount.target in _PLACES:
            message = f"puts '{mount.source}', on {kind}, in the place of {mount.target}: {_WHY}"
            yield mount.origin.warning("mounts", message, "mount it elsewhere")
    said = {entry.name: entry for entry in subject.edf.env}
    for name in _NAMES:
        entry = said.get(name)
        value = entry.value if entry is not None else subject.variables.get(name, "")
        source = on_host(value, subject.edf.mounts) if isinstance(value, str) else ""
        kind = subject.network_of(source)
        if kind:
            whose = "" if entry is not None else "your shell's value "
            message = f"{whose}leads to '{source}' on {kind}: {_WHY}"
            hint = f'{name} = "/tmp" is each container\'s own, "" removes it'
            yield (entry.origin if entry else origin).warning(f"env.{name}", message, hint)

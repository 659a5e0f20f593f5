"""Advises on network software set up by hand without the hook for it, or beside it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.lint.subject import advice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.edf.model import EnvEntry, Problem
    from container_engine.lint.subject import Subject

_PLUGINS_HOOK, _FABRICS_HOOK = "aws_ofi_nccl", "cxi"
_ENABLE = f'write com.hooks.{_PLUGINS_HOOK}.enabled = "true", unless the image brings its own'
_TUNING = ("FI_CXI_", "FI_MR_CACHE_", "FI_PROVIDER", "OFI_NCCL_", "NVSHMEM_LIBFABRIC_")
# parts of paths on a host that users mount for its network software
_HOST_PARTS = ("aws-ofi-nccl", "aws-ofi-ccl", "libnccl-net", "librccl-net", "libfabric", "libcxi")
_OWN_STACK = ("alps-extended", "alps-images", "alps_extended")


def network(subject: Subject) -> Iterator[Problem]:
    """Warn of network settings without the network hooks, and of parts that they duplicate."""
    active = {hook.name for hook in subject.hooks}
    if _PLUGINS_HOOK not in active:
        yield from _tuned_in_vain(subject, has_fabric=_FABRICS_HOOK in active)
    if _FABRICS_HOOK in active:
        yield from _brought_twice(subject)
    yield from _wants_option(subject)


def _tuned_in_vain(subject: Subject, *, has_fabric: bool) -> Iterator[Problem]:
    net = next((entry for entry in subject.edf.env if entry.name == "NCCL_NET"), None)
    if net is not None and net.value == "AWS Libfabric":
        message = "NCCL fails if it does not find this plugin, and no hook brings it"
        yield advice(net.origin, "env.NCCL_NET", message, _ENABLE)
    elif net is not None and net.value == "Socket":
        message = "lets NCCL use TCP, which is far slower than the network of the nodes"
        yield advice(net.origin, "env.NCCL_NET", message, _ENABLE)
    elif not has_fabric:
        known = subject.profiles.get(_PLUGINS_HOOK, {}).values()
        names = {name for profile in known for name in profile if name.startswith("NCCL_NET")}
        tuned = [entry for entry in subject.edf.env if _is_tuning(entry, names)]
        for entry in tuned[:1]:
            more = f" (and {len(tuned) - 1} more)" if len(tuned) > 1 else ""
            message = f"tunes network software that no hook brings{more}"
            yield advice(entry.origin, f"env.{entry.name}", message, _ENABLE)


def _wants_option(subject: Subject) -> Iterator[Problem]:
    for entry in subject.edf.env:
        if (entry.name, entry.value) == ("FI_CXI_RDZV_PROTO", "alt_read"):
            message = "alt_read needs steps whose network option has disable_rdzv_get"
            hint = "start them with srun --network=disable_rdzv_get, unless the site does so itself"
            yield advice(entry.origin, f"env.{entry.name}", message, hint)


def _is_tuning(entry: EnvEntry, names: set[str]) -> bool:
    return entry.value != "" and (entry.name in names or entry.name.startswith(_TUNING))


def _brought_twice(subject: Subject) -> Iterator[Problem]:
    for mount in subject.edf.mounts:
        text = f"{mount.source} {mount.target}".lower()
        part = next((part for part in _HOST_PARTS if part in text), None)
        if part is not None:
            message = (
                f"mounts {part} by hand, which the hook {_FABRICS_HOOK} or what implies it brings"
            )
            yield advice(mount.origin, "mounts", message, "remove the mount, or the hook")
    origin = subject.edf.image_origin
    if origin is not None and any(
        word in (subject.edf.image_text or "").lower() for word in _OWN_STACK
    ):
        message = (
            f"this image brings its own network software, and the hook {_FABRICS_HOOK} replaces it"
        )
        hint = f"remove the annotations of {_FABRICS_HOOK} and {_PLUGINS_HOOK}"
        yield advice(origin, "image", message, hint)

"""Advises on caches that would be kept in the container, and lost with it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.edf.model import Origin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.edf.model import Problem
    from container_engine.tools.lint.subject import Subject

# of what programs download or compile
_CACHES = (
    *("CUDA_CACHE_PATH", "CUPY_CACHE_DIR", "HF_DATASETS_CACHE", "HF_HOME", "HF_HUB_CACHE"),
    *("JAX_COMPILATION_CACHE_DIR", "MIOPEN_CUSTOM_CACHE_DIR", "MIOPEN_USER_DB_PATH"),
    *("NUMBA_CACHE_DIR", "PIP_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR"),
    *("TORCH_HOME", "TRITON_CACHE_DIR", "UV_CACHE_DIR", "VLLM_CACHE_ROOT", "XDG_CACHE_HOME"),
)
_COMPILED = "TORCHINDUCTOR_CACHE_DIR"
_SHELL = Origin("your shell", 0)
_HINT = "name a directory that a mount shows: ce help caches"


def caches(subject: Subject) -> Iterator[Problem]:
    """Warn of caches in no mount, and of torch.compile's with the hook pytorch.

    Values of [env] below HOME and SCRATCH are left to `variables.unmounted`.
    """
    if subject.edf.image_origin is None or subject.edf.image == "":
        return
    own = {entry.name: entry for entry in subject.edf.env}
    placed = {entry.name: entry.value for entry in (*subject.offer.wide.env, *subject.edf.env)}
    for name in _CACHES:
        value = placed.get(name, subject.variables.get(name))
        if not isinstance(value, str) or not value.startswith("/") or _is_mounted(subject, value):
            continue
        if name not in own:
            yield _lost(_SHELL, name, f"'{value}'")
        elif not _is_of_user(subject, value):
            yield _lost(own[name].origin, f"env.{name}", f"'{value}'")
    switch = next((one for one in subject.edf.annotations if one.key == _pytorch(subject)), None)
    if (
        switch
        and switch.value == "true"
        and not placed.get(_COMPILED, subject.variables.get(_COMPILED))
    ):
        default = "/tmp/torchinductor_…"
        if not _is_mounted(subject, default):
            yield _lost(switch.origin, f"annotations.{switch.key}", f"torch.compile's {default}")


def _lost(origin: Origin, key: str, what: str) -> Problem:
    message = f"{what} is in the container's memory, and gone after the step"
    return origin.warning(key, message, _HINT)


def _pytorch(subject: Subject) -> str:
    known = subject.offer.hooks.get("pytorch")
    return known.switch if known is not None else ""


def _is_mounted(subject: Subject, path: str) -> bool:
    every = (*subject.edf.mounts, *subject.offer.wide.mounts)
    # a target that only the node knows may well show it
    return any(
        not isinstance(mount.target, str)
        or (mount.kind == "bind" and f"{path}/".startswith(f"{mount.target.rstrip('/')}/"))
        for mount in every
    )


def _is_of_user(subject: Subject, path: str) -> bool:
    places = (subject.home, subject.variables.get("SCRATCH", "").rstrip("/"))
    return any(place and path.startswith(f"{place}/") for place in places)

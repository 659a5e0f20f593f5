"""Advises on variables: those that hooks set, those that choose GPUs, those of caches. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from container_engine.base.text_layout import did_you_mean, nearest
from container_engine.edf.history import History
from container_engine.edf.model import EnvEntry, Origin, Problem, Text
from container_engine.plan.model import HookUse
from container_engine.tools.lint.subject import Subject, is_below, is_in

_PLUGIN = "NCCL_NET_PLUGIN"
_PLUGINS_HOOK = "aws_ofi_nccl"
_MEASURED = "keep it only if you measured that it helps"


def tuning(subject: Subject) -> Iterator[Problem]:
    """Warn of variables that repeat or contradict a hook's, or keep its plugin from loading."""
    for hook in subject.hooks:
        set_by_both = [entry for entry in subject.edf.env if hook.env.get(entry.name) is not None]
        yield from _repeated(
            [entry for entry in set_by_both if entry.value == hook.env[entry.name]], hook
        )
        for entry in subject.edf.env:
            if hook.name == _PLUGINS_HOOK and entry.name == _PLUGIN and entry.value != "":
                message = f"keeps NCCL from loading the plugin that {_of(hook)} puts in place"
                yield entry.origin.warning(f"env.{entry.name}", message, "remove the line")
            elif entry in set_by_both and entry.value != hook.env[entry.name]:
                yield _contradicting(entry, hook, subject)


def _repeated(entries: list[EnvEntry], hook: HookUse) -> Iterator[Problem]:
    """Yield one piece of advice, however many variables an environment has copied from a hook."""
    why = "the hook follows the network"
    if len(entries) == 1:
        (entry,) = entries
        message = f"repeats '{entry.value}' {_where(hook)}"
        yield entry.origin.warning(f"env.{entry.name}", message, f"remove the line, {why}")
    elif entries:
        as_written = sorted(entries, key=lambda entry: entry.origin.line)
        names = ", ".join(entry.name for entry in as_written)
        message = f"{len(entries)} variables repeat the values {_where(hook)}: {names}"
        yield as_written[0].origin.warning("env", message, f"remove the lines, {why}")


def _where(hook: HookUse) -> str:
    return f"of the profile {hook.profile} of {_of(hook)}" if hook.profile else f"of {_of(hook)}"


def _contradicting(entry: EnvEntry, hook: HookUse, subject: Subject) -> Problem:
    wanted = hook.env[entry.name]
    key = f"env.{entry.name}"
    where = _where(hook)
    if entry.value == "":
        message = f"removes '{wanted}' {where}"
        return entry.origin.warning(key, message, f"remove the line, {_MEASURED}")
    older = next(
        (
            name
            for name, values in subject.profiles(hook.name).items()
            if name != hook.profile and values.get(entry.name) == entry.value
        ),
        None,
    )
    came_from = f", it is that of {older}" if older else ""
    found = f"'{entry.value}'" if isinstance(entry.value, str) else "the value"
    message = f"{found} contradicts '{wanted}' {where}{came_from}"
    return entry.origin.warning(key, message, f"remove the line, {_MEASURED}")


def _of(hook: HookUse) -> str:
    return f"the hook {hook.name}"


_GPU = "nvidia.com/gpu"
_VISIBLE, _CAPABILITIES = "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"
_KNOWN = ("all", "compat32", "compute", "display", "graphics", "ngx", "utility", "video")
# values of NVIDIA_VISIBLE_DEVICES that ask for no GPU
_NOTHING = ("", "void")


def gpus(subject: Subject) -> Iterator[Problem]:
    """Warn of a choice of GPUs that has no effect, and of unknown parts of the driver."""
    own = _any_gpu(device.name for device in subject.edf.devices)
    others = (name for hook in subject.hooks for name in (*hook.cdi, *hook.cdi_if_there))
    site = subject.offer.site
    of_site = _any_gpu((*site.devices, *site.devices_if_there, *others))
    for name, history in subject.below("env"):
        value = history.effective.value
        if name == _VISIBLE and value not in _NOTHING:
            yield from _choice(history, own=own, of_site=of_site)
        elif name == _CAPABILITIES and (own or of_site):
            yield from _parts(history)


def _any_gpu(names: Iterable[Text]) -> bool:
    return any(str(name).startswith(f"{_GPU}=") for name in names)


def _choice(history: History, *, own: bool, of_site: bool) -> Iterator[Problem]:
    origin, value = history.effective.origin, history.effective.value
    if own and value != "all":
        message = "has no effect: devices lists the GPUs of this environment"
        yield origin.warning(history.key, message, "list those that it needs there")
    elif not (own or of_site):
        message = "has no effect: neither this environment nor the site gives a GPU"
        yield origin.warning(history.key, message, f'devices = ["{_GPU}=all"] gives all')


def _parts(history: History) -> Iterator[Problem]:
    value = history.effective.value
    for word in value.split(",") if isinstance(value, str) and value else ():
        if word.strip() not in _KNOWN:
            meant = did_you_mean(nearest(word.strip(), _KNOWN))
            message = f"'{word}' is no part of the driver{meant}"
            hint = f"there are {', '.join(_KNOWN)}"
            yield history.effective.origin.warning(history.key, message, hint)


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
    if not subject.has_image:
        return
    own = {entry.name: entry for entry in subject.edf.env}
    placed = {entry.name: entry.value for entry in (*subject.offer.wide.env, *subject.edf.env)}
    for name in _CACHES:
        value = placed.get(name, subject.variables.get(name))
        if not isinstance(value, str) or not value.startswith("/") or _is_mounted(subject, value):
            continue
        if name not in own:
            yield _lost(_SHELL, name, f"'{value}'")
        elif not (is_below(value, subject.home) or is_below(value, subject.scratch)):
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
        not isinstance(mount.target, str) or (mount.kind == "bind" and is_in(path, mount.target))
        for mount in every
    )

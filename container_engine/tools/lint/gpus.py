"""Advises on the variables by which NVIDIA's tools choose GPUs and parts of the driver. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.base.did_you_mean import did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from container_engine.edf.deferred_text import Text
    from container_engine.edf.history import History
    from container_engine.edf.model import Problem
    from container_engine.tools.lint.subject import Subject

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

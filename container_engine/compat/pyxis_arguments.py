"""Turns an environment into the options of pyxis, for clusters that have pyxis alone."""

from __future__ import annotations

from collections.abc import Iterator

from container_engine.base.errors import UserError
from container_engine.compat.pyxis_names import OPTIONS
from container_engine.compat.pyxis_overlay import SWITCHES
from container_engine.edf.document import Document
from container_engine.edf.expand import Scope, expand
from container_engine.edf.model import deferred_names
from container_engine.edf.names import CONTAINER_NAME, CONTAINER_SAVE, UNSHARE
from container_engine.edf.show import flat_annotations

_LACKING = ("base_environment", "devices", "startup", "checks")
_VALUES = {
    CONTAINER_NAME: "container-name",
    CONTAINER_SAVE: "container-save",
    UNSHARE: "container-unshare",
}
_SWITCHES = {key: option for option, key in SWITCHES.items()}


def arguments(environment: Document) -> list[str]:
    """Return the options, as words of a command. Raise UserError for what pyxis cannot express.

    Variables of the environment are named only: the job must have them with their values.
    """
    for key in _LACKING:
        if getattr(environment, key):
            raise _refused(key)
    found = list(_plain(environment))
    mounts = [_mount(one, f"mounts[{index}]") for index, one in enumerate(environment.mounts)]
    found += [f"--container-mounts={','.join(mounts)}"] if mounts else []
    unset = next((name for name, value in environment.env.items() if not value), "")
    if unset:
        raise _refused(f"env.{unset}", "removing a variable")
    found += [f"--container-env={','.join(environment.env)}"] if environment.env else []
    for key, value in flat_annotations(environment).items():
        found += _annotation(key, value)
    return found


def _plain(environment: Document) -> Iterator[str]:
    images = environment.images or []
    if len(images) != 1 or not images[0]:
        raise _refused("image", "anything but one image")
    if images[0].startswith("oras://"):
        raise _refused("image", "SIF files in a registry")
    yield f"--container-image={_literal(images[0], 'image')}"
    # what an environment does by default, whatever the site's pyxis does
    yield "--no-container-mount-home"
    yield "--container-readonly" if environment.writable is False else "--container-writable"
    if environment.workdir is not None:
        yield f"--container-workdir={_literal(environment.workdir, 'workdir')}"
    if environment.entrypoint is not None:
        yield f"--{'' if environment.entrypoint else 'no-'}container-entrypoint"


def _mount(text: str, key: str) -> str:
    found = _literal(text, key)
    if "," in found or "\\" in found:
        raise _refused(key, "commas and colons in paths")
    if "sqsh" in found.rpartition(":")[2].split("+"):
        raise _refused(key, "mounts of SquashFS files")
    return found


def _annotation(key: str, value: str) -> list[str]:
    text = _literal(value, f"annotations.{key}")
    if key in _VALUES:
        return [f"--{_VALUES[key]}={text}"]
    if key not in _SWITCHES:
        raise _refused(f"annotations.{key}")
    option = _SWITCHES[key] if text.lower() == "true" else f"no-{_SWITCHES[key]}"
    return [f"--{option}"] if option in OPTIONS else []


def _literal(text: str, key: str) -> str:
    """Return the text without the escapes of an EDF. Raise UserError for variables."""
    found = expand(text, Scope({}, {}, lambda _name: True))
    if isinstance(found, str):
        return found
    names = ", ".join(dict.fromkeys(deferred_names(found)))
    hint = "Environment.from_file expands the variables of this host"
    raise UserError(f"contains variables ({names}), which pyxis does not expand", hint, where=key)


def _refused(key: str, what: str = "this") -> UserError:
    hint = "start it with --environment, on a cluster that has the Container Engine"
    return UserError(f"pyxis has no option for {what}", hint, where=key)

"""Writes an environment as a Kubernetes pod, and tells what no pod promises. Pure.

Fields: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from container_engine.base.errors import UserError
from container_engine.edf.model import Edf, Mount, Origin, Problem, Text, deferred_names, shown
from container_engine.images.reference import RegistryImage, parse

# what a device plugin calls a resource, where its name is that of the CDI devices
_COUNTED = ("nvidia.com/gpu", "amd.com/gpu")
_SIZE = re.compile(r"(\d+)([kmg]?)", re.IGNORECASE)
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_WORDS_OF_YAML = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
_SHM = "/dev/shm"  # a path in the container
_ONLY_ON_NODES = "only a node of Slurm knows "


class Wanted(NamedTuple):
    """Command and user of a pod, and choices of the caller.

    `image` replaces the environment's, if it is not "". `gpus` is the number of GPUs for a device
    that stands for all, 0 if none was given. `secrets` are names of variables whose values are not
    written.
    """

    command: Sequence[str]
    uid: int
    gid: int
    has_entrypoint: bool
    image: str = ""
    gpus: int = 0
    secrets: frozenset[str] = frozenset()


class Pod(NamedTuple):
    """A pod as Kubernetes's API has it, and what it does not promise, each with its line."""

    fields: Mapping[str, Any]
    gaps: Sequence[Problem]


def pod(edf: Edf, hooks: Iterable[tuple[str, Origin]], wanted: Wanted) -> Pod:
    """Return the pod of an environment whose hooks have these names and places.

    Raise UserError if the image is in no registry.
    """
    name = _name(edf)
    gaps: list[Problem] = []
    container: dict[str, Any] = {"name": name, "image": _image(edf, wanted.image)}
    container["args" if wanted.has_entrypoint else "command"] = list(map(_literal, wanted.command))
    if edf.workdir is not None and (
        known := _known(edf.workdir, edf.workdir_origin, "workdir", gaps)
    ):
        container["workingDir"] = known
    if found := list(_env(edf, f"{name}-secrets", wanted.secrets, gaps)):
        container["env"] = found
    if limits := _devices(edf, wanted.gpus, gaps):
        container["resources"] = {"limits": limits}
    container["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        **({} if edf.writable else {"readOnlyRootFilesystem": True}),
    }
    volumes = list(_volumes(edf, gaps))
    container["volumeMounts"] = [mount for mount, _volume in volumes]
    gaps += _lacking(edf, hooks)
    fields = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {"runAsUser": wanted.uid, "runAsGroup": wanted.gid},
            "containers": [container],
            "volumes": [volume for _mount, volume in volumes],
        },
    }
    return Pod(fields, gaps)


def _name(edf: Edf) -> str:
    """Return the environment's name as a label of DNS."""
    base = edf.name.rpartition("/")[2].removesuffix(".toml").lower()
    return re.sub(r"[^a-z0-9]+", "-", base)[:40].strip("-") or "environment"


def _image(edf: Edf, instead: str) -> str:
    hint = "'ce push IMAGE REGISTRY/NAME:TAG' sends it to one, and --image=NAME names it here"
    place = Origin("--image", 0) if instead else edf.image_place
    if edf.above and not instead:
        raise UserError("several images: a pod has one", hint, where=f"{place}: image")
    found = parse(instead or edf.image or "", "/")
    if not isinstance(found, RegistryImage):
        raise UserError(
            f"{found.name}: this image is in no registry", hint, where=f"{place}: image"
        )
    if found.is_file:
        why = f"{found.name}: a SIF file, which a pod does not start from"
        raise UserError(why, f"after 'ce pull {found.name}', {hint}", where=f"{place}: image")
    return found.canonical


def _known(text: Text, origin: Origin | None, key: str, gaps: list[Problem]) -> str | None:
    """Return the text; None, and a gap, if it has variables that only a node has."""
    if isinstance(text, str):
        return text
    names = ", ".join(dict.fromkeys(deferred_names(text)))
    gaps.append((origin or Origin("", 0)).warning(key, f"{shown(text)}: {_ONLY_ON_NODES}{names}"))
    return None


def _literal(text: str) -> str:
    """Return the text for a field in which Kubernetes replaces $(NAME)."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def _env(
    edf: Edf, secret: str, secrets: frozenset[str], gaps: list[Problem]
) -> Iterator[Mapping[str, Any]]:
    hidden = [entry.name for entry in edf.env if entry.name in secrets and entry.value]
    words = " ".join(f"--from-literal={name}=…" for name in hidden)
    for entry in edf.env:
        name, key = entry.name, f"env.{entry.name}"
        if (value := _known(entry.value, entry.origin, key, gaps)) is None:
            continue
        if name in hidden:
            yield {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name}}}
            message = (
                f"a secret's value is not written; the pod takes it from the secret '{secret}'"
            )
            hint = f"kubectl create secret generic {secret} {words}"
            gaps.append(entry.origin.warning(key, message, hint))
            continue
        if not value:
            message = "a pod cannot remove a variable of the image; it is empty there"
            gaps.append(entry.origin.warning(key, message))
        yield {"name": name, "value": _literal(value)}


def _volumes(
    edf: Edf, gaps: list[Problem]
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return each mount with its volume."""
    taken = {mount.target for mount in edf.mounts}
    for index, mount in enumerate(edf.mounts):
        key = f"mounts[{index}]"
        target = _known(mount.target, mount.origin, key, gaps)
        volume = _volume(mount, key, gaps) if target else None
        if target is None or volume is None:
            continue
        if ":" in target:
            gaps.append(mount.origin.warning(key, "a path in a pod has no colon"))
            continue
        name = f"mount-{index}"
        read_only = {"readOnly": True} if "ro" in mount.options else {}
        yield {"name": name, "mountPath": target, **read_only}, {"name": name, **volume}
    if _SHM not in taken:  # a pod's own has 64 MiB; a node's is half of its memory
        memory = {"emptyDir": {"medium": "Memory"}}
        yield {"name": "shm", "mountPath": _SHM}, {"name": "shm", **memory}


def _volume(mount: Mount, key: str, gaps: list[Problem]) -> Mapping[str, Any] | None:
    """Return the source of a volume; None, and a gap, if there is none."""
    if mount.kind == "squashfs":
        hint = "copy its content into the image ('ce build'), or onto a volume"
        gaps.append(mount.origin.warning(key, "no pod mounts a SquashFS file", hint))
        return None
    if mount.kind == "tmpfs":
        return {"emptyDir": _in_memory(mount, key, gaps)}
    source = _known(mount.source, mount.origin, key, gaps)
    if source is None:
        return None
    if ".." in source.split("/"):
        gaps.append(mount.origin.warning(key, f"{source}: no pod has a path with '..'"))
        return None
    message = f"each node must have {source}, and the cluster must allow hostPath"
    hint = "a PersistentVolumeClaim in place of hostPath, if the cluster has one with these files"
    gaps.append(mount.origin.warning(key, message, hint))
    others = [flag for flag in mount.options if flag not in {"ro", "rw", "bind", "rbind"}]
    if others:
        gaps.append(mount.origin.warning(key, f"no pod has the flags {', '.join(others)}"))
    return {"hostPath": {"path": source}}


def _in_memory(mount: Mount, key: str, gaps: list[Problem]) -> Mapping[str, Any]:
    found: dict[str, Any] = {"medium": "Memory"}
    for option in mount.options:
        name, _equals, value = option.partition("=")
        size = _SIZE.fullmatch(value) if name == "size" else None
        if size:
            found["sizeLimit"] = f"{size[1]}{size[2].capitalize()}{'i' if size[2] else ''}"
        elif option not in {"rw", "mode=1777"}:
            gaps.append(mount.origin.warning(key, f"no pod has the option {option}"))
    return found


def _devices(edf: Edf, gpus: int, gaps: list[Problem]) -> Mapping[str, int]:
    """Return how many of each resource the pod asks for."""
    found: dict[str, int] = {}
    for index, device in enumerate(edf.devices):
        key = f"devices[{index}]"
        name = _known(device.name, device.origin, key, gaps)
        if name is None:
            continue
        kind, _equals, which = name.partition("=")
        if kind not in _COUNTED:
            message = f"{name}: a pod has only devices that a plugin of the cluster offers"
            gaps.append(device.origin.warning(key, message))
            continue
        if which == "all" and not gpus:
            message = "a pod asks for a number of GPUs, not for all; it gets one"
            gaps.append(device.origin.warning(key, message, "--gpus=NUMBER"))
        found[kind] = (gpus or 1) if which == "all" else found.get(kind, 0) + 1
    return found


def _lacking(edf: Edf, hooks: Iterable[tuple[str, Origin]]) -> Iterator[Problem]:
    for name, origin in hooks:
        hint = "an operator of the cluster, or the image, must bring what it does"
        yield origin.warning("annotations", f"no pod has the hook '{name}'", hint)
    for entry in edf.annotations:
        if not entry.key.startswith("com.hooks."):
            message = f"{entry.key} means nothing to Kubernetes"
            yield entry.origin.warning("annotations", message)
    for line, origin in edf.startup:
        message = f"not run before the command: {shown(line)}"
        yield origin.warning("startup", message, "put it into the image or into the command")
    for _check, origin in edf.checks:
        yield origin.warning("checks", "no pod runs checks of nodes before its command")


def to_yaml(value: object) -> str:
    """Return the text of a document. Raise UserError for text that is not valid Unicode."""
    return "".join(f"{line}\n" for line in _lines(value, ""))


def _lines(value: object, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(item, (Mapping, list)) and item:
                yield f"{indent}{key}:"
                yield from _lines(item, f"{indent}  ")
            else:
                yield f"{indent}{key}: {_scalar(item)}"
        return
    assert isinstance(value, list)
    for item in value:
        if isinstance(item, (Mapping, list)) and item:
            first, *rest = _lines(item, f"{indent}  ")
            yield f"{indent}- {first.lstrip()}"
            yield from rest
        else:
            yield f"{indent}- {_scalar(item)}"


def _scalar(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS_OF_YAML:
        return value
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    number = ord(character)
    if 0xD800 <= number <= 0xDFFF:  # a byte of a file's name, as Python has it
        raise UserError("a value is not valid Unicode, so no YAML can have it")
    return f"\\U{number:08x}" if number > 0xFFFF else f"\\u{number:04x}"

"""Resolve the image that a user named to one that a launch can use."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from container_engine.base.errors import SiteError, UserError
from container_engine.edf.names import looks_like_file
from container_engine.images import image_files, squashfs
from container_engine.images.image_files import read_beside
from container_engine.images.reference import RegistryImage
from container_engine.plan.model import Image, Part

NOT_KEPT = "imported for each step"  # in place of a path if EDF_IMAGESTORE=void and nothing starts
_LONG_PAST = 1.0  # as `not_after`: the next launch tries again to read what this one could not
# configurations read from inside images, for verbs that need one again: each costs two programs
_INSIDE: dict[tuple[str | int, ...], squashfs.ImageConfig] = {}


class Stored(NamedTuple):
    """An imported image. `ref` is the file that records which image the name stands for.

    The name may be looked up again after `not_after`, in seconds since 1970; 0 means never.
    `origin` is the source on this host that the image was made from, "" for a registry.
    """

    path: str
    digest: str
    ref: str
    not_after: float = 0
    notices: tuple[str, ...] = ()
    origin: str = ""


class Resolved(NamedTuple):
    """A resolved image. `consulted` are all paths that the outcome depends on, existing or not."""

    image: Image
    notices: tuple[str, ...]
    consulted: tuple[str, ...]
    not_after: float = 0


def from_store(
    image: RegistryImage, tools_env: Mapping[str, str], obtain: Callable[[], Stored]
) -> Resolved:
    """Return the image, complete and readable. `obtain` imports it if it is not in a store yet.

    `tools_env` is the environment for the programs that read images. Raise CeError.
    """
    text = image.name
    try:
        stored = obtain()
    except UserError as error:
        hint = f"did you mean './{text}'?" if looks_like_file(text) else error.hint
        raise UserError(error.message, hint, error.see, details=error.details) from None
    resolved = from_file(text, stored.path, tools_env, stored.digest)
    return resolved._replace(
        consulted=(stored.ref, *resolved.consulted),
        notices=(*stored.notices, *resolved.notices),
        not_after=min(filter(None, (stored.not_after, resolved.not_after)), default=0),
    )


def refuse_bare_file(text: str, cwd: str) -> None:
    """Raise UserError if `text` is a reference but a file of that name exists in `cwd`."""
    if looks_like_file(text) and os.path.exists(os.path.join(cwd, text)):
        raise UserError(
            "a reference to a registry, since a path begins with '/' or '.'",
            f"did you mean './{text}'?",
            "image-reference",
            name=text,
        )


def from_file(
    name: str, path: str, tools_env: Mapping[str, str], digest: str | None = None
) -> Resolved:
    """Return the image in the SquashFS or SIF file `path`, which the user calls `name`.

    Raise CeError.
    """
    squashfs.check(path)
    beside = image_files.config_path(path)
    notices: tuple[str, ...] = ()
    text = read_beside(beside, path)
    if text is None:
        facts, notices = _from_inside(path, tools_env)
    else:
        facts = squashfs.config_from_document(text, beside)
    image = Image(
        path=path,
        name=name,
        digest=digest,
        content=image_files.known_digest(path),
        **facts.planned(),
    )
    consulted = (path, beside, path + image_files.SUMS_SUFFIX)
    is_unknown = bool(notices) and not facts.other
    return Resolved(image, notices, consulted, _LONG_PAST if is_unknown else 0)


def stacked(parts: Sequence[Resolved]) -> Resolved:
    """Return the images as one, the base first.

    The settings of a higher image take precedence, variable by variable. A PATH that is only the
    default does not replace the base's.
    """
    base, *above = parts
    if not above:
        return base
    image, env = base.image, dict(base.image.env)
    for part in (one.image for one in above):
        own = part.env if part.source else {}
        default = own.get("PATH") == squashfs.DEFAULT_PATH
        env.update({name: own[name] for name in own if name != "PATH" or not default})
        changed = {
            "entrypoint": part.entrypoint or image.entrypoint,
            "workdir": part.workdir or image.workdir,
            "source": ", ".join(filter(None, (image.source, part.source))),
            "passing": image.passing or part.passing,
            "left_out": tuple(sorted({*image.left_out, *part.left_out})),
        }
        image = image.model_copy(update=changed)
    return Resolved(
        image.model_copy(update={"env": env, "above": tuple(_part(one.image) for one in above)}),
        tuple(notice for part in parts for notice in part.notices),
        tuple(path for part in parts for path in part.consulted),
        min(filter(None, (part.not_after for part in parts)), default=0),
    )


def configuration(paths: Sequence[str], env: Mapping[str, str]) -> bytes:
    """Return an OCI configuration with what is known of the stack of these images.

    Raise CeError.
    """
    image = stacked([from_file(path, path, env) for path in paths]).image
    beside = read_beside(image_files.config_path(paths[0]), paths[0])
    beside = beside or squashfs.config_within(paths[0])
    document: dict[str, Any] = json.loads(beside) if beside else {}
    kept = {key: document[key] for key in ("architecture", "os", "variant") if key in document}
    run = {**(document.get("config") or {})}
    run["Env"] = [f"{name}={value}" for name, value in image.env.items()]
    run["Entrypoint"] = list(image.entrypoint)
    run["WorkingDir"] = image.workdir or ""
    return json.dumps({**kept, "config": run}, ensure_ascii=False).encode()


def _part(image: Image) -> Part:
    return Part(path=image.path, name=image.name, digest=image.digest, content=image.content)


def _from_inside(
    path: str, tools_env: Mapping[str, str]
) -> tuple[squashfs.ImageConfig, tuple[str, ...]]:
    status = os.stat(path)
    version = (path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    try:
        if version not in _INSIDE:
            _INSIDE[version] = squashfs.config_from_files(path, tools_env)
        found = _INSIDE[version]
        return found, (squashfs.left_to_a_shell(found.other),) if found.other else ()
    except SiteError as error:
        nothing = squashfs.ImageConfig({"PATH": squashfs.DEFAULT_PATH})
        return nothing, (f"the image's own environment is unknown: {error}",)

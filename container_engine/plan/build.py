"""Builds the launch plan from an effective EDF, a resolved image and the site's settings. Pure.

`${image:NAME}` in its strings is replaced by a variable of the image, `${image:digest}` by the
image's digest, in the form in which a store names the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal, NamedTuple, cast

from container_engine.base.variables import MISSING, VALUE, WORD, replacement_kind
from container_engine.edf.model import Device, Edf, Mount, Origin, Problem, Text, Variable, join
from container_engine.edf.names import CONTAINER_NAME, CONTAINER_SAVE
from container_engine.plan.hooks import use
from container_engine.plan.model import (
    EXTENDED,
    VERSION,
    EnvEntry,
    Image,
    KeptContainer,
    LaunchPlan,
    Run,
    Settings,
    StartupLine,
)
from container_engine.plan.overrides import SETTINGS, Chosen, choose, read_name
from container_engine.plan.site_context import SiteContext, add

PREFIX = "image:"
_DIGEST = "digest"
_Mode = Literal["auto", "create", "exec", "no_exec"]


class Built(NamedTuple):
    """A plan, or None if a problem is an error."""

    plan: LaunchPlan | None
    problems: tuple[Problem, ...]


def build(
    edf: Edf, image: Image | None, site_context: SiteContext, engine: str
) -> tuple[LaunchPlan, tuple[Problem, ...]]:
    """Return the plan of a launch of `edf` and the problems found on the way (see plan/checks.py).

    `image` is the image of the EDF, which must name one, or None if nothing is known of it. If a
    problem is an error, the plan must not be used.
    """
    edf = add(edf, site_context.wide)
    known = image is not None
    image = image or Image(path="/", name=edf.image or "", env={})
    settings = {name: choose(name, edf, site_context) for name in SETTINGS}
    texts = Resolver(image if known else None)
    workdir, workdir_from = _workdir(edf, image, texts)
    entrypoint, entrypoint_from = _entrypoint(edf, image, site_context)
    used = use(edf, site_context.hooks, site_context.machine, site_context.entries)
    kept = _kept(edf, image, settings["scope"].value, site_context.site.kept_dir)
    saved = any(entry.key == CONTAINER_SAVE for entry in edf.annotations)
    plan = LaunchPlan(
        version=EXTENDED
        if edf.above or kept or saved or image.on_nodes or settings["scope"].value == "task"
        else VERSION,
        engine=engine,
        name=edf.name,
        files=edf.files,
        image=_image(edf, image),
        workdir=workdir,
        workdir_from=workdir_from,
        writable=edf.writable,
        writable_from=_where(edf.writable_origin),
        entrypoint=entrypoint,
        entrypoint_from=entrypoint_from,
        mounts=_mounts(edf, texts),
        devices=_devices(edf, texts),
        env=_env(edf, texts),
        annotations={entry.key: entry.value for entry in edf.annotations},
        annotations_from={entry.key: str(entry.origin) for entry in edf.annotations},
        startup=_startup(edf, texts),
        hooks=used.hooks,
        runs=(
            *site_context.wide.checks,
            *(Run(**check.model_dump(), origin=str(origin)) for check, origin in edf.checks),
        ),
        kept=kept,
        settings=_settings(site_context, settings, kept),
        settings_from={name: chosen.origin for name, chosen in settings.items()},
    )
    return plan, (*texts.problems, *used.problems)


def _where(origin: Origin | None) -> str:
    return str(origin) if origin else "default"


def _image(edf: Edf, image: Image) -> Image:
    origins = [str(origin) for _name, origin in edf.above]
    above = tuple(
        part.model_copy(update={"origin": origin})
        for part, origin in zip(image.above, origins, strict=False)
    )
    return image.model_copy(update={"origin": _where(edf.image_origin), "above": above})


def _workdir(edf: Edf, image: Image, texts: Resolver) -> tuple[Text, str]:
    if edf.workdir is not None and edf.workdir != "" and edf.workdir_origin is not None:
        value = texts.text(edf.workdir, edf.workdir_origin, "workdir")
        return value, str(edf.workdir_origin)
    if image.workdir:
        return image.workdir, "the image"
    return "/", "default"


def _entrypoint(edf: Edf, image: Image, site_context: SiteContext) -> tuple[tuple[str, ...], str]:
    if edf.entrypoint is not None:
        wanted, origin = edf.entrypoint, _where(edf.entrypoint_origin)
    else:
        wanted, origin = site_context.site.entrypoint, site_context.config.origin("entrypoint")
    return (image.entrypoint if wanted else ()), origin


def _mounts(edf: Edf, texts: Resolver) -> tuple[Mount, ...]:
    def text(value: Text, origin: Origin) -> Text:
        return texts.text(value, origin, "mounts")

    return tuple(
        replace(one, source=text(one.source, one.origin), target=text(one.target, one.origin))
        for one in edf.mounts
    )


def _devices(edf: Edf, texts: Resolver) -> tuple[Device, ...]:
    return tuple(
        replace(one, name=texts.text(one.name, one.origin, "devices")) for one in edf.devices
    )


def _env(edf: Edf, texts: Resolver) -> tuple[EnvEntry, ...]:
    return tuple(
        EnvEntry(
            name=entry.name,
            # the empty string is how an EDF removes a variable
            value=texts.text(entry.value, entry.origin, f"env.{entry.name}") or None,
            origin=str(entry.origin),
        )
        for entry in edf.env
    )


def _startup(edf: Edf, texts: Resolver) -> tuple[StartupLine, ...]:
    return tuple(
        StartupLine(line=texts.text(line, origin, "startup"), origin=str(origin))
        for line, origin in edf.startup
    )


def _kept(edf: Edf, image: Image, scope: str, directory: str) -> KeptContainer | None:
    """Return the container that the EDF names, or the EDF's own if `scope` is "job"; else None.

    Two environments that name a container alike share it.
    """
    text = next((entry.value for entry in edf.annotations if entry.key == CONTAINER_NAME), "")
    named = read_name(text)
    if named is None and scope != "job":
        return None
    name, mode = named or ("", "auto")
    what = (
        ("name", name)
        if name
        else ("environment", *edf.files, image.path, *(part.path for part in image.above))
    )
    from hashlib import sha256

    key = sha256("\0".join(what).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return KeptContainer(name=name, key=key, mode=cast("_Mode", mode), directory=directory)


def _settings(
    site_context: SiteContext, chosen: Mapping[str, Chosen], kept: KeptContainer | None
) -> Settings:
    site = site_context.site
    # devices that the site adds to every container need no further permission
    given = [device.name for device in site_context.wide.devices if isinstance(device.name, str)]
    return Settings(
        start_timeout_s=chosen["start_timeout_s"].value,
        tmpfs_size=chosen["tmpfs_size"].value,
        devices_if_there=site.devices_if_there,
        hooks_dirs=site.hooks_dirs,
        podman=site.podman,
        runtime=site.runtime,
        trace_dir=site.trace_dir,
        tracking_tool=site.tracking_tool,
        batch_script=site.batch_script,
        secret_variables=site.secret_variables,
        root_remap=chosen["root_remap"].value,
        unshare=chosen["unshare"].value,
        scope="task" if chosen["scope"].value == "task" and kept is None else "step",
        start=chosen["start"].value,
        stage=chosen["stage"].value,
        stage_nodes=site.stage_nodes,
        cdi_dirs=site.cdi_dirs,
        user_cdi_dir=site.user_cdi_dir,
        allowed_devices=(*site.allowed_devices, *given),
    )


class Resolver:
    """Fills the image's variables into strings of an EDF, and collects their problems."""

    def __init__(self, image: Image | None) -> None:
        """Pass None if nothing is known of the image: its variables are then replaced by ""."""
        self._image = image
        self.problems: list[Problem] = []

    def text(self, text: Text, origin: Origin, key: str) -> Text:
        """Return `text` with the image's variables filled in; those of the node stay."""
        if isinstance(text, str):
            return text
        parts: list[str | Variable] = []
        for part in text:
            parts.extend(self._part(part, origin, key))
        return join(parts)

    def _part(self, part: str | Variable, origin: Origin, key: str) -> Iterable[str | Variable]:
        if isinstance(part, str):
            return [part]
        if part.var.startswith(PREFIX):
            found = self.text(self._chosen(part, origin, key), origin, key)
            return [found] if isinstance(found, str) else found
        return [replace(part, word=self.text(part.word, origin, key))]

    def _chosen(self, variable: Variable, origin: Origin, key: str) -> Text:
        """Return the value of an image variable, or the word of its operator."""
        if self._image is None:
            return ""
        value = _value(self._image, variable.var.removeprefix(PREFIX))
        kind = replacement_kind(variable.op, value)
        if kind == WORD:
            return variable.word
        if kind == MISSING:
            self._complain(self._image, variable, origin, key)
        return value or "" if kind == VALUE else ""

    def _complain(self, image: Image, variable: Variable, origin: Origin, key: str) -> None:
        # the word of ${…:?word} is the user's own message
        own = variable.word if variable.op.endswith("?") else ""
        message = own if isinstance(own, str) and own else "the image does not define it"
        found = f"${{{variable.var}}}: {message}"
        hint = _hint(image, variable.var.removeprefix(PREFIX))
        self.problems.append(origin.error(key, found, hint, "image-variable"))


def _value(image: Image, name: str) -> str | None:
    if name != _DIGEST:
        return image.env.get(name)
    digests = [image.digest or image.content]
    digests += [part.digest or part.content for part in image.above]
    return "+".join(digests).replace(":", "-") if all(digests) else None


def _hint(image: Image, name: str) -> str:
    if name == _DIGEST:
        return f"ce lock notes that of a file; '${{image:{name}:-}}' is empty where none is known"
    if not image.source:
        return f"nothing is known of {image.path} but its files, there is no {image.path}.json"
    return f"'${{image:{name}:-}}' is empty where the image has no {name}"

"""The inputs of `ce build`, checked before Podman begins: the Dockerfile and its images."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING

from container_engine.base.errors import UserError
from container_engine.base.files import read_regular
from container_engine.base.process import reason
from container_engine.base.text_layout import nearest
from container_engine.build.builder import Recipe, find_containerfile
from container_engine.build.containerfile_lines import (
    INSTRUCTIONS,
    UNKNOWN,
    From,
    bases_of,
    first_mistake,
    sources_of,
    stages_of,
    with_names,
)
from container_engine.build.layout import Base, with_platform
from container_engine.images import image_files
from container_engine.images.fetch.registry import check_platform
from container_engine.images.reference import (
    LOCAL_REGISTRY,
    FileImage,
    LocalImage,
    RegistryImage,
    parse,
)
from container_engine.images.resolve import configuration
from container_engine.images.store.store import architecture
from container_engine.submit.image_names import candidates
from container_engine.submit.stores import stores

if TYPE_CHECKING:
    import argparse

    from container_engine.site.model import SiteConfig
    from container_engine.submit.context import Context

_CONDA = (
    "a file of conda's: COPY and RUN conda env update -n base -f in a Dockerfile install it"
    " (ce help python-packages)"
)
_COMPOSE = "a file of Docker Compose: each service is an srun of its own (ce help docker)"
# the first words of files that other builders read, and what to do with them
_OTHER_RECIPES = {
    "name:": _CONDA,
    "channels:": _CONDA,
    "dependencies:": _CONDA,
    "services:": _COMPOSE,
    "version:": _COMPOSE,
    "bootstrap:": "a definition file of Apptainer: write its sections as a Dockerfile, %post as RUN"
    " (ce help migration)",
}

_SAME = {"source": "src"}
_SECRET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_MOST_SECRET = (1 << 17) - 64  # bytes: Linux's limit for a variable, less its name


def recipe_of(
    arguments: argparse.Namespace, context: Context, settings: SiteConfig
) -> tuple[Recipe, list[From]]:
    """Return the inputs of the build, and the images that its lines name.

    Raise UserError for what no build can do.
    """
    source = _source(arguments.context, context.cwd)
    arch = architecture(settings.image_architecture)
    if arguments.file:
        containerfile = os.path.join(context.cwd, arguments.file)
    else:
        containerfile = find_containerfile(source)
    text = read(containerfile)
    recipe = Recipe(
        source,
        containerfile,
        tuple(arguments.build_arg),
        arguments.target,
        secrets=tuple(_secret(one, context) for one in arguments.secret),
        arch=arch if arch != architecture() else "",
    )
    froms = _checked(text, recipe.shown, recipe.given(context.env), _predefined(arch))
    froms += sources_of(text)
    _check_target(arguments.target, text, recipe.shown)
    bases = _bases(froms, source, context, settings)
    here = {base.name for base in bases}
    # Podman looks up images of this host by the name as it is written
    named = [_with_registry(one, here, context) for one in froms]
    # Podman 4.3 has no BUILDPLATFORM, and takes the platform of one stage for those after it, too
    platform = f"linux/{arch}" if any(one.platform for one in froms) else ""
    as_read = with_names(text, named, platform)
    return recipe._replace(bases=bases, text=as_read if as_read != text else ""), froms


def refuse_missing(froms: Sequence[From], recipe: Recipe) -> None:
    """Raise UserError for an image of this host that is not here.

    Podman would ask a registry on this machine for it, four times in six seconds.
    """
    here = {base.name for base in recipe.bases}
    for one in froms:
        if one.name.startswith(f"{LOCAL_REGISTRY}/") and one.name not in here:
            raise UserError(
                "no image of this name was imported or built on this host",
                "ce images lists the names; ce build -t NAME and ce import make such images",
                "image-build",
                key=f"{one.before}{one.name}",
                where=f"{recipe.shown}:{one.line}",
            )


def _source(given: str, cwd: str) -> str:
    """Return the path of the build's directory. Raise UserError."""
    source = os.path.normpath(os.path.join(cwd, given))
    if os.path.isdir(source):
        return source
    hint = None
    if os.path.isfile(source):
        hint = f"for a Dockerfile of this name: ce build -f {given} ."
    elif "=" in given:
        hint = f"for an ARG line of the Dockerfile: ce build --build-arg {given} ."
    elif not os.path.exists(source):
        raise UserError("no such directory", "for the one you are in: ce build .", name=given)
    raise UserError("not a directory", hint, name=given)


def read(containerfile: str) -> str:
    """Return the text of a Containerfile. Raise UserError."""
    try:
        with open(containerfile, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError as error:
        hint = "-f names the file; without it, the directory's own is used"
        raise UserError(reason(error), hint, "image-build", name=containerfile) from None


def _secret(text: str, context: Context) -> tuple[str, str]:
    """Return the name and content of a --secret. Raise UserError, which does not show `text`."""
    pairs = (part.partition("=") for part in text.split(","))
    fields = {_SAME.get(key, key): value for key, _equals, value in pairs}
    kind = fields.pop("type", "")
    if kind == "env" and "src" in fields:
        fields["env"] = fields.pop("src")
    name = fields.pop("id", "")
    if not _SECRET.fullmatch(name) or list(fields) not in (["src"], ["env"]):
        raise UserError("not id=NAME,src=FILE or id=NAME,env=VARIABLE", key="--secret")
    content = context.env.get(fields["env"]) if "env" in fields else None
    if "env" in fields and content is None:
        raise UserError("this variable is not set", key="--secret", name=fields["env"])
    if content is None:
        path = os.path.join(context.cwd, fields["src"])
        try:
            content = os.fsdecode(read_regular(path, _MOST_SECRET, follow=True))
        except OSError as error:
            raise UserError(reason(error), key="--secret", name=path) from None
    if "\0" in content:
        raise UserError("Podman takes no secret with a NUL byte", key="--secret", name=name)
    return name, content


def _predefined(arch: str) -> dict[str, str]:
    """Return the variables that a Dockerfile has without ARG lines in its FROM lines."""
    found: dict[str, str] = {}
    for word, name in (("BUILD", architecture()), ("TARGET", arch)):
        found |= {f"{word}PLATFORM": f"linux/{name}", f"{word}OS": "linux", f"{word}ARCH": name}
    return found


def _platform(written: str) -> str:
    """Return a platform as Podman takes it; Docker takes `amd64` and `linux`, too."""
    if "/" in written or not written:
        return written
    return f"linux/{architecture('' if written == 'linux' else written)}"


def _checked(
    text: str, shown: str, given: Mapping[str, str], predefined: Mapping[str, str]
) -> list[From]:
    """Return the images that stages begin with. Raise UserError for what no build can do.

    `shown` is the name of the file in messages. Podman's own messages are less clear, or come only
    after it has pulled an image.
    """
    mistake = None if shown.endswith(".in") else first_mistake(text)  # .in: for a preprocessor
    if mistake is not None:
        close = nearest(mistake.name.upper(), INSTRUCTIONS) if mistake.why == UNKNOWN else None
        why = f"{mistake.why}, did you mean {close}?" if close else mistake.why
        where = f"{shown}:{mistake.line}" if mistake.line else shown
        hint = None if close else _OTHER_RECIPES.get(mistake.name.lower())
        raise UserError(why, hint, where=where, name=mistake.name or None)
    froms = [
        one._replace(platform=_platform(one.platform)) for one in bases_of(text, given, predefined)
    ]
    for one in froms:
        if one.lacks:
            why = f"FROM {one.written}: the variable {one.lacks} has no value"
            hint = f"--build-arg {one.lacks}=IMAGE, or ARG {one.lacks}=IMAGE before the first FROM"
            raise UserError(why, hint, where=f"{shown}:{one.line}")
    return froms


def _check_target(target: str, text: str, shown: str) -> None:
    """Raise UserError if no stage has the name of --target."""
    stages = stages_of(text)
    if not target or target.isdecimal() or target.lower() in stages:
        return
    hint = f"its stages: {', '.join(stages)}" if stages else "a name stands after AS: FROM x AS y"
    raise UserError("no stage has this name", hint, where=shown, key="--target", name=target)


def _bases(
    froms: Sequence[From], source: str, context: Context, settings: SiteConfig
) -> tuple[Base, ...]:
    """Return the images of this host that lines name: made here, or SquashFS files.

    Paths are relative to `source`, the directory of the build.

    Podman would ask a registry for the names, where a stranger may own images of the same names.
    """
    found: dict[str, Base] = {}
    for name, platform in dict.fromkeys((one.name, one.platform) for one in froms):
        its = settings.for_arch(platform.removeprefix("linux/"))
        arch = architecture(its.image_architecture)
        path = _of_this_host(name, source, context, its)
        if path and found.get(name, (name, path))[1] != path:
            hint = "give each its own name: ce build -t NAME"
            raise UserError("means images of two architectures", hint, name=name)
        if path:
            described = configuration([path], context.env)  # refuses what is not an image
            check_platform(LocalImage(name, "file", path), described, arch)
            digest = image_files.known_digest(path) or image_files.computed_digest(path)
            described = with_platform(described, arch)
            found[name] = Base(name, path, digest, described, os.stat(path).st_uid)
    return tuple(found.values())


def _with_registry(one: From, here: Container[str], context: Context) -> From:
    """Return the image with the default registry if neither its name nor this host sets one.

    Podman would refuse the name.
    """
    try:
        image = parse(one.name, "/")
    except UserError:
        return one  # Podman's error says more
    if one.name in here or not isinstance(image, RegistryImage) or not image.short:
        return one
    is_only = candidates(image, context) == (image,)
    return one._replace(name=image.canonical) if is_only else one


def _of_this_host(name: str, directory: str, context: Context, settings: SiteConfig) -> str:
    """Return the file of an image that was made here, "" for one of a registry."""
    try:
        image = parse(name, directory)
    except UserError:
        return ""  # Podman's error says more
    if isinstance(image, FileImage):
        return image.path
    places = stores(context, settings)
    found = places.find(image)
    if found is None and image.short:
        places.refuse_other(image)
    return found.path if found is not None and found.ref.origin else ""

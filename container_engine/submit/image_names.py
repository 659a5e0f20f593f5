"""Finds the image that a reference means, and imports it if no store has it.

A reference may have no registry, be misspelt, or be the name of an environment.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.text_layout import nearest
from container_engine.edf.locate import is_path, locate, search_path
from container_engine.images import squashfs
from container_engine.images.fetch import short_names
from container_engine.images.reference import LOCAL_REGISTRY, Pull, RegistryImage, familiar, parse
from container_engine.images.resolve import NOT_KEPT, Resolved, from_store, refuse_bare_file
from container_engine.images.store.store import Stores, architecture
from container_engine.plan.model import Image
from container_engine.submit.stores import asking, importer, rules, stores

if TYPE_CHECKING:
    from container_engine.images.store.ephemeral_store import EphemeralStore
    from container_engine.site.model import SiteConfig
    from container_engine.submit.context import Context

_HUB = "docker.io/library/"
# codes of errors about an image that was not found under its name
_NOT_THERE = ("image-unknown", "registry-login", "registry-unreachable", "image-reference")
_NOT_IN_REGISTRY = ("image-unknown", "registry-login")


class Meant(NamedTuple):
    """A resolved name. `consulted` are all paths that it depends on, existing or not."""

    image: RegistryImage
    consulted: tuple[str, ...] = ()


def meant(image: RegistryImage, context: Context, settings: SiteConfig) -> Meant:
    """Resolve a short name as Podman does, but without a prompt. Raise CeError.

    The order is: an image of this name on this host, an alias, an image in a store, the first of
    the search registries that has it.
    """
    if not image.short:
        return Meant(image)
    found = stores(context, settings)
    local = found.find(image)
    if local is not None and local.ref.origin:
        return Meant(image, (local.ref_path,))
    if local is None:
        found.refuse_other(image)
    known = short_names.read(context.env, context.uid)
    consulted = (*(store.ref(image) for store in found.all()), *known.consulted)
    meanings = known.meanings(image)
    if len(meanings) == 1:
        return Meant(meanings[0], consulted)
    if known.is_enforcing:
        raise UserError(
            f"could be any of {_listed(meanings)} ({known.searched_by})",
            "write one of them, or an alias into registries.conf",
            "image-reference",
            name=image.name,
        )
    chosen = _stored(meanings, found)
    if chosen is None and context.pull_policy(Pull(settings.pull)) != Pull.NEVER:
        chosen = _offered(meanings, context, settings)
    chosen = chosen or meanings[0]
    return Meant(chosen, (*consulted, *(store.ref(chosen) for store in found.all())))


def candidates(image: RegistryImage, context: Context) -> tuple[RegistryImage, ...]:
    """Return all images the name may stand for, beginning with the one on this host."""
    if not image.short:
        return (image,)
    return tuple(dict.fromkeys((image, *_meanings(image, context))))


def stored(image: RegistryImage, context: Context, settings: SiteConfig) -> RegistryImage:
    """Return the first meaning of the name that a store has, else the first of all.

    No registry is queried. Raise UserError.
    """
    found = stores(context, settings)
    local = found.find(image)
    if not image.short or (local is not None and local.ref.origin):
        return image
    meanings = _meanings(image, context)
    return _stored(meanings, found) or meanings[0]


def _meanings(image: RegistryImage, context: Context) -> tuple[RegistryImage, ...]:
    return short_names.read(context.env, context.uid).meanings(image)


def _stored(meanings: tuple[RegistryImage, ...], found: Stores) -> RegistryImage | None:
    return next((one for one in meanings if found.find(one) is not None), None)


def _offered(
    meanings: tuple[RegistryImage, ...], context: Context, settings: SiteConfig
) -> RegistryImage:
    """Return the first meaning that the site's policy admits and its registry has.

    A registry that cannot be queried is an error: the image of the next one may not be the one
    that the user means.
    """
    wanted, arch = rules(context, settings), architecture(settings.image_architecture)
    refused: list[UserError] = []
    for one in meanings:
        try:
            wanted.admit(one)
            with asking(one, context, settings) as registry:
                registry.look_up(one, arch)
        except UserError as error:
            if error.see not in {*_NOT_IN_REGISTRY, "image-policy"}:
                raise
            refused.append(error)
        else:
            return one
    last = refused[-1]
    message = f"none of {_listed(meanings)} is available; the last one: {last.message}"
    raise UserError(message, last.hint, last.see, details=last.details)


def _listed(meanings: tuple[RegistryImage, ...]) -> str:
    return ", ".join(f"'{one.name}'" for one in meanings)


def image_named(name: str, context: Context, settings: SiteConfig) -> str | None:
    """Return the name under which a store has the image `name`, if any.

    It is `name` itself, or the name of a locally built image with LOCAL_REGISTRY before it.
    """
    if is_path(name):
        return None
    for text in (name, f"{LOCAL_REGISTRY}/{name}"):
        try:
            image = parse(text, context.cwd)
            if isinstance(image, RegistryImage):
                image = stored(image, context, settings)
                if stores(context, settings).find(image) is not None:
                    return text
        except UserError:
            continue
    return None


def is_environment(text: str, context: Context, settings: SiteConfig) -> bool:
    """Check whether an environment can be referred to by this name."""
    if is_path(text):
        return False
    try:
        locate(text, context.cwd, search_path(context.env, settings.places.edf_path), {})
    except UserError:
        return False
    return True


def no_environment(name: str, context: Context, settings: SiteConfig) -> str:
    """Return a hint about a name that no searched environment has, "" if nothing is known.

    It may be an image, or in a directory that is not searched.
    """
    own = search_path({"HOME": context.env.get("HOME", "")})[0]
    if context.env.get("EDF_PATH") and os.path.exists(os.path.join(own, f"{name}.toml")):
        return f"'{name}' is in {own}, which EDF_PATH, set in your shell, leaves out"
    is_beside = os.path.exists(os.path.join(context.cwd, f"{name}.toml"))
    image = None if is_beside else image_named(name, context, settings)
    if image is None:
        return ""
    new = name.rpartition("/")[2].partition(":")[0].partition("@")[0]
    return (
        f"'{name}' is an image; an environment for it: ce init {new} --image {image};"
        f" without one: ce run --image {image} -- COMMAND"
    )


def with_environment_hint(
    error: UserError, text: str, context: Context, settings: SiteConfig, hint: str
) -> UserError:
    """Return the error about an image, with `hint` if it was not found and is an environment.

    In `hint`, {} is the environment's name. Otherwise the hint may name a similar image in a store.
    """
    if error.see not in _NOT_THERE:
        return error
    name = text.removeprefix(_HUB)  # the prefix that pyxis's options give to a plain name
    if is_environment(name, context, settings):
        error.hint = f"'{name}' is an environment: {hint.replace('{}', name)}"
    elif (image := image_named(name, context, settings)) not in {None, name}:
        error.hint = f"'{name}' is not here, but '{image}' is"
    else:
        return with_similar_hint(error, text, context, settings)
    return error


def with_similar_hint(
    error: UserError, text: str, context: Context, settings: SiteConfig
) -> UserError:
    """Return the error; for an image that was not found, with a hint at a similar one.

    That may be the image itself, for another architecture.
    """
    if error.see in _NOT_THERE:
        from container_engine.images.store.inventory import refs  # needed only after a mistake

        found = [one for store in stores(context, settings).all() for one in refs(store.root)]
        names = [(one.ref.name, one.arch) for one in found if one.ref is not None]
        meanings = _canonical(text, context)
        archs = sorted({its for name, its in names if name in meanings})
        wanted = architecture(settings.image_architecture)
        if archs and wanted not in archs:
            error.hint = f"it is on this host for {' and '.join(archs)}, and {wanted} is needed"
        elif not archs and (similar := similar_image(text, [name for name, _ in names], context)):
            error.hint = f"did you mean '{similar}'?"
    return error


def similar_image(text: str, names: Sequence[str], context: Context) -> str | None:
    """Return the name of a store that `text` is most likely a misspelling of, if any.

    It differs in its last part only: another registry, directory or tag is chosen, not misspelt.
    """
    for meaning in _canonical(text, context):
        place, stem, tag = _parts(meaning)
        known = {
            other: name
            for name in names
            for there, other, its_tag in (_parts(name),)
            if (there, its_tag) == (place, tag) and other != stem
        }
        close = nearest(stem, known)
        if close is not None:
            return familiar(known[close]).removesuffix(":latest")
    return None


def _canonical(text: str, context: Context) -> list[str]:
    """Return the canonical names that a reference with a tag may stand for."""
    try:
        image = parse(text, context.cwd)
    except UserError:
        return []
    if not isinstance(image, RegistryImage) or image.digest is not None:
        return []
    found = [one.canonical for one in candidates(image, context)]
    return [*found, *([f"{LOCAL_REGISTRY}/{found[0].rpartition('/')[2]}"] if image.short else [])]


def _parts(name: str) -> tuple[str, str, str]:
    """Return registry and directory, last part and tag of a canonical name."""
    place, _slash, last = name.rpartition("/")
    stem, _colon, tag = last.partition(":")
    return place, stem, tag


def obtained(
    text: str, image: RegistryImage, pull: Pull, context: Context, settings: SiteConfig
) -> Resolved:
    """Return the image that `text`, a reference, stands for, imported if need be. Raise CeError."""
    refuse_bare_file(text, context.cwd)
    found = meant(image, context, settings)
    try:
        resolved = _from_stores(found.image, pull, context, settings)
    except UserError as error:
        raise with_similar_hint(error, text, context, settings) from None
    return resolved._replace(consulted=(*found.consulted, *resolved.consulted))


def _from_stores(
    image: RegistryImage, pull: Pull, context: Context, settings: SiteConfig
) -> Resolved:
    """Return an image from a store, importing it where necessary.

    If no store would keep it and the caller only asks, it is only looked up in its registry.
    """
    wanted = rules(context, settings)
    found = stores(context, settings)
    if wanted.restricts_images:  # to those of the site's stores
        found = found._replace(own=None)
    known = found.find(image)
    is_local = known is not None and known.ref.origin
    wanted.admit_local(image) if is_local else wanted.admit(image)
    wanted.admit_place(image.name, known and known.path, settings.image_stores)
    ephemeral_store = context.ephemeral_store
    if _is_left_out(found, image, pull):
        if context.only_asks:
            return _looked_up(image, context, settings)
        if ephemeral_store is not None:
            arch = architecture(settings.image_architecture)
            found = found._replace(own=ephemeral_store.store(arch))
    source = importer(context, settings)
    resolved = from_store(image, context.tools_env, lambda: source.obtain(image, found, pull))
    if wanted.policy.signature_policy:
        consulted = (wanted.policy.signature_policy, *resolved.consulted)
        resolved = resolved._replace(consulted=consulted)
    return resolved if ephemeral_store is None else _in_ephemeral_store(resolved, ephemeral_store)


def _is_left_out(found: Stores, image: RegistryImage, pull: Pull) -> bool:
    """Check whether this image would have to be imported while no store could keep it."""
    if found.own is not None or pull == Pull.NEVER:
        return False
    return pull == Pull.ALWAYS or found.find(image) is None


def _looked_up(image: RegistryImage, context: Context, settings: SiteConfig) -> Resolved:
    """Return the image that a launch would import; only its configuration is fetched."""
    with asking(image, context, settings) as registry:
        remote = registry.look_up(image, architecture(settings.image_architecture))
        if remote.is_sif:
            hint = f"ce import -o FILE.sif {image.name} gets it"
            why = "a SIF file, which its registry does not describe"
            raise UserError(why, hint, "image-format", name=image.name)
        document = registry.configuration(image, remote)
    from container_engine.images.fetch.registry import check_platform

    check_platform(image, document, architecture(settings.image_architecture))
    rules(context, settings).admit_size(image.name, remote.size)
    source = f"{image.name}, its registry"
    facts = squashfs.config_from_document(document, source, squashfs.MADE_SO)
    known = Image(
        path=NOT_KEPT,
        name=image.name,
        digest=remote.digest,
        passing=NOT_KEPT,
        **facts.planned(),
    )
    return Resolved(known, (), ())


def _in_ephemeral_store(resolved: Resolved, ephemeral_store: EphemeralStore) -> Resolved:
    if not ephemeral_store.root:
        return resolved
    ephemeral_store.settle()
    image = resolved.image.model_copy(update={"passing": ephemeral_store.root})
    return resolved._replace(image=image)

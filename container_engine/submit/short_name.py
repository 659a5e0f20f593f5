"""Resolves image names that name no registry, for all verbs that take images."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from container_engine.base.errors import UserError
from container_engine.images.fetch import short_names
from container_engine.images.reference import Pull
from container_engine.images.store.store import Stores, architecture
from container_engine.submit.stores import asking, pull_policy, rules, stores

if TYPE_CHECKING:
    from container_engine.images.reference import RegistryImage
    from container_engine.site.model import SiteConfig
    from container_engine.submit.context import Context

_NOT_THERE = ("image-unknown", "registry-login")


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
    if chosen is None and pull_policy(context, Pull(settings.pull)) != Pull.NEVER:
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
            if error.see not in {*_NOT_THERE, "image-policy"}:
                raise
            refused.append(error)
        else:
            return one
    last = refused[-1]
    message = f"none of {_listed(meanings)} is available; the last one: {last.message}"
    raise UserError(message, last.hint, last.see, details=last.details)


def _listed(meanings: tuple[RegistryImage, ...]) -> str:
    return ", ".join(f"'{one.name}'" for one in meanings)

"""The image stores of the user and the site, and the importers into them, for several verbs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from container_engine.base.errors import LaunchError, SiteError, UserError
from container_engine.base.files import owner_name
from container_engine.images.listener import Listener, Quiet
from container_engine.submit.context import configuration

if TYPE_CHECKING:
    from container_engine.images.fetch.registry import Skopeo
    from container_engine.images.importing.adopt import Adopter
    from container_engine.images.importing.importer import Importer
    from container_engine.images.pack.form import Form
    from container_engine.images.policy import Rules
    from container_engine.images.reference import Imported
    from container_engine.images.store.ephemeral_store import EphemeralStore
    from container_engine.images.store.store import Store, Stores
    from container_engine.node.start.site_rules import Rules as NodeRules
    from container_engine.site.load import Configuration
    from container_engine.site.model import SiteConfig
    from container_engine.site.places import Places
    from container_engine.submit.context import Context

_ROOTS_LOGINS = "/run/containers"


def stores(context: Context, settings: SiteConfig | Places) -> Stores:
    """Return the stores for images of the compute nodes' architecture."""
    from container_engine.images.store.store import VOID, Store, Stores, architecture, locate

    wanted = architecture(settings.image_architecture)
    void = context.env.get("EDF_IMAGESTORE") == VOID
    own = None if void else Store(locate(context.env, context.cwd, settings.image_store), wanted)
    site = tuple(Store(root, wanted) for root in settings.image_stores)
    return Stores(own, tuple(store for store in site if own is None or store.root != own.root))


def own_store(context: Context, settings: SiteConfig | Places) -> Store:
    """Return the user's store. Raise UserError if the user has none."""
    from container_engine.images.store.store import Store, architecture, locate

    root = locate(context.env, context.cwd, settings.image_store)
    return Store(root, architecture(settings.image_architecture))


def importer(context: Context, settings: SiteConfig, *, quiet: bool = False) -> Importer:
    """Return an importer that reports to the context's listener, unless `quiet` is set."""
    from container_engine.images.importing.importer import Importer, Limits

    limits = Limits(settings.import_timeout_s, settings.registry_timeout_s, settings.tag_max_age_s)
    listener, wanted = _listener(context, quiet=quiet), rules(context, settings)
    return Importer(
        _reachable_logins(context),
        owner_name(context.uid),
        limits,
        listener,
        wanted,
        lambda: form(context, settings, listener),
        lambda: _program(context, settings),
    )


def _program(context: Context, settings: SiteConfig) -> str:
    """Return the site's importer, "" for none. Raise SiteError if it must not be used."""
    from container_engine.images.importing.site_importer import RUNTIME

    if not settings.importer or RUNTIME in context.env:  # it may call `enroot`, and so us
        return ""
    from container_engine.images import site_program

    source = configuration(context).origins.get("importer", "")
    site_program.check(settings.importer, source, "importer")
    if settings.policy.signature_policy:
        why = (
            "importer and policy.signature_policy do not go together: skopeo checks what it copies"
        )
        raise SiteError(why, see="site-configuration", where=source)
    return settings.importer


def form(context: Context, settings: SiteConfig, listener: Listener) -> Form:
    """Return the form that the site wants image files to have; failures are told the listener."""
    from container_engine.images.pack.form import Form

    return Form(
        settings.image_compressor,
        settings.image_block_size,
        layout=settings.store_layout,
        source=configuration(context).origins.get("store_layout", ""),
        say=listener.say,
    )


def _listener(context: Context, *, quiet: bool) -> Listener:
    return Quiet() if quiet else context.listener()


def _reachable_logins(context: Context) -> Mapping[str, str]:
    """Return the user's environment, changed so that skopeo does not try to read root's logins.

    Without XDG_RUNTIME_DIR, which jobs often lack, skopeo reads /run/containers. If root has used
    Podman, no other user may read that directory, and skopeo treats this as an error.
    """
    env = context.tools_env
    if env.get("XDG_RUNTIME_DIR") or not os.path.exists(_ROOTS_LOGINS):
        return env
    if os.access(_ROOTS_LOGINS, os.X_OK):
        return env
    return {**env, "XDG_RUNTIME_DIR": f"/run/user/{context.uid}"}


def adopter(context: Context, settings: SiteConfig, *, quiet: bool = False) -> Adopter:
    """Return the adopter that puts SquashFS files and directories into a store.

    It reports to the context's listener, unless `quiet` is set.
    """
    from container_engine.images.importing.adopt import Adopter

    listener = _listener(context, quiet=quiet)
    limit, known = settings.import_timeout_s, rules(context, settings)
    user, wanted = owner_name(context.uid), form(context, settings, listener)
    return Adopter(context.env, user, limit, listener, known, wanted)


@contextlib.contextmanager
def asking(image: Imported, context: Context, settings: SiteConfig) -> Iterator[Skopeo]:
    """Yield a registry client with the login for the image's registry, for queries only."""
    from container_engine.images.fetch.enroot_logins import logged_in
    from container_engine.images.fetch.registry import Skopeo

    limit = settings.registry_timeout_s
    with logged_in(image, _reachable_logins(context)) as env:
        yield Skopeo(env, limit, limit, settings.policy.signature_policy)


def ephemeral_store(context: Context, settings: SiteConfig, pid: int) -> EphemeralStore:
    """Return a store for images that are kept only while the process `pid` lives."""
    from container_engine.images.scanning import cache_directory
    from container_engine.images.store.ephemeral_store import EphemeralStore

    env = context.env
    place = settings.passing_dir or env.get("SCRATCH")
    return EphemeralStore(env, place or os.path.dirname(cache_directory(env)), pid)


def rules(context: Context, settings: SiteConfig) -> Rules:
    """Return the site's rules for images."""
    from container_engine.images.policy import Rules

    config = configuration(context)
    return Rules(settings.policy, config.files[0] if config.files else "", config.origins)


def node_rules(config: Configuration) -> NodeRules:
    """Return the rules that nodes apply, here from the configuration of the submit host."""
    from container_engine.node.start.site_rules import Rules

    where = {key.removeprefix("policy."): file for key, file in config.origins.items()}
    return Rules(config.settings.policy.as_dict(), config.settings.image_stores, where)


def admit_names(context: Context, path: str) -> None:
    """Raise UserError if the site refuses the names that a store keeps beside an image.

    Nodes check the same. Raise SiteError if a rule cannot be applied.
    """
    try:
        refusal = node_rules(configuration(context)).name_refusal(path)
    except LaunchError as error:
        raise SiteError(error.reason, see=error.see, where=error.where) from None
    if refusal:
        hint = "the site decides which images may be used; ask its support"
        raise UserError(refusal, hint, "image-policy")

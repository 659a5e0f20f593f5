"""The site's configuration for this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.node.start.site_rules import Rules
from container_engine.site import load

if TYPE_CHECKING:
    from container_engine.site.load import Configuration
    from container_engine.site.model import SiteConfig
    from container_engine.site.places import Places
    from container_engine.submit.context import Context


def configuration(context: Context) -> Configuration:
    """Return the site's configuration, read once per context. Raise SiteError with all faults."""
    if context.site_read:
        return context.site_read[0]
    found = load.load(context.prefix, context.uid, context.site_file, context.env)
    if context.site_read is not None:
        context.site_read.append(found)
    return found


def site_config(context: Context) -> SiteConfig:
    """Return the site's settings. Raise SiteError."""
    return configuration(context).settings


def places(context: Context) -> Places:
    """Return where the site has things, without the model if its files say it well.

    Raise SiteError.
    """
    found = load.places(context.prefix, context.uid, context.site_file, context.env)
    return found or site_config(context).places


def node_rules(config: Configuration) -> Rules:
    """Return the rules that nodes apply, here from the configuration of the submit host."""
    where = {key.removeprefix("policy."): file for key, file in config.origins.items()}
    return Rules(config.settings.policy.as_dict(), config.settings.image_stores, where)


def with_faults(context: Context) -> Configuration:
    """Return the site's configuration, read again, including its faults."""
    return load.read(context.prefix, context.uid, context.site_file, context.env)

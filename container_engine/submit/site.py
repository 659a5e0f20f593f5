"""The site's configuration for this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.site.load import load, read

if TYPE_CHECKING:
    from container_engine.site.load import Configuration
    from container_engine.submit.context import Context


def configuration(context: Context) -> Configuration:
    """Load the site's configuration. Raises SiteError with all its faults."""
    return load(context.prefix, context.uid, context.site_file)


def with_faults(context: Context) -> Configuration:
    """Load the site's configuration and return its faults with it."""
    return read(context.prefix, context.uid, context.site_file)

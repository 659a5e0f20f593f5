"""The site's configuration as this process has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.site.load import load, read

if TYPE_CHECKING:
    from container_engine.site.load import Configuration
    from container_engine.submit.context import Context


def configuration(context: Context) -> Configuration:
    """Raises SiteError with all that is wrong."""
    return load(context.prefix, context.uid, context.site_file)


def with_faults(context: Context) -> Configuration:
    """For those who look into what is wrong."""
    return read(context.prefix, context.uid, context.site_file)

"""All checks of a host, in the order in which they are reported."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from container_engine.base.errors import CeError
from container_engine.base.process import reason
from container_engine.faults.catalogue import remedy_of_site
from container_engine.site.load import located
from container_engine.submit.site import site_config, with_faults
from container_engine.submit.stores import stores
from container_engine.tools.doctor import (
    installation,
    kernel,
    programs,
    site_hash,
    site_values,
    storage,
    trial,
)
from container_engine.tools.doctor.finding import Finding, failed, ok, warning
from container_engine.tools.doctor.site_files import site_files

if TYPE_CHECKING:
    from container_engine.site.model import SiteConfig
    from container_engine.submit.context import Context


def look(context: Context, *, whole: bool) -> Iterator[Finding]:
    """Check this host; with `whole`, also check what a submit host needs."""
    settings, configuration = site_and_finding(context)
    yield from _node(context, settings, configuration, is_node=not whole)
    if whole:
        yield from _submit(context, settings)


def _node(
    context: Context, settings: SiteConfig, configuration: Finding, *, is_node: bool
) -> Iterator[Finding]:
    prefix = Path(context.prefix)
    yield _identity(context.uid)
    yield from kernel.look(Path("/"))
    chosen = {"podman": settings.podman, "crun": settings.runtime}
    yield from programs.look(context.env, site=chosen, is_crun_enough=settings.start == "crun")
    yield from installation.look(prefix, context.env)
    yield from installation.look_at_slurm(prefix, context.env, settings, is_node=is_node)
    yield configuration
    yield ok("rules", site_hash.rules(settings))
    yield from _files(settings)
    yield from storage.look_at_sites(settings.image_stores)
    yield trial.start(f"{prefix}/bin/ce", context.env, settings.image_stores)


def _submit(context: Context, settings: SiteConfig) -> Iterator[Finding]:
    yield from programs.look_for_imports(context.env)
    known = stores(context, settings)
    if known.own is None:
        yield ok("image store", "none: EDF_IMAGESTORE is void")
        return
    yield from storage.look(known.own.root, context.env)


def _identity(uid: int) -> Finding:
    if uid == 0:
        remedy = "run it as an ordinary user too: what users may do differs"
        return warning("user", "root", remedy)
    try:
        return ok("user", f"{pwd.getpwuid(uid).pw_name} ({uid})")
    except KeyError:
        remedy = "jobs run, with a made-up name; is the directory service (sssd, nslcd) up?"
        return warning("user", f"{uid} has no name on this host", remedy)


def site_and_finding(context: Context) -> tuple[SiteConfig, Finding]:
    """Return the site's configuration, or the defaults if it cannot be read, and a finding."""
    try:
        settings = site_config(context)
    except CeError as error:
        from container_engine.site.model import SiteConfig

        remedy = remedy_of_site(error.see, error.hint) or "correct it: no container starts"
        return SiteConfig(), failed("configuration", str(error), remedy)
    configuration = with_faults(context)
    checked = site_values.look(configuration)
    if wrong := [*checked.faults, *checked.notes]:
        remedy = "ce config check on this host lists all errors, with their lines"
        return settings, warning("configuration", located(wrong[0], configuration.origins), remedy)
    return settings, ok("configuration", site_hash.settings(settings))


def _files(settings: SiteConfig) -> Iterator[Finding]:
    for kind, number, fault in site_files(settings):
        if fault is not None:
            yield failed(kind, str(fault), fault.hint or "correct it")
        elif kind == "OCI hooks":
            yield from map(_hooks, settings.hooks_dirs)
        elif number:
            yield ok(kind, f"{number} in {', '.join(settings.cdi_dirs)}")


def _hooks(directory: str) -> Finding:
    """Check a directory of OCI hooks.

    A launch accepts an empty one, but a site that configures a directory expects hooks in it.
    """
    try:
        count = sum(name.endswith(".json") for name in os.listdir(directory))
    except OSError as error:
        text = f"{directory}: {reason(error)}"
        return failed("OCI hooks", text, "make it, or correct hooks_dirs")
    if not count:
        return warning("OCI hooks", f"{directory} has none", "is its content installed here?")
    return ok("OCI hooks", f"{directory}: {count}")

"""The image of a launch: found or imported, and what the site says of it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from container_engine.cli import messages
from container_engine.cli.declared import declared
from container_engine.cli.stores import importer, pull_policy, rules, stores
from container_engine.errors import SiteError
from container_engine.images import inventory, lock
from container_engine.images.importing import Pull
from container_engine.images.reference import FileImage, RegistryImage, parse
from container_engine.images.resolve import resolve
from container_engine.images.scanning import Scanner, Subject, cache_directory
from container_engine.images.store import architecture

if TYPE_CHECKING:
    from collections.abc import Mapping

    from container_engine.cli.context import Context
    from container_engine.edf.model import Edf
    from container_engine.images.policy import Rules
    from container_engine.images.resolve import Resolved, Stored
    from container_engine.plan.build import Offer
    from container_engine.site import SiteConfig

_DAY_S = 86400


def launch_image(
    edf: Edf, context: Context, tools_env: Mapping[str, str], offered: Offer
) -> Resolved:
    """The image of a launch of `edf`, imported if need be, if the site wants it to be used.

    `tools_env` is for the programs that import and judge; of the context's environment only single
    names are asked for. Raises CeError.
    """
    resolved = image_of(edf, context, tools_env, offered)
    now = time.time()
    inventory.mark_used(resolved.image.path, now)
    # a launch that is remembered does not come by here
    limit = min(filter(None, (resolved.not_after, now + _DAY_S)))
    resolved = resolved._replace(not_after=limit) if resolved.image.digest else resolved
    return _scanned(resolved, rules(context, offered.site), tools_env)


def image_of(edf: Edf, context: Context, tools_env: Mapping[str, str], offered: Offer) -> Resolved:
    """As `launch_image`, without asking the scanner: the locked image, or the one that is named."""
    named = edf.image or ""
    path = lock.beside(edf.files[-1])
    locked = lock.read(path)
    if locked is None:
        resolved = found_image(named, context, tools_env, offered.site)
        return resolved._replace(consulted=(path, *resolved.consulted))
    arch = offered.site.image_architecture or architecture()
    text = lock.locked_image(locked, path, named, arch, context.cwd)
    resolved = found_image(text, context, tools_env, offered.site)
    moved = lock.differences(locked, declared(edf.name, context, offered))
    notices = (
        (f"{path}: used as it is, but {'; '.join(moved)} (ce lock renews it)",) if moved else ()
    )
    return resolved._replace(
        image=resolved.image.model_copy(update={"name": named}),
        notices=(*notices, *resolved.notices),
        consulted=(path, *resolved.consulted),
    )


def found_image(
    text: str, context: Context, tools_env: Mapping[str, str], settings: SiteConfig
) -> Resolved:
    """The image `text`, if the site does not refuse its name or size."""
    wanted = rules(context, settings)
    reference = parse(text, context.cwd)
    if isinstance(reference, FileImage):
        wanted.admit(reference._replace(path=os.path.realpath(reference.path)))

    def obtain(image: RegistryImage) -> Stored:
        found = stores(context, settings)
        known = found.find(image)
        is_local = known is not None and known.ref.origin
        wanted.admit_local(image) if is_local else wanted.admit(image)
        source = importer(context._replace(env=tools_env), settings)
        return source.obtain(image, found, pull_policy(context, Pull(settings.pull)))

    resolved = resolve(text, context.cwd, tools_env, obtain)
    wanted.admit_size(text, os.path.getsize(resolved.image.path))
    return resolved


def subject(text: str, resolved: Resolved) -> Subject:
    return Subject(text, resolved.image.digest or "", resolved.image.path)


def _scanned(resolved: Resolved, wanted: Rules, tools_env: Mapping[str, str]) -> Resolved:
    """Asks the scanner what it has not been asked, or not for long; a bad image ends the launch."""
    if not wanted.policy.scanner:
        return resolved
    scanner = Scanner(wanted, cache_directory(tools_env), tools_env)
    asked = subject(resolved.image.name, resolved)
    try:
        verdict = scanner.recall(asked, time.time())
        if verdict is None:
            program = wanted.policy.scanner[0]
            messages.say_progress(f"{asked.name}: being scanned by {program}")
            verdict = scanner.scan(asked)
        problem = "" if verdict.is_good else verdict.summary
        ends = verdict.when + wanted.policy.scanner_max_age_s
    except SiteError as error:
        problem, ends = error.message, time.time()
    if problem and wanted.policy.scanner_verdict == "block":
        raise wanted.refusal("scanner", f"'{asked.name}' is not good: {problem}")
    notices = resolved.notices
    if problem:
        notices = (*notices, f"'{asked.name}': the site's scanner says: {problem}")
    not_after = min(filter(None, (resolved.not_after, ends)))
    return resolved._replace(notices=notices, not_after=not_after)

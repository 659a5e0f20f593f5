"""Finds or imports the image of a launch, and applies the site's image policy to it.

An option may name an image that only the nodes have; a verb, an image or an environment with one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from container_engine.base.errors import SiteError, UserError
from container_engine.edf.locate import NotFoundError, is_path, locate, search_path
from container_engine.edf.model import Edf
from container_engine.edf.names import lock_of
from container_engine.images import image_files, squashfs
from container_engine.images.reference import FileImage, Pull, RegistryImage, parse
from container_engine.images.resolve import NOT_KEPT, Resolved, from_file, stacked
from container_engine.images.squashfs import DEFAULT_PATH
from container_engine.plan.model import Image
from container_engine.site.model import Policy, SiteConfig
from container_engine.submit.context import Context
from container_engine.submit.environment import declared, load_with_origins, site_here
from container_engine.submit.stores import admit_names, rules

if TYPE_CHECKING:
    from container_engine.images import lock_file
    from container_engine.images.policy import Rules
    from container_engine.images.scanning import Subject
    from container_engine.plan.site_context import SiteContext

_DAY_S = 86400
_OPTION = "--container-image"


def launch_image(edf: Edf, context: Context, site_context: SiteContext) -> Resolved:
    """Return the image for a launch of `edf`, importing and scanning it where necessary.

    Raise CeError, also if the site's policy refuses the image.
    """
    parts = images_of(edf, context, site_context)
    return stacked([_used(part, context, site_context.site) for part in parts])


def _used(resolved: Resolved, context: Context, site: SiteConfig) -> Resolved:
    if resolved.image.path == NOT_KEPT or resolved.image.on_nodes:
        return resolved  # there is no file to scan
    now = time.time()
    image_files.mark_used(resolved.image.path, now)
    # a cached launch skips this function, so its record must expire for the mark to be renewed
    limit = min(filter(None, (resolved.not_after, now + _DAY_S)))
    resolved = resolved._replace(not_after=limit) if resolved.image.digest else resolved
    return _scanned(resolved, rules(context, site), context) if site.policy.scanner else resolved


def images_of(edf: Edf, context: Context, site_context: SiteContext) -> list[Resolved]:
    """Return the locked images, else those the EDF names, imported if need be but not scanned.

    The base comes first, and has the notices and the path of the lock.
    """
    named = [name for name, _origin in edf.images]
    # a lock is for the images that the files name, not for one of an option
    if not edf.has_image_of_file:
        only = image_of_nodes(edf, context, site_context.site)
        if only is not None:
            return [only]
        return [_of_option(name, context, site_context.site) for name in named]
    path = lock_of(edf.files[-1])
    if os.path.lexists(path):
        base, *above = _locked_images(edf, path, context, site_context)
    else:
        base, *above = [found_image(name, context, site_context.site) for name in named]
    return [base._replace(consulted=(path, *base.consulted)), *above]


def _locked_images(
    edf: Edf, path: str, context: Context, site_context: SiteContext
) -> list[Resolved]:
    """Return the images that the lock at `path` names. Raise CeError."""
    from container_engine.images import lock_file  # its models are for locks alone

    site, named = site_context.site, [name for name, _origin in edf.images]
    locked = lock_file.read(edf.files[-1])
    if locked is None:  # it has been removed meanwhile
        return [found_image(name, context, site) for name in named]
    now = declared(edf.name, context, site_context)
    names = locked_names(locked, path, named, site, context)
    found = [found_image(name, context, site) for name in names]
    base, *above = map(_identified, found, locked.parts)
    if moved := lock_file.differences(locked, now):
        notice = f"{path}: used as it is, but {'; '.join(moved)} (ce lock renews it)"
        base = base._replace(notices=(notice, *base.notices))
    return [base, *above]


def _of_option(text: str, context: Context, settings: SiteConfig) -> Resolved:
    """Return the image `text` of an option. An error has a hint if `text` is an environment."""
    try:
        return found_image(text, context, settings)
    except UserError as error:
        from container_engine.submit.image_names import with_environment_hint

        instead = "srun --environment={} COMMAND, or ce run {} -- COMMAND"
        raise with_environment_hint(error, text, context, settings, instead) from None


def locked_names(
    locked: lock_file.Lock,
    path: str,
    named: Sequence[str],
    site: SiteConfig,
    context: Context,
) -> list[str]:
    """Return the names by which the locked images are found. Raise UserError."""
    from container_engine.images import lock_file
    from container_engine.images.store.store import architecture

    if len(locked.parts) != len(named):
        raise lock_file.other_stack(path, len(locked.parts), len(named))
    found = []
    for part, name in zip(locked.parts, named, strict=True):
        if part.name:
            # the lock's own name is not trusted: a lock pins the image that the environment names
            lock_file.check_name(part, path, name, _meanings(name, context))
        arch = architecture(site.image_architecture)
        found.append(lock_file.locked_image(part, path, name, arch, context.cwd))
    return found


def _identified(found: Resolved, part: lock_file.Part) -> Resolved:
    """Return an image, a file with the digest that its lock has, where none is noted beside it.

    The file is the locked one, which `locked_image` has checked.
    """
    if part.name or found.image.content:
        return found
    return found._replace(image=found.image.model_copy(update={"content": part.file_digest}))


def _meanings(text: str, context: Context) -> tuple[RegistryImage, ...]:
    try:
        image = parse(text, context.cwd)
    except UserError:
        return ()
    if not isinstance(image, RegistryImage):
        return ()
    from container_engine.submit.image_names import candidates

    return candidates(image, context)


def found_image(text: str, context: Context, settings: SiteConfig) -> Resolved:
    """Return the image `text`, imported if need be. Raise CeError.

    It is a UserError if the site refuses the image's name, place or size.
    """
    # an unknown policy is refused even if nothing would be pulled
    pull = context.pull_policy(Pull(settings.pull))
    has_rules = settings.policy != Policy()
    reference = parse(text, context.cwd)
    if isinstance(reference, FileImage):
        if has_rules:
            real = reference._replace(path=os.path.realpath(reference.path))
            rules(context, settings).admit(real)
        resolved = from_file(text, reference.path, context.tools_env)
        if keys := settings.policy.sif_keys:
            rules(context, settings).signer(text, reference.path, context.tools_env)
            resolved = resolved._replace(consulted=(keys, *resolved.consulted))
    else:
        from container_engine.submit.image_names import obtained

        resolved = obtained(text, reference, pull, context, settings)
    path = resolved.image.path
    if has_rules and path != NOT_KEPT:
        wanted = rules(context, settings)
        wanted.admit_place(text, path, settings.image_stores)
        admit_names(context, path)
        wanted.admit_size(text, os.path.getsize(path))
    return resolved


def subject(text: str, resolved: Resolved) -> Subject:
    from container_engine.images.scanning import Subject

    return Subject(text, resolved.image.digest or "", resolved.image.path)


def _scanned(resolved: Resolved, wanted: Rules, context: Context) -> Resolved:
    """Scan the image unless a recent verdict exists; add a notice if it did not pass.

    An image whose scan failed did not pass. Raise UserError instead if `scanner_verdict` is
    "block".
    """
    from container_engine.images.scanning import Scanner, cache_directory

    env = context.tools_env
    scanner = Scanner(wanted, cache_directory(env), env, context.libexec)
    asked = subject(resolved.image.name, resolved)
    try:
        verdict = scanner.recall(asked, time.time())
        if verdict is None:
            program = wanted.policy.scanner[0]
            context.listener().say(f"{asked.name}: scanning it with {program}")
            verdict = scanner.scan(asked)
        problem = "" if verdict.is_good else verdict.summary
        ends = verdict.when + wanted.policy.scanner_max_age_s
    except SiteError as error:
        problem, ends = error.message, time.time()
    if problem and wanted.policy.scanner_verdict == "block":
        raise wanted.refusal("scanner", f"'{asked.name}' did not pass the scan: {problem}")
    notices = resolved.notices
    if problem:
        notices = (*notices, f"'{asked.name}': the site's scanner says: {problem}")
    not_after = min(filter(None, (resolved.not_after, ends)))
    return resolved._replace(notices=notices, not_after=not_after)


def image_of_nodes(edf: Edf, context: Context, site: SiteConfig) -> Resolved | None:
    """Return the image if an option names a file that this host does not have, else None.

    A file of a similar name on this host suggests a mistake: then the result is None, too. Raise
    UserError if this host needs the image's file.
    """
    if not edf.has_image_of_option:
        return None
    reference = parse(edf.image or "", context.cwd)
    if not isinstance(reference, FileImage) or not _is_absent(reference.path):
        return None
    if squashfs.similar(reference.path) is not None:
        return None
    _refuse_if_needed_here(edf, reference, context, site)
    image = Image(
        path=reference.path,
        name=reference.name,
        env={"PATH": DEFAULT_PATH},
        source="the file on each node",
        on_nodes=True,
    )
    notice = f"{_OPTION}: this host has no '{reference.path}': each node looks for it"
    return Resolved(image, (notice,), (reference.path,))


def _is_absent(path: str) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False  # the error is reported as that of any other file
    return False


def _refuse_if_needed_here(edf: Edf, image: FileImage, context: Context, site: SiteConfig) -> None:
    """Raise UserError if a rule of the site, or the entrypoint, needs the file on this host."""
    wanted = rules(context, site)
    why = ""
    if wanted.policy.model_copy(update={"mount_sources": ()}) != Policy():
        why = "the site has rules for images, which are checked where you submit"
    elif site.entrypoint if edf.entrypoint is None else edf.entrypoint:
        why = "its entrypoint is read where you submit"
    if why:
        hint = "put it where this host and the nodes have it"
        raise UserError(
            f"no such file on this host, and {why}", hint, "image-file-not-found", name=image.path
        )


def environment_of(text: str, context: Context, settings: SiteConfig) -> Edf | None:
    """Return the environment `text`, or None if no environment has that name: it must be an image.

    Raise UserError if the environment is not valid or has no image.
    """
    if is_path(text) and not text.endswith(".toml"):
        return None
    try:
        locate(text, context.cwd, search_path(context.env, settings.places.edf_path), {})
    except NotFoundError:
        if text.endswith(".toml"):
            raise
        return None
    edf = load_with_origins(text, context).edf
    if not edf.image:
        raise UserError("this environment has no image", see="image-not-named", name=text)
    return edf


def image_named_or_of(text: str, context: Context, settings: SiteConfig) -> Resolved:
    """Return the image `text` or that of the environment `text`, imported if need be.

    Raise CeError.
    """
    edf = environment_of(text, context, settings)
    if edf is None:
        return found_image(text, context, settings)
    check_single(edf)
    return images_of(edf, context, site_here(context))[0]


def check_single(edf: Edf) -> None:
    """Raise UserError for an environment with several images, of which one must be named."""
    if edf.above:
        known = ", ".join(name for name, _origin in edf.images)
        raise UserError("has several images", f"name one of them: {known}", see="", name=edf.name)

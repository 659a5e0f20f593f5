"""All checks of a host, in the order in which they are reported, and the start of a container.

Its image is made for the purpose, or is one of the site's.
"""

from __future__ import annotations

import glob
import os
import pwd
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from container_engine.base.errors import CeError
from container_engine.base.process import CommandError, find, merged, output, reason
from container_engine.faults.catalogue import remedy_of_site
from container_engine.site.load import located
from container_engine.submit.context import site_config, with_faults
from container_engine.submit.stores import stores
from container_engine.tools.doctor import host, installation, site, stripes
from container_engine.tools.doctor.finding import Finding, failed, ok, warning
from container_engine.tools.doctor.site import site_files

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
    yield from host.look_at_kernel(Path("/"))
    chosen = {"podman": settings.podman, "crun": settings.runtime}
    yield from host.look_at_programs(
        context.env, site=chosen, is_crun_enough=settings.start == "crun"
    )
    if settings.start == "podman":
        yield from host.look_at_podmans_files(Path("/"), settings.hooks_dirs)
    yield from installation.look(prefix, context.env, context.uid)
    if not installation.is_for_one_user(prefix, context.uid):
        yield from installation.look_at_slurm(prefix, context.env, settings, is_node=is_node)
    yield configuration
    yield ok("rules", site.hash_of_rules(settings))
    yield from _files(settings)
    yield from host.look_at_site_stores(settings.image_stores)
    yield from host.look_at_starts(settings.starts_file, context.env)
    yield from _trial(f"{prefix}/bin/ce", context.env, settings.image_stores)


def _submit(context: Context, settings: SiteConfig) -> Iterator[Finding]:
    yield from host.look_for_imports(context.env)
    known = stores(context, settings)
    if known.own is None:
        yield ok("image store", "none: EDF_IMAGESTORE is void")
        return
    yield from host.look_at_store(known.own.root, context.env)
    yield from stripes.look((known.own.root, *settings.image_stores), context.env)


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
    faults, notes = site.look_at_values(configuration)
    if wrong := [*faults, *notes]:
        remedy = "ce config check on this host lists all errors, with their lines"
        return settings, warning("configuration", located(wrong[0], configuration.origins), remedy)
    return settings, ok("configuration", site.hash_of_settings(settings))


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


_CHECK, _PROGRAM = "a container", "a check"
_TIMEOUT_S = 60
_MARK = "CE_DOCTOR"
# the container's init prints its environment to the descriptor in its argument
_COMMAND = ("/dev/.ce-init", "1")
_SEE, _ABOVE = "ce: see: ce help ", "see the lines above"
_MOST = 3  # images of the site that are tried if its policy refuses this module's own
_DIRECTORIES = ("dev", "etc", "proc", "sys", "tmp")


def _trial(ce: str, env: Mapping[str, str], stores: Sequence[str]) -> list[Finding]:
    """Start a container with `ce run`, of an image without programs.

    The checks of site and hooks that come before a container have findings of their own.

    If the site's policy refuses that image, try the smallest ones of the site's `stores`.
    """
    with tempfile.TemporaryDirectory(prefix="ce-doctor-") as directory:
        image = f"{directory}/empty.sqsh"
        try:
            _make_image(directory, image, env)
        except CeError as error:
            is_there = find("mksquashfs", env.get("PATH")) is not None
            why = str(error) if is_there else "mksquashfs is missing"
            return [warning(_CHECK, f"not tried: {why}", "install squashfs-tools")]
        own = {**env, "XDG_CACHE_HOME": directory}
        found = (_run(ce, directory, path, own) for path in (image, *_smallest(stores)))
        admitted = next((finding for finding in found if finding is not None), None)
    remedy = "import a small image into a store of image_stores for this check"
    refused = "not tried: the site's policy refuses a test image"
    return admitted or [warning(_CHECK, refused, remedy)]


def _smallest(stores: Sequence[str]) -> list[str]:
    """Return the smallest images of the site's stores that this user can read."""
    paths = (path for store in stores for path in glob.iglob(f"{glob.escape(store)}/images/*.sqsh"))
    return sorted((path for path in paths if os.access(path, os.R_OK)), key=os.path.getsize)[:_MOST]


def _make_image(directory: str, image: str, env: Mapping[str, str]) -> None:
    tree = f"{directory}/tree"
    for name in _DIRECTORIES:
        os.makedirs(f"{tree}/{name}")
    output(["mksquashfs", tree, image, "-all-root", "-quiet", "-no-progress"], env, _TIMEOUT_S)
    with open(f"{image}.json", "w", encoding="ascii") as file:
        file.write('{"config": {}}\n')


def _run(ce: str, directory: str, image: str, env: Mapping[str, str]) -> list[Finding] | None:
    """Return the findings on a start of the image, or None if the site's policy refuses it."""
    with open(f"{directory}/trial.toml", "w", encoding="utf-8") as file:
        file.write(f'image = "{image}"\n[env]\n{_MARK} = "inside"\n')
    argv = [ce, "run", "--no-checks-inside", f"{directory}/trial.toml", "--", *_COMMAND]
    before = time.monotonic()
    pieces: list[bytes] = []
    try:
        merged(argv, env, _TIMEOUT_S, pieces.append, is_shown=False)
    except CommandError as error:
        said = error.stderr.splitlines()
        if f"{_SEE}image-policy" in said:
            return None
        text = next(_after("ce: error: ", said), str(error))
        hint, see = next(_after("ce: hint: ", said), None), next(_after(_SEE, said), "")
        remedy = remedy_of_site(see.partition(" ")[0], hint) or _ABOVE
        if see == "check-failed":
            unmet = (text, *_after("ce: also: ", said))
            return [failed(_PROGRAM, line, remedy) for line in unmet]
        return [failed(_CHECK, f"does not start: {text}", remedy)]
    except CeError as error:
        return [failed(_CHECK, f"does not start: {error}", "install the engine again")]
    printed = b"".join(pieces)
    if f"{_MARK}=inside\0".encode() not in printed:
        text = "starts, but its environment variables are not those requested"
        return [failed(_CHECK, text, "report it")]
    took = f"starts and ends in {1000 * (time.monotonic() - before):.0f} ms"
    return [ok(_CHECK, took), *_warnings(printed.decode(errors="replace").splitlines())]


def _warnings(said: Sequence[str]) -> list[Finding]:
    """Return findings on the checks that ran a program and only warn."""
    found = [line for line in _after("ce: warning: ", said) if ": check " in line]
    return [warning(_PROGRAM, line, "it says what failed") for line in found]


def _after(label: str, lines: Sequence[str]) -> Iterator[str]:
    return (line.removeprefix(label) for line in lines if line.startswith(label))

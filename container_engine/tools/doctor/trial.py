"""Starts a container on this host, from an image made for the purpose or one of the site's."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence

from container_engine.base.errors import CeError
from container_engine.base.process import CommandError, output
from container_engine.faults.catalogue import remedy_of_site
from container_engine.tools.doctor.finding import Finding, failed, ok, warning

_CHECK = "a container"
_TIMEOUT_S = 60
_MARK = "CE_DOCTOR"
# the container's init prints its environment to the descriptor in its argument
_COMMAND = ("/dev/.ce-init", "1")
_SEE, _ABOVE = "ce: see: ce help ", "see the lines above"
_MOST = 3  # images of the site that are tried if its policy refuses this module's own
_DIRECTORIES = ("dev", "etc", "proc", "sys", "tmp")


def start(ce: str, env: Mapping[str, str], stores: Sequence[str]) -> Finding:
    """Start a container with `ce run`, of an image without programs.

    If the site's policy refuses that image, try the smallest ones of the site's `stores`.
    """
    with tempfile.TemporaryDirectory(prefix="ce-doctor-") as directory:
        image = f"{directory}/empty.sqsh"
        try:
            _make_image(directory, image, env)
        except CeError as error:
            is_there = shutil.which("mksquashfs", path=env.get("PATH")) is not None
            why = str(error) if is_there else "mksquashfs is missing"
            return warning(_CHECK, f"not tried: {why}", "install squashfs-tools")
        own = {**env, "XDG_CACHE_HOME": directory}
        found = (_run(ce, directory, path, own) for path in (image, *_smallest(stores)))
        admitted = next((finding for finding in found if finding is not None), None)
    remedy = "import a small image into a store of image_stores for this check"
    return admitted or warning(_CHECK, "not tried: the site's policy refuses a test image", remedy)


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


def _run(ce: str, directory: str, image: str, env: Mapping[str, str]) -> Finding | None:
    """Return the finding on a start of the image, or None if the site's policy refuses it."""
    with open(f"{directory}/trial.toml", "w", encoding="utf-8") as file:
        file.write(f'image = "{image}"\n[env]\n{_MARK} = "inside"\n')
    argv = [ce, "run", f"{directory}/trial.toml", "--", *_COMMAND]
    before = time.monotonic()
    try:
        printed = output(argv, env, _TIMEOUT_S)
    except CommandError as error:
        said = error.stderr.splitlines()
        if f"{_SEE}image-policy" in said:
            return None
        text = next(_after("ce: error: ", said), str(error))
        hint, see = next(_after("ce: hint: ", said), None), next(_after(_SEE, said), "")
        remedy = remedy_of_site(see.partition(" ")[0], hint) or _ABOVE
        return failed(_CHECK, f"does not start: {text}", remedy)
    except CeError as error:
        return failed(_CHECK, f"does not start: {error}", "install the engine again")
    if f"{_MARK}=inside".encode() not in printed.split(b"\0"):
        return failed(
            _CHECK, "starts, but its environment variables are not those requested", "report it"
        )
    return ok(_CHECK, f"starts and ends in {1000 * (time.monotonic() - before):.0f} ms")


def _after(label: str, lines: Sequence[str]) -> Iterator[str]:
    return (line.removeprefix(label) for line in lines if line.startswith(label))

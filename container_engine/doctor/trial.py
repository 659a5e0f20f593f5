"""Starts a container on this host, from an image made for the purpose."""

from __future__ import annotations

import os
import tempfile
import time
from typing import TYPE_CHECKING

from container_engine.doctor.finding import Finding, failed, ok, warning
from container_engine.errors import CeError
from container_engine.process import CommandError, output

if TYPE_CHECKING:
    from collections.abc import Mapping

_CHECK = "a container"
_TIMEOUT_S = 60
_MARK = "CE_DOCTOR"
# the container's init prints its environment to the descriptor in its argument
_COMMAND = ("/dev/.ce-init", "1")
_DIRECTORIES = ("dev", "etc", "proc", "sys", "tmp")


def start(ce: str, env: Mapping[str, str]) -> Finding:
    """Make an image without any program, and start it with `ce run`."""
    with tempfile.TemporaryDirectory(prefix="ce-doctor-") as directory:
        image = f"{directory}/empty.sqsh"
        try:
            _make_image(directory, image, env)
        except CeError as error:
            return warning(_CHECK, f"not tried: {error}", error.hint or "install squashfs-tools")
        return _run(ce, directory, {**env, "XDG_CACHE_HOME": directory})


def _make_image(directory: str, image: str, env: Mapping[str, str]) -> None:
    tree = f"{directory}/tree"
    for name in _DIRECTORIES:
        os.makedirs(f"{tree}/{name}")
    output(["mksquashfs", tree, image, "-all-root", "-quiet", "-no-progress"], env, _TIMEOUT_S)
    with open(f"{image}.json", "w", encoding="ascii") as file:
        file.write('{"config": {}}\n')
    with open(f"{directory}/trial.toml", "w", encoding="utf-8") as file:
        file.write(f'image = "{image}"\n[env]\n{_MARK} = "inside"\n')


def _run(ce: str, directory: str, env: Mapping[str, str]) -> Finding:
    argv = [ce, "run", f"{directory}/trial.toml", "--", *_COMMAND]
    before = time.monotonic()
    try:
        printed = output(argv, env, _TIMEOUT_S)
    except CommandError as error:
        lines = [line for line in error.stderr.splitlines() if line.startswith("ce: ")]
        text = "; ".join(lines[:1]).removeprefix("ce: error: ") or str(error)
        hints = [line.removeprefix("ce: hint: ") for line in lines if line.startswith("ce: hint: ")]
        return failed(
            _CHECK, f"does not start: {text}", hints[0] if hints else "see the lines above"
        )
    except CeError as error:
        return failed(_CHECK, f"does not start: {error}", error.hint or "see the lines above")
    if f"{_MARK}=inside".encode() not in printed.split(b"\0"):
        return failed(_CHECK, "starts, but its environment is not what was asked for", "report it")
    return ok(_CHECK, f"starts and ends in {1000 * (time.monotonic() - before):.0f} ms")

"""Take the file system and the configuration out of a SquashFS or SIF file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from container_engine.base.errors import UserError
from container_engine.images import free_space, squashfs

if TYPE_CHECKING:
    from container_engine.images.pack.pack import Packer

_PIECE = 1 << 24


def check(path: str, arch: str, env: Mapping[str, str]) -> None:
    """Raise UserError unless the file has a whole file system for this architecture, or any."""
    made_for = squashfs.place(path).architecture
    if made_for not in {"", arch}:
        message = f"made for {made_for}, {arch} is needed"
        raise UserError(message, see="image-architecture", name=path)
    squashfs.listed(path, env)


def copy(path: str, made: str, packer: Packer, far: Callable[[int, int], None]) -> None:
    """Write the file system of the file to `made`; `far` gets the bytes done, and all of them.

    Raise CeError or OSError.
    """
    within, done = squashfs.place(path), 0
    free_space.check(os.path.dirname(made), within.size)
    with open(path, "rb") as source, packer.started(made) as target:
        while done < within.size:
            piece = min(_PIECE, within.size - done)
            sent = os.sendfile(target.fileno(), source.fileno(), within.start + done, piece)
            if sent == 0:
                raise UserError("cut short", see="image-damaged", name=path)
            done += sent
            far(done, within.size)


def document(facts: squashfs.ImageConfig, arch: str) -> bytes:
    """Return a configuration in OCI's form."""
    run: dict[str, object] = {"Env": [f"{name}={value}" for name, value in facts.env.items()]}
    if facts.entrypoint:
        run["Entrypoint"] = list(facts.entrypoint)
    if facts.workdir:
        run["WorkingDir"] = facts.workdir
    return as_json({"architecture": arch, "os": "linux", "config": run})


def as_json(document: dict[str, object]) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogateescape")

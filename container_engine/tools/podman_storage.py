"""List the images of the user's own Podman storage; nothing in it is changed.

Asked by podman-py where that is installed and a service of the user's listens, else by Podman's
command line. Neither is on the way of a launch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from container_engine.base import process
from container_engine.base.errors import UserError

_LIMIT_S = 30.0


class PodmanImage(NamedTuple):
    """An image of Podman's; `size` in bytes, `created` in seconds since 1970."""

    name: str
    digest: str
    size: int
    created: float


def images(env: Mapping[str, str], uid: int) -> list[PodmanImage]:
    """Return an entry for each name, sorted. Raise CeError if Podman cannot be asked."""
    socket = service(env, uid)
    found = _by_service(socket) if socket else None
    if found is None:
        found = _by_command(env)
    # one with several names is listed as often, each time with all of them
    return sorted({image for one in found for image in _named(one)})


def service(env: Mapping[str, str], uid: int) -> str:
    """Return the URL of the user's Podman service on this host; "" if there is none."""
    if env.get("CONTAINER_HOST", "").startswith("unix://"):
        return env["CONTAINER_HOST"]
    runtime = env.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"
    path = f"{runtime}/podman/podman.sock"
    return f"unix://{path}" if os.path.exists(path) else ""


def _by_service(url: str) -> list[dict[str, Any]] | None:
    """Return what the service lists, None without podman-py or an answer."""
    try:
        from podman import PodmanClient
        from podman.errors import APIError, PodmanError
    except ImportError:
        return None
    try:
        with PodmanClient(base_url=url, timeout=_LIMIT_S) as client:
            return [image.attrs for image in client.images.list()]
    except (OSError, APIError, PodmanError):
        return None


def _by_command(env: Mapping[str, str]) -> list[dict[str, Any]]:
    try:
        text = process.output(["podman", "images", "--format", "json"], env, _LIMIT_S)
        return list(json.loads(text))
    except (process.CommandError, ValueError) as error:
        complaint = error.complaint if isinstance(error, process.CommandError) else str(error)
        hint = "is Podman installed here?"
        raise UserError(f"podman images: {complaint}", hint, see="program-failed") from None


def _named(entry: Mapping[str, Any]) -> Iterable[PodmanImage]:
    names = entry.get("RepoTags") or entry.get("Names") or ()
    for name in names:
        if not name.startswith("<none>"):
            digest = entry.get("Digest") or f"sha256:{entry['Id']}"
            yield PodmanImage(name, digest, entry.get("Size", 0), entry.get("Created", 0))

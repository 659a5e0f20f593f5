"""Decides whether a container lives with its job, and which of the job's it is. Pure."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Literal, cast

from container_engine.plan.model import KeptContainer
from container_engine.plan.overrides import NAME_KEY, read_name

if TYPE_CHECKING:
    from container_engine.edf.model import Edf
    from container_engine.plan.model import Image

    _Mode = Literal["auto", "create", "exec", "no_exec"]


def kept_container(edf: Edf, image: Image, scope: str, directory: str) -> KeptContainer | None:
    """Return the container of this name, or of this environment if `scope` is "job"; else None.

    Two environments with the same name of a container mean the same one.
    """
    text = next((entry.value for entry in edf.annotations if entry.key == NAME_KEY), "")
    named = read_name(text)
    if named is None and scope != "job":
        return None
    name, mode = named or ("", "auto")
    what = ("name", name) if name else ("environment", *edf.files, image.path)
    key = sha256("\0".join(what).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return KeptContainer(name=name, key=key, mode=cast("_Mode", mode), directory=directory)

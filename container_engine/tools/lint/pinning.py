"""Advises on images with a moving tag. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.base.errors import UserError
from container_engine.images.reference import RegistryImage, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.edf.model import Origin, Problem
    from container_engine.tools.lint.subject import Subject

# Tags that move to every new image, alone or with a suffix: latest-arm64.
_MOVING = ("latest", "nightly")


def pinning(subject: Subject) -> Iterator[Problem]:
    """Warn of a tag like `latest`, written or implied, without a digest."""
    for name, origin in subject.edf.images:
        if origin is not None:
            yield from _of(name, origin, subject.cwd)


def _of(name: str, origin: Origin, cwd: str) -> Iterator[Problem]:
    try:
        image = parse(name, cwd)
    except UserError:
        return
    if not isinstance(image, RegistryImage) or image.digest is not None or image.tag is None:
        return
    if image.tag.partition("-")[0] in _MOVING:
        says = "names" if image.name.endswith(f":{image.tag}") else "implies"
        message = f"'{image.name}' {says} the tag '{image.tag}', which changes"
        hint = "use the tag of a version, or a digest with @sha256:…"
        yield origin.warning("image", message, hint)

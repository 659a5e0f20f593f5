"""Images whose name may stand for something else tomorrow. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.errors import UserError
from container_engine.images.reference import DEFAULT_TAG, RegistryImage, parse
from container_engine.lint.subject import advice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.edf.model import Problem
    from container_engine.lint.subject import Subject


def pinning(subject: Subject) -> Iterator[Problem]:
    """The tag `latest`, written or implied, without a digest."""
    origin = subject.edf.image_origin
    if not subject.edf.image or origin is None:
        return
    try:
        image = parse(subject.edf.image, subject.cwd)
    except UserError:
        return
    if isinstance(image, RegistryImage) and image.digest is None and image.tag == DEFAULT_TAG:
        says = "names" if image.name.endswith(f":{DEFAULT_TAG}") else "implies"
        message = f"'{image.name}' {says} the tag '{DEFAULT_TAG}', which changes"
        yield advice(origin, "image", message, "name a version, or a digest with @sha256:…")

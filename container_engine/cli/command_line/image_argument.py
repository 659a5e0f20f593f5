"""Arguments of `ce scan`, `ce inspect` and `ce lock`: an image, or an environment with one."""

from __future__ import annotations

from container_engine.base.errors import UserError
from container_engine.edf.locate import NotFoundError, is_path, locate, search_path
from container_engine.edf.model import Edf
from container_engine.images.resolve import Resolved
from container_engine.site.model import SiteConfig
from container_engine.submit.context import Context
from container_engine.submit.environment import load_with_origins, offer_here
from container_engine.submit.image import found_image, images_of


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
        raise UserError("this environment has no image", name=text)
    return edf


def resolved(text: str, context: Context, settings: SiteConfig) -> Resolved:
    """Return the image `text` or that of the environment `text`, imported if need be.

    Raise CeError.
    """
    edf = environment_of(text, context, settings)
    if edf is None:
        return found_image(text, context, settings)
    check_single(edf)
    return images_of(edf, context, offer_here(context))[0]


def check_single(edf: Edf) -> None:
    """Raise UserError for an environment with several images, of which one must be named."""
    if edf.above:
        known = ", ".join(name for name, _origin in edf.images)
        raise UserError("has several images", f"name one of them: {known}", name=edf.name)

"""Returns the plan of an earlier launch if none of its inputs has changed, else a new one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from container_engine.submit import quick

if TYPE_CHECKING:
    from collections.abc import Sequence

    from container_engine.submit.context import Context


def plan_of(
    name: str | None, context: Context, pull: str | None, words: Sequence[str] = ()
) -> tuple[str, str, str]:
    """Return the notices for stderr, and a planner's output in two: before the plan, and the plan.

    The plan is "" for no container. `words` are options of pyxis, which need no name if they have
    an image. Without a memo a new plan is made, which costs the import of the models. Raises
    CeError.
    """
    own = None if name is None else os.fsencode(name)
    options = [os.fsencode(word) for word in words]
    key = quick.key(own, os.fsencode(context.cwd), os.fsencode(context.prefix), options)
    # memos only hold plans made with the site's own configuration and pull policy
    usual = pull is None and not context.site_file
    found = quick.recall(key, os.environb, context.uid) if usual else None
    if found is not None:
        notices, head, *parts = (part.decode("utf-8", "surrogateescape") for part in found)
        return notices, head, quick.with_secret(parts)
    from container_engine.submit.prepare import prepare
    from container_engine.submit.stores import with_pull

    prepared = prepare(name, with_pull(context, pull), words)
    return prepared.notices, prepared.head, quick.with_secret(prepared.parts)


def plan_of_image(image: str, context: Context, pull: str | None) -> tuple[str, str, str]:
    """Return the same for an environment that has only this image. Raises CeError."""
    from container_engine.submit.prepare import prepare_image
    from container_engine.submit.stores import with_pull

    prepared = prepare_image(image, with_pull(context, pull))
    return prepared.notices, prepared.head, quick.with_secret(prepared.parts)

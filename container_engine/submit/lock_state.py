"""The present state of an environment, in the form that a lock file is compared with."""

from __future__ import annotations

from container_engine.edf.history import Assignment, histories, quoted
from container_engine.images.lock_file import Declared, digest_of
from container_engine.plan.hooks import use
from container_engine.plan.site_context import Offer
from container_engine.submit.context import Context
from container_engine.submit.environment import load_with_origins


def declared(name: str, context: Context, offer: Offer) -> Declared:
    """Return the state of the environment `name`. Raise RefusedError if it is not valid.

    Variables are not expanded, so the state is the same for all users.
    """
    traced = load_with_origins(name, context)
    values = {entry.key: _written(entry.effective) for entry in histories(traced.edf, traced.files)}
    used = use(traced.edf, offer.hooks, offer.machine, offer.entries)
    # automatic hooks, and what they imply, depend on the host
    asked = [hook for hook in used.hooks if hook.automatic_when is None]
    releases = {hook.name: hook.release for hook in asked}
    images = [values.get("image", "")]
    if traced.edf.above:
        images = [values[f"image[{number}]"] for number in range(len(traced.edf.images))]
    return Declared(digest_of(sorted(values.items())), tuple(images), releases)


def _written(assignment: Assignment) -> str:
    return quoted(assignment.value) if assignment.written is None else assignment.written

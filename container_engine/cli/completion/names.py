"""The names that completion offers: environments, images, hooks, steps.

A user waits for them, so each kind imports what it needs.
"""

from __future__ import annotations

from collections.abc import Iterable

from container_engine.submit.context import Context


def names(kind: str, word: str, context: Context) -> Iterable[str]:
    """Return the names of this kind; `word` follows the verb.

    What Podman has is asked for only where somebody writes podman://, as that takes a while.
    """
    if kind == "hook" and word == "explain":
        kind = "environment"
    if kind == "hook":
        return _hooks(context) if word in ("show", "test") else ()
    if kind in ("step", "trace"):
        return _steps(kind, context)
    if kind == "source" and word.startswith("podman"):
        return _podmans(context)
    found = [] if kind in ("image", "source") else _environments(context)
    return found + (_images(context) if kind in ("image", "named", "source") else [])


def _environments(context: Context) -> list[str]:
    from container_engine.submit.environment_names import environments

    return [name for name, _file in environments(context)]


def _hooks(context: Context) -> list[str]:
    from container_engine.submit.environment import offer_here

    return sorted(offer_here(context).hooks)


def _steps(kind: str, context: Context) -> Iterable[str]:
    from container_engine.tools import running_steps
    from container_engine.tools.trace import reader

    if kind == "step":
        return [step.id for step in running_steps.running(context)]
    return reader.steps(running_steps.trace_directory(context), context.uid)


def _podmans(context: Context) -> list[str]:
    from container_engine.base.errors import CeError
    from container_engine.tools.podman_storage import images

    try:
        return [f"podman://{image.name}" for image in images(context.env, context.uid)]
    except CeError:
        return []


def _images(context: Context) -> list[str]:
    from container_engine.images.reference import familiar
    from container_engine.images.store.inventory import items
    from container_engine.submit.site import places
    from container_engine.submit.stores import stores

    roots = [store.root for store in stores(context, places(context)).all()]
    return sorted({familiar(name) for root in roots for i in items(root) for name in i.names})

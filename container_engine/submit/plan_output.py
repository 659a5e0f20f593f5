"""Returns what a planner prints: a cached plan that is still valid, else a new one.

Whether one is valid is decided in spank_plugin/start/plan_answer.c, for all planners.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from container_engine import __version__
from container_engine.submit.context import NONE_GIVEN, Context, Options

Printed = tuple[str, str, str]


def plan_of(
    name: str | None, context: Context, pull: str | None, options: Options = NONE_GIVEN
) -> Printed:
    """Return the notices for stderr, what a planner prints before the plan, and the plan.

    The plan is "" for no container. `options` need no name if they have an image. Without a
    cached plan a new one is made, which costs the import of the models. Raise CeError.
    """
    # only plans are cached that were made with the site's own configuration and pull policy
    usual = pull is None and not context.site_file
    found = _cached(name, context, options.words) if usual else None
    return found or new_plan_of(name, context, pull, options)


def new_plan_of(
    name: str | None, context: Context, pull: str | None, options: Options = NONE_GIVEN
) -> Printed:
    """Return what `plan_of` does, but always make a new plan. Raise CeError."""
    from container_engine.submit.prepare import prepare
    from container_engine.submit.stores import with_pull

    prepared = prepare(name, with_pull(context, pull), options)
    return prepared.notices, prepared.head, with_secret(prepared.parts)


def plan_of_image(
    image: str, context: Context, pull: str | None, options: Options = NONE_GIVEN
) -> Printed:
    """Return what `new_plan_of` does, for an environment of this image alone. Raise CeError."""
    from container_engine.submit.prepare import prepare_image
    from container_engine.submit.stores import with_pull

    prepared = prepare_image(image, with_pull(context, pull), options)
    return prepared.notices, prepared.head, with_secret(prepared.parts)


def _cached(name: str | None, context: Context, words: Sequence[str]) -> Printed | None:
    """Return the cached plan, or None if there is none that is still valid.

    The program that decides it, for srun as well, is in spank_plugin/start/.
    """
    argv = ["plan", f"--cached={__version__}", *words, "--", *([] if name is None else [name])]
    try:
        said = _output(f"{context.libexec}/plan", argv, context.env)
    except OSError:
        return None
    match said.decode("utf-8", "surrogateescape").split("\0"):
        case [notices, head, plan, ""]:
            return notices, head, plan
    return None


def _output(program: str, argv: list[str], env: Mapping[str, str]) -> bytes:
    """Return what a program prints if it succeeds, else b"". Raise OSError.

    It does without `subprocess`, whose import takes longer.
    """
    reader, writer = os.pipe()
    with open(reader, "rb") as stream:
        silent = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
        try:
            actions = [(os.POSIX_SPAWN_DUP2, writer, 1), silent]
            child = os.posix_spawn(program, argv, env, file_actions=actions)
        finally:
            os.close(writer)
        said = stream.read()
    return said if os.waitpid(child, 0)[1] == 0 else b""


def with_secret(parts: Sequence[str]) -> str:
    """Return a launch's plan: `parts` with a new secret between them.

    It is "" without parts: the launch has no container.

    All nodes of a step know the secret from the plan, and no other process does. It is never
    recorded.
    """
    return os.urandom(32).hex().join(parts)

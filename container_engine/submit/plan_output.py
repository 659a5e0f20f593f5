"""Returns what a planner prints: a cached plan that is still right, else a new one, and caches it.

Whether one is right is decided in spank_plugin/start/plan_answer.c, for all planners
(plan_answer.h has the format of the request and of the result). A cached plan holds expanded
values, so its file is private. It must never outlive what it was made from: if that cannot be
guaranteed, none is written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from container_engine import __version__
from container_engine.submit.context import NONE_GIVEN, Context, Options

if TYPE_CHECKING:
    from container_engine.submit.prepare import Prepared

Printed = tuple[str, str, str]
MOST = 64
# as many as steps have traces (node/report/trace.py)
_MOST_KEPT = 200


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
    """Return what `plan_of` does, but always make a new plan, and cache it. Raise CeError."""
    from container_engine.submit.prepare import prepare

    prepared = with_digest(prepare(name, context.with_pull(pull), options), name, context, options)
    write(prepared, request(name, context.cwd, options.words), context)
    return prepared.notices, prepared.head, with_secret(prepared.parts)


def with_digest(
    prepared: Prepared, name: str | None, context: Context, options: Options = NONE_GIVEN
) -> Prepared:
    """Keep the plan under its digest, for `ce diff`; a step's trace has the digest only."""
    from container_engine.submit.prepare import in_parts

    plan = prepared.plan
    if plan is None or not plan.settings.trace_dir:
        return prepared
    kept = Kept(plan.to_json(), name, context.cwd, options.words)
    plan = plan.model_copy(update={"digest": keep(kept, context.env)})
    return prepared._replace(plan=plan, parts=in_parts(f"{plan.to_json()}\n"))


def plan_of_image(
    image: str, context: Context, pull: str | None, options: Options = NONE_GIVEN
) -> Printed:
    """Return the plan of an environment of this image alone, which is not cached. Raise CeError."""
    from container_engine.submit.prepare import prepare_image

    prepared = prepare_image(image, context.with_pull(pull), options)
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


def request(name: str | None, cwd: str, options: Sequence[str] = ()) -> bytes:
    """Return the words of a request; different requests have different words."""
    words = ("-" if name is None else f"={name}", cwd, *options)
    return b"".join(os.fsencode(word) + b"\0" for word in words)


def write(made: Prepared, words: bytes, context: Context) -> bool:
    """Cache the answer to a request (`words`), and return whether that succeeded.

    Failure is no error. `context` is that of the caller, and from before anything was read.
    """
    from container_engine.base import answers
    from container_engine.base.files import make_own, own_directory, user_directory

    asked = made.inputs.environment
    cache = user_directory("XDG_CACHE_HOME", ".cache", context.env)
    may_last = not (context.site_file or asked.are_all or (made.plan and made.plan.image.passing))
    if not (cache and may_last):
        return False
    place = f"{cache}/container-engine/plans"
    try:
        # hosts that share the home number file systems differently
        states = {one: answers.state(one) for one in map("s".__add__, made.inputs.files)}
        witnesses = {**answers.installation("s"), **states, **asked.asked}
        if made.not_after:
            witnesses["t"] = str(int(made.not_after))
        if not answers.can_be_checked(witnesses, context.started_ns):
            return False
        answered = answers.request_of(context.prefix, words, everywhere=True)
        texts = (made.notices, made.head)
        result = b"".join(map(answers.field, texts)) + answers.table(made.parts)
        make_own(os.path.dirname(place))
        return answers.write(own_directory(place), answered, witnesses, result, MOST)
    except (OSError, ValueError):
        return False


# ---- plans of steps, by their digests ---------------------------------------------------------


class Kept(NamedTuple):
    """A plan that steps have used, as JSON, and the last request for it."""

    plan: str
    name: str | None
    cwd: str
    options: Sequence[str]


def keep(kept: Kept, environment: Mapping[str, str]) -> str:
    """Keep a plan; return its digest, or "" if that failed, which is not an error.

    The file is as private as a cached plan: both hold values of variables.
    """
    import json  # the models have loaded it, and a cached plan needs none

    from container_engine.base.files import publish_own

    place = _place_of_kept(environment)
    if not place:
        return ""
    content, asked = kept.plan.encode("utf-8", "surrogateescape"), json.dumps(kept[1:]).encode()
    digest = _digest(content)
    try:
        publish_own(place, digest, asked + b"\n" + content, _MOST_KEPT)
    except OSError:
        return ""
    return digest


def kept(digest: str, environment: Mapping[str, str]) -> Kept | None:
    """Return the plan with this digest; None if it is gone or damaged."""
    import json

    from container_engine.base.files import read_regular

    try:
        content = read_regular(f"{_place_of_kept(environment)}/{digest}")
        asked, _line_end, plan = content.partition(b"\n")
        name, cwd, options = json.loads(asked)
    except (OSError, ValueError, TypeError):
        return None
    whole = digest.isalnum() and _digest(plan) == digest
    return Kept(plan.decode("utf-8", "surrogateescape"), name, cwd, options) if whole else None


def _digest(plan: bytes) -> str:
    import hashlib

    return hashlib.sha256(plan).hexdigest()[:32]


def _place_of_kept(environment: Mapping[str, str]) -> str:
    from container_engine.base.files import user_directory

    state = user_directory("XDG_STATE_HOME", ".local/state", environment)
    return f"{state}/container-engine/plans" if state else ""

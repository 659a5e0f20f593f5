"""Caches a plan, together with everything that it was made from.

`ce-start` takes it while it is right (spank_plugin/start/plan_answer.h has the format of the
request and of the result). The file holds expanded values, so it is private. A cached plan must
never outlive what it was made from: if that cannot be guaranteed, none is written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from container_engine.base import answers
from container_engine.base.files import make_own, own_directory, user_directory

MOST = 64


class CachedPlan(NamedTuple):
    """A plan as it is printed, and what it was made from.

    `words` are the request (`request`), `files` are all paths that were examined, and `variables`
    the witnesses about the environment. `started_ns` is a time before the first of them was read,
    by the clock of time.time_ns. `head` and `parts` are those of `prepare.Prepared`. The plan is
    right until `not_after`, in seconds since 1970; 0 is no limit.
    """

    words: bytes
    prefix: str
    files: tuple[str, ...]
    variables: Mapping[str, str]
    started_ns: int
    notices: str
    head: str
    parts: Sequence[str]
    not_after: float = 0


def request(name: str | None, cwd: str, options: Sequence[str] = ()) -> bytes:
    """Return the words of a request; different requests have different words."""
    words = ("-" if name is None else f"={name}", cwd, *options)
    return b"".join(os.fsencode(word) + b"\0" for word in words)


def write(plan: CachedPlan, environment: Mapping[str, str]) -> bool:
    """Write the answer and return whether that succeeded; failure is not an error."""
    cache = user_directory("XDG_CACHE_HOME", ".cache", environment)
    if not cache:
        return False
    place = f"{cache}/container-engine/plans"
    try:
        # hosts that share the home number file systems differently
        states = {question: answers.state(question) for question in map("s".__add__, plan.files)}
        witnesses = {**answers.installation("s"), **states, **plan.variables}
        if plan.not_after:
            witnesses["t"] = str(int(plan.not_after))
        if not answers.can_be_checked(witnesses, plan.started_ns):
            return False
        asked = answers.request_of(plan.prefix, plan.words, everywhere=True)
        texts = (plan.notices, plan.head)
        result = b"".join(map(answers.field, texts)) + answers.table(plan.parts)
        make_own(os.path.dirname(place))
        return answers.write(own_directory(place), asked, witnesses, result, MOST)
    except (OSError, ValueError):
        return False

"""Parameters that the code of hooks adds where a plan is made. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from container_engine.edf.model import Edf, Problem
from container_engine.plan.model import HookUse, LaunchPlan

# the value of a parameter `secret` in a plan, which each launch replaces with a secret of its own
SECRET = "@new@"


class Added(NamedTuple):
    """Further parameters for the node; or an error about `parameter`, which the user has set."""

    parameters: Mapping[str, str]
    parameter: str = ""
    message: str = ""
    hint: str | None = None


def with_added(
    plan: LaunchPlan, edf: Edf, adding: Mapping[str, Callable[[HookUse], Added]]
) -> tuple[LaunchPlan, tuple[Problem, ...]]:
    """Return the plan with what `adding` has for its hooks, and their errors."""
    uses, problems = [], []
    for use in plan.hooks:
        added = adding.get(use.name)
        if added is None:
            uses.append(use)
            continue
        more = added(use)
        given = {**use.parameters, **more.parameters}
        uses.append(use.model_copy(update={"parameters": given}))
        if more.message:
            problems.append(_problem(edf, more))
    return plan.model_copy(update={"hooks": tuple(uses)}), tuple(problems)


def _problem(edf: Edf, more: Added) -> Problem:
    # below the annotation that the site gave the hook
    ending = f".{more.parameter}"
    found = [(one.key, one.origin) for one in edf.annotations if one.key.endswith(ending)]
    key, origin = found[0] if found else (more.parameter, edf.place)
    return origin.error(key, more.message, more.hint, "hook-refused")

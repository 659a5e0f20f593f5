"""Adds to a plan with the ssh hook the public key of the user who may log in. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from container_engine.edf.model import Problem
from container_engine.plan.public_key import Judged

if TYPE_CHECKING:
    from collections.abc import Callable

    from container_engine.edf.model import Edf
    from container_engine.plan.model import HookUse, LaunchPlan

CODE, PARAMETER = "ssh", "authorize_ssh_key"
# placeholder in a plan, which each launch replaces with a secret of its own
SECRET = "@new@"


def with_keys(
    plan: LaunchPlan, edf: Edf, read: Callable[[str], Judged]
) -> tuple[LaunchPlan, tuple[Problem, ...]]:
    """Add the public key to the plan, and a place for the secret of each launch.

    submit/plan_output.py fills in the secret. `read` judges the user's key file here, so that nodes
    need not see it. A plan without the ssh hook is returned unchanged.
    """
    if not any(use.code == CODE for use in plan.hooks):
        return plan, ()
    uses, problems = [], []
    for use in plan.hooks:
        path = _path(use)
        judged = read(path) if path else Judged("")
        if judged.line is None:
            problems.append(_problem(edf, judged))
        added = {"secret": SECRET, "authorized_key": judged.line or ""}
        given = {**use.parameters, **added} if use.code == CODE else use.parameters
        uses.append(replace(use, parameters=given))
    return replace(plan, hooks=tuple(uses)), tuple(problems)


def _path(use: HookUse) -> str:
    return use.parameters.get(PARAMETER, "") if use.code == CODE else ""


def _problem(edf: Edf, judged: Judged) -> Problem:
    key = f"com.hooks.ssh.{PARAMETER}"
    origin = next((entry.origin for entry in edf.annotations if entry.key == key), None)
    file = origin.file if origin else edf.own_file
    line = origin.line if origin else 0
    return Problem("error", file, line, key, judged.message, judged.hint, see="hook-refused")

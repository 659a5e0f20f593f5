"""What a plan with the ssh hook needs from the submit host: the key of whoever may log in."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from container_engine.edf.model import Problem
from container_engine.plan.publickey import MAX_SIZE, Judged, judge
from container_engine.plan.quick import SECRET
from container_engine.process import reason

if TYPE_CHECKING:
    from container_engine.edf.model import Edf
    from container_engine.plan.model import HookUse, LaunchPlan

CODE, PARAMETER = "ssh", "authorize_ssh_key"


def key_files(plan: LaunchPlan) -> list[str]:
    """The files that `with_keys` reads."""
    return [path for use in plan.hooks if (path := _path(use))]


def with_keys(plan: LaunchPlan, edf: Edf) -> tuple[LaunchPlan, tuple[Problem, ...]]:
    """The plan with the key itself, and with a place for the launch's secret (see plan/quick.py).

    Nodes need not see the user's files. Without the hook, the plan as it is.
    """
    if not any(use.code == CODE for use in plan.hooks):
        return plan, ()
    uses, problems = [], []
    for use in plan.hooks:
        judged = _read(_path(use)) if _path(use) else Judged("")
        if judged.line is None:
            problems.append(_problem(edf, judged))
        added = {"secret": SECRET, "authorized_key": judged.line or ""}
        given = {**use.parameters, **added} if use.code == CODE else use.parameters
        uses.append(use.model_copy(update={"parameters": given}))
    return plan.model_copy(update={"hooks": tuple(uses)}), tuple(problems)


def _path(use: HookUse) -> str:
    return use.parameters.get(PARAMETER, "") if use.code == CODE else ""


def _read(path: str) -> Judged:
    try:
        # a FIFO would be waited for
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as f:
            if not stat.S_ISREG(os.fstat(f.fileno()).st_mode):
                return Judged(None, f"'{path}' is not a regular file")
            content = f.read(MAX_SIZE + 1)
    except OSError as error:
        why = "does not exist" if isinstance(error, FileNotFoundError) else reason(error)
        hint = "make one with ssh-keygen, and name the file that ends with .pub"
        return Judged(None, f"'{path}': {why}", hint)
    if len(content) > MAX_SIZE:
        return Judged(None, f"'{path}' has more than {MAX_SIZE} bytes, one public key is wanted")
    return judge(path, content)


def _problem(edf: Edf, judged: Judged) -> Problem:
    key = f"com.hooks.ssh.{PARAMETER}"
    origin = next((entry.origin for entry in edf.annotations if entry.key == key), None)
    file = origin.file if origin else edf.files[-1]
    line = origin.line if origin else 0
    return Problem("error", file, line, key, judged.message, judged.hint, see="hook-refused")

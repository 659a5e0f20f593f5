"""The start-up steps of an EDF: shell lines, run once per node in the container before any task.

Their changes to the environment are applied to every task of the node.
"""

from __future__ import annotations

import os
import signal

from container_engine.base.errors import LaunchError, with_output
from container_engine.base.variables import WORDS_OF_SLURMS
from container_engine.node.container.checks import resolve
from container_engine.node.container.description import INIT_PATH
from container_engine.node.inside.programs import DEFAULTS, is_readable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from container_engine.node.node_plan import NodePlan
    from container_engine.node.plan_types import StartupLine

_MARK = "ce-startup-failed"
# a shell sets these for itself; they are not changes by the steps
_SHELLS_OWN = ("_=", "OLDPWD=", "PWD=", "SHLVL=", "BASHOPTS=", "SHELLOPTS=")
_END = f'exec {INIT_PATH} --changes "$ce_out" {" ".join((*_SHELLS_OWN, *WORDS_OF_SLURMS))}'
# `exit 0` in a step ends the steps; their changes until then are kept
_BEGIN = (
    "ce_out=$1; shift; "
    f"trap 'ce_code=$?; [ $ce_code = 0 ] && {_END};"
    f""" echo "{_MARK} $ce_step $ce_code" >&2' EXIT"""
)
_LONGEST = 131_071  # Linux's limit for one argument of a program, in bytes
# bash if the image has it: activation scripts are often written for it
_CHOOSE_SHELL = (
    "if command -v bash >/dev/null 2>&1;"
    ' then exec bash -e -c "$1" bash "$2"; fi; exec sh -e -c "$1" sh "$2"'
)
_KEPT_OUTPUT, _KEPT_LINES = 2000, 8


def command(steps: Sequence[StartupLine], node: Mapping[str, str]) -> list[str]:
    """Return the words of a command in the container that runs the steps of a plan.

    Its last word, which comes after them, is the number of a descriptor to which it writes what the
    steps have changed in its environment (spank_plugin/programs/init.c). Raise LaunchError.
    """
    numbered = [f"ce_step={number}\n{line}" for number, line in enumerate(_lines(steps, node))]
    script = "\n".join([_BEGIN, *numbered, "trap - EXIT", _END])
    size = len(os.fsencode(script))
    if size > _LONGEST:
        message = f"start-up steps have {size} bytes; Linux allows {_LONGEST}"
        hint = "put them into a script, and run that"
        raise LaunchError(message, hint, "startup-failed", where=steps[0]["from"])
    return [INIT_PATH, "--startup", "/bin/sh", "-c", _CHOOSE_SHELL, "sh", script]


def _lines(steps: Sequence[StartupLine], node: Mapping[str, str]) -> list[str]:
    return [resolve(step["line"], node, step["from"]) for step in steps]


def run(
    plan: NodePlan, node: Mapping[str, str], join: Sequence[str], before: Mapping[str, str]
) -> dict[str, str | None]:
    """Run the steps of a plan in a shell; the command line `join` before it enters the container.

    `before` is the environment of the steps. Return their changes, None for removed variables.
    Raise LaunchError with the failing line and the end of the output.
    """
    output, log = os.memfd_create("ce-startup-env"), os.memfd_create("ce-startup-log")
    os.set_inheritable(output, True)
    argv = [*join, *command(plan.startup, node), str(output)]
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, log, 1),
        (os.POSIX_SPAWN_DUP2, log, 2),
    ]
    pid = os.posix_spawn(
        argv[0],
        argv,
        dict(before),
        file_actions=actions,
        setpgroup=0,
        setsigdef=DEFAULTS,
    )
    status = _wait(pid, plan.start_timeout_s)
    changes = _contents(output)
    if status != 0 or not changes.startswith("\0"):
        raise failure(plan, node, log, status)
    entries = (entry.partition("=") for entry in changes[1:].split("\0")[:-1])
    return {name: value if equals else None for name, equals, value in entries}


def failure(plan: NodePlan, node: Mapping[str, str], log: int, status: int) -> LaunchError:
    """Return the error of steps that have not come to their end.

    `log` is the descriptor of what they printed, `status` that of waitpid, -1 if they were not done
    in time.
    """
    if status == 0:
        message = "start-up steps ended before the last one: does one of them call exec?"
        hint = "leave exec out, or use it for redirections only: the shell must run to its end"
        return LaunchError(message, hint, "startup-failed", where=plan.startup[0]["from"])
    printed = _contents(log)
    message = _describe(plan, _lines(plan.startup, node), status, printed)
    return LaunchError(message, see="startup-failed", details=printed)


def _wait(pid: int, timeout_s: float) -> int:
    """Return the status, or -1 if the deadline passed and the steps have been killed."""
    pidfd = os.pidfd_open(pid)
    ended = is_readable(pidfd, timeout_s)
    if not ended:
        _end_group(pid)
    _pid, status = os.waitpid(pid, 0)
    os.close(pidfd)
    if status != 0:
        _end_group(pid)
    return status if ended else -1


def _end_group(pid: int) -> None:
    """Kill the steps and their background processes, which are in the process group `pid`."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # the group is empty


def _contents(fd: int) -> str:
    os.lseek(fd, 0, os.SEEK_SET)
    with open(fd, "rb") as file:
        return file.read().decode("utf-8", "surrogateescape")


def _describe(plan: NodePlan, lines: Sequence[str], status: int, log: str) -> str:
    printed, mark, place = log.rpartition(_MARK + " ")
    number = place.split(" ")[0] if mark else ""
    index = int(number) if number.isdigit() and int(number) < len(lines) else None
    where = plan.startup[index or 0]["from"] + ("" if index is None else f": '{lines[index]}'")
    code = os.waitstatus_to_exitcode(max(status, 0))
    late = f"not done within {plan.start_timeout_s:g} s"
    what = late if status < 0 else f"exit code {code}"
    lines_said = (printed if mark else log).strip()[-_KEPT_OUTPUT:].splitlines()
    shown = " / ".join(lines_said[-_KEPT_LINES:])
    return with_output(f"{where}: start-up step failed: {what}", shown)

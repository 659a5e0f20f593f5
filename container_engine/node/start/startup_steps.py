"""The start-up steps of an EDF: shell lines, run once per node in the container before any task.

Their changes to the environment are applied to every task of the node.
"""

from __future__ import annotations

import os
import signal

from container_engine.base.errors import LaunchError
from container_engine.node.container.description import INIT_PATH
from container_engine.node.container.environment import parse_block
from container_engine.node.inside.programs import DEFAULTS, is_readable
from container_engine.node.plan_json import resolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from container_engine.node.plan_types import StartupLine

_MARK = "ce-startup-failed"
# a shell sets these for itself; they are not changes by the steps
_SHELLS_OWN = frozenset(["_", "OLDPWD", "PWD", "SHLVL", "BASHOPTS", "SHELLOPTS"])
# `exit 0` in a step ends the steps; their changes until then are kept
_TRAP = (
    f"trap 'ce_code=$?; [ $ce_code = 0 ] && exec {INIT_PATH} OUTPUT;"
    f""" echo "{_MARK} $ce_step $ce_code" >&2' EXIT"""
)
_LONGEST = 131_071  # Linux's limit for one argument of a program, in bytes
# bash if the image has it: activation scripts are often written for it
_CHOOSE_SHELL = (
    'if command -v bash >/dev/null 2>&1; then exec bash -e -c "$1"; fi; exec sh -e -c "$1"'
)
_KEPT_OUTPUT, _KEPT_LINES = 2000, 8


def script(lines: Sequence[str], output: int) -> str:
    """Return the lines as one shell program.

    It keeps the number of the current step, and at the end writes its environment to the descriptor
    `output`.
    """
    numbered = [f"ce_step={i}\n{line}" for i, line in enumerate(lines)]
    trap = _TRAP.replace("OUTPUT", str(output))
    return "\n".join([trap, *numbered, "trap - EXIT", f"exec {INIT_PATH} {output}"])


def run(
    steps: Sequence[StartupLine],
    timeout_s: float,
    node: Mapping[str, str],
    join: Sequence[str],
    before: Mapping[str, str],
) -> dict[str, str | None]:
    """Run the steps of a plan in a shell; the command line `join` before it enters the container.

    `before` is the environment of the steps. Return their changes, None for removed variables.
    Raise LaunchError with the failing line and the end of the output.
    """
    lines = [resolve(step["line"], node, step["from"]) for step in steps]
    output, log = os.memfd_create("ce-startup-env"), os.memfd_create("ce-startup-log")
    os.set_inheritable(output, True)
    program = script(lines, output)
    size = len(os.fsencode(program))
    if size > _LONGEST:
        message = f"start-up steps have {size} bytes; Linux allows {_LONGEST}"
        hint = "put them into a script, and run that"
        raise LaunchError(message, hint, "startup-failed", where=steps[0]["from"])
    argv = [*join, "/bin/sh", "-c", _CHOOSE_SHELL, "sh", program]
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
    code = _wait(pid, timeout_s)
    if code != 0:
        _end_group(pid)
        printed = _contents(log).decode("utf-8", "surrogateescape")
        message = _describe(steps, lines, code, printed, timeout_s)
        raise LaunchError(message, see="startup-failed", details=printed)
    block = _contents(output)
    if not block:
        message = "start-up steps ended before the last one: does one of them call exec?"
        hint = "leave exec out, or use it for redirections only: the shell must run to its end"
        raise LaunchError(message, hint, "startup-failed", where=steps[0]["from"])
    return _changes(before, block)


def _wait(pid: int, timeout_s: float) -> int | None:
    """Return the exit code, or None if the deadline passed and the steps have been killed."""
    pidfd = os.pidfd_open(pid)
    ended = is_readable(pidfd, timeout_s)
    if not ended:
        _end_group(pid)
    _pid, status = os.waitpid(pid, 0)
    os.close(pidfd)
    return os.waitstatus_to_exitcode(status) if ended else None


def _end_group(pid: int) -> None:
    """Kill the steps and their background processes, which are in the process group `pid`."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # the group is empty


def _contents(fd: int) -> bytes:
    os.lseek(fd, 0, os.SEEK_SET)
    with open(fd, "rb") as file:
        return file.read()


def _describe(
    steps: Sequence[Mapping[str, Any]],
    lines: Sequence[str],
    code: int | None,
    log: str,
    timeout_s: float,
) -> str:
    printed, mark, place = log.rpartition(_MARK + " ")
    number = place.split(" ")[0] if mark else ""
    index = int(number) if number.isdigit() and int(number) < len(lines) else None
    where = steps[0]["from"] if index is None else f"{steps[index]['from']}: '{lines[index]}'"
    what = f"not done within {timeout_s:g} s" if code is None else f"exit code {code}"
    lines_said = (printed if mark else log).strip()[-_KEPT_OUTPUT:].splitlines()
    shown = " / ".join(lines_said[-_KEPT_LINES:])
    return f"{where}: start-up step failed: {what}" + (f"; it printed: {shown}" if shown else "")


def _changes(before: Mapping[str, str], block: bytes) -> dict[str, str | None]:
    after = parse_block(block)
    names = [name for name in dict.fromkeys((*after, *before)) if name not in _SHELLS_OWN]
    return {name: after.get(name) for name in names if after.get(name) != before.get(name)}

"""Report a failed start: once per step, with the remedy, the details, their log and a page.

Imported only after a start has failed.
"""

from __future__ import annotations

import os
import re
import sys

from container_engine import __version__
from container_engine.base.errors import LaunchError
from container_engine.base.files import make_own
from container_engine.base.secrecy import HIDDEN, Secrecy
from container_engine.faults import catalogue
from container_engine.node import slurm_step
from container_engine.node.report import trace
from container_engine.node.report.messages import alike, claim_message, concealed
from container_engine.node.report.trace import open_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from container_engine.node.node_plan import Secrets
    from container_engine.node.plan_types import HookUse


_MOST_LINES = 40


def refuse(unmet: Sequence[tuple[str, LaunchError]], hooks: Sequence[HookUse] = ()) -> None:
    """Raise one LaunchError for all errors in `unmet`; return if there are none.

    Each error comes with the name of the one of `hooks` that needs what is missing, "" for the
    environment.
    """
    errors = [error for _hook, error in unmet]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        message, *also = map(_with_remedy, errors)
        if len(also) > _MOST_LINES:
            also[_MOST_LINES:] = [f"and {len(also) - _MOST_LINES} more"]
        raise LaunchError(
            message, see=errors[0].see, hint=_remedies(unmet, hooks), also=tuple(also)
        )


def _with_remedy(error: LaunchError) -> str:
    """Return the message, with the remedy of a failed check; all others' are in the hint."""
    return f"{error} ({error.hint})" if error.see == "hook-check" and error.hint else str(error)


def _remedies(unmet: Sequence[tuple[str, LaunchError]], hooks: Sequence[HookUse]) -> str:
    from container_engine.faults import catalogue, hook_switches

    found = [catalogue.remedy(error.see, error.hint) for hook, error in unmet if not hook]
    lacking = {hook for hook, _error in unmet}
    switches = [hook.get("switch", "") for hook in hooks if hook["name"] in lacking]
    return "; ".join(
        dict.fromkeys([*found, *([hook_switches.leave_out(switches)] if switches else [])])
    )


MOST = 64 * 1024
# what programs print of the headers that they send to a registry
_HEADERS = re.compile(r"(?i)(authorization: *|bearer +|--creds[ =])[^\s\"']+( [^\s\"']+)?")
# a registry may redirect to a URL whose query alone grants access
_QUERY = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://[^\s?\"'<>]+\?)[^\s\"'<>]+")


def redacted(text: str) -> str:
    """Return the text with everything hidden that looks like a secret."""
    text = _HEADERS.sub(rf"\1{HIDDEN}", Secrecy().text(text))
    return _QUERY.sub(rf"\1{HIDDEN}", text)


def of_exception(error: Exception) -> str:
    """Return the traceback and, below it, the versions of the engine, Python and the kernel.

    They are last because a log keeps the end of a long text.
    """
    import traceback

    system = os.uname()
    python = ".".join(map(str, sys.version_info[:3]))
    versions = f"ce {__version__}, Python {python}, {system.sysname} {system.release}"
    return f"{''.join(traceback.format_exception(error))}{versions} {system.machine}\n"


def keep(directory: str, name: str, text: str) -> str:
    """Write the end of `text` to a file and return its path, or "" if it cannot be written.

    The directory is created if necessary. It must be the user's alone, because it may be in /tmp.
    """
    if not text.strip():
        return ""
    content = redacted(text[-MOST:]).encode("utf-8", "replace")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        make_own(directory)
        place = open_own(directory)
    except OSError:
        return ""
    try:
        with open(os.open(name, flags, 0o600, dir_fd=place), "wb") as file:
            file.write(content)
    except OSError:
        return ""
    finally:
        os.close(place)
    return f"{directory}/{name}"


def as_launch_error(error: Exception) -> LaunchError:
    """Return a LaunchError as it is, and any other error as one with its traceback as details."""
    if isinstance(error, LaunchError):
        return error
    from container_engine.base import shortage

    where = of_exception(error)
    message, hint = shortage.of_error(error)
    if message:
        return LaunchError(message.replace("\n", " "), hint, shortage.CODE, details=where)
    message = f"internal error of the launcher: {type(error).__name__}: {error}"
    return LaunchError(message.replace("\n", " "), see="internal-error", details=where)


def for_plugin(
    failure: LaunchError, recorded: int, node: Mapping[str, str], secrets: Secrets
) -> LaunchError:
    """Return the failure as the plugin prints it, without text if another node has printed it.

    `recorded` is the descriptor of this node's trace, -1 for none.
    """
    message, *also = (concealed(t, secrets, node) for t in (str(failure), *failure.also))
    log = ""
    if failure.details:
        details = concealed(failure.details, secrets, node)
        log = _keep(f"{message}\n\n{details}", recorded, node)
    whole = " ".join(alike(text, node) for text in (message, *also))
    if not claim_message(trace.directory_of(recorded), node, f"error {whole}"):
        return LaunchError("", see=failure.see)
    below = catalogue.below(failure.see, failure.hint, log)
    text = "\n".join((_one_line(message), *(f"ce: also: {_one_line(t)}" for t in also), below))
    return LaunchError(text, see=failure.see)


def _keep(text: str, recorded: int, node: Mapping[str, str]) -> str:
    name = slurm_step.complete(node).get("SLURMD_NODENAME") or os.uname().nodename
    directory = trace.directory_of(recorded)
    if directory and (path := keep(directory, f"{name}.log", text)):
        return path
    step = f"{node.get('SLURM_JOB_ID', '0')}.{node.get('SLURM_STEP_ID', '0')}"
    file = f"{step}.{name}.log".replace("/", "_")
    return keep(f"/tmp/container-engine-{os.geteuid()}", file, text)


def _one_line(text: str) -> str:
    """Replace control characters, so that other programs' output looks like no line of ours."""
    return "".join(letter if letter >= " " and letter != "\x7f" else " " for letter in text)

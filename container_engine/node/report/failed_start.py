"""Report a failed start: once per step, with the remedy, the details and a page.

Imported only after a start has failed.
"""

from __future__ import annotations

import os

from container_engine.base.errors import LaunchError
from container_engine.faults import remedies
from container_engine.node import node_name
from container_engine.node.report import error_log, trace
from container_engine.node.report.once_per_step import alike, claim_message
from container_engine.node.report.secret_values import concealed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from container_engine.node.node_plan import Secrets


def as_launch_error(error: Exception) -> LaunchError:
    """Return a LaunchError as it is, and any other error as one with its traceback as details."""
    if isinstance(error, LaunchError):
        return error
    from container_engine.base import shortage

    where = error_log.of_exception(error)
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
    whole = " ".join((message, *also))
    if not claim_message(recorded, node, f"error {alike(whole, node)}"):
        return LaunchError("", see=failure.see)
    below = remedies.below(failure.see, failure.hint, log)
    text = "\n".join((_one_line(message), *(f"ce: also: {_one_line(t)}" for t in also), below))
    return LaunchError(text, see=failure.see)


def _keep(text: str, recorded: int, node: Mapping[str, str]) -> str:
    name = node_name.complete(node).get("SLURMD_NODENAME") or os.uname().nodename
    directory = trace.directory_of(recorded)
    if directory and (path := error_log.keep(directory, f"{name}.log", text)):
        return path
    step = f"{node.get('SLURM_JOB_ID', '0')}.{node.get('SLURM_STEP_ID', '0')}"
    file = f"{step}.{name}.log".replace("/", "_")
    return error_log.keep(f"/tmp/container-engine-{os.geteuid()}", file, text)


def _one_line(text: str) -> str:
    """Replace control characters: others' output must not look like further lines of ours."""
    return "".join(letter if letter >= " " and letter != "\x7f" else " " for letter in text)

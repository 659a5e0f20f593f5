"""Record how a step joined a job container, for the next step with the same plan.

The next step starts no Python: ce-guard takes the answer (spank_plugin/guard/step_answers.h has the
format of its result), and becomes the launcher if anything is in doubt. The answer has only what
follows from its witnesses; ce-guard itself finds out what differs between steps. The file is in the
container's directory, which is the user's alone, so that it can mislead nobody else. Tests compare
how the launcher and ce-guard join.
"""

from __future__ import annotations

import os

from container_engine.base import answers
from container_engine.base.errors import LaunchError
from container_engine.base.files import open_place
from container_engine.edf.names import is_step
from container_engine.node.container import environment as env
from container_engine.node.container.checks import edf_settings, resolve
from container_engine.node.job_containers.enter import EXPORTED, exported
from container_engine.node.node_plan import DEFERRED, OF_STEPS, NodePlan, applies, is_of_step
from container_engine.node.plan_json import parse_json
from container_engine.node.report import trace
from container_engine.node.report.messages import may_be_secret

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


# below the container's directory
_PLACE = "answers"
# the most answers of a container, each with a whole plan
_MOST = 16


def record(  # what the launcher has
    text: str, plan: NodePlan, node: Mapping[str, str], libexec: str, directory: str, block: bytes
) -> None:
    """Write the answer of a step if the next one with this plan can do without Python.

    `text` is the plan as it arrived, `directory` the container's, `block` the environment of its
    first process. An answer that cannot be written is not an error.
    """
    variables = answers.Variables(node)
    if not _is_plain(text, plan) or not _is_of_no_hook(plan, variables):
        return
    try:
        recorded = answers.state(f"c{directory}/files").removeprefix("=")
        images: Mapping[str, str] = parse_json(recorded)
        result = _result(plan, [*images], directory, block, variables)
        witnesses = {
            **variables.asked,
            **_witnesses(directory, images, plan),
            **answers.installation(),
        }
        prefix = os.path.dirname(os.path.dirname(libexec))
        request = answers.request_of(prefix, os.fsencode(f"{directory}\n{text}"))
        if answers.can_be_checked(witnesses):
            here = open_place(f"{directory}/{_PLACE}")
            answers.write(here, request, witnesses, result, _MOST)
    except (OSError, ValueError, LaunchError):
        return


def _is_plain(text: str, plan: NodePlan) -> bool:
    """Check that joining with this plan depends only on what ce-guard can check."""
    kept = plan.kept
    return (
        kept is not None
        and kept["mode"] in ("auto", "exec")
        and not is_step(kept["name"])
        and DEFERRED not in text
        and not plan.unshare
        and not plan.tracking_tool
        and plan.save is None
        and not may_be_secret(trace.mount_texts(plan.mounts), plan.secrets, {})
    )


def _is_of_no_hook(plan: NodePlan, variables: Mapping[str, str]) -> bool:
    """Check that no variable of the step changes how it joins, for all of its hooks."""
    conditional = [hook for hook in plan.hooks if hook.get("automatic_when")]
    always = [hook for hook in plan.hooks if not hook.get("automatic_when")]
    # without a home the step gets one of the user database's
    return (
        "HOME" in variables
        and not any(name in variables for name in OF_STEPS)
        and not any(applies(hook, variables) for hook in conditional)
        and not any(map(is_of_step, always))
    )


def _witnesses(directory: str, images: Mapping[str, str], plan: NodePlan) -> dict[str, str]:
    """Return witnesses about what is recorded of the container, and about its images."""
    names = ("image", "made", "files", *([EXPORTED] if plan.startup else []))
    records = (f"c{directory}/{name}" for name in names)
    return {
        **{question: answers.state(question) for question in records},
        **{f"i{path}": identity for path, identity in images.items()},
    }


def _result(
    plan: NodePlan,
    images: list[str],
    directory: str,
    block: bytes,
    node: Mapping[str, str],
) -> bytes:
    edf = edf_settings(plan.env, {})
    workdir = resolve(plan.workdir, {}, plan.workdir_from)
    changes = env.for_joined(plan, edf, env.parse_block(block), workdir, node)
    records = env.encode_records(changes | exported(directory, plan))
    return b"".join(
        (
            answers.table(images),
            *map(answers.data, (block, records)),
            answers.field(workdir),
            trace.fields(plan, {}),
        )
    )

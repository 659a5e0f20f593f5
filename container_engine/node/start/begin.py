"""Turn a plan into a running container: start one, or join one that another step runs."""

from __future__ import annotations

from container_engine.base.errors import LaunchError
from container_engine.node.node_plan import DAMAGED
from container_engine.node.report import trace
from container_engine.node.start.new_container import NewContainer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from container_engine.node.container.guard import GuardDescriptors
    from container_engine.node.node_plan import NodePlan
    from container_engine.node.start.ready_container import ReadyContainer

# Version 2 marks plans that an engine older than it would execute only in part.
PLAN_VERSIONS = (1, 2)


def checked(plan: NodePlan, libexec: str) -> NodePlan:
    """Return the plan with what the node's image says. Raise LaunchError for a wrong plan."""
    if plan.version not in PLAN_VERSIONS:
        known = " and ".join(map(str, PLAN_VERSIONS))
        raise LaunchError(
            f"this node understands plans of versions {known}, not {plan.version!r}:"
            " submit host and node have different versions of the container engine",
            see="engine-versions",
        )
    if plan.lacks:
        raise LaunchError(f"it lacks {', '.join(plan.lacks)}", see="plan-damaged", where=DAMAGED)
    if plan.on_nodes:
        from container_engine.node.start import complete_plan

        return complete_plan.with_image(plan, libexec)
    return plan


def start(
    plan: NodePlan,
    node: Mapping[str, str],
    descriptors: GuardDescriptors,
    libexec: str,
    marks: trace.Marks | None = None,
) -> ReadyContainer:
    """Start the container of a `checked` plan and wait until its first process runs.

    If it is a kept one that runs, join it. `node` is the environment of the step on this node.
    Raise LaunchError.
    """
    marks = marks or trace.Marks(0)
    kept = None
    if wanted := plan.kept:
        from container_engine.node.kept.container import Running
        from container_engine.node.kept.enter import enter

        kept = enter(wanted, plan, node)
        if isinstance(kept, Running) and wanted["mode"] != "no_exec":
            from container_engine.node.start.join import join

            return join(kept, plan, node, descriptors, libexec, marks)
    begun = NewContainer(plan, node, libexec, marks, kept)
    begun.decide()
    try:
        return begun.start(descriptors)
    except LaunchError:
        begun.abandon()
        raise

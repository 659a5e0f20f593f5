"""Turn a plan into a running container: start one, or join one that another step runs."""

from __future__ import annotations

from container_engine.base.errors import LaunchError
from container_engine.node.report import trace
from container_engine.node.start.new_container import NewContainer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from container_engine.node.container.guard import GuardDescriptors
    from container_engine.node.plan_types import LaunchPlan
    from container_engine.node.start.ready_container import ReadyContainer

# Version 2 marks plans that an engine older than it would execute only in part.
PLAN_VERSIONS = (1, 2)


def start(
    plan: LaunchPlan,
    node: Mapping[str, str],
    descriptors: GuardDescriptors,
    libexec: str,
    marks: trace.Marks | None = None,
) -> ReadyContainer:
    """Start the container and wait until its first process runs, or join a kept one that runs.

    `node` is the environment of the step on this node. Raise LaunchError.
    """
    marks = marks or trace.Marks(0)
    marks.mark("prepare")
    if plan.get("version") not in PLAN_VERSIONS:
        known = " and ".join(map(str, PLAN_VERSIONS))
        raise LaunchError(
            f"this node understands plans of versions {known}, not {plan.get('version')!r}:"
            " submit host and node have different versions of the container engine",
            see="engine-versions",
        )
    noted: Sequence[str] = ()
    if plan["image"].get("on_nodes"):
        from container_engine.node.start import complete_plan

        noted = complete_plan.with_image(plan, libexec)
    ready = _start_or_join(plan, node, descriptors, libexec, marks)
    ready.warnings = (*noted, *ready.warnings)
    return ready


def _start_or_join(
    plan: LaunchPlan,
    node: Mapping[str, str],
    descriptors: GuardDescriptors,
    libexec: str,
    marks: trace.Marks,
) -> ReadyContainer:
    kept = None
    if wanted := plan.get("kept"):
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

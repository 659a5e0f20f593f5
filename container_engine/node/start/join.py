"""Join the container that another step of the job has started and runs."""

from __future__ import annotations

import os

from container_engine.node.container import environment as env
from container_engine.node.container.description import person_of_process
from container_engine.node.container.guard import await_report, go_on, memory_file, start_guard
from container_engine.node.container.specification import encode
from container_engine.node.plan_json import resolve
from container_engine.node.start import site_rules
from container_engine.node.start.ready_container import ReadyContainer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from container_engine.base.errors import LaunchError
    from container_engine.node.container.guard import GuardDescriptors
    from container_engine.node.kept.container import Running
    from container_engine.node.node_plan import NodePlan
    from container_engine.node.report import trace


def join(
    running: Running,
    plan: NodePlan,
    node: Mapping[str, str],
    descriptors: GuardDescriptors,
    libexec: str,
    marks: trace.Marks,
) -> ReadyContainer:
    """Return the running container for this step's tasks, and close `running`.

    Raise LaunchError.
    """
    rules = site_rules.of_node(libexec)
    for path in plan.image_paths:
        site_rules.check(path, rules)
    marks.mark("namespaces")
    mounted, per_task = _of_pmix(node) if node.get("CE_PMIX_DIR") else ([], None)
    workdir = resolve(plan.workdir, node, plan.workdir_from)
    block = env.parse_block(running.environment)
    changes = env.for_joined(plan, env.edf_settings(plan.env, node), block, workdir)
    changes |= env.missing_home(changes, node, person_of_process().home)
    # the first step has made the image's directories
    home = env.apply(node, changes).get("HOME", "")
    directories = [home] if home.startswith("/") else []
    steps = running.operations(f"{libexec}/ce-image", mounted, workdir, directories)
    control = start_guard(libexec, descriptors, encode(steps), running.guards_ns, running.passed)
    running.close()
    explained = _explainer(plan.workdir_from)
    (marks.guard, _printed), handed = await_report(control, plan.start_timeout_s, None, explained)
    user_ns, mount_ns, found, guard, table, *unshared = handed
    os.close(table)
    marks.mark("environment")
    os.close(found)
    records = memory_file("ce-env", env.encode_records(changes, per_task))
    fds = (user_ns, mount_ns, records, guard)
    ready = ReadyContainer(fds, unshared, workdir, lambda: go_on(control, []))
    ready.warnings = running.warnings
    if not running.warnings:
        ready.joinable = (running.directory, running.environment)
    return ready


def _explainer(workdir_from: str) -> Callable[[str], LaunchError]:
    def explained(report: str) -> LaunchError:
        from container_engine.node.report.guard_failure import explain, of_workdir

        return of_workdir(report, workdir_from) or explain(report)

    return explained


def _of_pmix(node: Mapping[str, str]) -> tuple[list[str], Mapping[str, str]]:
    """Return the directories of this step's PMIx server, and what each task's variables copy."""
    from container_engine.node.hooks import code_pmix

    return [node["CE_PMIX_DIR"], *code_pmix.of_clients(node)], code_pmix.PER_TASK

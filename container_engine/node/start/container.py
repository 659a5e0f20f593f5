"""Make a container for the tasks of a step: a new one, or one that another step of the job runs.

Start checks what the node has and lacks, applies the hooks, has the guard carry out a
specification, and makes the tasks' environment from the guard's report. `joined` has the guard
enter what runs, and makes the environment of what is recorded.
"""

from __future__ import annotations

import os

from container_engine.base.errors import LaunchError
from container_engine.node import protocol
from container_engine.node.container import environment as env
from container_engine.node.container.checks import (
    check_site_programs,
    edf_settings,
    may_have_hooks,
    parts_of,
    resolve,
)
from container_engine.node.container.description import Paths, person_of_process
from container_engine.node.container.guard import (
    GuardDescriptors,
    await_report,
    entering,
    memory_file,
    read_all,
    start_guard,
)
from container_engine.node.container.specification import encode, operations
from container_engine.node.node_plan import (
    DAMAGED,
    PLAN_VERSIONS,
    Frozen,
    NodePlan,
    is_of_step,
)
from container_engine.node.report import trace
from container_engine.node.start import image_in_use, site_rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from container_engine.node.container.checks import Resolved
    from container_engine.node.container.description import Operation, Parts
    from container_engine.node.container.edits import Repeatable
    from container_engine.node.hooks.run import HooksOnNode
    from container_engine.node.job_containers.enter import JobContainer, Running
    from container_engine.node.start.run_checks import Checks
    from container_engine.node.start.site_rules import Rules


class Container(Frozen):
    """A container for tasks to join. The descriptors belong to the caller.

    `records` change the tasks' environment (spank_plugin/common/join.h), `guard` is a pidfd
    of the guard, readable when nothing of the session is left; `unshared` are other namespaces of
    the container's own. The guard waits at `control` for `guard.go_on`, after which the session may
    outlive this process.
    """

    user_ns: int
    mount_ns: int
    records: bytes
    guard: int
    unshared: Sequence[int]
    workdir: str
    control: socket
    # the guard closes it at the end, for which a ce-reaper of services waits; None: no services
    end: socket | None = None
    # lines for the user
    warnings: Sequence[str] = ()
    # the entrypoint's output if it is to be shown
    printed: str = ""
    # the socket at which each task asks for a container of its own; -1: all share this one
    tasks: int = -1
    # a descriptor that is readable once the work after the session's end is done; -1: no work
    attended: int = -1
    # if other steps may join: the container's directory, its first process's environment
    joinable: tuple[str, bytes] | None = None
    # if the next step may start without Python
    started: Started | None = None


class Started(Frozen):
    """A start that worked, for its answer (recorded_start.py).

    `here` is what was resolved, `specification` what the guard was given. `block` is the
    environment of the container's first process, `records` are the changes to the tasks'
    environment before start-up steps. `hooks` returns the conditions under which hooks do the same
    again, and whether they can. `again` decides once more, with the given variables of the step,
    for a first process with the given environment; it returns specification, records and what
    `hooks` returns, or raises LaunchError.
    """

    here: Resolved
    specification: bytes
    again: Callable[[Mapping[str, str], bytes], tuple[bytes, bytes, Repeatable | None]]
    block: bytes
    records: bytes
    hooks: Callable[[], Repeatable | None]
    # checks that ran a program, and the witnesses while which their verdicts are believed
    checks: Sequence[Mapping[str, Any]] = ()
    verdicts: Mapping[str, str] = {}


def checked(plan: NodePlan, libexec: str) -> NodePlan:
    """Return the plan with what the node's image says. Raise LaunchError for a wrong plan."""
    if plan.version not in PLAN_VERSIONS:
        raise LaunchError(
            f"this node understands plans of version {PLAN_VERSIONS[-1]}, not {plan.version!r}:"
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
) -> Container:
    """Start the container of a `checked` plan and wait until its first process runs.

    If it is a job container that runs, join it. `node` is the environment of the step on this node.
    Raise LaunchError.
    """
    marks = marks or trace.Marks(0)
    kept = running = None
    if plan.kept is not None:
        from container_engine.node.job_containers.enter import Running, enter

        kept = enter(plan.kept, plan, node)
        if isinstance(kept, Running) and plan.kept["mode"] != "no_exec":
            running = kept
    rules = site_rules.of_node(libexec)
    for path in plan.image_paths:
        site_rules.check(path, rules)
    if running is not None:
        return joined(running, plan, node, descriptors, libexec, marks)
    begun = Start(plan, node, libexec, marks, kept, rules)
    begun.decide()
    try:
        return begun.start(descriptors)
    except LaunchError:
        if begun.hooks is not None:
            begun.hooks.abandon()
        raise


class Start:
    """A start in progress: the plan, this node's data, and the results so far.

    The caller calls `decide`, then `start`. After a LaunchError of that, `hooks` have files left.
    """

    def __init__(
        self,
        plan: NodePlan,
        node: Mapping[str, str],
        libexec: str,
        marks: trace.Marks,
        kept: JobContainer | None = None,
        rules: Rules | None = None,
    ) -> None:
        self._plan = plan
        self._node = node
        self._libexec = libexec
        self._marks = marks
        self._kept = kept
        self._rules = rules
        self._printed = ""
        self.hooks: HooksOnNode | None = None
        self._checks: Checks | None = None

    def decide(self) -> None:
        """Look at this node, and decide what the container is made of. Raise LaunchError."""
        plan, node, libexec, kept = self._plan, self._node, self._libexec, self._kept
        unmet: list[LaunchError] = []
        programs = (plan.podman, plan.runtime)
        self._paths = Paths(f"{libexec}/session", libexec, *programs, for_each=plan.for_each)
        if kept is not None:
            self._paths.written = kept.directory
            self._paths.begun += kept.begun
        check_site_programs(*programs)
        here, parts = parts_of(plan, node, unmet)
        self._here, self._planned, self._settings = here, parts.mounts, here.env
        if unmet or may_have_hooks(plan, here, node):
            from container_engine.node.hooks.run import HooksOnNode

            # it also raises one error for all that is unmet, with what hooks lack
            self.hooks = HooksOnNode(plan, here, parts, node, self._paths, unmet)
            parts, self._settings = self.hooks.parts, self.hooks.settings
        site_rules.check_mounts(self._planned, parts.mounts, self._rules)
        self._given = env.for_container(plan.image_env, self._settings)
        self._person = person_of_process()
        places = env.directories(plan, self._settings, node, self._person.home)
        self._parts = parts.but(begin=here.workdir, directories=places)

    def start(self, descriptors: GuardDescriptors) -> Container:
        """Start the container and wait until its first process runs. Raise LaunchError."""
        if self._plan.runs or any(hook.get("runs") for hook in self._plan.hooks):
            from container_engine.node.start.run_checks import Checks

            self._checks = Checks(self._plan, self._node, self._libexec)
            self._marks.checks = self._checks.records
            self._marks.mark("host checks")
            self._checks.outside()
        encoded = encode(self._operations(descriptors.outcome))
        control, reported = self._carry_out(descriptors, encoded)
        user_ns = reported[protocol.CE_REPORTED_USER_NS]
        mount_ns = reported[protocol.CE_REPORTED_MOUNT_NS]
        found = reported[protocol.CE_REPORTED_ENVIRONMENT]
        guard = reported[protocol.CE_REPORTED_GUARD]
        mounted = reported[protocol.CE_REPORTED_MOUNTS]
        unshared = [*reported[protocol.CE_REPORTED_UNSHARED :]]
        tasks = unshared.pop() if self._plan.for_each else -1
        site_rules.check_places(self._planned, mounted, self._rules)
        shown = _network_shown(self._parts, mounted)
        os.close(mounted)
        self._marks.mark("environment")
        block = read_all(found)
        os.close(found)
        hooks, kept = self.hooks, self._kept
        before = self._of_tasks(env.parse_block(block))
        changes = self._changes(before, ((user_ns, *unshared), mount_ns, guard))
        checks = self._checks
        verdicts = {} if checks is None else checks.witnesses
        records = self._records(changes)
        end = None if hooks is None else hooks.finish(changes)
        started = None
        if kept is None and self._rules is None and not shown and verdicts is not None:
            started = Started(
                here=self._here,
                specification=encoded,
                again=self._decide_again,
                block=block,
                records=self._records(before),
                hooks=self._repeatable,
                checks=self._marks.checks,
                verdicts=verdicts,
            )
        return Container(
            user_ns=user_ns,
            mount_ns=mount_ns,
            records=records,
            guard=guard,
            unshared=unshared,
            workdir=self._here.workdir,
            control=control,
            end=end,
            warnings=(*shown, *(said for one in (hooks, checks) if one for said in one.warnings)),
            printed=self._printed,
            tasks=tasks,
            attended=-1 if hooks is None else hooks.attended,
            joinable=None if kept is None else (kept.directory, block),
            started=started,
        )

    def _carry_out(
        self, descriptors: GuardDescriptors, encoded: bytes
    ) -> tuple[socket, Sequence[int]]:
        """Have a guard make the container; return the socket to it, and what it reports."""
        kept, hooks, plan = self._kept, self.hooks, self._plan
        for path in plan.image_paths:
            image_in_use.note(path, self._node)
        self._marks.mark("namespaces")
        if kept is None:
            control = start_guard(self._libexec, descriptors, encoded)
        else:
            mounts = (m.source for m in self._parts.mounts if m.kind == "squashfs")
            kept.records.note([*plan.image_paths, *mounts])
            whole = encode([kept.operation()]) + encoded
            control = start_guard(self._libexec, descriptors, whole, kept.guards_ns, kept.passed)
        on_note, explain = (None, None) if hooks is None else (hooks.take_note, hooks.oci.explain)
        (self._marks.guard, printed), fds = await_report(control, plan, on_note, explain)
        if plan.shows_entrypoint_output:
            from container_engine.node.report.guard_failure import without_id

            self._printed = without_id(printed)
        return control, fds

    def _decide_again(
        self, node: Mapping[str, str], block: bytes
    ) -> tuple[bytes, bytes, Repeatable | None]:
        """Decide as another start of this plan, in a step with these variables; see Started.

        Raise LaunchError.
        """
        again = Start(self._plan, node, self._libexec, trace.Marks(0))
        again.decide()
        specification = encode(again._operations())
        records = again._records(again._of_tasks(env.parse_block(block)))
        return specification, records, again._repeatable()

    def _repeatable(self) -> Repeatable | None:
        """Return what doing the same again depends on, None if it needs Python."""
        if self.hooks is not None:
            return self.hooks.repeatable()
        from container_engine.node.container.edits import Repeatable

        return Repeatable((), None, "")

    def _operations(self, outcome: int = -1) -> list[Operation]:
        hooks, paths, kept = self.hooks, self._paths, self._kept
        steps = operations(
            paths,
            self._plan.image_paths,
            self._parts.but(outcome=outcome),
            self._given,
            self._person,
            () if hooks is None else hooks.operations(has_rules=self._rules is not None),
            () if kept is None else kept.again(paths.server, paths.at("root")),
        )
        last = [] if hooks is None else hooks.oci.last_operations(paths)
        return [*steps[:-1], *last, steps[-1]]

    def _changes(
        self, before: Mapping[str, str | None], fds: tuple[Sequence[int], int, int]
    ) -> dict[str, str | None]:
        """Run services, start-up steps, checks; return the tasks' changes to Slurm's environment.

        `before` are those without them.
        """
        plan, hooks, marks = self._plan, self.hooks, self._marks
        marks.names = {"image": list(plan.image_env), "edf": list(self._here.env)}
        changes = {**before}
        if hooks is not None:
            marks.names["hooks"] = [name for name in self._settings if name not in self._here.env]
            if hooks.has_services:
                marks.mark("services")
                changes |= hooks.start_services(fds, self._here.workdir, changes)
        if plan.startup:
            marks.mark("startup")
            made = self._run_startup(changes, *fds[:2])
            changes |= made
            if self._kept is not None:
                from container_engine.node.job_containers.enter import note_exported

                note_exported(self._kept, made)
        if self._checks is not None:
            marks.mark("checks")
            self._run_checks(self._checks, changes, fds)
        return changes

    def _run_startup(
        self, changes: Mapping[str, str | None], entered: Sequence[int], mount_ns: int
    ) -> dict[str, str | None]:
        """Run the start-up steps in the container, in the tasks' environment.

        Return their changes.
        """
        from container_engine.node.start import startup_steps

        plan, node = self._plan, self._node
        records = memory_file("ce-env", env.encode_records(changes))
        join = entering(self._libexec, entered, mount_ns, records, self._here.workdir)
        before = env.apply(node, changes)
        made = startup_steps.run(plan, node, join, before)
        for fd in (*entered, mount_ns):
            os.set_inheritable(fd, False)
        os.close(records)
        return made

    def _run_checks(
        self,
        checks: Checks,
        changes: Mapping[str, str | None],
        container: tuple[Sequence[int], int, int],
    ) -> None:
        """Run the checks that are programs in the container, in the tasks' environment.

        What each task will have of its own may be set by the host or the image, but not for tasks.
        """
        from container_engine.node.inside.programs import Place

        own = {} if self.hooks is None else dict.fromkeys(self.hooks.per_task)
        place = Place(
            *container,
            workdir=self._here.workdir,
            environment=env.apply(self._node, {**changes, **own}),
            libexec=self._libexec,
            timeout_s=self._plan.start_timeout_s,
        )
        try:
            checks.inside(place.environment, place.inside)
        finally:
            place.close()

    def _of_tasks(self, found: Mapping[str, str]) -> dict[str, str | None]:
        """Return the tasks' changes without those of services and start-up steps."""
        made = env.for_tasks(self._plan, self._settings, self._given, found)
        # replace the host's PWD: programs trust it if it happens to lead to their directory
        own = {"PWD": self._here.workdir, "OLDPWD": None}
        changes = {**own, **env.of_launchers(self._node), **made}
        if self.hooks is not None:
            changes |= self.hooks.for_tasks()
        return changes | env.missing_home(changes, self._node, self._person.home)

    def _records(self, changes: Mapping[str, str | None]) -> bytes:
        return env.encode_records(changes, {} if self.hooks is None else self.hooks.per_task)


def _network_shown(container: Parts, mounted: int) -> tuple[str, ...]:
    """Return a warning if a container with a network of its own has the node's /sys.

    The kernel refuses a new sysfs where the node's is covered in part, and crun then takes the
    node's. `mounted` is the descriptor of the mountinfo of the container's first process.
    """
    if (
        "net" not in container.unshared
        or "sys" in container.unshared
        or any(m.target == "/sys" for m in container.mounts)
    ):
        return ()
    from container_engine.base.mounts import mounts

    os.lseek(mounted, 0, os.SEEK_SET)
    device = os.stat("/sys").st_dev
    of_node = f"{os.major(device)}:{os.minor(device)}"
    if not any(mount.place == "/sys" and mount.device == of_node for mount in mounts(mounted)):
        return ()
    return (
        "com.ce.unshare: /sys still shows the node's network: other mounts cover parts of /sys on"
        " this node",
    )


def joined(
    running: Running,
    plan: NodePlan,
    node: Mapping[str, str],
    descriptors: GuardDescriptors,
    libexec: str,
    marks: trace.Marks,
) -> Container:
    """Return the running container for this step's tasks. Raise LaunchError."""
    from container_engine.node.job_containers.enter import exported

    marks.mark("namespaces")
    mounted, per_task = _pmix_of_step(node) if node.get("CE_PMIX_DIR") else ([], {})
    workdir = resolve(plan.workdir, node, plan.workdir_from)
    edf = edf_settings(plan.env, node)
    changes = env.for_joined(plan, edf, env.parse_block(running.environment), workdir, node)
    if any(map(is_of_step, plan.hooks)):
        from container_engine.node.hooks.prepare import of_step

        own = of_step(plan, node, Paths(f"{libexec}/session", libexec))
        changes |= {name: value for name, value in own.env.items() if name not in edf}
        per_task = per_task | {
            name: other for name, other in own.per_task.items() if name not in edf | own.env
        }
    changes |= exported(running.directory, plan)
    changes |= env.missing_home(changes, node, person_of_process().home)
    # the first step has made the image's directories
    home = env.apply(node, changes).get("HOME", "")
    directories = [home] if home.startswith("/") else []
    records = env.encode_records(changes, per_task)
    steps = running.operations(f"{libexec}/ce-image", mounted, workdir, directories)
    specification = encode(steps)
    control = start_guard(libexec, descriptors, specification, running.guards_ns, running.passed)
    (marks.guard, _printed), handed = await_report(control, plan)
    os.close(handed[protocol.CE_REPORTED_MOUNTS])
    marks.mark("environment")
    os.close(handed[protocol.CE_REPORTED_ENVIRONMENT])
    return Container(
        user_ns=handed[protocol.CE_REPORTED_USER_NS],
        mount_ns=handed[protocol.CE_REPORTED_MOUNT_NS],
        records=records,
        guard=handed[protocol.CE_REPORTED_GUARD],
        unshared=handed[protocol.CE_REPORTED_UNSHARED :],
        workdir=workdir,
        control=control,
        warnings=running.warnings,
        joinable=None if running.warnings else (running.directory, running.environment),
    )


def _pmix_of_step(node: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return the directories of this step's PMIx server, and what each task's variables copy."""
    from container_engine.node.hooks import built_in

    return [node["CE_PMIX_DIR"], *built_in.of_clients(node)], built_in.PER_TASK

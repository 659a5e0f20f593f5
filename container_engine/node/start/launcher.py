"""The node launcher: starts the container that a plan describes. Runs as the user.

It imports only the cheap part of the standard library: it runs once per node and step, with
``python -I -S -E``. The plugin passes descriptors and gets one packet as the reply.
"""

from __future__ import annotations

import os
import sys
from _socket import socket

from container_engine.errors import LaunchError
from container_engine.node.plan_json import image_paths, parse_plan, resolve
from container_engine.node.report import trace
from container_engine.node.start import environment as env
from container_engine.node.start import image_in_use, site_rules
from container_engine.node.start.checks import (
    check_image,
    resolve_devices,
    resolve_mounts,
    site_programs,
)
from container_engine.node.start.container import (
    SAVE,
    Container,
    Paths,
    person_of,
)
from container_engine.node.start.guard import (
    MAX_PACKET,
    Watch,
    await_report,
    go_on,
    joined,
    memory_file,
    read_all,
    rights,
    start_guard,
)
from container_engine.node.start.specification import encode, operations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from container_engine.node.hooks.run import HooksOnNode
    from container_engine.node.kept.container import Kept, Running
    from container_engine.node.plan_types import LaunchPlan
    from container_engine.node.start.container import Operation

PLAN_VERSION = 1
# 2 is of a plan that an older engine would carry out in part
PLAN_VERSIONS = (PLAN_VERSION, 2)
_MAX_NOTICES = 4 * 1024
_FAILED = 125  # the exit code of a task whose container did not start


class Session:
    """A running container. The descriptors belong to the caller.

    `fds` are the user namespace, the mount namespace, the records of the tasks' environment
    (spank_plugin/common/join.h) and a pidfd of the guard, readable when nothing of the session is
    left; `unshared` are other namespaces of the container's own. `attended` is readable once the
    work after that is done, -1 if there is none. Unless `go_on` is called, the session ends with
    this process; it raises LaunchError if the session has already ended. `warnings` are for the
    user, `printed` is the entrypoint's output if it is to be shown.
    """

    def __init__(
        self,
        fds: Sequence[int],
        workdir: str,
        go_on: Callable[[], None],
        warnings: Sequence[str],
        printed: str,
        attended: int,
        unshared: Sequence[int],
    ) -> None:
        self.unshared = unshared
        self.fds, self.workdir, self.attended = fds, workdir, attended
        self.go_on = go_on
        self.warnings = warnings
        self.printed = printed
        # the directory of a container that other steps may join, its first process's environment
        self.joinable: tuple[str, bytes] | None = None
        # of a start that the next step may do again without Python: start_memo.Started
        self.started: tuple[bytes, Callable[[], bytes], bytes, bytes] | None = None


def start(
    plan: LaunchPlan,
    node: Mapping[str, str],
    watch: Watch,
    libexec: str,
    marks: trace.Marks | None = None,
) -> Session:
    """Start the container and wait until its first process runs.

    `node` is the step's environment for the plan's deferred strings. Raise LaunchError.
    """
    marks = marks or trace.Marks(0)
    marks.mark("prepare")
    if plan.get("version") not in PLAN_VERSIONS:
        raise LaunchError(
            f"this node understands plans of version {PLAN_VERSION}, not {plan.get('version')!r}:"
            " submit host and node have different versions of the container engine",
            see="engine-versions",
        )
    noted: Sequence[str] = ()
    if plan["image"].get("on_nodes"):
        from container_engine.node.start import image_of_node

        noted = image_of_node.complete(plan, libexec)
    session = _start(plan, node, watch, libexec, marks)
    session.warnings = (*noted, *session.warnings)
    return session


def _start(
    plan: LaunchPlan, node: Mapping[str, str], watch: Watch, libexec: str, marks: trace.Marks
) -> Session:
    kept = None
    if wanted := plan.get("kept"):
        from container_engine.node.kept.container import Running
        from container_engine.node.kept.enter import enter

        kept = enter(wanted, plan, node)
        if isinstance(kept, Running) and wanted["mode"] != "no_exec":
            return _join(kept, plan, node, watch, libexec, marks)
    begun = _Start(plan, node, libexec, marks, kept)
    try:
        return begun.run(watch)
    except LaunchError:
        begun.abandon()
        raise


def _join(
    running: Running,
    plan: LaunchPlan,
    node: Mapping[str, str],
    watch: Watch,
    libexec: str,
    marks: trace.Marks,
) -> Session:
    """Join the container that another step of the job has started and runs."""
    rules = site_rules.of_node(libexec)
    for path in image_paths(plan):
        site_rules.check(path, rules)
    marks.mark("namespaces")
    pmix = node.get("CE_PMIX_DIR")  # the directory of the step's server, which no other step has
    steps = running.operations(f"{libexec}/ce-image", [pmix] if pmix else [])
    control = start_guard(libexec, watch, encode(steps), running.guards_ns, running.passed)
    running.close()
    timeout_s = plan["settings"]["start_timeout_s"]
    (marks.guard, _printed), handed = await_report(control, timeout_s)
    user_ns, mount_ns, found, guard, mounted, *unshared = handed
    os.close(mounted)
    marks.mark("environment")
    block = env.parse_block(running.environment)
    os.close(found)
    workdir = resolve(plan["workdir"], node, plan["workdir_from"])
    edf = env.edf_settings(plan, node)
    changes = env.for_joined(plan, edf, block, workdir)
    records = memory_file("ce-env", env.encode_records(changes, _of_pmix() if pmix else None))
    fds = (user_ns, mount_ns, records, guard)
    session = Session(fds, workdir, lambda: go_on(control, []), running.warnings, "", -1, unshared)
    if not running.warnings:
        session.joinable = (running.directory, running.environment)
    return session


def _of_pmix() -> Mapping[str, str]:
    from container_engine.node.hooks.code_pmix import PER_TASK

    return PER_TASK


class _Start:
    """One start: the plan's and this node's data, and results of the steps so far."""

    def __init__(
        self,
        plan: LaunchPlan,
        node: Mapping[str, str],
        libexec: str,
        marks: trace.Marks,
        kept: Kept | None = None,
    ) -> None:
        self._plan, self._node, self._libexec, self._marks = plan, node, libexec, marks
        programs = site_programs(plan["settings"])
        self._paths = Paths(f"{libexec}/session", libexec, *programs)
        self._kept = kept
        if kept is not None:
            self._paths.written = kept.directory
            self._paths.begun += kept.begun
        self._workdir = resolve(plan["workdir"], node, plan["workdir_from"])
        self._edf = env.edf_settings(plan, node)
        self._rules = site_rules.of_node(libexec)
        self._images = image_paths(plan)
        for path in self._images:
            site_rules.check(path, self._rules)
            check_image(path)
        lacks: list[LaunchError] = []
        self._container = container_of(plan, node, lacks)
        self._planned = self._container.mounts
        self._hooks = _hooks(plan, node, self._edf, libexec, lacks)
        self._settings: Mapping[str, str | None] = self._edf
        if self._hooks is not None:
            self._settings = self._hooks.join(self._container, self._paths)
        site_rules.check_mounts(self._planned, self._container.mounts, self._rules)
        self._given = env.for_container(plan, self._settings)
        self._printed = ""

    def run(self, watch: Watch) -> Session:
        encoded = encode(self._operations())
        for path in self._images:
            image_in_use.note(path, self._node)
        self._marks.mark("namespaces")
        kept = self._kept
        if kept is None:
            control = start_guard(self._libexec, watch, encoded)
        else:
            mounts = self._container.mounts
            kept.records.note([*self._images, *(m.source for m in mounts if m.kind == "squashfs")])
            whole = encode([kept.operation()]) + encoded
            control = start_guard(self._libexec, watch, whole, kept.guards_ns, kept.passed)
            kept.close()
        user_ns, mount_ns, found, guard, mounted, *unshared = self._await(control)
        site_rules.check_places(self._planned, mounted, self._rules)
        os.close(mounted)
        self._marks.mark("environment")
        block = read_all(found)
        os.close(found)
        changes = self._changes(env.parse_block(block), ((user_ns, *unshared), mount_ns, guard))
        hooks = self._hooks
        per_task = {} if hooks is None else hooks.per_task
        records = env.encode_records(changes, per_task)
        end = None if hooks is None else hooks.finish(changes)

        def last() -> None:
            go_on(control, [] if end is None else [end.fileno()])

        warnings = () if hooks is None else hooks.warnings
        fds = (user_ns, mount_ns, memory_file("ce-env", records), guard)
        attended = -1 if hooks is None else hooks.attended
        made = Session(fds, self._workdir, last, warnings, self._printed, attended, unshared)
        made.joinable = None if kept is None else (kept.directory, block)
        if kept is None and hooks is None and self._rules is None:
            made.started = (encoded, self._decided_again, block, records)
        return made

    def _decided_again(self) -> bytes:
        """Return the specification of another start with this plan now. Raise LaunchError."""
        again = _Start(self._plan, self._node, self._libexec, trace.Marks(0))
        return encode(again._operations())

    def abandon(self) -> None:
        """Remove what announces a container that will not be there."""
        if self._hooks is not None:
            self._hooks.abandon()

    def _operations(self) -> list[Operation]:
        hooks, paths, kept = self._hooks, self._paths, self._kept
        steps = operations(
            paths,
            self._images,
            self._container,
            self._given,
            person_of(self._settings),
            self._plan["settings"],
            () if hooks is None else hooks.operations(paths),
            () if kept is None else kept.again(paths.server, paths.at("root")),
        )
        last = [] if hooks is None else hooks.last_operations(paths)
        return [*steps[:-1], *last, steps[-1]]

    def _await(self, control: socket) -> Sequence[int]:
        """Wait for the guard's report and return its descriptors."""
        hooks = self._hooks
        hear = None if hooks is None else hooks.hear
        timeout_s = self._plan["settings"]["start_timeout_s"]
        (self._marks.guard, printed), fds = await_report(control, timeout_s, hear, self._explain)
        if self._container.is_heard:
            from container_engine.node.report.failure import without_id

            self._printed = without_id(printed)
        return fds

    def _explain(self, report: str) -> LaunchError:
        from container_engine.node.report.failure import explain, of_entrypoint

        general = explain if self._hooks is None else self._hooks.explain
        return of_entrypoint(report, self._plan["entrypoint"]) or general(report)

    def _changes(
        self, found: Mapping[str, str], fds: tuple[Sequence[int], int, int]
    ) -> dict[str, str | None]:
        """Run services and start-up steps; return the tasks' changes to Slurm's environment.

        `found` is the environment of the container's first process.
        """
        plan, hooks, marks = self._plan, self._hooks, self._marks
        marks.names = {"image": list(plan["image"]["env"]), "edf": list(self._edf)}
        made = env.for_tasks(plan, self._settings, self._given, found)
        # programs trust a PWD that leads to their directory, even by a path of the host
        changes = {"PWD": self._workdir, "OLDPWD": None, **env.of_launchers(self._node), **made}
        if hooks is not None:
            changes |= hooks.for_tasks()
            marks.names["hooks"] = [name for name in self._settings if name not in self._edf]
            marks.mark("services")
            changes |= hooks.start_services(fds, self._workdir, changes)
        if plan["startup"]:
            marks.mark("startup")
            place = (*fds[:2], self._workdir)
            changes |= _run_startup(plan, self._node, changes, place, self._libexec)
        return changes


def _hooks(
    plan: LaunchPlan,
    node: Mapping[str, str],
    edf: Mapping[str, str | None],
    libexec: str,
    lacks: Sequence[LaunchError],
) -> HooksOnNode | None:
    """Return the hooks, or None without any. Raise LaunchError for `lacks` and what hooks lack."""
    settings = plan["settings"]
    others = bool(settings["hooks_dirs"] or settings.get("devices_if_there")) or any(
        device["cdi"] for device in plan["devices"]
    )
    if not others and not any(trace.may_apply(hook, node) for hook in plan.get("hooks", ())):
        if lacks:
            from container_engine.node.report.failure import refuse

            refuse([("", error) for error in lacks])
        return None
    from container_engine.node.hooks.run import HooksOnNode

    return HooksOnNode(plan, node, edf, libexec, lacks)


def _run_startup(
    plan: LaunchPlan,
    node: Mapping[str, str],
    changes: Mapping[str, str | None],
    container: tuple[Sequence[int], int, str],
    libexec: str,
) -> dict[str, str | None]:
    """Run the start-up steps in the container, in the environment that the tasks will have."""
    from container_engine.node.start import startup

    entered, mount_ns, workdir = container
    records = memory_file("ce-env", env.encode_records(changes))
    for fd in (*entered, mount_ns, records):
        os.set_inheritable(fd, True)
    join = [f"{libexec}/ce-exec", joined(entered), str(mount_ns), str(records), workdir]
    before = env.apply(node, changes)
    timeout_s = plan["settings"]["start_timeout_s"]
    made = startup.run(plan, node, join, before, timeout_s)
    for fd in (*entered, mount_ns):
        os.set_inheritable(fd, False)
    os.close(records)
    return env.without_slurms(made)


def container_of(plan: LaunchPlan, node: Mapping[str, str], lacks: list[LaunchError]) -> Container:
    """Return the plan's container; what the node lacks for it is added to `lacks`."""
    return Container(
        # being root inside is an option of the site; outside it is the same user
        ids=(0, 0) if plan["settings"]["root_remap"] else (os.getuid(), os.getgid()),
        writable=plan["writable"],
        entrypoint=plan["entrypoint"],
        mounts=resolve_mounts(plan, node, lacks),
        devices=resolve_devices(plan, node, lacks),
        annotations=plan["annotations"],
        unshared=plan["settings"].get("unshare", ()),
    )


# ---- called by the plugin --------------------------------------------------------------------


def _answer(reply: socket, text: str, fds: Sequence[int] = ()) -> None:
    try:
        reply.sendmsg([text.encode("utf-8", "surrogateescape")[: MAX_PACKET - 1]], rights(fds))
    except (BrokenPipeError, ConnectionError):
        sys.exit(_FAILED)  # slurmstepd is gone: no process reads the reply


def _launch(reply: socket, inputs: tuple[int, int], watch: Watch, libexec: str, begun: int) -> None:
    """Start the container and reply. Raise LaunchError, with the trace written."""
    plan_fd, environment_fd = inputs
    text = read_all(plan_fd).decode("utf-8", "surrogateescape")
    node = env.parse_block(read_all(environment_fd))
    if '"var"' in text or "{node." in text:
        from container_engine.node import node_name

        node = node_name.of_step(node)
    plan: LaunchPlan = {}
    marks, recorded, target = trace.Marks(begun), -1, ""
    try:
        plan = parse_plan(text)
        recorded = trace.open_file(plan.get("settings", {}).get("trace_dir", ""), node)
        target = _target(plan, node)
        session = start(plan, node, watch, libexec, marks)
    except Exception as error:  # noqa: BLE001  # internal errors are reported in the same way
        from container_engine.node.report import report

        failure = report.of_mistake(error)
        trace.write(recorded, plan, node, marks, trace.concealed(str(failure), plan, node))
        raise report.for_plugin(failure, recorded, node, plan) from None
    marks.mark("answer")
    _answer_ready(reply, session, plan, node, recorded, saves=bool(target))
    try:  # noqa: SIM105  # importing contextlib would cost every start
        session.go_on()
    except LaunchError:
        pass  # the plugin has the reply, watches the guard and reports its end
    trace.write(recorded, plan, node, marks)
    if session.joinable is not None:
        from container_engine.node.kept import join_memo

        join_memo.remember(text, plan, *session.joinable)
    if session.started is not None:
        from container_engine.node.start import start_memo

        started = start_memo.Started(*session.started)
        start_memo.remember(text, plan, node, libexec, started, session.workdir)
    if target:
        from container_engine.node.start import saving

        saving.at_the_end(reply, target, session.fds[1], node, libexec)


def _answer_ready(
    reply: socket,
    session: Session,
    plan: LaunchPlan,
    node: Mapping[str, str],
    recorded: int,
    *,
    saves: bool,
) -> None:
    news = [line for line in session.warnings if trace.is_news(recorded, node, line)]
    notices = trace.concealed("\n".join(news), plan, node)[:_MAX_NOTICES] if news else ""
    place = trace.open_directory(recorded)
    # this process has work left after its reply, for which the end of the session waits
    launcher = os.pidfd_open(os.getpid())
    ends = (launcher, launcher if session.attended < 0 else session.attended)
    others = () if recorded < 0 else (recorded,) if place < 0 else (recorded, place)
    fds = (*session.fds, *ends, *session.unshared, *others)
    kept = "kept" if plan.get("kept") else ""  # other steps may be in the container
    workdir = f"R{len(session.unshared) or ''}{session.workdir}"
    texts = (workdir, notices, session.printed, kept, "save" if saves else "")
    _answer(reply, "\0".join(texts), fds)


def _target(plan: LaunchPlan, node: Mapping[str, str]) -> str:
    """Return the image to be made of the container at its end, "" for none. Raise LaunchError."""
    if SAVE not in plan.get("annotations", {}):
        return ""
    from container_engine.node.start import saving

    return saving.target(plan, node)


def main(argv: Sequence[str], libexec: str) -> int:
    """Answer as the command launcher REPLY PLAN ENVIRONMENT WATCH LIFE BEGUN [CONTROL PIPE PID].

    All are open descriptors but BEGUN, the time of the plugin's call (trace.py), and PID. The last
    three are of a guard that ce-node has started.
    """
    reply_fd, plan_fd, environment_fd, process, life, begun, *early = map(int, argv)
    for fd in (reply_fd, plan_fd, environment_fd, process, life, *early[:2]):
        os.set_inheritable(fd, False)
    guard = (early[0], early[1], early[2]) if early else None
    reply = socket(fileno=reply_fd)
    try:
        _launch(reply, (plan_fd, environment_fd), Watch(process, life, guard), libexec, begun)
    except LaunchError as failure:
        _answer(reply, f"F{_FAILED}\n{failure}")
        return _FAILED
    except Exception as error:  # noqa: BLE001  # the plugin must get internal errors too
        from container_engine.node.report import report

        _answer(reply, f"F{_FAILED}\n{report.for_plugin(report.of_mistake(error), -1, {}, {})}")
        return _FAILED
    return 0

"""Write the trace of a launch on one node: its phases with times, and the container's parts.

It is a file owned by the user, with a line of JSON from the launcher and, when the session has
ended, one from the plugin (spank_plugin/plugin/launcher.h). No launch fails because of its
trace. Times are nanoseconds since 1970. Only the names of variables are written: their values may
be secrets.
"""

from __future__ import annotations

import os
import time

from container_engine.base.variables import for_site_program
from container_engine.node.node_plan import (
    PLANNED,
    ImageFile,
    NodePlan,
    Secrets,
    applies,
    may_apply,
)
from container_engine.node.plan_json import to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from container_engine.node.plan_types import HookUse, Mount

VERSION = 1
# the guard's operations that begin a phase, with the name of the phase
_BEGINS = {
    "session": "mount",
    "more": "hooks",
    "crun": "create",
    "podman": "create",
    "container": "init",
}
# Slurm's settings of the step, as in spank_plugin/guard/step_trace.c
_SETTINGS = (
    *("SLURM_JOB_PARTITION", "SLURM_JOB_QOS", "SLURM_CPUS_PER_TASK", "SLURM_MEM_PER_NODE"),
    *("SLURM_MEM_PER_CPU", "SLURM_GPUS_ON_NODE", "SLURM_DISTRIBUTION", "SLURM_NETWORK"),
)
_LONGEST_ERROR = 2000
_OTHERS_MAY_WRITE = 0o022
# Steps; the first node of a step removes older ones. Of steps on many nodes, which have a file for
# each, fewer are kept, but not fewer than the least. As in spank_plugin/guard/step_trace.c.
_KEPT, _LEAST, _FILES = 200, 10, 20_000
_LONG_LIST = 200  # characters; on thousands of nodes, such a list of them may itself be long
# the end of a short step waits for the launcher, and so for this
_WAIT_S = 2


class Marks:
    """Times of a start, on the monotonic clock in ns.

    `begun` alone is since 1970: the time at which the plugin started the launcher.
    """

    def __init__(self, begun: int) -> None:
        self.begun = begun
        self.guard = ""  # the guard's own times: "OPERATION NANOSECONDS" lines
        self.names: dict[str, Sequence[str]] = {}  # of the tasks' variables, by their origin
        self.checks: Sequence[Mapping[str, Any]] = ()  # the verdicts of run_checks.py
        self.warnings: Sequence[str] = ()  # of this node, also where another one prints them
        self._marks: list[tuple[str, int]] = []

    def mark(self, name: str) -> None:
        """Begin the phase `name` and end the one before."""
        self._marks.append((name, time.monotonic_ns()))

    def phases(self) -> list[dict[str, Any]]:
        """Return the phases in order, each ending where the next begins."""
        since_1970 = time.time_ns() - time.monotonic_ns()
        pairs = [(name, int(when)) for name, when in map(str.split, self.guard.splitlines())]
        moments = [("launch", self.begun - since_1970), *_named(pairs), *self._marks]
        moments.sort(key=lambda moment: moment[1])
        ends = [when for _name, when in moments[1:]]
        return [
            _phase(name, begin + since_1970, end + since_1970)
            for (name, begin), end in zip(moments, ends, strict=False)
        ]


def _named(pairs: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    return [(_BEGINS[name], when) for name, when in pairs if name in _BEGINS]


def _phase(name: str, begin: int, end: int) -> dict[str, Any]:
    return {"name": name, "begin": begin, "end": max(begin, end)}


def open_file(directory: str, node: Mapping[str, str]) -> int:
    """Open a new trace file in DIRECTORY/JOB.STEP. Return -1 if that fails or none is wanted."""
    where = place(directory)
    if not where:
        return -1
    from container_engine.node import slurm_step

    step = f"{node.get('SLURM_JOB_ID', '0')}.{node.get('SLURM_STEP_ID', '0')}"
    name = slurm_step.node_name(node) or os.uname().nodename
    if "/" in step or "/" in name:
        return -1
    try:
        if not os.path.isdir(where):  # a user's first launch
            from container_engine.base.files import make_own

            make_own(where, 0o755)
        os.makedirs(f"{where}/{step}", 0o700, exist_ok=True)
        opened = open_own(f"{where}/{step}")
    except OSError:
        return -1
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(f"{name}.json", flags, 0o600, dir_fd=opened)
        except FileExistsError:
            # the trace of an earlier step with this number: _forget_old finds the age of a step by
            # its directory, which changes only if the file is made again
            os.unlink(f"{name}.json", dir_fd=opened)
            return os.open(f"{name}.json", flags, 0o600, dir_fd=opened)
    except OSError:
        return -1
    finally:
        os.close(opened)


def place(directory: str) -> str:
    """Return the directory of all traces, "" for none; `~` is the home."""
    where = os.path.expanduser(directory) if directory.startswith("~") else directory
    return where if where.startswith("/") else ""


def open_own(path: str) -> int:
    """Open a directory that belongs to this user and that no other user may write.

    Raise OSError for any other path: where a site keeps the traces of all users in one place,
    another user may have made the directory, or a symlink to a directory of this user.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(fd)
    if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_MAY_WRITE:
        os.close(fd)
        raise PermissionError(f"{path} is not this user's alone")
    return fd


def write(
    fd: int,
    plan: NodePlan,
    node: Mapping[str, str],
    marks: Marks,
    error: str = "",
    guard: int = -1,
) -> None:
    """Append the launcher's line to the trace `fd`, unless that is -1.

    On the step's first node, also pass it to the site's tracking tool, if there is one, with what
    the servers of the images have read so far; `guard` is a pidfd of their guard.
    """
    is_first = node.get("SLURM_NODEID") == "0"
    program = plan.tracking_tool if is_first else ()
    if fd < 0 and not program:
        return
    marks.mark("end")
    phases = marks.phases()
    planned = node.get(PLANNED, "").split()
    if len(planned) == 2 and all(map(str.isdigit, planned)):
        phases.insert(0, _phase("plan", int(planned[0]), int(planned[1])))
    nodes = node.get("SLURM_STEP_NODELIST", "")
    record = {
        **of_engine(plan.engine),
        "job": node.get("SLURM_JOB_ID", ""),
        "step": node.get("SLURM_STEP_ID", ""),
        "array": _array(node),
        "host": os.uname().nodename,
        "nodes": nodes if is_first or len(nodes) <= _LONG_LIST else "",
        "tasks": node.get("SLURM_STEP_NUM_TASKS", ""),
        # the first node has them for all
        "slurm": {name: node[name] for name in _SETTINGS if is_first and name in node},
        **of_plan(plan, node),
        "variables": marks.names,
        **({"checks": marks.checks} if marks.checks else {}),
        **_warnings(marks.warnings, plan.secrets, node),
        "phases": phases,
        **(_image_reads(guard) if program and guard >= 0 else {}),
        "error": error[:_LONGEST_ERROR],
    }
    line = (to_json(record) + "\n").encode()
    if fd >= 0:
        _append(fd, line, _kept(node) if is_first else 0)
    if program:
        _track(program, line, node)


def _image_reads(guard: int) -> dict[str, Any]:
    from container_engine.node.report import image_reads

    return {"image_reads": image_reads.of_pidfd(guard)}


def _track(program: Sequence[str], record: bytes, node: Mapping[str, str]) -> None:
    """Hand the record of a step to the site's program, on its standard input.

    The program is awaited for a short time, after which it goes on alone. A launch never fails
    because of it. Of the job's variables it gets only Slurm's, HOME, USER and LOGNAME.
    """
    import subprocess

    quiet = subprocess.DEVNULL
    try:
        child = subprocess.Popen(
            program,
            env=for_site_program(node),
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=quiet,
            stderr=quiet,
            start_new_session=True,
        )
    except OSError:
        return
    try:
        child.communicate(record, _WAIT_S)
    except (OSError, subprocess.TimeoutExpired):
        child.returncode = 0  # Python would warn about a child that nobody has waited for


def of_engine(release: str) -> dict[str, Any]:
    return {"version": VERSION, "engine": release}


def of_plan(plan: NodePlan, node: Mapping[str, str]) -> dict[str, Any]:
    return {
        "environment": plan.name,
        "container": plan.container_name,
        "files": plan.files,
        "plan": plan.digest,
        "image": _image(plan.images),
        "hooks": _hooks(plan.hooks, node),
        "mounts": _mounts(plan.mounts, plan.secrets, node),
    }


def _warnings(
    warnings: Sequence[str], secrets: Secrets, node: Mapping[str, str]
) -> dict[str, list[str]]:
    if not warnings:
        return {}
    from container_engine.node.report.messages import concealed

    return {"warnings": [concealed(line, secrets, node) for line in warnings]}


def _image(images: Sequence[ImageFile]) -> dict[str, Any]:
    """Return the base's name, path and digest, and those of the images above it if any."""
    base, *above = (
        {"name": image.name, "path": image.path, "digest": image.digest} for image in images
    )
    return {**base, "above": above} if above else base


def _array(node: Mapping[str, str]) -> str:
    """Return the name that Slurm's commands show for a task of a job array; "" for other jobs."""
    job, task = (node.get(f"SLURM_ARRAY_{name}", "") for name in ("JOB_ID", "TASK_ID"))
    return f"{job}_{task}" if job and task else ""


def _append(fd: int, line: bytes, kept: int) -> None:
    try:
        os.write(fd, line)
        if kept:
            _forget_old(directory_of(fd), kept)
    except OSError:
        return  # a full disk loses the trace, not the step


def _kept(node: Mapping[str, str]) -> int:
    """Return how many steps to keep after one on so many nodes."""
    count = node.get("SLURM_STEP_NUM_NODES", "")
    return max(_LEAST, min(_KEPT, _FILES // max(1, int(count) if count.isdecimal() else 1)))


def _hooks(planned: Sequence[HookUse], node: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the hooks that applied in this step."""
    hooks = [hook for hook in planned if may_apply(hook, node)]
    if not hooks:
        return []
    return [
        {"name": hook["name"], "release": hook["release"], "reason": hook["reason"]}
        for hook in hooks
        if applies(hook, node)
    ]


def _forget_old(step: str, kept: int) -> None:
    """Remove the user's oldest steps but `kept`, and never `step`, the current one's.

    Their numbers do not give their age: after a new installation, Slurm begins at 1 again.
    """
    directory, current = os.path.split(step)
    own, uid = [], os.geteuid()
    with os.scandir(directory) as entries:
        for entry in entries:
            job, _dot, number = entry.name.partition(".")
            if job.isdecimal() and number.isdecimal() and entry.name != current:
                found = entry.stat(follow_symlinks=False)
                if found.st_uid == uid and entry.is_dir(follow_symlinks=False):
                    own.append((found.st_mtime_ns, int(job), int(number), entry.name))
    own.sort()
    for *_age, name in own[: 1 - kept]:
        place = open_own(f"{directory}/{name}")
        try:
            for file in os.listdir(place):
                os.unlink(file, dir_fd=place)
        finally:
            os.close(place)
        os.rmdir(f"{directory}/{name}")


def _mounts(
    planned: Sequence[Mount], secrets: Secrets, node: Mapping[str, str]
) -> list[dict[str, str]]:
    from container_engine.node.report.messages import concealed, may_be_secret

    found = _written_mounts(planned)
    if not may_be_secret(mount_texts(planned), secrets, node):
        return found
    return [{key: concealed(text, secrets, node) for key, text in m.items()} for m in found]


def _written_mounts(planned: Sequence[Mount]) -> list[dict[str, str]]:
    return [
        {**{key: _words(one[key]) for key in ("target", "source")}, "from": one["from"]}
        for one in planned
    ]


def mount_texts(planned: Sequence[Mount]) -> str:
    """Return all texts about mounts, in which a secret may be, in a line each."""
    return "\n".join(text for mount in _written_mounts(planned) for text in mount.values())


def fields(
    plan: NodePlan,
    variables: Mapping[str, Sequence[str]],
    checks: Sequence[Mapping[str, Any]] = (),
) -> bytes:
    """Return the fields of an answer about traces (spank_plugin/guard/step_trace.h).

    `variables` are the names of the tasks' variables by their origin, `checks` have all passed.
    Raise ValueError for a NUL.
    """
    from container_engine.base.answers import field, table
    from container_engine.node.report.messages import secret_stems

    # no hook with conditions applies in the steps that the answer is for
    believed = [{**one, "verdict": "believed", "end": one["begin"]} for one in checks]
    of_checks = {"checks": believed} if believed else {}
    lines = (of_engine(plan.engine), {**of_plan(plan, {}), "variables": variables, **of_checks})
    begin, of_the_plan = (to_json(values)[1:-1] + "," for values in lines)
    texts = (place(plan.trace_dir), "{" + begin, of_the_plan, mount_texts(plan.mounts))
    return b"".join(map(field, texts)) + table(secret_stems(plan.secrets))


def directory_of(fd: int) -> str:
    """Return the directory of this step's traces, or "" if there is none."""
    return os.path.dirname(os.readlink(f"/proc/self/fd/{fd}")) if fd >= 0 else ""


def open_directory(fd: int) -> int:
    """Return a descriptor of the directory of this step's traces; -1 if there is none.

    The plugin uses it from inside containers, too, to mark messages as printed.
    """
    if fd < 0:
        return -1
    try:
        return os.open(directory_of(fd), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return -1


def _words(text: Any) -> str:  # noqa: ANN401  # a Text of the plan
    """Return a deferred string as it was written, without its operators."""
    if isinstance(text, str):
        return text
    return "".join(p if isinstance(p, str) else f"${{{p['var']}}}" for p in text)

"""Copy images into the memory of a job's nodes, so that one node alone reads the shared file.

Slurm's sbcast carries a file from node to node. A process of the job moves it to where ce-guard
looks for it (spank_plugin/guard/guard_borrow.c), so that the memory is the job's, and compares the
content with the hash made at import. What is not complete is not used. The epilog removes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import math
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from fcntl import LOCK_EX
from pathlib import PurePosixPath
from typing import Any, NamedTuple, TypeAlias

from container_engine.base import slurm
from container_engine.base.errors import CeError, SiteError, UserError
from container_engine.base.files import own_directory, sha256
from container_engine.base.process import CommandError, merged, reason
from container_engine.base.text_layout import size_text, warning_text
from container_engine.images.image_files import known_digest
from container_engine.node import slurm_step
from container_engine.node.job_containers.directory import directory_of, locked
from container_engine.node.start import site_rules
from container_engine.printing import messages
from container_engine.submit.context import Context, configuration

PLACE = "/dev/shm"
LIMIT_S = 600
_KEY = "staged"
_PIECE = 1 << 22
_COMPLETE = 0o400
_POLL_S = 0.05
_ATTEMPTS = 3
_PUNCH_HOLE, _KEEP_SIZE = 2, 1
_SAID = re.compile(r"(?m)^ce-stage: (\S+) (\d+) (\w+) ?(.*)$")
# of a control group: its limit, what it uses, and in memory.stat what the kernel can give back
_OF_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_(?:in)?active_file")
_OF_V2 = ("memory.max", "memory.current", "(?:in)?active_file")
_READY = re.compile(r"(?m)^ce-stage: \S+ 0 ready (\d+)$")
# what a node says of a file
HAVE, WANTED, READY, FAILED = "have", "wanted", "ready", "failed"
_SHARED = "containers start from the shared file"
_SILENT = "no answer"
_LOST = "its process was killed: the job may have too little memory"
# what nodes may take longer than others, and the time for those that are asked once more
_LAG_S, _AGAIN_S, _AT_ONCE = 10, 15, 16
_Answers: TypeAlias = dict[tuple[str, int], tuple[str, str]]


class File(NamedTuple):
    """A SquashFS file, with the hash of its content, sha256:…."""

    path: str
    content: str


class Outcome(NamedTuple):
    """The result for a file on a node; `why` says why there is no copy, "" if there is one."""

    node: str
    path: str
    why: str = ""


class Job(NamedTuple):
    """The nodes of a job, the environment of its commands, and the program that runs on nodes."""

    nodes: Sequence[str]
    env: Mapping[str, str]
    ce: str
    limit_s: float


def files_of(plan: str) -> list[File]:
    """Return the SquashFS files of a plan, but images that only nodes have."""
    return _with_content(_paths_of(json.loads(plan), with_mounts=True))


def _paths_of(document: Mapping[str, Any], *, with_mounts: bool) -> dict[str, str]:
    """Return the paths of a plan's images, with the hashes that it records; "" for none."""
    image = document["image"]
    images = [] if image.get("on_nodes") else [image, *image.get("above", ())]
    found = {one["path"]: str(one.get("content", "")) for one in images}
    for mount in document.get("mounts", ()) if with_mounts else ():
        if mount["kind"] == "squashfs" and isinstance(mount["source"], str):
            found.setdefault(mount["source"], "")
    return found


def _with_content(paths: Mapping[str, str]) -> list[File]:
    """Return the files with their hashes, which are made where there are none. Raise UserError."""
    return [File(path, content or _content(path)) for path, content in paths.items()]


def _content(path: str) -> str:
    try:
        return known_digest(path) or f"sha256:{sha256(path)}"
    except OSError as error:
        raise UserError(reason(error), name=path) from None


# ---- in the job --------------------------------------------------------------------------------


def stage(files: Sequence[File], job: Job, say: Callable[[str], None]) -> list[Outcome]:
    """Copy the files to each node that has no copy. Raise CeError without Slurm's programs."""
    deadline = time.monotonic() + job.limit_s
    with _alone(job, deadline):
        return _staged(files, job, say, deadline)


@contextlib.contextmanager
def _alone(job: Job, deadline: float) -> Iterator[None]:
    """Wait for other calls of the job on this host, so that this one finds what they have copied.

    Two calls on different hosts both copy, and the first copy that is complete stays.
    """
    directory = f"{PLACE}/ce-kept-{os.geteuid()}"
    lock = f"{directory}/{job.env['SLURM_JOB_ID']}..lock"
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # as on different hosts
            os.close(own_directory(directory))
            file = stack.enter_context(open(lock, "ab"))
            while not locked(file.fileno(), LOCK_EX) and time.monotonic() < deadline:
                time.sleep(_POLL_S)
        yield
        with contextlib.suppress(OSError):
            os.unlink(lock)


def _staged(
    files: Sequence[File], job: Job, say: Callable[[str], None], deadline: float
) -> list[Outcome]:
    looked = _looked(files, job, deadline)
    found = []
    for number, file in enumerate(files):
        said = {node: looked.get((node, number), (FAILED, _SILENT)) for node in job.nodes}
        wanted = [node for node, (state, _why) in said.items() if state == WANTED]
        why = {node: why for node, (state, why) in said.items() if state == FAILED}
        if wanted:
            say(f"{file.path}: {_size(file)} to {slurm_step.contract(wanted)}")
            why.update(_broadcast(file, wanted, job, deadline))
        found += [Outcome(node, file.path, why.get(node, "")) for node in job.nodes]
    return found


def _looked(files: Sequence[File], job: Job, deadline: float) -> _Answers:
    """Return what nodes say of the files.

    A node that Slurm does not reach ends the step for all; those after it in Slurm's tree do not
    even begin. So those without an answer are asked again, each in a step of its own.
    """
    words = ["look", *(one.path for one in files)]
    pieces: list[bytes] = []
    patience = _Patience(len(job.nodes), pieces, (HAVE, WANTED, FAILED))
    looked = _run(words, job, job.nodes, deadline, pieces, patience.is_over)
    silent = [node for node in job.nodes if node not in patience.ready()]
    again = min(deadline, time.monotonic() + _AGAIN_S)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for said in pool.map(lambda node: _run(words, job, [node], again, []), silent):
            looked.update(said)
    return looked


class _Patience:
    """The time that nodes have until they have said one of `states` of a file.

    Half of them set the pace; the others may take twice as long, and some seconds.
    """

    def __init__(self, nodes: int, pieces: list[bytes], states: Sequence[str]) -> None:
        self._half = max(nodes // 2, 1)
        self._pieces, self._states = pieces, states
        self._began, self._limit = time.monotonic(), math.inf

    def ready(self) -> set[str]:
        """Return the nodes that have said so."""
        said = _said(self._pieces).items()
        return {node for (node, _number), (state, _why) in said if state in self._states}

    def is_over(self) -> bool:
        """Check whether there are nodes that lag."""
        now = time.monotonic()
        if self._limit == math.inf and len(self.ready()) >= self._half:
            self._limit = now + (now - self._began) + _LAG_S
        return now > self._limit


def _size(file: File) -> str:
    return size_text(os.stat(file.path).st_size)


def _broadcast(file: File, nodes: Sequence[str], job: Job, deadline: float) -> dict[str, str]:
    """Return why nodes have not got the file, "" for those that have.

    One that fails ends Slurm's broadcast for all, so the others are sent the file again.
    """
    why: dict[str, str] = {}
    for _attempt in range(_ATTEMPTS):
        if left := [node for node in nodes if node not in why]:
            why.update(_send(file, left, job, deadline))
    return dict.fromkeys(nodes, _SILENT) | why


def _send(file: File, nodes: Sequence[str], job: Job, deadline: float) -> dict[str, str]:
    """Let a step wait on the nodes, and send it the file.

    Return why nodes have not got it, "" for those that have; those left out have to be sent it
    again.
    """
    arriving = f"{job.env['SLURM_JOB_ID']}..{os.urandom(4).hex()}"
    pieces: list[bytes] = []
    complaint = ""
    ended = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        words = ["keep", arriving, *file]
        step = pool.submit(_run, words, job, nodes, deadline, pieces, ended.is_set)
        ready = _wait(step, pieces, nodes, (READY, HAVE, FAILED))
        number = next(iter(_READY.findall(_text(pieces))), "")
        if len(ready) == len(nodes):
            complaint = _sbcast(
                file, arriving, f"{job.env['SLURM_JOB_ID']}.{number}", job, deadline
            )
        done = set()
        if len(ready) == len(nodes) and not complaint:
            done = _wait(step, pieces, nodes, (HAVE, FAILED))
        is_left = len(done) < len(nodes) and not step.done()
        if is_left:
            _cancel(f"{job.env['SLURM_JOB_ID']}.{number}", job)
        else:
            futures.wait([step], _LAG_S)
        ended.set()
        said = step.result()
    if len(ready) < len(nodes):
        return {node: _SILENT for node in nodes if node not in ready}
    if complaint:
        named = dict(re.findall(r"\((\S+?)\): (.*)", complaint))
        return {node: named[node] for node in nodes if node in named} or dict.fromkeys(
            nodes, complaint.strip().rpartition("\n")[2]
        )
    lost = _SILENT if is_left else _LOST
    states = {node: said[node, 0] for node in nodes}
    known = (HAVE, FAILED)
    return {node: why if state in known else lost for node, (state, why) in states.items()}


def _cancel(step: str, job: Job) -> None:
    with contextlib.suppress(CeError):  # it may have ended
        slurm.answer(["scancel", "--quiet", step], job.env)


def _wait(
    step: Future[_Answers], pieces: list[bytes], nodes: Sequence[str], states: Sequence[str]
) -> set[str]:
    """Wait for nodes to be in one of the states. Return those that are when the step has ended."""
    patience = _Patience(len(nodes), pieces, states)
    while not step.done() and len(patience.ready()) < len(nodes) and not patience.is_over():
        time.sleep(_POLL_S)
    return patience.ready()


def _sbcast(file: File, arriving: str, step: str, job: Job, deadline: float) -> str:
    """Send the file to a step. If that fails, return what sbcast said."""
    target = f"{PLACE}/ce-kept-{os.geteuid()}/{arriving}"
    pieces: list[bytes] = []
    argv = ["sbcast", f"--jobid={step}", file.path, target]
    try:
        merged(argv, job.env, max(deadline - time.monotonic(), 1), pieces.append, is_shown=False)
    except (CommandError, SiteError) as error:
        return _text(pieces).strip() or error.reason
    return ""


def _run(
    words: Sequence[str],
    job: Job,
    nodes: Sequence[str],
    deadline: float,
    pieces: list[bytes],
    is_enough: Callable[[], bool] = lambda: False,
) -> _Answers:
    """Run this program on nodes, and return what they have said of each file, by its number."""
    left = deadline - time.monotonic()
    argv = slurm.beside(job.env["SLURM_JOB_ID"], ",".join(nodes), len(nodes))
    argv += ["--job-name=ce-stage", "--kill-on-bad-exit=0", "--wait=0"]
    argv += [f"--time={math.ceil(max(left, 0) / 60) + 1}", job.ce, "stage", "--here", "--", *words]
    # nodes that have said nothing are told
    slurm.run_step(argv, job.env, left, pieces.append, is_enough)
    return _said(pieces)


def _text(pieces: Sequence[bytes]) -> str:
    return b"".join(pieces).decode(errors="replace")


def _said(pieces: Sequence[bytes]) -> _Answers:
    found = _SAID.findall(_text(pieces))
    return {(node, int(number)): (state, why) for node, number, state, why in found}


# ---- before a step ----------------------------------------------------------------------------


def copy_for_step(document: Mapping[str, Any], context: Context) -> None:
    """Copy the images of a step's plan, unless an earlier step of the job has, or the job is small.

    Whatever happens, the step goes on: what was not copied is read where it is.
    """
    # nodes run the verb without the models, which a planner has loaded
    from container_engine.submit import container_names
    from container_engine.submit.prepare import wants_copies

    env, settings = context.env, document["settings"]
    paths = _paths_of(document, with_mounts=settings["stage"] == "all")
    if not paths or document["image"]["passing"] or not wants_copies(settings, env):
        return
    record = container_names.record_of(container_names.COPIES, env)
    run = f"run {env.get(container_names.RUN, '')}"
    # a file that has been replaced is copied again
    wanted = [f"{path} {_version(path)}" for path in paths]
    before = container_names.read(record).splitlines()
    before = before if before[:1] == [run] else [run]
    if set(wanted) <= set(before):
        return
    try:
        refuse(context)
        files = _with_content(paths)
        nodes = slurm.hosts(env["SLURM_JOB_NODELIST"], env)
        job = Job(nodes, env, f"{context.prefix}/bin/ce", LIMIT_S)
        warn(alike(stage(files, job, messages.say_progress)))
    except (CeError, KeyError, OSError) as error:
        messages.say(warning_text(f"the images are not copied to the job's nodes: {error}"))
    container_names.write(record, "\n".join([*before, *wanted]))


def _version(path: str) -> str:
    with contextlib.suppress(OSError):  # which the copy is refused for
        return _identity(os.stat(path))
    return ""


def refuse(context: Context) -> None:
    """Raise UserError for a heterogeneous job, and if the site has rules for images or mounts.

    Slurm's broadcast goes to all components, though a step is one's. Rules are about the files that
    a plan names, so nodes leave copies alone.
    """
    if context.env.get("SLURM_HET_SIZE"):
        raise UserError("stage: this job is heterogeneous", _SHARED)
    config = configuration(context)
    for file in config.files:
        with open(file, encoding="utf-8") as text:
            named = re.search("|".join(site_rules.RULES), text.read())
        if named:
            what = f"stage: the site has a rule for images or mounts, {named[0]}"
            raise UserError(what, _SHARED, where=file)


def alike(found: Sequence[Outcome]) -> dict[tuple[str, str], list[str]]:
    """Return the nodes of each file and each reason why there is no copy."""
    nodes: dict[tuple[str, str], list[str]] = {}
    for one in found:
        nodes.setdefault((one.path, one.why), []).append(one.node)
    return nodes


def warn(outcomes: dict[tuple[str, str], list[str]]) -> None:
    """Print a warning for nodes that have no copy."""
    for (path, why), nodes in outcomes.items():
        if why:
            hint = "their containers start from the shared file"
            where = slurm_step.contract(nodes)
            messages.say(warning_text(f"{where}: {path} is not in memory: {why}; {hint}"))


# ---- on a node ---------------------------------------------------------------------------------


def here(words: Sequence[str], env: Mapping[str, str]) -> Iterator[str]:
    """Yield what this node says of files: of all that are wanted, or of one that comes."""
    node = env["SLURMD_NODENAME"]
    if words[0] == "look":
        taken = 0
        for number, path in enumerate(words[1:]):
            state, why = _look(path, env, taken)
            yield f"ce-stage: {node} {number} {state} {why}"
            taken += os.stat(path).st_size if state == WANTED else 0
        return
    _keep, arriving, path, content = words
    yield f"ce-stage: {node} 0 {READY} {env['SLURM_STEP_ID']}"
    yield f"ce-stage: {node} 0 {' '.join(_keep_file(arriving, path, content, env))}"


def _copy(path: str, env: Mapping[str, str]) -> tuple[str, os.stat_result]:
    """Return the path of a file's copy, as guard/guard_borrow.c does. Raise OSError."""
    found = os.stat(path)
    directory = directory_of(PLACE, _KEY, env["SLURM_JOB_ID"], env)
    return f"{directory}/{_identity(found)}", found


def _identity(found: os.stat_result) -> str:
    numbers = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return ".".join(f"{number:x}" for number in numbers)


def _look(path: str, env: Mapping[str, str], taken: int) -> tuple[str, str]:
    """Return whether the file is wanted, besides those that need `taken` bytes."""
    try:
        os.close(own_directory(f"{PLACE}/ce-kept-{os.geteuid()}"))
        copy, found = _copy(path, env)
        if os.path.lexists(copy):
            return HAVE, ""
        room = os.statvfs(PLACE)
    except OSError as error:
        return FAILED, f"{error.filename or path}: {reason(error)}"
    free = room.f_bavail * room.f_frsize - taken
    if free < found.st_size + _PIECE:
        return FAILED, f"{PLACE} has {size_text(free)} left"
    left = memory_left("/sys/fs/cgroup", "/proc/self/cgroup") - taken
    if left < found.st_size + _PIECE:
        return FAILED, f"the job has {size_text(max(left, 0))} of memory left"
    return WANTED, ""


def memory_left(root: str, groups: str) -> float:
    """Return how much memory this process's control groups allow it, beside files' page cache.

    Without this look, the kernel would kill a process of the job, of whatever step.
    """
    with open(groups, encoding="utf-8") as file:
        named = [line.rstrip("\n").split(":", 2) for line in file]
    left = math.inf
    for _number, kind, group in named:
        if kind not in {"", "memory"}:
            continue
        base, names = (f"{root}/memory", _OF_V1) if kind else (root, _OF_V2)
        for part in (group, *map(str, PurePosixPath(group).parents)):
            with contextlib.suppress(OSError, ValueError):  # of groups without a limit
                left = min(left, _left_in(f"{base}{part}", names))
    return left


def _left_in(directory: str, names: tuple[str, str, str]) -> int:
    """Raise OSError or ValueError where there is no limit."""
    limit, used, cache = names
    texts = []
    for name in (limit, used, "memory.stat"):
        with open(f"{directory}/{name}", encoding="utf-8") as file:
            texts.append(file.read())
    files = sum(int(number) for number in re.findall(rf"(?m)^{cache} (\d+)$", texts[2]))
    return int(texts[0]) - int(texts[1]) + files


def _keep_file(arriving: str, path: str, content: str, env: Mapping[str, str]) -> tuple[str, str]:
    """Wait for a file, move it and return whether its content is right."""
    came = f"{PLACE}/ce-kept-{os.geteuid()}/{arriving}"
    signal.signal(signal.SIGTERM, lambda _number, _frame: _removed(came))
    try:
        copy, wanted = _copy(path, env)
        while _size_of(came) < wanted.st_size:
            time.sleep(_POLL_S)
        draft = f"{copy}.{arriving.rpartition('.')[2]}"
        try:
            if _move(came, draft) != content.removeprefix("sha256:"):
                return FAILED, "the copy differs from the image that was imported"
            os.chmod(draft, _COMPLETE)
            if not os.path.lexists(copy):  # a call on another host may have been faster
                os.rename(draft, copy)
        finally:
            for left in (came, draft):
                if os.path.lexists(left):
                    os.unlink(left)
    except OSError as error:
        return FAILED, f"{error.filename or PLACE}: {reason(error)}"
    return HAVE, ""


def _removed(came: str) -> None:
    if os.path.lexists(came):
        os.unlink(came)
    os._exit(1)


def _size_of(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return -1


def _move(source: str, target: str) -> str:
    """Move the content of a file piece by piece, and return its hash in hexadecimal.

    slurmd has written the source, so its memory is not the job's: each piece is given back.
    """
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    digest, at = hashlib.sha256(), 0
    with (
        open(os.open(source, os.O_RDWR | os.O_NOFOLLOW), "rb", 0) as old,
        open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as new,
    ):
        while piece := old.read(_PIECE):
            digest.update(piece)
            new.write(piece)
            fallocate(old.fileno(), _PUNCH_HOLE | _KEEP_SIZE, at, len(piece))
            at += len(piece)
    return digest.hexdigest()

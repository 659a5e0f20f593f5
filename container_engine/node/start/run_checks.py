"""Run the programs that must pass before the first task, as hooks, site and environment say.

All of a node run at once, each under a supervisor: a child of the launcher that reads what the
program prints, and at the end kills all that it has started. A verdict that may be believed later
is a recorded answer. Imported only by a start whose plan has such a check.
"""

from __future__ import annotations

import os
import posixpath
import re
import select
import signal
import time

from container_engine.base import answers
from container_engine.base.errors import (
    EXIT_ENGINE,
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
    LaunchError,
    with_output,
)
from container_engine.base.files import open_place
from container_engine.base.variables import for_site_program
from container_engine.node import slurm_step
from container_engine.node.container.description import answers_place, searched
from container_engine.node.hooks.prepare import fill
from container_engine.node.inside.programs import DEFAULTS
from container_engine.node.node_plan import Frozen, applies
from container_engine.node.pattern import expand
from container_engine.node.plan_json import parse_json, to_json
from container_engine.node.report.errors import refuse
from container_engine.node.report.messages import concealed, secret_stems

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, NoReturn

    from container_engine.node.node_plan import NodePlan
    from container_engine.node.plan_types import HookUse, RunCheck

    Enter = Callable[[Sequence[str]], Sequence[str]]

# the end of what a program prints, in which words are looked for and whose last line is shown
_KEPT, _SHOWN = 64 * 1024, 300
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
# until the kernel has ended what was killed
_KILLED_WITHIN_S = 2.0
# between two attempts of a pair, whose other node may start later
_PAUSE_S = 0.1
_MOST_VERDICTS = 64
# ports between two checks of pairs; each of the servers has another one, for nodes of one machine
_APART = 100
# the verdict on a pair in a step of one node
ALONE = "alone"
_NAME = re.compile(r"\b[A-Z][A-Za-z0-9_]+\b")
_FOR_SLURMSTEPD = ("SLURM_RLIMIT_", "SLURM_CE_")


class Check(Frozen):
    """A check of the plan on this node: whose it is, with all its strings filled in.

    `directory` is that of its hook, `role` its part in a pair, "" for one of the node alone.
    `request` is what a verdict is recorded for, b"" if none is believed later.
    """

    of: str
    run: RunCheck
    directory: str
    role: str = ""
    peer: str = ""
    port: int = 0
    request: bytes = b""

    @property
    def label(self) -> str:
        name = f"{self.of}: check {self.run['name']}"
        return f"{name} ({self.role} of {self.peer})" if self.peer else name


class Outcome(Frozen):
    """How a program ended: `status` is its exit code, negative for a signal, None for its limit.

    `seen` are the words of its check that it printed, `last` is its last line; `error` is why it
    could not be started. `ended_ns` is the time, 0 if nobody has noted it.
    """

    status: int | None = None
    seen: Sequence[str] = ()
    last: str = ""
    error: str = ""
    ended_ns: int = 0


class Checks:
    """The checks of a start. `outside` comes before its container, `inside` in it.

    `warnings` are lines for the user, `records` what the trace says of each. `witnesses` are those
    of verdicts that may be believed, None if one of the checks must run at each start.
    """

    def __init__(self, plan: NodePlan, node: Mapping[str, str], libexec: str) -> None:
        self._plan, self._node, self._libexec = plan, node, libexec
        planned = enumerate(map(self._with_request, _planned(plan, node, libexec)), 1)
        self._checks = [one for number, check in planned for one in _sides(check, number, node)]
        self.warnings: list[str] = []
        self.records: list[dict[str, Any]] = []
        self.witnesses: dict[str, str] | None = {}

    def outside(self) -> None:
        """Run those before the container. Raise LaunchError."""
        environment = for_site_program(slurm_step.before_tasks(self._node))
        self._run([one for one in self._checks if not one.run["inside"]], environment, list)

    def inside(self, environment: Mapping[str, str], enter: Enter) -> None:
        """Run those in the container, with the tasks' environment; `enter` has words join it.

        Raise LaunchError.
        """
        known = slurm_step.before_tasks(environment)
        self._run([one for one in self._checks if one.run["inside"]], known, enter)

    def _run(self, checks: Sequence[Check], environment: Mapping[str, str], enter: Enter) -> None:
        whole = {k: v for k, v in environment.items() if not k.startswith(_FOR_SLURMSTEPD)}
        started = [(one, time.time_ns(), self._started(one, whole, enter)) for one in checks]
        unmet: list[tuple[str, LaunchError]] = []
        for one, began, running in started:
            outcome = running.outcome() if isinstance(running, Supervisor) else running
            if isinstance(outcome, Outcome) and _is_unasked(one.run, outcome):
                self._believe(None)
                outcome = "unasked"
            if isinstance(outcome, str):
                self._note(one, outcome, (began, began))
                continue
            problem = _problem(one.run, outcome)
            if problem:
                problem += self._whence(one.run["variables"], outcome.last, environment)
                problem = concealed(problem, self._plan.secrets, self._node)
            times = (began, outcome.ended_ns or began)
            self._note(one, "failed" if problem else "passed", times, problem)
            self._believe(self._judged(one, has_passed=not problem))
            hint = one.run["hint"]
            if problem and one.run["severity"] == "fail":
                failure = LaunchError(problem, hint or None, "check-failed", where=one.label)
                unmet.append(("", failure))
            elif problem:
                self.warnings.append(f"{one.label}: {problem}{f' ({hint})' if hint else ''}")
        refuse(unmet)

    def _started(
        self, check: Check, environment: Mapping[str, str], enter: Enter
    ) -> Supervisor | Outcome | str:
        """Start a check. Return its verdict where nothing has to run."""
        if check.role == ALONE:
            self._believe(None)
            return ALONE
        if check.request and not self._plan.checks_again:
            found = answers.read(answers_place("checks"), check.request)
            if found is not None:
                self._believe(found[0])
                return "believed"
        try:
            return Supervisor(check, environment, enter)
        except OSError as error:
            return Outcome(error=f"cannot be started: {error.strerror}")

    def _note(self, check: Check, verdict: str, times: tuple[int, int], problem: str = "") -> None:
        pair = {"role": check.role, "peer": check.peer} if check.peer else {}
        begin, end = times
        self.records.append(
            {"name": check.run["name"], "of": check.of, **pair, "verdict": verdict}
            | {"severity": check.run["severity"]}
            | {"begin": begin, "end": end, "problem": problem}
        )

    def _whence(self, names: Sequence[str], last: str, environment: Mapping[str, str]) -> str:
        """Return where the variables come from that the last line of a failed check names."""
        named = {name for name in names if name in environment} & {*_NAME.findall(last)}
        found = dict.fromkeys(self._source(name, environment[name]) for name in sorted(named))
        places = " and ".join(place for place in found if place)
        return f" (from {places})" if places else ""

    def _source(self, name: str, value: str) -> str:
        """Return the place of a variable in their order at a start, "" if it is none of these."""
        for entry in self._plan.env:
            if entry["name"] == name:
                return entry["from"]
        for hook in self._plan.hooks:
            if name in hook.get("env", {}) and applies(hook, self._node):
                return f"hook {hook['name']}"
        if self._plan.image_env.get(name) == value:
            return "the image"
        return "srun's environment" if self._node.get(name) == value else ""

    # ---- verdicts that are believed ----------------------------------------------------------

    def _with_request(self, check: Check) -> Check:
        """Add what a verdict is for: the check, and what the container is made of."""
        if not check.run["valid_s"]:
            return check
        plan, prefix = self._plan, os.path.dirname(os.path.dirname(self._libexec))
        # a secret of a launch is no part of what is asked, and must not be written
        made_of = [plan.image_paths, *map(_public, plan.hooks), plan.mounts, plan.env, plan.devices]
        values = [self._node.get(name) for name in check.run["variables"]]
        text = to_json([check.of, check.run, check.directory, values, *made_of])
        request = answers.request_of(prefix, text.encode("utf-8", "surrogateescape"))
        return check.but(request=request)

    def _believe(self, verdict: Mapping[str, str] | None) -> None:
        """Add the witnesses of a verdict to those of the start, which ends with the first."""
        if self.witnesses is None or verdict is None:
            self.witnesses = None
            return
        until = [one["t"] for one in (self.witnesses, verdict) if "t" in one]
        self.witnesses |= {**verdict, "t": min(until, key=int)}

    def _judged(self, check: Check, *, has_passed: bool) -> Mapping[str, str] | None:
        """Record a verdict that may be believed; return its witnesses, None for any other."""
        if not check.request:
            return None
        if has_passed:
            return self._record(check)
        try:
            # recorded starts have believed that it passes
            if answers.forget(answers_place("checks"), check.request):
                answers.forget(answers_place("starts"))
        except OSError:
            pass  # the places are not this user's alone, so that nothing there is believed
        return None

    def _record(self, check: Check) -> Mapping[str, str] | None:
        """Record that a check has passed; return its witnesses, None if it cannot be believed."""
        program, names = _file(check), check.run["variables"]
        stems = secret_stems(self._plan.secrets)
        if any(stem in name.upper() for stem in stems for name in names):
            return None
        paths = [*self._plan.image_paths, *([program] if program else [])]
        for hook in self._plan.hooks:
            files = [file for part in hook.get("libraries", ()) for file in part["files"]]
            paths += [path for file in files for path in expand(fill(file, hook, self._node))]
        try:
            asked = [f"f{path}" for path in paths]
            asked += [f"c{path}" for one in check.run["unchanged"] for path in expand(one)]
            states = {question: answers.state(question) for question in asked}
            node = answers.Variables(self._node)
            for name in names:
                node.get(name)
            until = {"t": str(int(time.time() + check.run["valid_s"]))}
            witnesses = {**answers.installation(), **states, **node.asked, **until}
            if not answers.can_be_checked(witnesses):
                return None
            place = open_place(answers_place("checks"))
            answers.write(place, check.request, witnesses, b"", _MOST_VERDICTS)
        except (OSError, ValueError):
            return None
        return witnesses


def _public(hook: HookUse) -> dict[str, Any]:
    parameters = hook.get("parameters", {})
    return {**hook, "parameters": {k: v for k, v in parameters.items() if k != "secret"}}


def _planned(plan: NodePlan, node: Mapping[str, str], libexec: str) -> Iterator[Check]:
    for own in plan.runs:
        yield Check(own["from"], own, "")
    for hook in plan.hooks:
        if not hook.get("runs") or not applies(hook, node):
            continue
        for run in hook["runs"]:
            filled: RunCheck = {
                **run,
                "command": [fill(word, hook, node) for word in run["command"]],
                "words": [fill(word, hook, node) for word in run["words"]],
                "forbid": [fill(word, hook, node) for word in run["forbid"]],
                "unchanged": [fill(path, hook, node) for path in run["unchanged"]],
            }
            of_hook = posixpath.dirname(hook["file"])
            place = libexec if run["program"] == "engine" else of_hook
            yield Check(f"hook {hook['name']}", filled, place)


def _sides(check: Check, number: int, node: Mapping[str, str]) -> Iterator[Check]:
    """Yield the check once for the node, or for each of its neighbours in the step's ring."""
    if check.run["per"] == "node":
        yield check
        return
    nodes, place = node.get("SLURM_STEP_NODELIST", ""), node.get("SLURM_NODEID", "")
    names = list(slurm_step.expand(nodes)) if place.isdigit() else []
    if len(names) < 2:
        yield check.but(role=ALONE)
        return
    here, port = int(place), int(slurm_step.port(node)) + number * _APART
    after = (here + 1) % len(names)
    yield check.but(role="server", peer=names[here - 1], port=port + here % _APART)
    yield check.but(role="client", peer=names[after], port=port + after % _APART)


def _file(check: Check) -> str:
    """Return the path of a program of the node, "" for the image's or if there is none."""
    word, program = check.run["command"][0], check.run["program"]
    if program in ("hook", "engine"):
        return posixpath.join(check.directory, word)
    place = searched(word)[-1] if program == "host" else ""
    return place if "/" in word or os.access(place, os.X_OK) else ""


# ---- the verdict --------------------------------------------------------------------------------


def _problem(run: RunCheck, outcome: Outcome) -> str:
    """Return why a check has not passed, "" if it has."""
    cause = outcome.error or _cause(run, outcome)
    if not cause:
        return ""
    meaning = f"{run['message']}: " if run["message"] else ""
    if outcome.status == EXIT_NOT_FOUND and outcome.last.startswith("ce: see: "):
        return f"{meaning}{run['command'][0]} is not in the image"
    if outcome.status == EXIT_NOT_EXECUTABLE and outcome.last.startswith("ce: see: "):
        return f"{meaning}{run['command'][0]} cannot be executed in the container"
    program = posixpath.basename(run["command"][0])
    return with_output(f"{meaning}{program} {cause}", outcome.last)


def _is_unasked(run: RunCheck, outcome: Outcome) -> bool:
    """Check whether a program of the engine that needs glibc has found none, and may be missed."""
    is_warning = run["program"] == "engine" and run["severity"] == "warn"
    # ce-enter's exit code if the program's loader is not in the container
    return is_warning and outcome.status == EXIT_NOT_EXECUTABLE


def _cause(run: RunCheck, outcome: Outcome) -> str:
    if outcome.status is None:
        return f"did not pass within {run['limit_s']:g} s"
    if outcome.status < 0:
        return f"was ended by {_signal_name(-outcome.status)}"
    if outcome.status != run["exit_code"]:
        return f"ended with exit code {outcome.status}, not {run['exit_code']}"
    missing = next((word for word in run["words"] if word not in outcome.seen), None)
    if missing is not None:
        return f"did not print '{missing}'"
    found = next((word for word in run["forbid"] if word in outcome.seen), None)
    return "" if found is None else f"printed '{found}'"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# ---- the program --------------------------------------------------------------------------------


class Supervisor:
    """A child of the launcher that runs the program of one check. Raise OSError if there is none.

    It is a subreaper: whatever loses its parent below it becomes its child, and is killed by it.
    """

    def __init__(self, check: Check, environment: Mapping[str, str], enter: Enter) -> None:
        import ctypes

        words, program = list(check.run["command"]), -1
        if check.run["program"] != "image":
            words[0] = _file(check) or words[0]
            if check.run["inside"]:
                program = os.open(words[0], os.O_RDONLY | os.O_CLOEXEC)
                words[0] = f"/proc/self/fd/{program}"
        argv = [*enter(words)]
        prctl = ctypes.CDLL(None).prctl
        launcher = os.pidfd_open(os.getpid())
        self._pipe, result = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            if program >= 0:
                os.set_inheritable(program, True)
            _supervise(check, argv, {**environment, **_of_pair(check)}, result, launcher, prctl)
        for fd in (result, launcher, program):
            if fd >= 0:
                os.close(fd)

    def outcome(self) -> Outcome:
        """Wait for the program's end, or its limit."""
        with open(self._pipe, "rb") as file:
            text = file.read().decode("utf-8", "surrogateescape")
        os.waitpid(self._pid, 0)
        return (
            Outcome(**parse_json(text))
            if text
            else Outcome(error="has lost its supervisor: it was killed")
        )


def _of_pair(check: Check) -> dict[str, str]:
    if not check.role:
        return {}
    told = {"ROLE": check.role, "PEER": check.peer, "PORT": str(check.port)}
    return {f"CE_CHECK_{name}": value for name, value in told.items()}


def _supervise(
    check: Check,
    argv: list[str],
    environment: Mapping[str, str],
    result: int,
    launcher: int,
    prctl: Callable[..., int],
) -> NoReturn:
    code = EXIT_ENGINE
    try:
        os.setsid()
        prctl(_SUBREAPER, 1, 0, 0, 0)
        os.chdir("/")
        end = time.monotonic() + check.run["limit_s"]
        outcome = _attempt(check.run, argv, environment, launcher, end)
        while check.role and _problem(check.run, outcome) and time.monotonic() + _PAUSE_S < end:
            time.sleep(_PAUSE_S)
            again = _attempt(check.run, argv, environment, launcher, end)
            outcome = outcome if again.status is None else again
        os.write(result, to_json({**outcome.__dict__, "ended_ns": time.time_ns()}).encode())
        code = 0
    finally:
        os._exit(code)


def _attempt(
    run: RunCheck, argv: list[str], environment: Mapping[str, str], launcher: int, end: float
) -> Outcome:
    """Run the program until it ends, its time does, or the launcher; then kill what is left."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, writer, 1),
        (os.POSIX_SPAWN_DUP2, writer, 2),
    ]
    try:
        pid = os.posix_spawn(
            argv[0], argv, dict(environment), file_actions=actions, setsid=True, setsigdef=DEFAULTS
        )
    except OSError as error:
        return Outcome(error=f"cannot be started: {error.strerror}")
    finally:
        os.close(writer)
    printed, ended = _Printed(run), os.pidfd_open(pid)
    poll = select.poll()
    for fd in (reader, ended, launcher):
        poll.register(fd, select.POLLIN)
    ready: dict[int, int] = {}
    while not {ended, launcher} & ready.keys() and time.monotonic() < end:
        ready = dict(poll.poll(max(0, end - time.monotonic()) * 1000))
        if reader in ready and not printed.add(os.read(reader, _KEPT)):
            poll.unregister(reader)
    status = None
    if ended in ready:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    _kill_all()
    os.set_blocking(reader, False)
    try:
        while printed.add(os.read(reader, _KEPT)):
            pass
    except BlockingIOError:
        pass  # somebody who could not be killed still has it
    os.close(reader)
    os.close(ended)
    return Outcome(status=status, seen=printed.seen, last=printed.last())


def _kill_all() -> None:
    """Kill all that was started: children of what is killed become children of this process."""
    end = time.monotonic() + _KILLED_WITHIN_S
    while time.monotonic() < end:
        try:
            with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
                for pid in file.read().split():
                    _kill(int(pid))
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(0.001)
        except ChildProcessError:
            return


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


class _Printed:
    """Output of a program: the words that its check asks for, and its end."""

    def __init__(self, run: RunCheck) -> None:
        self.seen: list[str] = []
        asked = (*run["words"], *run["forbid"])
        self._wanted = {word: word.encode("utf-8", "surrogateescape") for word in asked}
        self._end = b""

    def add(self, chunk: bytes) -> bool:
        """Add what was read; return False at the end."""
        text = self._end + chunk
        for word, encoded in self._wanted.items():
            if word not in self.seen and encoded in text:
                self.seen.append(word)
        self._end = text[-_KEPT:]
        return bool(chunk)

    def last(self) -> str:
        """Return the last line that is not empty, without control characters."""
        for line in reversed(self._end.decode("utf-8", "replace").splitlines()):
            shown = "".join(letter if letter.isprintable() else " " for letter in line).strip()
            if shown:
                return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
        return ""

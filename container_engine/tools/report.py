"""The parts of a report for support. Each can be unavailable without harm to the others."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from container_engine import __version__
from container_engine.base import slurm
from container_engine.base.errors import CeError, UserError
from container_engine.base.process import output, reason
from container_engine.base.secrecy import Secrecy
from container_engine.edf.names import lock_of
from container_engine.printing.messages import log_directory
from container_engine.printing.plan import show
from container_engine.submit import plan_output
from container_engine.submit.context import Context, with_faults
from container_engine.tools import step_traces
from container_engine.tools.doctor import cluster
from container_engine.tools.doctor.all_checks import look
from container_engine.tools.doctor.finding import Finding
from container_engine.tools.running_steps import trace_directory
from container_engine.tools.step_traces import Trace

JOB = re.compile(r"\d+([_+]\d+)?(\.\d+(\+\d+)?)?")
_TIMEOUT_S = 30
_VERSIONS = ("srun", "podman", "crun", "conmon", "skopeo")
_MOST_STEPS, _MOST_NODES, _MOST_LOGS = 20, 16, 5
_MOST_FILE = 1 << 20
_BEFORE_S = 60  # a launch begins to plan before its trace begins
_SECOND = 1_000_000_000


class Part(NamedTuple):
    """A titled part; `make` returns its text, or raises CeError or OSError."""

    title: str
    make: Callable[[], str]


class Subject(NamedTuple):
    """The subject of a report: a job with the traces of its steps, or this host if `job` is ""."""

    job: str
    context: Context
    directory: str
    traces: dict[str, list[Trace]]

    @property
    def owner(self) -> int:
        """Return the uid of the owner of the job's traces, else of this user."""
        step = next(iter(self.traces), None)
        if step is None:
            return self.context.uid
        return os.stat(f"{self.directory}/{step}", follow_symlinks=False).st_uid

    @property
    def files(self) -> list[str]:
        """Return the environment files of all steps, and locks beside them."""
        known = [str(f) for found in self.traces.values() for f in found[0].facts.get("files", ())]
        locks = [lock_of(name) for name in known]
        return [*dict.fromkeys(known), *filter(os.path.lexists, dict.fromkeys(locks))]


def subject(job: str | None, context: Context) -> Subject:
    directory, traces = "", {}
    try:
        directory = trace_directory(context)
        known = step_traces.steps(directory, context.uid) if job and directory else []
        wanted = step_traces.of_job(directory, known, job or "")[:_MOST_STEPS]
        found = {step: step_traces.read(directory, step) for step in wanted}
        traces = {step: nodes for step, nodes in found.items() if nodes}
    except (CeError, OSError):
        pass  # the part with the traces reports it
    return Subject(job or "", context, directory, traces)


def parts(subject: Subject) -> Iterator[Part]:
    context = subject.context
    yield Part("versions", partial(_versions, context))
    if subject.job:
        yield Part("the job in Slurm", partial(_job, subject))
        yield Part("traces", partial(_traces, subject))
    yield Part("error logs", partial(_logs, subject))
    # the file of the environment itself is the last; an environment of only an image has none
    last = [file for nodes in subject.traces.values() for file in nodes[0].facts["files"][-1:]]
    for path in dict.fromkeys(last):
        yield Part(f"plan of {path}, as it is now", partial(_plan, path, subject))
    for path in subject.files:
        yield Part(f"environment file {path}", partial(_file, path, subject))
    yield Part("site configuration", partial(_site, context))
    yield Part(f"doctor on {os.uname().nodename}", partial(_doctor, context))
    if subject.job:
        yield Part("doctor on the nodes of the job", partial(_doctor_of_nodes, subject))


def rules(subject: Subject) -> Secrecy:
    """Return what to hide: the site's words, and the secrets of this user and of the files."""
    config = with_faults(subject.context)
    secrecy = Secrecy(config.settings.secret_variables).knowing(subject.context.env.items())
    files = [partial(_file, path, subject) for path in subject.files]
    files += [partial(read, path) for path in config.files]
    for text in files:
        try:
            secrecy = secrecy.knowing(_strings(tomllib.loads(text())))
        except (CeError, OSError, ValueError):
            continue  # not in the report, or not TOML: then only patterns find secrets in it
    return secrecy


def _strings(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield all strings of a document with the nearest key above each."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item, name)


def _versions(context: Context) -> str:
    system = os.uname()
    lines = [f"ce {__version__} in {context.prefix}, Python {sys.version.split()[0]}"]
    lines.append(f"{system.sysname} {system.release} {system.machine}")
    with open("/etc/os-release", encoding="utf-8", errors="replace") as file:
        lines += [line.strip() for line in file if line.startswith("PRETTY_NAME=")]
    for program in _VERSIONS:
        try:
            version = output([program, "--version"], context.env, _TIMEOUT_S).decode(
                errors="replace"
            )
            lines.append(f"{program}: {version.strip().partition(chr(10))[0]}")
        except CeError as error:
            lines.append(f"{program}: {error}")
    return "\n".join(lines)


def _job(subject: Subject) -> str:
    """Return what Slurm knows of the job; its database also knows jobs that ended long ago."""
    number = subject.job.partition(".")[0]
    env = subject.context.env
    try:
        return slurm.answer(["scontrol", "show", "job", number], env, _TIMEOUT_S)
    except CeError as error:
        fields = "JobID,JobName,State,ExitCode,Start,End,NNodes,NodeList,ReqTRES"
        argv = ["sacct", f"--jobs={number}", "--parsable2", f"--format={fields}"]
        try:
            return slurm.answer(argv, env, _TIMEOUT_S)
        except CeError as other:
            raise UserError(f"{error}; {other}") from None


def _traces(subject: Subject) -> str:
    if not subject.traces:
        where = subject.directory or "any place: the site's trace_dir is empty or unusable"
        others = "; ce report as the job's user finds theirs" if subject.context.uid == 0 else ""
        raise UserError(f"no trace of {subject.job} in {where}{others}")
    return "\n".join(line for step in subject.traces for line in _step(step, subject))


def _step(step: str, subject: Subject) -> Iterator[str]:
    traces = subject.traces[step]
    yield from step_traces.lines(step, traces)
    slow = {trace.node for trace in step_traces.stragglers(traces)}
    worst = sorted(traces, key=lambda t: (not t.facts["error"], t.node not in slow))
    for trace in worst[:_MOST_NODES]:
        yield f"\n{trace.node}: {step_traces.content(_beside(subject, step, trace.node, 'json'))}"
    if len(worst) > _MOST_NODES:
        yield f"\n{len(worst) - _MOST_NODES} more nodes are only in the table above"
    yield ""


def _beside(subject: Subject, step: str, node: str, kind: str) -> str:
    return os.path.join(subject.directory, step, f"{node}.{kind}")


def _logs(subject: Subject) -> str:
    found = [*_logs_of_nodes(subject), *_logs_of_submit_host(subject)]
    return "\n".join(f"-- {path}\n{text}" for path, text in found) or "none"


def _logs_of_nodes(subject: Subject) -> Iterator[tuple[str, str]]:
    paths = [
        f"{subject.directory}/{step}/{name}"
        for step in subject.traces
        for name in sorted(os.listdir(f"{subject.directory}/{step}"))
        if name.endswith(".log")
    ]
    yield from ((path, step_traces.content(path)) for path in paths[:_MOST_NODES])


def _logs_of_submit_host(subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield the newest logs of ce and srun; if the job has traces, only logs from its time."""
    directory = log_directory(subject.context.env)
    try:
        names = [n for n in os.listdir(directory) if re.fullmatch(r"\d+-\d+\.log", n)]
    except FileNotFoundError:
        return
    traces = [trace for nodes in subject.traces.values() for trace in nodes]
    if traces:
        begin = min(trace.began for trace in traces) - _BEFORE_S
        end = max(trace.end or trace.began + trace.start_took for trace in traces) + _BEFORE_S
        names = [n for n in names if begin <= int(n.partition("-")[0]) / _SECOND <= end]
    for name in sorted(names, key=lambda n: int(n.partition("-")[0]))[-_MOST_LOGS:]:
        yield f"{directory}/{name}", step_traces.content(f"{directory}/{name}")


def _plan(path: str, subject: Subject) -> str:
    """Return the plan of an environment file, without an import and without the registry."""
    context = subject.context
    if context.uid != subject.owner:
        raise UserError("the plan depends on the job's user: ce report as that user has it")
    _notices, _head, text = plan_output.plan_of(path, context, "never")
    if not text:
        return "no container: this environment runs on the host"
    plan = json.loads(text)
    words = plan["settings"]["secret_variables"]
    return show(plan, Secrecy(tuple(words)).knowing(context.env.items()))


def _file(path: str, subject: Subject) -> str:
    """Return the text of an environment file that a trace names.

    Root reads only files of the job's user, who owns the trace and may have changed it.
    """
    return read(path, {subject.owner} if subject.context.uid == 0 else None)


def read(path: str, owners: set[int] | None = None) -> str:
    """Return the text of a regular file, which one of `owners` must own if they are given."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise UserError("not a regular file", where=path)
        if owners is not None and status.st_uid not in owners:
            raise UserError("does not belong to the job's user, root does not read it", where=path)
        return file.read(_MOST_FILE).decode("utf-8", "replace")


def _site(context: Context) -> str:
    config = with_faults(context)
    lines = [f"fault: {fault}" for fault in config.faults]
    for path in config.files:
        try:
            lines.append(f"-- {path}\n{read(path)}")
        except OSError as error:
            lines.append(f"-- {path}: {reason(error)}")
    return "\n".join(lines) or "no file: all settings have their defaults"


def _doctor(context: Context) -> str:
    return "\n".join(_findings(look(context, whole=True)))


def _doctor_of_nodes(subject: Subject) -> str:
    context, number = subject.context, subject.job.partition(".")[0]
    try:
        running = slurm.nodes_of(number, context.env, _TIMEOUT_S)
    except CeError as error:
        text = f"job {number} is not running, or Slurm reports: {error}"
        raise UserError(text + _instead(subject)) from None
    if not running:
        raise UserError(f"job {number} is not running{_instead(subject)}")
    groups = [
        cluster.Group(tuple(slurm.hosts(nodes, context.env)), tuple(slurm.into(job)))
        for job, nodes in running.items()
    ]
    answers, busy = cluster.ask(groups, f"{context.prefix}/bin/ce", (), context.env)
    lines = []
    for finding, nodes in [*busy, *cluster.fold(answers)]:
        lines.append(f"{','.join(nodes)}:")
        lines += _findings([finding])
    return "\n".join(lines)


def _instead(subject: Subject) -> str:
    """Return the end of a message: the command for the nodes of a job that has ended, or ""."""
    nodes = dict.fromkeys(trace.node for found in subject.traces.values() for trace in found)
    some = ",".join([*nodes][:_MOST_NODES])
    ask = f"srun -w {some} --ntasks-per-node=1 ce doctor --node"
    return f"; {ask} looks at its nodes" if some else ""


def _findings(findings: Iterable[Finding]) -> list[str]:
    lines: list[str] = []
    for finding in findings:
        lines.append(f"{finding.state:<8} {finding.check:<17} {finding.message}")
        lines += [f"{'':27}remedy: {finding.remedy}"] if finding.remedy else []
    return lines

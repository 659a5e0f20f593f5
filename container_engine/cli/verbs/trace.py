"""`ce trace`: show where a launch spent its time on every node of the step."""

from __future__ import annotations

import argparse
import os
import pwd
import re
import time
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.process import reason
from container_engine.printing import messages, output
from container_engine.submit.context import Context, places
from container_engine.tools import running_steps, step_traces

_LISTED = 20
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_HEAD = ("STEP", "STARTED", "NODES", "START TOOK", "STATE", "ENVIRONMENT")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "step",
        metavar="JOB[.STEP]",
        nargs="?",
        help="a step, a job's newest one, or `last`; without it: the newest steps with a trace",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="list the steps of all users whose traces you may read, in the site's trace_dir",
    )
    parser.add_argument(
        "--since", metavar="TIME", help="list steps since then: 30m, 2h, 1d or 2026-01-31[T12:00]"
    )
    parser.add_argument(
        "--perfetto", metavar="FILE", help="write Chrome's trace format, for ui.perfetto.dev"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    directory = running_steps.written_traces(context)
    if arguments.step is None:
        return _list(arguments, directory, context)
    if arguments.all or arguments.since:
        raise UserError("trace: --all and --since list steps: name no step with them")
    step = step_traces.choose(directory, arguments.step, context.uid)
    traces = step_traces.whole(directory, step)
    if arguments.perfetto:
        _write(arguments.perfetto, step_traces.for_perfetto(step, traces))
    if arguments.json:
        nodes = [_for_programs(trace) for trace in traces]
        usual, _slow = _compared(traces, context)
        output.document({"step": step, "nodes": nodes, "usual": usual})
    elif not arguments.perfetto:
        _usual, slow = _compared(traces, context)
        for line in step_traces.lines(step, traces, output.columns(), slow):
            output.folded(line, step_traces.LABEL_WIDTH)
    return 0


def _compared(
    traces: Sequence[step_traces.Trace], context: Context
) -> tuple[dict[str, float] | None, Sequence[str]]:
    """Return what the site's records say of the image's starts, and lines on slow nodes."""
    path = places(context).starts_file
    if not path:
        return None, ()
    from container_engine.tools import start_records  # most sites have none

    try:
        records = start_records.load(path)
    except UserError as error:
        messages.say(f"ce: {error}\n")
        return None, ()
    key = start_records.image_key(traces[0].facts["image"])
    known = start_records.usual(records, "images", key)
    return known and known._asdict(), list(start_records.slow_lines(records, traces))


class _Listed(NamedTuple):
    """A step with the traces of its nodes."""

    step: str
    user: str
    traces: Sequence[step_traces.Trace]

    @property
    def began(self) -> float:
        return min(trace.began for trace in self.traces)

    def row(self) -> tuple[str, ...]:
        return (
            self.step,
            time.strftime("%d %b %H:%M:%S", time.localtime(self.began)),
            step_traces.share(self.traces),
            f"{1000 * self._took():.0f} ms",
            step_traces.state(self.traces),
            str(self.traces[0].facts["environment"]),
        )

    def as_json(self) -> dict[str, object]:
        facts = self.traces[0].facts
        return {
            "step": self.step,
            "user": self.user,
            "started": self.began,
            "environment": facts["environment"],
            "image": facts["image"],
            "nodes": [trace.node for trace in self.traces],
            "missing": step_traces.missing(self.traces),
            "start_took": self._took(),
            "ended": all(trace.end is not None for trace in self.traces),
            "failed": {t.node: t.facts["error"] for t in self.traces if t.facts["error"]},
        }

    def _took(self) -> float:
        return max(trace.start_took for trace in self.traces)


def _list(arguments: argparse.Namespace, directory: str, context: Context) -> int:
    if arguments.all and places(context).trace_dir.startswith("~"):
        raise UserError(
            "trace --all: this site keeps traces in the users' homes",
            "trace_dir of the site's configuration: one directory for all users",
        )
    since = None if arguments.since is None else moment(arguments.since, time.time())
    known = step_traces.steps(directory, 0 if arguments.all else context.uid, since or 0)
    found = _read(directory, known if since is not None else known[:_LISTED], since or 0)
    if arguments.json:
        output.document({"steps": [one.as_json() for one in found]})
        return 0
    if not found:
        hint = (
            "; users have theirs in their homes" if context.uid == 0 and not arguments.all else ""
        )
        output.line(f"no traces in {directory}{hint}")
        return 0
    rows = [_HEAD, *(one.row() for one in found)]
    if arguments.all:
        users = ["USER", *(one.user for one in found)]
        rows = [(row[0], user, *row[1:]) for row, user in zip(rows, users, strict=True)]
    output.table(rows, right=(3, 4) if arguments.all else (2, 3))
    return 0


def _read(directory: str, steps: Sequence[str], since: float) -> list[_Listed]:
    """Return the steps that can be read and began at `since` or later."""
    found = []
    for step in steps:
        try:
            traces = step_traces.read(directory, step)
            owner = os.stat(f"{directory}/{step}", follow_symlinks=False).st_uid
        except (OSError, UserError):
            continue  # another user's, or removed meanwhile
        listed = _Listed(step, _name(owner), traces)
        if traces and listed.began >= since:
            found.append(listed)
    return found


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def moment(text: str, now: float) -> float:
    """Return the time of `30m`, `2h`, `1d` ago or of an ISO date. Raise UserError."""
    ago = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if ago:
        return now - int(ago[1]) * _SECONDS[ago[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UserError(
            f"--since: '{text}' is not a time", "for example 30m, 2h, 1d, 2026-01-31T12:00"
        ) from None


def _for_programs(trace: step_traces.Trace) -> dict[str, object]:
    phases = [phase._asdict() for phase in trace.phases]
    return {
        **trace.facts,
        "node": trace.node,
        "phases": phases,
        "joined": trace.joined,
        "end": trace.end,
        "image_reads": [*trace.reads],
    }


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UserError(reason(error), where=path) from None
    output.line(f"wrote {os.path.abspath(path)}")

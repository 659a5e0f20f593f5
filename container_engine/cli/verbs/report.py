"""`ce report [JOB]`: write all that a support ticket needs to one text file, without secrets."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence

from container_engine.base.errors import CeError, UserError
from container_engine.base.files import replace
from container_engine.base.process import reason
from container_engine.images.listener import Quiet
from container_engine.node.report import errors
from container_engine.printing import output
from container_engine.submit.context import Context
from container_engine.submit.refused import RefusedError
from container_engine.tools import report as report_parts
from container_engine.tools import step_traces
from container_engine.tools.report import Part, Subject
from container_engine.tools.running_steps import trace_directory


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write one text file to attach to a support ticket: versions, what ce doctor finds here"
        " and on the job's nodes, plans, traces, logs, environment files and the site's"
        " configuration. Secrets that can be recognized are left out."
    )
    parser.add_argument(
        "job",
        metavar="JOB[.STEP]",
        nargs="?",
        help="a job or one of its steps, also after its end, or `last`; without it: this host"
        " alone",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write there (ce-report-JOB.txt in the current directory)",
    )


def execute(arguments: argparse.Namespace, context: Context) -> int:
    job: str | None = arguments.job
    if job == "last":
        job = step_traces.choose(trace_directory(context), job, context.uid)
    if job is not None and not report_parts.JOB.fullmatch(job):
        raise UserError(
            "not a JOB, JOB.STEP or last", "ce trace lists steps, squeue jobs", name=job
        )
    subject = report_parts.subject(job, context._replace(listener=Quiet))
    made = [(part.title, *_made(part)) for part in report_parts.parts(subject)]
    missing = [f"{title}: {cause}" for title, _text, cause in made if cause]
    text = _head(subject, missing)
    text += "".join(f"\n==== {title} ====\n\n{content}\n" for title, content, _cause in made)
    path = os.path.join(
        context.cwd, arguments.output or f"ce-report-{job or os.uname().nodename}.txt"
    )
    _write(path, report_parts.rules(subject).text(errors.redacted(text)))
    output.line(f"wrote {path}")
    for line in missing:
        output.line(f"not in the report: {line}")
    output.line("read it before you send it: only secrets that can be recognized are left out")
    return 0


def _made(part: Part) -> tuple[str, str]:
    """Return the text of a part and "", or the error in its place and the cause."""
    try:
        return part.make().rstrip("\n"), ""
    except RefusedError as refused:
        # the problems of an environment are what the reader of the report looks for
        return "\n".join(map(str, refused.problems)), ""
    except CeError as error:
        return f"(not available: {error})", str(error)
    except OSError as error:
        cause = f"{error.filename}: {reason(error)}" if error.filename else reason(error)
        return f"(not available: {cause})", cause
    except Exception as error:  # noqa: BLE001 - one part must not cost the others
        cause = f"internal error: {type(error).__name__}: {error}"
        return f"(not available: {cause})", cause


def _head(subject: Subject, missing: Sequence[str]) -> str:
    about = f"job {subject.job}" if subject.job else "this host"
    when = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    text = f"ce report on {about}, written {when} on {os.uname().nodename}"
    text += f" by user {subject.context.uid}\n"
    return text + "".join(f"not available: {line}\n" for line in missing)


def _write(path: str, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    try:
        replace(path, text.encode("utf-8", "replace"), 0o600)
    except OSError as error:
        hint = "ce report -o FILE writes it elsewhere"
        raise UserError(reason(error), hint, where=path) from None

"""The trace of a launch on one node: when what began, and what the container was made of.

A file of the user's with a line of JSON from the launcher and, when the session has ended, one from
the plugin (spank_plugin/moments.h). A launch never fails for its trace's sake. Times are
nanoseconds since 1970. No value of a variable is written, only names: values may be secrets.
"""

from __future__ import annotations

import os
import time

from container_engine.launch.text import to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

VERSION = 1
PLANNED = "SLURM_CE_PLANNED"
# the operations of the guard with which a phase begins; those before them mount the image
_BEGINS = {"session": "mount", "more": "hooks", "podman": "create", "container": "init"}
_LONGEST_ERROR = 2000
_KEPT = 200  # steps; the first node of a step removes what is older


class Marks:
    """Moments of a start, by the monotonic clock. `begun` is when slurmstepd forked, since 1970."""

    def __init__(self, begun: int) -> None:
        self.begun = begun
        self.guard = ""  # the guard's own moments: "OPERATION NANOSECONDS" lines
        self.names: dict[str, Sequence[str]] = {}  # of variables, by who has set them
        self._marks: list[tuple[str, int]] = []

    def mark(self, name: str) -> None:
        """The phase `name` begins now, and the one before has ended."""
        self._marks.append((name, time.monotonic_ns()))

    def phases(self) -> list[dict[str, Any]]:
        """What took how long, in order, each to the beginning of the next."""
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
    """A new trace's file below DIRECTORY/JOB.STEP, -1 if there is none. `~` is the user's home."""
    if not directory:
        return -1
    from container_engine.launch import nodename

    where = os.path.expanduser(directory) if directory.startswith("~") else directory
    step = f"{node.get('SLURM_JOB_ID', '0')}.{node.get('SLURM_STEP_ID', '0')}"
    name = nodename.complete(node).get("SLURMD_NODENAME") or os.uname().nodename
    if not where.startswith("/") or "/" in step or "/" in name:
        return -1
    try:
        os.makedirs(f"{where}/{step}", 0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(f"{where}/{step}/{name}.json", flags, 0o600)
    except OSError:
        return -1


def write(
    fd: int, plan: Mapping[str, Any], node: Mapping[str, str], marks: Marks, error: str = ""
) -> None:
    """Appends the launcher's line; nothing where there is no trace."""
    if fd < 0:
        return
    marks.mark("end")
    phases = marks.phases()
    planned = node.get(PLANNED, "").split()
    if len(planned) == 2 and all(map(str.isdigit, planned)):
        phases.insert(0, _phase("plan", int(planned[0]), int(planned[1])))
    record = {
        "version": VERSION,
        "engine": plan.get("engine", ""),
        "job": node.get("SLURM_JOB_ID", ""),
        "step": node.get("SLURM_STEP_ID", ""),
        "host": os.uname().nodename,
        "environment": plan.get("name", ""),
        "files": plan.get("files", ()),
        "image": {key: plan["image"].get(key) or "" for key in ("name", "path", "digest")},
        "hooks": [
            {"name": hook["name"], "release": hook["release"], "reason": hook["reason"]}
            for hook in plan.get("hooks", ())
        ],
        "mounts": [
            {"target": _words(mount["target"]), "source": _words(mount["source"]), "from": origin}
            for mount in plan["mounts"]
            for origin in (mount["from"],)
        ],
        "variables": marks.names,
        "phases": phases,
        "error": error[:_LONGEST_ERROR],
    }
    line = (to_json(record) + "\n").encode()
    try:
        os.write(fd, line)
        if node.get("SLURM_NODEID") == "0":
            _forget_old(os.path.dirname(os.path.dirname(os.readlink(f"/proc/self/fd/{fd}"))))
    except OSError:
        return  # a full disk loses the trace, not the step


def _forget_old(directory: str) -> None:
    """Steps beyond those that are kept, by their numbers, which grow."""
    steps = [name for name in os.listdir(directory) if name.replace(".", "", 1).isdigit()]
    steps.sort(key=lambda name: [int(number) for number in name.split(".")])
    for step in steps[:-_KEPT]:
        for name in os.listdir(f"{directory}/{step}"):
            os.unlink(f"{directory}/{step}/{name}")
        os.rmdir(f"{directory}/{step}")


def is_news(fd: int, node: Mapping[str, str], message: str) -> bool:
    """Whether this node is the first of its step to say this; of a thousand nodes one is heard.

    Nodes that share no place for traces all are. srun itself names every node that failed.
    """
    if fd < 0:
        return True
    from hashlib import sha256

    # when it was planned tells one srun from a later one with the same numbers
    said = f"{node.get(PLANNED, '')} {message}".encode("utf-8", "surrogateescape")
    try:
        directory = os.path.dirname(os.readlink(f"/proc/self/fd/{fd}"))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        os.close(os.open(f"{directory}/said-{sha256(said).hexdigest()[:16]}", flags, 0o600))
    except FileExistsError:
        return False
    except OSError:
        return True
    return True


def _words(text: Any) -> str:  # noqa: ANN401  # a Text of the plan
    """A deferred string as it was written."""
    if isinstance(text, str):
        return text
    return "".join(p if isinstance(p, str) else f"${{{p['var']}}}" for p in text)

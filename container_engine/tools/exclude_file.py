"""The file in which `ce vet` remembers bad nodes; Slurm reads it, too (sbatch --exclude)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from datetime import datetime

from container_engine.base import files
from container_engine.base.errors import UserError
from container_engine.base.process import reason
from container_engine.tools.verdicts import SILENT, Verdict

_DAY_S = 86400
# a node that was silent may only have been slow, or out of reach for a while
_REMEMBERED_S, _SILENT_S = 7 * _DAY_S, _DAY_S
_NODE = re.compile(r"[\w.-]+")
_FORM = "each line is NODE # TIME REASON: correct it or remove it"


def remembered(path: str, now: float) -> dict[str, str]:
    """Return the nodes that the file excludes, each with the time and the reason.

    Lines older than a week are removed from it, those of silent nodes after a day. `#` begins a
    comment. A node without one stays. Raise UserError.
    """
    found, kept = {}, []
    try:
        with open(path, "a+", encoding="utf-8") as file:
            file.seek(0)
            text = file.read()
        for number, line in enumerate(text.splitlines(), 1):
            node, _mark, about = (part.strip() for part in line.partition("#"))
            if node and not _NODE.fullmatch(node):
                raise UserError(f"'{node[:40]}' is no node", _FORM, where=f"{path}:{number}")
            if not node or not about or now < _until(about, f"{path}:{number}"):
                kept.append(line)
                found.update({node: about} if node else {})
        if _text(kept) != text.encode("utf-8", "replace"):  # also without an end of the last line
            files.replace(os.path.realpath(path), _text(kept))
    except (OSError, ValueError) as error:
        raise UserError(reason(error), "name a text file that you may write", where=path) from None
    return found


def _until(about: str, where: str) -> float:
    when, _space, why = about.partition(" ")
    lasts = _SILENT_S if why.startswith(f"{SILENT}: ") else _REMEMBERED_S
    try:
        return datetime.fromisoformat(when).timestamp() + lasts
    except (ValueError, OverflowError):
        raise UserError(f"'{about[:40]}' begins with no time", _FORM, where=where) from None


def _text(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def remember(path: str, bad: Sequence[Verdict], now: float) -> None:
    """Add nodes to the file, in one write: other jobs may do so, too. Raise UserError."""
    when = datetime.fromtimestamp(now).astimezone().isoformat(timespec="seconds")
    marks = {SILENT: f"{SILENT}: "}
    whys = (f"{marks.get(one.verdict, '')}{' '.join(one.reason.split())}" for one in bad)
    lines = (f"{one.node} # {when} {why}" for one, why in zip(bad, whys, strict=True))
    try:
        with open(path, "ab") as file:
            file.write(_text(lines))
    except OSError as error:
        raise UserError(reason(error), "name a text file that you may write", where=path) from None

"""Find the line of a Containerfile at which Podman's build has failed. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# "STEP 2/3: RUN make", after "[1/2] " if there are several stages
_STEP = re.compile(rb"(?:\[\d+/\d+\] )?STEP \d+(?:/\d+)?: (.*)")
_ESCAPE = re.compile(r"#\s*escape\s*=\s*`\s*", re.IGNORECASE)
_FROM = re.compile(r"FROM (?:--\S+ )*(\S+)(?: AS (\S+))?", re.IGNORECASE)
_MOST_SHOWN = 72


class Steps:
    """A listener to Podman's output that remembers which instruction it began last."""

    def __init__(self) -> None:
        self.last = ""
        self._rest = b""

    def hear(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            found = _STEP.match(line)
            if found:
                self.last = found[1].decode(errors="replace").strip()


def line_of(step: str, containerfile: str) -> int:
    """Return the number of the line at which an instruction begins; 0 unless it is certain."""
    wanted = " ".join(step.split())
    found = [number for number, text in _instructions(containerfile) if text == wanted]
    return found[0] if len(found) == 1 else 0


def bases_of(containerfile: str) -> list[tuple[int, str]]:
    """Return line and name of the images that stages begin with; not stages, not variables."""
    found, stages = [], {"scratch"}
    for number, text in _instructions(containerfile):
        match = _FROM.match(text)
        if match is None:
            continue
        base, stage = match.groups()
        if base.lower() not in stages and "$" not in base:
            found.append((number, base))
        stages.add((stage or "").lower())
    return found


def shortened(step: str) -> str:
    """Return an instruction in one line that is not too long for a message."""
    text = " ".join(step.split())
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _instructions(containerfile: str) -> Iterator[tuple[int, str]]:
    """Yield line number and text of each instruction, with single spaces.

    Lines of a here-document are yielded, too.
    """
    lines = containerfile.splitlines()
    escape = "`" if lines and _ESCAPE.fullmatch(lines[0].strip()) else "\\"
    begun, parts = 0, []
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        begun = begun or number
        parts.append(text.removesuffix(escape))
        if not text.endswith(escape):
            yield begun, " ".join(" ".join(parts).split())
            begun, parts = 0, []
    if parts:
        yield begun, " ".join(" ".join(parts).split())

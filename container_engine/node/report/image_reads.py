"""Figures of ce-image for the mounts of a step (spank_plugin/common/image_figures.h).

The guard of a step holds a memory file for each mount that the step uses. All of this is advice:
what is not there, or cannot be read, is left out.
"""

from __future__ import annotations

import os
from struct import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LINK = "/memfd:ce-figures (deleted)"
_LAYOUT = Struct("=9Q1024s")
# in the order of the structure; the file's size, and whether other steps may use the mount, follow
FIGURES = ("bytes", "reads", "waited_ns", "requests", "lookups", "hits", "misses")


def files(guard: int) -> list[int]:
    """Return descriptors of the memory files that the process `guard` holds."""
    place = f"/proc/{guard}/fd"
    try:
        links = [f"{place}/{name}" for name in os.listdir(place)]
    except OSError:
        return []  # it has ended
    return [file for file in map(_opened, links) if file >= 0]


def _opened(link: str) -> int:
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(link, flags) if os.readlink(link) == _LINK else -1
    except OSError:
        return -1  # it has been closed


def of_guard(guard: int) -> list[dict[str, Any]]:
    """Return the figures of each mount, as the end of a step's trace has them."""
    found = []
    for file in files(guard):
        data = os.pread(file, _LAYOUT.size, 0)
        os.close(file)
        if len(data) == _LAYOUT.size:
            *figures, size, is_shared, path = _LAYOUT.unpack(data)
            counted = dict(zip(FIGURES, figures, strict=True))
            name = path.partition(b"\0")[0].decode(errors="replace")
            found.append({**counted, "size": size, "shared": is_shared != 0, "path": name})
    return found


def of_pidfd(guard: int) -> list[dict[str, Any]]:
    """Return the figures that the process of a pidfd holds."""
    pids = watched(f"/proc/self/fdinfo/{guard}")
    return of_guard(pids[0]) if pids else []


def watched(fdinfo: str) -> list[int]:
    """Return the process of a pidfd, by its file of /proc; nothing for another descriptor."""
    try:
        with open(fdinfo, encoding="ascii") as file:
            return [int(line[4:]) for line in file if line.startswith("Pid:")]
    except (OSError, ValueError):
        return []

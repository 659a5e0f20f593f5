"""Which images of a store jobs use: links in STORE/uses, made by launch/uses.py."""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NAME = re.compile(r"(\d+)-[0-9a-f]+@([^/]*)")


class Running(NamedTuple):
    """The jobs of a cluster that have not ended, as `uid` sees them; those of others may be hidden.

    `jobs` is None where nobody could be asked.
    """

    cluster: str
    jobs: frozenset[str] | None
    uid: int
    sees_all: bool = True


class _Link(NamedTuple):
    path: str
    job: str
    cluster: str
    image: str
    uid: int

    def is_over(self, running: Running) -> bool:
        """Whether the job has certainly ended; of other clusters' jobs nothing is known here."""
        if running.jobs is None or (self.cluster and self.cluster != running.cluster):
            return False
        return self.job not in running.jobs and (running.sees_all or self.uid == running.uid)

    def said(self, running: Running) -> str:
        elsewhere = self.cluster and self.cluster != running.cluster
        where = f" of cluster {self.cluster}" if elsewhere and running.jobs is not None else ""
        return f"{self.job}{where}"


class InUse(NamedTuple):
    """`jobs` by the path of the image that they use; `over` are links that jobs have left."""

    jobs: Mapping[str, tuple[str, ...]]
    over: tuple[str, ...]

    def why_not(self, path: str) -> str | None:
        """In words, why the image `path` must stay; None if it need not."""
        known = self.jobs.get(path)
        if not known:
            return None
        return f"in use by job{'s'[: len(known) - 1]} {', '.join(known)}"


NOTHING = InUse({}, ())


def is_any(root: str) -> bool:
    return next(_links(root), None) is not None


def in_use(root: str, running: Running) -> InUse:
    """What the store `root` says, of which `running` knows whether it still holds."""
    jobs: dict[str, list[str]] = {}
    over = []
    for link in sorted(_links(root)):
        if link.is_over(running):
            over.append(link.path)
        else:
            jobs.setdefault(f"{root}/images/{link.image}", []).append(link.said(running))
    return InUse({path: tuple(some) for path, some in jobs.items()}, tuple(over))


def _links(root: str) -> Iterator[_Link]:
    directory = f"{root}/uses"
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(directory):
            match = _NAME.fullmatch(name)
            path = f"{directory}/{name}"
            with contextlib.suppress(OSError):
                if match is not None:
                    image, uid = os.path.basename(os.readlink(path)), os.lstat(path).st_uid
                    yield _Link(path, match[1], match[2], image, uid)

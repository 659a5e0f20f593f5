"""List the images of a store and the jobs that use them, and remove images to make room.

Jobs are found by links in STORE/uses from node/start/image_in_use.py. Slurm is asked only if there
are links. These must be listed first: a job that began after Slurm's answer would be taken for one
that has ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from container_engine.base import slurm
from container_engine.base.errors import CeError, UserError
from container_engine.base.files import files_of, is_older, now_at
from container_engine.base.text_layout import duration_text
from container_engine.images import image_files
from container_engine.images.digests import ALGORITHMS
from container_engine.images.image_files import Use, belongings, read_small
from container_engine.images.store.store import CLOCKS_S, Ref, read_ref, ref_name

_NAME = re.compile(r"(\d+)-[0-9a-f]+(?:\.\d+(?:\.[0-9a-f]+)?)?@([^/]*)")
# with SLURM_CLUSTERS set, a line with the cluster's name precedes them
_JOB = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\w+)\s*$", re.MULTILINE)
# a job that completes still has processes, one that is requeued is pending again
_ENDED = frozenset(
    [
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE"),
        *("FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"),
    ]
)
_DIGITS = 12  # digits of the digest in the name of a link
_YOUNG_S = 3600  # Slurm may not list the job of a younger link yet
_FORGOTTEN_S = 90 * 86400  # for links of a cluster that cannot be asked; no job runs that long


class Running(NamedTuple):
    """The unfinished jobs of a cluster with their users, as visible to `uid`.

    Jobs of other users may be hidden unless `sees_all`. `jobs` is None if Slurm could not be asked.
    `ended` are jobs that Slurm still knows, and knows to have ended.
    """

    cluster: str
    jobs: Mapping[str, int] | None
    uid: int
    sees_all: bool = True
    ended: frozenset[str] = frozenset()


class Link(NamedTuple):
    """A link that a job made to an image in use. `age_s` is by the clock of the file server.

    `store_uid` owns the directory. If a file server maps all users to one, that one owns all files.
    """

    path: str
    job: str
    cluster: str
    image: str
    uid: int
    store_uid: int
    age_s: float

    def is_over(self, running: Running) -> bool:
        """Check whether the job has certainly ended, or does not belong to the link's owner."""
        if running.jobs is None:
            return False
        if self._is_elsewhere(running):
            return self.age_s > _FORGOTTEN_S
        user = running.jobs.get(self.job)
        if user is not None:
            return self.uid not in {user, self.store_uid}
        if self.job in running.ended:
            return True
        return self.age_s > _YOUNG_S and self._would_be_listed(running)

    def is_unlisted(self, running: Running) -> bool:
        """Check whether Slurm, asked for all its jobs, does not know that of this link."""
        if running.jobs is None or self._is_elsewhere(running):
            return False
        return self.job not in running.jobs and self._would_be_listed(running)

    def described(self, running: Running) -> str:
        if running.jobs is None:
            return self.job
        if self._is_elsewhere(running):
            return f"{self.job} of cluster {self.cluster}"
        return self.job

    def _would_be_listed(self, running: Running) -> bool:
        return running.sees_all or self.uid == running.uid

    def _is_elsewhere(self, running: Running) -> bool:
        return self.cluster not in {"", running.cluster}


class InUse(NamedTuple):
    """The images of a store that jobs use.

    `jobs` maps the path of an image to the jobs that use it; `over` are links of ended jobs. `root`
    is the store, "" for one that is not checked again; `seen` are the links at the first check.
    `unlisted` maps the path to jobs of the last hour that Slurm does not list. It forgets a job
    some time after its end (MinJobAge), so they have most likely ended.
    """

    jobs: Mapping[str, tuple[str, ...]]
    over: tuple[str, ...]
    root: str = ""
    seen: frozenset[str] = frozenset()
    unlisted: Mapping[str, tuple[str, ...]] = MappingProxyType({})

    def why_not(self, path: str) -> str | None:
        """Return, in words, why the image `path` must stay, or None if it need not."""
        known = self.jobs.get(path)
        if known:
            return _described(known)
        unlisted = self.unlisted.get(path)
        if unlisted is None:
            return None
        return (
            f"last used by {_jobs(unlisted)}, which Slurm no longer lists;"
            " kept for an hour after its first use"
        )

    def is_probably_over(self, path: str) -> bool:
        """Check whether only jobs that Slurm does not list keep the image `path`."""
        return path in self.unlisted and path not in self.jobs

    def why_not_now(self, path: str) -> str | None:
        """Return what `why_not` does, also for jobs that have begun since the first check."""
        if not self.root:
            return self.why_not(path)
        name = os.path.basename(path)
        digits = name.removeprefix("sha256-")[:_DIGITS]
        new = [
            link.job
            for link in _links(self.root, digits)
            if link.image == name and link.path not in self.seen
        ]
        return self.why_not(path) or (_described(new) if new else None)


NOTHING = InUse(MappingProxyType({}), ())


def used_by_jobs(root: str, env: Mapping[str, str], uid: int) -> InUse:
    """Return which images of the store `root` jobs use, as far as `uid` sees them.

    If Slurm does not answer, every job that the store names counts as running.
    """
    found = links(root)
    running = _running(env, uid) if found else Running("", None, uid)
    return in_use(root, found, running)


def _running(env: Mapping[str, str], uid: int) -> Running:
    """Return the jobs of all users: a store may be shared, and a link belongs to the job's user."""
    try:
        # without --states=all, a job that has just ended looks like one that is not listed yet
        listed = slurm.answer(["squeue", "--noheader", "--states=all", "--format=%A %U %T"], env)
        settings = slurm.settings(env)
    except CeError:
        return Running("", None, uid)
    is_hidden = uid != 0 and "jobs" in settings.get("PrivateData", "").split(",")
    found = _JOB.findall(listed)
    jobs = {job: int(user) for job, user, state in found if state not in _ENDED}
    ended = frozenset(job for job, _user, state in found if state in _ENDED) - jobs.keys()
    return Running(settings.get("ClusterName", ""), jobs, uid, not is_hidden, ended)


def links(root: str) -> tuple[Link, ...]:
    """Return the links of the store `root`. Call this before Slurm is asked for its jobs."""
    return tuple(sorted(_links(root)))


def in_use(root: str, found: Sequence[Link], running: Running) -> InUse:
    """Return the images in use by the links `found` in the store `root`, and links to remove.

    `running` decides whether a link's job has ended.
    """
    jobs: dict[str, list[str]] = {}
    unlisted: dict[str, list[str]] = {}
    over = []
    for link in found:
        if link.is_over(running):
            over.append(link.path)
        else:
            users = unlisted if link.is_unlisted(running) else jobs
            users.setdefault(f"{root}/images/{link.image}", []).append(link.described(running))
    seen = frozenset(link.path for link in found)
    return InUse(_fixed(jobs), tuple(over), root, seen, _fixed(unlisted))


def _fixed(users: Mapping[str, Sequence[str]]) -> Mapping[str, tuple[str, ...]]:
    return {path: tuple(jobs) for path, jobs in users.items()}


def _links(root: str, digits: str = "") -> Iterator[Link]:
    directory = f"{root}/uses"
    with contextlib.suppress(FileNotFoundError):
        names = [name for name in os.listdir(directory) if f"-{digits}" in name]
        store_uid, now = os.stat(directory).st_uid, now_at(directory) if names else 0
        for name in names:
            match = _NAME.fullmatch(name)
            path = f"{directory}/{name}"
            with contextlib.suppress(OSError):
                if match is not None:
                    image, status = os.path.basename(os.readlink(path)), os.lstat(path)
                    # the user who makes a link can set its mtime into the future, but not its ctime
                    age_s = now - min(status.st_mtime, status.st_ctime)
                    yield Link(path, match[1], match[2], image, status.st_uid, store_uid, age_s)


def _described(jobs: Sequence[str]) -> str:
    return f"in use by {_jobs(jobs)}"


def _jobs(jobs: Sequence[str]) -> str:
    return f"job{'s'[: len(jobs) - 1]} {', '.join(jobs)}"


_IMAGE = re.compile(r"(sha256)-([0-9a-f]{64})-(\w+)\.sqsh")
_FRACTION = re.compile(r"\.[0-9]+")


class Item(NamedTuple):
    """An image of a store. Times are seconds since 1970.

    `created` is the time in its configuration, else that of the import. `used` is the time of the
    last launch, accurate to some hours, or a later access time if the file system records it.
    """

    path: str
    digest: str
    arch: str
    names: tuple[str, ...]
    size: int
    created: float
    imported: float
    used: float


class Named(NamedTuple):
    """A ref, its file and its architecture; `ref` is None if it is invalid or not trusted."""

    path: str
    arch: str
    ref: Ref | None


def refs(root: str) -> Iterator[Named]:
    for path in files_of(f"{root}/refs"):
        if path.endswith(".json"):
            yield Named(path, path.removesuffix(".json").rpartition("-")[2], _ref(path))


def _ref(path: str) -> Ref | None:
    """Return a ref; None if it is invalid or another user put it there."""
    try:
        return read_ref(path)
    except UserError:
        return None


def items(root: str) -> list[Item]:
    """Return the images of the store `root`, the most recently used first."""
    names: dict[tuple[str, str], list[str]] = {}
    for named in refs(root):
        if named.ref is not None:
            names.setdefault((named.ref.digest, named.arch), []).append(named.ref.name)
    found = []
    for path in files_of(f"{root}/images"):
        match = _IMAGE.fullmatch(os.path.basename(path))
        if match is None:
            continue
        digest, arch = f"{match[1]}:{match[2]}", match[3]
        known = tuple(sorted(names.get((digest, arch), ())))
        with contextlib.suppress(FileNotFoundError):
            found.append(_item(path, digest, arch, known))
    return sorted(found, key=lambda item: -item.used)


def _item(path: str, digest: str, arch: str, names: tuple[str, ...]) -> Item:
    status = os.stat(path)
    noted = image_files.recorded_use(path) or Use(status.st_mtime, status.st_mtime)
    # `keep_alive`, which is not a use, sets both to the same time
    is_read = status.st_atime_ns != status.st_mtime_ns
    read = status.st_atime if is_read else 0
    imported = _credible(noted.imported, status.st_mtime)
    used = max(_credible(noted.used, noted.imported, status.st_mtime), _credible(read, 0))
    created = _created(image_files.config_path(path)) or imported
    return Item(path, digest, arch, names, status.st_size, created, imported, used)


def _credible(*times: float) -> float:
    """Return the first of the times that is not in the future, else the present time."""
    now = time.time()
    return next((when for when in times if when < now + CLOCKS_S), now)


def _created(path: str) -> float | None:
    """Return the creation time in an OCI configuration, or None if there is none.

    Times close to 1970 come from reproducible builds.
    """
    try:
        text = str(json.loads(read_small(path))["created"])
        return datetime.fromisoformat(_FRACTION.sub("", text)).timestamp()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def remove(root: str, item: Item, used: InUse) -> str | None:
    """Remove an image with its names; if a job has begun to use it, return why it stays."""
    why = take_away(item.path, used)
    if why is None:
        for name in item.names:
            forget(root, name, item.arch, item.digest)
        if not os.path.lexists(item.path):  # it may have been imported again
            remove_files(belongings(item.path))
    return why


def take_away(path: str, used: InUse) -> str | None:
    """Remove an image's file; if a job has begun to use it, return why it stays.

    The file is renamed first: a job that begins later finds no image, and the link of a job that
    began earlier is seen.
    """
    aside = f"{path}.{os.urandom(8).hex()}.going"
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return None
    why = used.why_not_now(path)
    if why is not None:
        image_files.appear(aside, path)
    remove_files((aside,))
    return why


def forget(root: str, name: str, arch: str, digest: str = "") -> None:
    """Remove a name, unless `digest` is given and the name stands for another image."""
    path = f"{root}/refs/{ref_name(name, arch)}.json"
    ref = _ref(path)
    if ref is not None and digest in {"", ref.digest}:
        _unlink(path)


class Limits(NamedTuple):
    """Limits of a store: seconds since an image's import, since its last use, and total bytes."""

    age_s: float | None = None
    unused_s: float | None = None
    size: int | None = None


def superfluous(found: Sequence[Item], limits: Limits, now: float) -> list[tuple[Item, str]]:
    """Return the images beyond the limits, each with the reason.

    The most recently used images, which come first in `found`, are kept up to the limit in bytes.
    """
    chosen, kept = [], 0
    for item in found:
        if limits.age_s is not None and now - item.imported > limits.age_s:
            chosen.append((item, f"imported {duration_text(now - item.imported)} ago"))
        elif limits.unused_s is not None and now - item.used > limits.unused_s:
            chosen.append((item, f"not used for {duration_text(now - item.used)}"))
        elif limits.size is not None and kept + item.size > limits.size:
            chosen.append((item, "the store is larger than the limit"))
        else:
            kept += item.size
    return chosen


def blobs(root: str) -> list[str]:
    """Return the layers in the store."""
    return [path for kind in ALGORITHMS for path in files_of(f"{root}/blobs/{kind}")]


def old_blobs(root: str, unused_s: float) -> list[str]:
    """Return the layers that no import has used for `unused_s` seconds."""
    found = blobs(root)
    now = now_at(os.path.dirname(found[0])) if found else 0
    return [path for path in found if is_older(path, unused_s, now)]


def room_of_blobs(root: str) -> int:
    """Return how many bytes the compressed layers in the store have."""
    sizes = 0
    for path in blobs(root):
        with contextlib.suppress(FileNotFoundError):
            sizes += os.path.getsize(path)
    return sizes


def keep_alive(root: str, now: float) -> int:
    """Renew the times of all images and their files, so that a purge of old files spares them.

    Return the number of images.
    """
    found = items(root)
    for item in found:
        image_files.renew(item.path, now)
    image_files.renew_files((*files_of(f"{root}/refs"), f"{root}/README"), now)
    return len(found)


def remove_links(paths: Iterable[str]) -> None:
    """Remove links, except those that this user may not remove."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


def remove_files(paths: Iterable[str]) -> None:
    """Remove files, some of which may be gone already. Raise OSError."""
    for path in paths:
        _unlink(path)


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)

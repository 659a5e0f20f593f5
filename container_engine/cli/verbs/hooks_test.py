"""`ce hooks test NAME`: check that this node has what a hook puts into containers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from container_engine.base import hook_code, slurm
from container_engine.base.errors import LaunchError
from container_engine.node.devices.cdi import Directory, Registry
from container_engine.node.hooks.prepare import ON_NODE, fill, group_id, known
from container_engine.node.libraries.search import MACHINES, Host
from container_engine.node.pattern import expand, is_device
from container_engine.plan.hooks import choices
from container_engine.printing import output
from container_engine.submit.context import Context

if TYPE_CHECKING:
    from container_engine.catalog.load import Hook
    from container_engine.plan.model import HookUse
    from container_engine.plan.site_context import Offer

OK, ABSENT, LACKS, MISSING, STEP = "ok", "absent", "lacks", "missing", "in a step"
_LEGEND = {
    ABSENT: "not on this node, and needed only for what is in brackets",
    STEP: "only a step of Slurm knows where",
}


class _Row(NamedTuple):
    """The verdict on an item of the node; `more` is what was found, or why it is not usable."""

    verdict: str
    what: str
    subject: str
    more: str = ""


def test(hook: Hook, offered: Offer, context: Context) -> int:
    """Print a line for each item that the hook needs on the node; return 1 if one is missing.

    An item that is needed only for another value of a parameter may be missing, but the node must
    have some of them.
    """
    look = _Look(context, offered.site.cdi_dirs)
    (_defaults, use), *others = choices(offered.hooks, hook, offered.machine, offered.entries)
    rows = list(look.rows(use))
    _print(hook, [*rows, *_chosen(look, rows, others)])
    if rows and all(row.verdict == ABSENT for row in rows):
        output.line(f"{hook.name}: this node has none of the files that the hook provides")
        return 1
    return int(any(row.verdict in (LACKS, MISSING) for row in rows))


def _chosen(
    look: _Look, rows: Sequence[_Row], others: Sequence[tuple[str, HookUse]]
) -> Iterator[_Row]:
    """Yield rows for the further items needed if a user chooses another value."""
    named = {row[1:3] for row in rows}
    for label, use in others:
        for row in look.rows(use):
            if row[1:3] not in named:
                named.add(row[1:3])
                verdict = ABSENT if row.verdict in (LACKS, MISSING) else row.verdict
                yield row._replace(verdict=verdict, subject=f"{row.subject} ({label})")


def _print(hook: Hook, rows: Sequence[_Row]) -> None:
    for row in rows:
        more = f": {row.more}" if row.more else ""
        output.line(f"{row.verdict:<9} {row.what:<8} {row.subject}{more}")
    for verdict, meaning in _LEGEND.items():
        if any(row.verdict == verdict for row in rows):
            output.line(f"({verdict}: {meaning})")
    if not rows:
        output.line(f"{hook.name} needs nothing of the node")
    for name in hook.data.implies:
        output.line(f"(it implies the hook {name}: ce hooks test {name})")


class _Look:
    """Checks of the node with the permissions of the calling user."""

    def __init__(self, context: Context, cdi_dirs: Sequence[str]) -> None:
        self._context = context
        self._cdi_dirs = cdi_dirs
        self._host = Host(MACHINES.get(os.uname().machine, 0))

    def rows(self, use: HookUse) -> Iterator[_Row]:
        for device in use.devices:
            yield self._files("device", device.path, optional=device.optional)
        for mount in use.mounts:
            yield self._files("mount", mount.source, optional=mount.optional)
        for library in use.libraries:
            yield from self._libraries(library.files, optional=library.optional)
        for hook in use.hooks:
            found = os.access(hook.path, os.X_OK)
            yield _Row(OK if found else MISSING, "program", hook.path)
        yield from (self._cdi(name, MISSING) for name in use.cdi)
        yield from (self._cdi(name, ABSENT) for name in use.cdi_if_there)
        yield from self._programs(use)
        for check in use.checks:
            if check.kind in ON_NODE:
                yield self._check(check.kind, check.subject, check.hint)

    def _files(self, what: str, pattern: str, *, optional: bool) -> _Row:
        node = self._context.env
        if not known(pattern, node):
            return _Row(STEP, what, pattern)
        found = expand(fill(pattern, {}, node))
        if what == "device":
            found = [path for path in found if is_device(path)]
        verdict = OK if found else ABSENT if optional else MISSING
        return _Row(verdict, what, pattern, ", ".join(found) if found != [pattern] else "")

    def _libraries(self, patterns: Sequence[str], *, optional: bool) -> Iterator[_Row]:
        """Yield a row for each library that is not absent, or for all if all are absent.

        Optional patterns are often alternative locations of one library.
        """
        rows = [self._files("library", pattern, optional=optional) for pattern in patterns]
        found = [row for row in rows if row.verdict != ABSENT]
        for row in found or rows:
            paths = expand(row.subject) if row.verdict == OK else []
            problem = next(filter(None, map(self._problem, paths)), "")
            yield row._replace(verdict=LACKS, more=problem) if problem else row

    def _problem(self, path: str) -> str:
        """Return why a library is not usable, as far as the node shows, or ""."""
        library = self._host.read(path)
        if library is None:
            return f"{path}: {self._host.problem(path)}"
        waiting, seen = [library], {library.path}
        while waiting:
            one = waiting.pop()
            for name, needed in self._host.dependencies(one).items():
                if needed is None:
                    return f"{os.path.basename(one.path)} needs {name}, which this node lacks"
                if needed.path not in seen:
                    seen.add(needed.path)
                    waiting.append(needed)
        return ""

    def _cdi(self, name: str, lacking: str) -> _Row:
        try:
            device = Registry([Directory(path, is_users=False) for path in self._cdi_dirs]).find(
                name
            )
        except LaunchError as failure:
            return _Row(LACKS, "cdi", name, str(failure))
        return _Row(OK, "cdi", name, device.file) if device else _Row(lacking, "cdi", name)

    def _check(self, kind: str, subject: str, hint: str) -> _Row:
        if kind == "variable":
            return _Row(STEP, kind, subject)
        wanted = fill(subject, {}, self._context.env)
        problem = ON_NODE[kind](wanted, self._context.env)
        is_there = kind == "group" and group_id(wanted) is not None
        if problem and is_there and os.getuid() == 0:
            return _Row(OK, kind, subject, "exists; check as a user, who must be a member")
        hint = f" ({hint})" if hint else ""
        return (
            _Row(LACKS, kind, subject, f"{problem}{hint}") if problem else _Row(OK, kind, subject)
        )

    def _programs(self, use: HookUse) -> Iterator[_Row]:
        """Yield rows for what the code of a hook needs besides its data."""
        package = hook_code.load(self._context.prefix, use.name, use.code, "node")
        for path in () if package is None else package.files(self._context.prefix):
            yield self._files("program", path, optional=False)
        if use.code == "slurm":
            configuration = slurm.find_conf(self._context.env)
            yield _Row(OK if configuration else MISSING, "file", "slurm.conf", configuration)
            path = use.settings["path"]
            for name in ("srun", "sbatch", "squeue", "scontrol", "scancel"):
                program = shutil.which(name, path=path)
                yield (
                    _Row(OK, "program", program)
                    if program
                    else _Row(MISSING, "program", f"{name} in {path}")
                )

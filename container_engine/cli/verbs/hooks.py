"""`ce hooks list|show|check|test|explain`: inspect the hook catalog as a launch reads it."""

from __future__ import annotations

import argparse
import os
import posixpath
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from container_engine.base import hook_code, slurm
from container_engine.base.errors import CeError, LaunchError, UserError
from container_engine.base.run_check import RunCheck
from container_engine.base.text_layout import warning_text
from container_engine.base.toml_positions import Fault
from container_engine.base.variables import PATH
from container_engine.catalog.load import Catalog, Hook, hook_named
from container_engine.node.devices.cdi import Directory, Registry
from container_engine.node.hooks.prepare import ON_NODE, fill, group_id, known
from container_engine.node.libraries.search import MACHINES, Host
from container_engine.node.node_plan import holds, read_plan
from container_engine.node.pattern import expand, is_device
from container_engine.node.start.without_slurm import find
from container_engine.plan.hooks import choices, overlaps, whole
from container_engine.plan.model import HookUse
from container_engine.plan.site_context import SiteContext
from container_engine.printing import messages, output
from container_engine.printing.plan import only_in_some
from container_engine.site.load import located
from container_engine.submit.context import Context, site_config
from container_engine.submit.environment import site_here
from container_engine.submit.prepare import prepare
from container_engine.submit.read_site import catalog, machine, owners
from container_engine.tools.doctor.site import site_files
from container_engine.tools.show_hook import show_hook, show_libraries, show_use

OK, ABSENT, LACKS, MISSING, STEP = "ok", "absent", "lacks", "missing", "in a step"
# whose programs the node must have besides the engine
_OF_NODE = ("host", "hook")
_LEGEND = {
    ABSENT: "not on this node, and needed only for what is in brackets",
    STEP: "only a step of Slurm knows where",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = """\
list            all hooks of this site, and how each is enabled
show NAME       what a hook is for, what users may set, what it changes
check [DIR ...] is the catalog right? with DIR instead of the site's directories
test NAME       does this node have what the hook needs?
explain EDF     which hooks apply to an environment, why, what they change, and which libraries"""
    actions = ("list", "show", "check", "test", "explain")
    parser.add_argument(
        "action",
        metavar="ACTION",
        nargs="?",
        default="list",
        choices=actions,
        help=f"{', '.join(actions)}; else list",
    )
    parser.add_argument(
        "names", metavar="NAME", nargs="*", default=[], help="a hook, directory or environment"
    )
    parser.add_argument("--json", action="store_true", help="list, check, explain: print JSON")


def execute(arguments: argparse.Namespace, context: Context) -> int:
    if arguments.action == "check":
        return _check(arguments.names, context, as_json=arguments.json)
    if arguments.action == "list":
        return _list(context, as_json=arguments.json)
    (name,) = _only(arguments)
    if arguments.action == "explain":
        return _explain(name, context, as_json=arguments.json)
    site_context = site_here(context)
    hook = hook_named(name, site_context.hooks)
    if arguments.action == "show":
        output.text(show_hook(hook, output.columns()))
        return 0
    return _test(hook, site_context, context)


def _only(arguments: argparse.Namespace) -> list[str]:
    names: list[str] = arguments.names
    if len(names) != 1:
        what, lists = "hook", "ce hooks list shows the hooks"
        if arguments.action == "explain":
            what, lists = "environment", "ce list shows the environments"
        found = f"only one {what} at a time" if names else f"no {what} is given"
        hint = f"ce hooks {arguments.action} NAME; {lists}"
        raise UserError(f"hooks {arguments.action}: {found}", hint)
    return names


def _list(context: Context, *, as_json: bool) -> int:
    hooks = sorted(site_here(context).hooks.values())
    rows = [_listed(hook, hook_code.directory(context.prefix)) for hook in hooks]
    if as_json:
        output.document({"hooks": rows})
        return 0
    if not rows:
        output.line(f"no hooks: {context.prefix}/share/container-engine/hooks has none")
        return 0
    states = ["off at this site" if row["turned_off"] else str(row["default"]) for row in rows]
    cells = zip(rows, states, strict=True)
    output.table([(str(r["name"]), s, str(r["from"]), str(r["summary"])) for r, s in cells])
    return 0


def _listed(hook: Hook, built_in: str) -> dict[str, object]:
    own = hook.files[0].startswith(f"{built_in}/")
    changed = len(hook.files) > 1
    return {
        "name": hook.name,
        "default": hook.data.default,
        "turned_off": hook.data.turned_off,
        "release": hook.data.release,
        "from": ("changed" if changed else "built-in") if own else "site",
        "switch": hook.switch,
        "files": list(hook.files),
        "summary": hook.data.summary,
    }


def _explain(name: str, context: Context, *, as_json: bool) -> int:
    prepared = prepare(name, context)
    messages.say(prepared.notices)
    if prepared.plan is None:
        return 0
    try:
        found = find(read_plan(prepared.plan.to_json()), os.environ, context.libexec)
    except LaunchError as failure:
        raise failure.at("hooks explain") from None
    if as_json:
        output.document({"libraries": found.decisions, "warnings": found.warnings})
        return 0
    here = [use for use in prepared.plan.hooks if _applies(use)]
    elsewhere = [use for use in prepared.plan.hooks if not _applies(use)]
    columns = output.columns()
    text = "\n".join(show_use(use, columns) for use in here) or f"{name}: no hook applies\n"
    text += "".join(
        f"\nonly in some steps: {some}\n" for some in only_in_some(use.name for use in elsewhere)
    )
    text += show_libraries(found.decisions)
    output.text(text)
    sys.stdout.flush()
    messages.say("".join(map(warning_text, found.warnings)))
    return 0


def _applies(use: HookUse) -> bool:
    """Check whether a hook is not automatic, or one of its conditions holds in this environment."""
    return not use.automatic_when or any(holds(word, os.environ) for word in use.automatic_when)


def _check(directories: Sequence[str], context: Context, *, as_json: bool) -> int:
    """Print all faults and return 1 if there are any, else 0.

    A fault is whatever makes a launch refuse the catalog, or a conflict between two hooks.
    """
    settings = site_config(context)
    chosen = [os.path.join(context.cwd, path) for path in directories] or settings.hook_catalog
    own = frozenset({os.geteuid()} if directories else ())
    found = catalog((hook_code.directory(context.prefix), *chosen), own)
    absent = [path for path in chosen if directories and not os.path.isdir(path)]
    faults = [*(Fault(path, "is not a directory") for path in absent), *found.faults]
    if not faults:
        uses = whole(found.hooks, machine(settings))
        faults += [*_overlaps(found, uses), *_programs(uses)]
    if not directories:
        faults += [files.fault for files in site_files(settings) if files.fault is not None]
    if as_json:
        listed = [fault._asdict() for fault in faults]
        output.document({"valid": not faults, "faults": listed})
    else:
        for fault in faults:
            messages.say(messages.of_error(CeError(located(fault, {}), fault.hint)))
        if not faults:
            there = [hook for hook in found.hooks.values() if hook.file.startswith(_below(chosen))]
            where = ", ".join(chosen) or "no directory of the site"
            output.line(f"{len(found.hooks)} hooks, {len(there)} of them in {where}: no fault")
            if own - owners():
                output.line("(as the site's catalog, its files must be root's: chown -R root:)")
    return int(bool(faults))


def _below(directories: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{os.path.realpath(path)}/" for path in directories)


def _overlaps(found: Catalog, uses: Sequence[HookUse]) -> Iterator[Fault]:
    for overlap in overlaps(uses):
        one, other = found.hooks[overlap.one], found.hooks[overlap.other]
        if one.name in other.data.conflicts or other.name in one.data.conflicts:
            continue
        message = f"edits {overlap.what}, as the hook '{one.name}' does in another way"
        yield Fault(other.file, message, f'write conflicts = ["{one.name}"]')


def _programs(uses: Sequence[HookUse]) -> Iterator[Fault]:
    for use in uses:
        for hook in use.hooks:
            if not os.access(hook.path, os.X_OK):
                yield Fault(use.file, f"hooks: {hook.path} is not a program that can run here")
        for run in use.runs:
            path = posixpath.join(posixpath.dirname(use.file), run.command[0])
            if run.program == "hook" and not os.access(path, os.X_OK):
                key = f"checks.{run.name}.command"
                yield Fault(use.file, f"{path} is not a program that can run here", key=key)


class _Row(NamedTuple):
    """The verdict on an item of the node; `more` is what was found, or why it is not usable."""

    verdict: str
    what: str
    subject: str
    more: str = ""


def _test(hook: Hook, site_context: SiteContext, context: Context) -> int:
    """Print a line for each item that the hook needs on the node; return 1 if one is missing.

    An item that is needed only for another value of a parameter may be missing, but the node must
    have some of them.
    """
    look = _Look(context, site_context.site.cdi_dirs)
    (_defaults, use), *others = choices(
        site_context.hooks, hook, site_context.machine, site_context.entries
    )
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
    if any(check.kind == "run" for check in hook.data.checks.values()):
        output.line("(programs of its checks were not run: ce vet ENVIRONMENT runs them)")
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
        yield from (self._run(use, run) for run in use.runs if run.program in _OF_NODE)
        yield from (self._cdi(name, MISSING) for name in use.cdi)
        yield from (self._cdi(name, ABSENT) for name in use.cdi_if_there)
        yield from self._programs(use)
        for check in use.checks:
            if check.kind in ON_NODE:
                yield self._check(check.kind, check.subject, check.hint)

    def _run(self, use: HookUse, run: RunCheck) -> _Row:
        word = run.command[0]
        if not known(word, self._context.env):
            return _Row(STEP, "program", word)
        wanted = fill(word, {}, self._context.env)
        if run.program == "hook":
            wanted = posixpath.join(posixpath.dirname(use.file), wanted)
        found = shutil.which(wanted, path=PATH)
        return _Row(OK if found else MISSING, "program", found or wanted)

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

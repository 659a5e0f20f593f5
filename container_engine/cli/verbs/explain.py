"""`ce explain NAME [KEY]`: show for each value the line that sets it and what it consists of."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence

from container_engine.base.errors import UserError
from container_engine.base.secrecy import Secrecy
from container_engine.base.text_layout import nearest
from container_engine.cli.command_line.options import add_show_secrets, secrecy
from container_engine.edf.document import KEYS
from container_engine.edf.entries import mount_text
from container_engine.edf.model import EnvEntry, as_written, escape
from container_engine.edf.show import (
    Assignment,
    History,
    displayed,
    histories,
    quoted,
    variables,
)
from container_engine.node.container.description import Paths
from container_engine.node.container.edits import HookEdits
from container_engine.node.container.environment import apply, for_tasks, without_slurms
from container_engine.node.node_plan import NodePlan
from container_engine.plan.build import Resolver
from container_engine.plan.model import Image
from container_engine.plan.site_context import SiteOrigin, add
from container_engine.printing import messages, output
from container_engine.submit.context import Context
from container_engine.submit.environment import WithOrigins, load_with_origins, scope_at
from container_engine.submit.known_image import known_image

_KEEP_FIRST = ("devices", "startup")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="an environment: a name or the path of a file")
    parser.add_argument(
        "key",
        metavar="KEY",
        nargs="?",
        help="only this: image, mounts, mounts[1], env.PATH, com.hooks.ssh, …",
    )
    parser.add_argument(
        "--env",
        metavar="VARIABLE",
        help="where a variable of the container comes from: EDF, hook, image or host",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_show_secrets(parser)


def execute(arguments: argparse.Namespace, context: Context) -> int:
    if arguments.env is not None and arguments.key is not None:
        raise UserError("explain: either a KEY or --env, not both")
    traced = load_with_origins(arguments.name, context)
    messages.say("".join(problem.text for problem in traced.problems))
    hidden = secrecy(arguments, context, traced.site.secret_variables)
    if arguments.env is not None:
        lines: Iterable[str] = _explain_variable(arguments.env, traced, context, hidden)
    else:
        lines = _explain(arguments.key, traced, context, hidden)
    lines = list(lines)
    if arguments.json:
        values = _grouped(lines, arguments.env)
        output.document({"name": arguments.name, "values": values})
        return 0
    for line in lines:
        output.folded(line, 8 if line.startswith(" ") else 4)
    return 0


def _grouped(lines: Iterable[str], variable: str | None) -> list[dict[str, object]]:
    """Return an object for each value: the lines below it, indented, are about it."""
    found: list[dict[str, object]] = []
    about: list[str] = []
    for line in lines:
        if line.startswith(" "):
            about.append(line.strip())
            continue
        key, equals, value = line.partition(" = ")
        about = []
        name = variable if variable is not None else key.partition(" ")[0]
        found.append({"key": name, "value": value if equals else None, "about": about})
    return found


def _explain(
    key: str | None, traced: WithOrigins, context: Context, hidden: Secrecy
) -> Iterator[str]:
    found = histories(traced.edf, traced.files)
    others = [*_of_site(traced, hidden), *_defaults(traced)]
    if key is not None:
        chosen = [history for history in found if _is_asked(key, history.key)]
        others = [other for other in others if _is_asked(key, other[0].partition(" ")[0])]
        if not chosen and not others:
            _refuse(key, found)
        found = tuple(chosen)
    for history in found:
        yield from _lines(history, traced, context, hidden)
    for line, origin in others:
        yield from (line, f"    {origin}")


def _is_asked(key: str, name: str) -> bool:
    """Check whether `name` is the key itself, an item of it or below it.

    The key may omit the prefixes `annotations.` and `env.`.
    """
    for asked in (key, f"annotations.{key}", f"env.{key}"):
        if name == asked or name.startswith((f"{asked}.", f"{asked}[")):
            return True
    return False


def _refuse(key: str, found: Sequence[History]) -> None:
    if key in KEYS:
        return  # a known key that no file sets
    names = [*KEYS, *(history.key for history in found)]
    meant = nearest(key, names)
    hint = f"did you mean '{meant}'?" if meant else "without a KEY, every value is explained"
    raise UserError(f"explain: no file sets '{key}'", hint)


def _defaults(traced: WithOrigins) -> Iterator[tuple[str, str]]:
    """Yield the keys that have a value although no file sets them, each with its origin."""
    edf, site_context = traced.edf, traced.site_context
    if edf.entrypoint is None:
        yield (
            f"entrypoint = {quoted(site_context.site.entrypoint)}",
            site_context.config.origin("entrypoint"),
        )
    if edf.image is None:
        yield "image (none, so this can only be a base for others)", "default"
    if edf.workdir is None:
        yield "workdir (the image's)", "default"
    if edf.writable_origin is None:
        yield "writable = true", "default"


def _of_site(traced: WithOrigins, hidden: Secrecy) -> Iterator[tuple[str, str]]:
    """Yield what the site gives to every container unless the EDF overrides it, with its origin."""
    whole = add(traced.edf, traced.site_context.wide)
    for mount in whole.mounts:
        if isinstance(mount.origin, SiteOrigin):
            yield f"mounts = {quoted(mount_text(mount, _escaped))}", str(mount.origin)
    for device in whole.devices:
        if isinstance(device.origin, SiteOrigin):
            yield f"devices = {quoted(device.name)}", str(device.origin)
    for entry in whole.env:
        if isinstance(entry.origin, SiteOrigin):
            shown = displayed(entry.name, entry.value, hidden)
            yield f"env.{entry.name} = {shown}", str(entry.origin)


def _escaped(literal: str) -> str:
    return literal.replace(":", "\\:")


def _lines(
    history: History, traced: WithOrigins, context: Context, hidden: Secrecy
) -> Iterator[str]:
    effective = history.effective
    yield f"{history.key} = {displayed(_variable(history), effective.value, hidden)}"
    yield f"    from {effective.origin}{_as_written(history, hidden)}"
    if effective.written is not None:
        scope = scope_at(effective.origin, context, traced.site)
        for name, meaning in variables(effective.written, scope, hidden):
            yield f"    ${{{name}}} is {meaning}"
    for other in reversed(history.others):
        yield f"    {_relation(history, other, hidden)}"


def _variable(history: History) -> str:
    """Return the name of the variable, or "" if the key is not a variable."""
    return history.key[4:] if history.key.startswith("env.") else ""


def _as_written(history: History, hidden: Secrecy) -> str:
    effective, written = history.effective, history.effective.written
    if written is None or written == effective.value:
        return ""
    # "${HF_TOKEN}" reveals no secret, and it is what the user wants to see
    name = "" if "$" in written else _variable(history)
    return f", written {displayed(name, written, hidden)}"


def _relation(history: History, other: Assignment, hidden: Secrecy) -> str:
    keeps_first = history.key.startswith(_KEEP_FIRST)
    if keeps_first or other.value == history.effective.value:
        return f"repeated in {other.origin}" if keeps_first else f"same as in {other.origin}"
    return f"overrides {displayed(_variable(history), other.value, hidden)} from {other.origin}"


# ---- of one variable: the order is that of a launch, whose own function decides ----------------


def _explain_variable(
    name: str, traced: WithOrigins, context: Context, secrecy: Secrecy
) -> list[str]:
    """Return lines for the terminal that explain a variable; this reads the image's file.

    Raise UserError for an invalid name.
    """
    if not name or "=" in name or "\0" in name:
        raise UserError(f"explain: '{name}' is not a valid name of a variable")
    image = known_image(traced.edf, context, traced.site)
    entry = _entry(name, add(traced.edf, traced.site_context.wide).env)
    if not without_slurms({name: None}):
        return [f"{name}: always from Slurm, which sets it for each task", *_ignored(entry)]
    written = None if entry is None else _value(entry, image)
    result = _result(name, written, image, traced, context)
    shown = "" if result is None else displayed(name, result, secrecy)
    head = f"{name} is not set" if result is None else f"{name} = {shown}"
    sources = _sources(name, traced, written, image, context, secrecy)
    return [head, *(f"    {line}" for line in sources)]


def _entry(name: str, entries: Iterable[EnvEntry]) -> EnvEntry | None:
    return next((entry for entry in entries if entry.name == name), None)


def _ignored(entry: EnvEntry | None) -> list[str]:
    return [] if entry is None else [f"    EDF: without effect here, {entry.origin}"]


def _result(
    name: str,
    written: str | None,
    image: Image | None,
    traced: WithOrigins,
    context: Context,
) -> str | None:
    inside = image.env if image else {}
    host = context.env.get(name)
    outside = {} if host is None else {name: host}
    edf = {} if written is None else {name: written or None}
    edits = HookEdits(Paths("", ""))
    for hook in traced.hooks:
        if hook.automatic_when:
            continue  # the node decides; most steps do not use the hook
        edits.env |= hook.env
        for variable, paths in hook.prepend.items():
            edits.prepend[variable] = [*paths, *edits.prepend.get(variable, [])]
    plan = NodePlan(image_env=inside)
    return apply(outside, for_tasks(plan, edits.settings(edf, inside, outside), {}, {})).get(name)


def _sources(
    name: str,
    traced: WithOrigins,
    written: str | None,
    image: Image | None,
    context: Context,
    secrecy: Secrecy,
) -> Iterator[str]:
    def shown(value: str) -> str:
        return displayed(name, value, secrecy)

    entry = _entry(name, traced.edf.env)
    if entry is not None and written is not None:
        yield f"EDF: {shown(written) if written else 'unset'}, {entry.origin}"
    else:
        yield "EDF: not set"
    given = _entry(name, traced.site_context.wide.env)
    if given is not None:
        # the origin of such an entry reads "site: FILE:KEY"
        where = str(given.origin).removeprefix("site: ")
        yield f"site: {shown(_value(given, image))}, {where}"
    yield from _hook(name, traced, shown)
    if image is None:
        yield "image: cannot be read here"
    else:
        value = image.env.get(name)
        where = f", {image.source}" if image.source else ""
        unset = "set, but not used" if name in image.left_out else "not set"
        yield f"image: {unset if value is None else shown(value)}{where}"
    host = context.env.get(name)
    if host is None:
        yield "host: not set here"
    elif apply({name: host}, for_tasks(NodePlan(), {}, {}, {})):
        yield f"host: {shown(host)}, as the job has it"
    else:
        yield f"host: {shown(host)} here, never passed on: it means nothing in another image"


def _hook(name: str, traced: WithOrigins, shown: Callable[[str], str]) -> Iterator[str]:
    for hook in reversed(traced.hooks):
        source = f"hook {hook.name}{f', profile {hook.profile}' if hook.profile else ''}"
        if hook.automatic_when:
            source += f" only in steps with {' or '.join(hook.automatic_when)}"
        if name in hook.env:
            value = hook.env[name]
            yield f"hook: {'unset' if value is None else shown(value)}, {source}, {hook.origin}"
        if name in hook.prepend:
            paths = ":".join(hook.prepend[name])
            yield f"hook: {shown(paths)} in front of what follows, {source}, {hook.origin}"
    if not any(name in {**hook.env, **hook.prepend} for hook in traced.hooks):
        yield "hook: sets nothing; what OCI hooks and CDI devices do on the node is not known here"


def _value(entry: EnvEntry, image: Image | None) -> str:
    if isinstance(entry.value, str):
        return entry.value
    if image is None:
        return escape(entry.value)
    return as_written(Resolver(image).text(entry.value, entry.origin, f"env.{entry.name}"))

"""`ce explain NAME [KEY]`: show for each value the line that sets it and what it consists of."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence

from container_engine.base.errors import UserError
from container_engine.base.secrecy import Secrecy
from container_engine.base.text_layout import nearest
from container_engine.cli.command_line.options import add_show_secrets, secrecy
from container_engine.edf.document import KEYS
from container_engine.edf.entries import mount_text
from container_engine.edf.show import (
    Assignment,
    History,
    displayed,
    histories,
    quoted,
    variables,
)
from container_engine.plan.site_context import SiteOrigin, add
from container_engine.printing import messages, output
from container_engine.submit.context import Context
from container_engine.submit.environment import WithOrigins, load_with_origins, scope_at
from container_engine.tools.variable_sources import explain_variable

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
        lines: Iterable[str] = explain_variable(arguments.env, traced, context, hidden)
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

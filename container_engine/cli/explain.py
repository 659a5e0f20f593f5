"""`ce explain NAME [KEY]`: for each value the line that says it, and what it is made of."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from container_engine.cli import messages
from container_engine.cli.effective import scope_at, trace_effective
from container_engine.cli.variable import explain_variable
from container_engine.edf.document import KEYS
from container_engine.edf.history import histories, quoted, variables
from container_engine.edf.nearest import nearest
from container_engine.errors import UserError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from container_engine.cli.context import Context
    from container_engine.cli.effective import Traced
    from container_engine.edf.history import History, Saying

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


def execute(arguments: argparse.Namespace, context: Context) -> int:
    if arguments.env is not None and arguments.key is not None:
        raise UserError("explain: either a KEY or --env, not both")
    traced = trace_effective(arguments.name, context)
    messages.say(messages.of_problems(traced.problems))
    if arguments.env is not None:
        text = explain_variable(arguments.env, traced, context)
    else:
        text = "".join(_explain(arguments.key, traced, context))
    sys.stdout.buffer.write(text.encode(errors="backslashreplace"))
    sys.stdout.flush()
    return 0


def _explain(key: str | None, traced: Traced, context: Context) -> Iterator[str]:
    found = histories(traced.edf, traced.files)
    defaults = _defaults(traced)
    if key is not None:
        chosen = [history for history in found if _is_asked(key, history.key)]
        defaults = [line for line in defaults if _is_asked(key, line.partition(" ")[0])]
        if not chosen and not defaults:
            _refuse(key, found)
        found = tuple(chosen)
    for history in found:
        yield from _lines(history, traced, context)
    for line in defaults:
        yield f"{line}\n    default\n"


def _is_asked(key: str, name: str) -> bool:
    """Whether `name` is the key itself, an item of it or below it; `annotations.` may be left out.

    A variable may be named without `env.` too.
    """
    for asked in (key, f"annotations.{key}", f"env.{key}"):
        if name == asked or name.startswith((f"{asked}.", f"{asked}[")):
            return True
    return False


def _refuse(key: str, found: Sequence[History]) -> None:
    if key in KEYS:
        return  # known, and no file says anything
    names = [*KEYS, *(history.key for history in found)]
    meant = nearest(key, names)
    hint = f"did you mean '{meant}'?" if meant else "without a KEY, every value is explained"
    raise UserError(f"explain: no file says anything about '{key}'", hint)


def _defaults(traced: Traced) -> list[str]:
    """The keys that count although no file has them."""
    edf, site = traced.edf, traced.site
    lines: list[str] = []
    if edf.entrypoint is None:
        value = quoted(site.entrypoint)
        lines.append(f"entrypoint = {value}{' (site configuration)' if site.entrypoint else ''}")
    if edf.image is None:
        lines.append("image (none, so this can only be a base of others)")
    if edf.workdir is None:
        lines.append("workdir (the image's)")
    if edf.writable_origin is None:
        lines.append("writable = true")
    return lines


def _lines(history: History, traced: Traced, context: Context) -> Iterator[str]:
    said = history.said
    yield f"{history.key} = {quoted(said.value)}\n"
    yield f"    from {said.origin}{_as_written(said)}\n"
    if said.written is not None:
        scope = scope_at(said.origin, context, traced.site)
        for name, meaning in variables(said.written, scope):
            yield f"    ${{{name}}} is {meaning}\n"
    for other in reversed(history.others):
        yield f"    {_relation(history, other)}\n"


def _as_written(said: Saying) -> str:
    written = said.written
    return "" if written is None or written == said.value else f", written {quoted(written)}"


def _relation(history: History, other: Saying) -> str:
    keeps_first = history.key.startswith(_KEEP_FIRST)
    if keeps_first or other.value == history.said.value:
        return f"repeated in {other.origin}" if keeps_first else f"same as in {other.origin}"
    return f"overrides {quoted(other.value)} from {other.origin}"

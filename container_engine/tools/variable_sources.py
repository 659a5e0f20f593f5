"""`ce explain --env VARIABLE`: list every source of a variable, in order of precedence.

The order is that of a launch, because the launch's own function decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from container_engine.base.errors import UserError
from container_engine.base.secrecy import Secrecy
from container_engine.edf.model import EnvEntry, as_written, escape
from container_engine.edf.show import displayed
from container_engine.node.container.description import Paths
from container_engine.node.container.edits import HookEdits
from container_engine.node.container.environment import apply, for_tasks, without_slurms
from container_engine.node.node_plan import NodePlan
from container_engine.plan.build import Resolver
from container_engine.plan.model import Image
from container_engine.plan.site_context import add
from container_engine.submit.context import Context
from container_engine.submit.environment import WithOrigins
from container_engine.submit.known_image import known_image


def explain_variable(
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

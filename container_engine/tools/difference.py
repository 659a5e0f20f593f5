"""Compares two effective EDFs, or two steps: lists values that only one of them has. Pure.

Of steps these are their kept plans, what Slurm gave them, and the phases of their starts. The
likely causes come first: what a slower phase does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median, quantiles
from typing import Any, NamedTuple

from container_engine.base.secrecy import HIDDEN, Secrecy
from container_engine.base.text_layout import milliseconds
from container_engine.edf.model import Edf
from container_engine.edf.show import displayed, quoted, values
from container_engine.printing.plan import mount_line, text
from container_engine.tools.step_traces import PHASES, Trace


class Difference(NamedTuple):
    """A value that only the first (`-`) or the second has (`+`), or that `was` another (`~`).

    `~` without values is an array in another order.
    """

    sign: str
    key: str
    value: str = ""
    origin: str = ""
    was: str = ""

    def __str__(self) -> str:
        if self.sign == "~" and not self.was:
            return f"~ {self.key}: the same entries in another order"
        value = f"{self.was} -> {self.value}" if self.was else self.value
        return f"{self.sign} {self.key} = {value}  # {self.origin}".removesuffix("  # ")


class Value(NamedTuple):
    """A value with its origin. `shown` is compared; `displayed` is printed, with secrets hidden."""

    shown: str
    displayed: str
    origin: str


def differences(one: Edf, other: Edf, secrecy: Secrecy) -> list[Difference]:
    """Return the differences sorted by key; equal EDFs have none.

    An array whose items differ only in order has one, because the order is significant.
    """
    before, after = _values(one, secrecy), _values(other, secrecy)
    found: list[Difference] = []
    for key in sorted({*before, *after}):
        found += compared(key, before.get(key, ()), after.get(key, ()))
    return found


def compared(key: str, mine: Sequence[Value], others: Sequence[Value]) -> list[Difference]:
    left, right = [value.shown for value in mine], [value.shown for value in others]
    if left == right:
        return []
    removed = [Difference("-", key, *value[1:]) for value in mine if value.shown not in right]
    added = [Difference("+", key, *value[1:]) for value in others if value.shown not in left]
    return [*removed, *added] or [Difference("~", key)]


def _values(edf: Edf, secrecy: Secrecy) -> dict[str, list[Value]]:
    """Return the values by key; items of arrays share their array's key."""
    found: dict[str, list[Value]] = {}
    for key, (table, _name), value, origin in values(edf):
        shared = key if table in {"annotations", "env"} else table
        printed = displayed(key[4:] if table == "env" else "", value, secrecy)
        found.setdefault(shared, []).append(Value(quoted(value), printed, str(origin)))
    if edf.writable_origin is None:
        shown = quoted(edf.writable)
        found["writable"] = [Value(shown, shown, "default")]
    return found


# ---- of steps ---------------------------------------------------------------------------------

# groups of keys, those that most often make a difference first
_ORDER = (
    *("image", "engine", "hooks", "startup", "checks", "mounts", "devices", "entrypoint", "env"),
    *("annotations", "workdir", "writable", "container", "settings", "slurm", "tasks", "nodes"),
    *("environment", "files", "phase"),
)
# the groups that a phase depends on
_DECIDE = {
    "plan": ("image", "files"),
    "prepare": ("mounts", "devices", "hooks"),
    "mount": ("image",),
    "hooks": ("hooks",),
    "create": ("mounts", "devices"),
    "init": ("entrypoint", "image"),
    "services": ("hooks",),
    "startup": ("startup", "env"),
    "host checks": ("checks", "hooks"),
    "checks": ("checks", "hooks"),
    "last join": ("tasks",),
}
# factor, and least difference in seconds, that no noise explains: in few starts and in more
_FEW, _SEVERAL = (2.0, 0.5), (1.5, 0.05)
_FOR_QUARTILES = 3
_OF_HOOK = ("name", "release", "reason", "from", "parameters")
# key, value and origin
_Row = tuple[str, object, str]


class Step(NamedTuple):
    """The traces of a step's nodes, at least one, and its plan, if that is kept."""

    traces: Sequence[Trace]
    plan: Mapping[str, Any] | None


def of_steps(one: Step, other: Step, secrecy: Secrecy) -> list[Difference]:
    """Return the differences, the likely causes first; a changed value has one.

    Without the plan of each step, only what their traces have is compared. Raise KeyError,
    TypeError or AttributeError for a plan of another form.
    """
    plans = one.plan is not None and other.plan is not None
    before, after = (_values_of_step(step, secrecy, plans=plans) for step in (one, other))
    slow = list(phases(one.traces, other.traces))
    return sorted([*_compared(before, after), *slow], key=lambda line: _rank(line, slow))


def of_plans(
    one: Mapping[str, Any], other: Mapping[str, Any], secrecy: Secrecy
) -> list[Difference]:
    """Return the differences between two plans alone, in the order of `of_steps`."""
    before, after = (_by_key([*_heads(plan), *_of_plan(plan)], secrecy) for plan in (one, other))
    return sorted(_compared(before, after), key=lambda line: _rank(line, ()))


def _compared(
    before: Mapping[str, list[Value]], after: Mapping[str, list[Value]]
) -> list[Difference]:
    """Return the differences; the keys of a hook count only where both have its release."""
    common = {value.shown for value in before["hooks"]} & {v.shown for v in after["hooks"]}
    found: list[Difference] = []
    for key in dict.fromkeys((*before, *after)):
        of_hook = key.startswith("hooks.")
        if not of_hook or any(key.startswith(f"hooks.{json.loads(h).split()[0]}.") for h in common):
            found += _joined(compared(key, before.get(key, ()), after.get(key, ())))
    return found


def _joined(lines: list[Difference]) -> list[Difference]:
    """Make one line of a value that has become another."""
    if [line.sign for line in lines] != ["-", "+"]:
        return lines
    was, now = lines
    return [Difference("~", now.key, now.value, now.origin or was.origin, was.value)]


def _rank(line: Difference, slow: Iterable[Difference]) -> tuple[bool, int]:
    group = line.key.partition(".")[0]
    decides = {name for one in slow for name in _DECIDE.get(one.key.partition(".")[2], ())}
    return group not in decides, _ORDER.index(group)


def _values_of_step(step: Step, secrecy: Secrecy, *, plans: bool) -> dict[str, list[Value]]:
    rows = [*_of_trace(step.traces), *(_of_plan(step.plan) if plans and step.plan else ())]
    found = _by_key(rows, secrecy)
    if not plans:
        facts = step.traces[0].facts
        names = [name for names in facts["variables"].values() for name in names]
        found |= {f"env.{name}": [Value("set", "(set)", "")] for name in names}
        mounts = [f"{mount['source']}:{mount['target']}" for mount in facts["mounts"]]
        found["mounts"] = [Value(mount, secrecy.text(mount), "") for mount in mounts]
    return found


def _by_key(rows: Iterable[_Row], secrecy: Secrecy) -> dict[str, list[Value]]:
    found: dict[str, list[Value]] = {"hooks": []}
    for key, value, origin in rows:
        shown = json.dumps(value, ensure_ascii=False, sort_keys=True)
        group, _dot, name = key.partition("env.")
        hidden = group in ("", "image.") and secrecy.hides(name)
        printed = HIDDEN if hidden else secrecy.text(shown)
        found.setdefault(key, []).append(Value(shown, printed, origin))
    return found


def _of_trace(traces: Sequence[Trace]) -> Iterator[_Row]:
    facts = traces[0].facts
    image = facts["image"]
    yield "engine", facts["engine"], ""
    yield "environment", facts["environment"], ""
    yield from (("files", file, "") for file in facts["files"])
    for part in (image, *image.get("above", ())):
        yield "image", f"{part['name']} {part['digest'] or part['path']}", ""
    for hook in facts["hooks"]:
        yield "hooks", f"{hook['name']} {hook['release']}", hook["reason"]
    yield "container", facts.get("container", ""), ""
    yield "tasks", facts.get("tasks", ""), ""
    # only the first node has Slurm's settings, and of many nodes the list
    of_slurm = (pair for one in traces for pair in one.facts.get("slurm", {}).items())
    yield from ((f"slurm.{name}", value, "") for name, value in of_slurm)
    yield "nodes", max((str(one.facts.get("nodes", "")) for one in traces), key=len), ""


def _heads(plan: Mapping[str, Any]) -> Iterator[_Row]:
    """Yield what `_of_trace` has of a plan."""
    yield "engine", plan["engine"], ""
    yield from (("hooks", f"{one['name']} {one['release']}", one["file"]) for one in plan["hooks"])


def _of_plan(plan: Mapping[str, Any]) -> Iterator[_Row]:
    image = plan["image"]
    yield from ((f"image.env.{name}", value, "") for name, value in image["env"].items())
    for key in ("workdir", "writable", "entrypoint"):
        value = plan[key]
        yield key, text(value) if key == "workdir" else value, plan[f"{key}_from"]
    for mount in plan["mounts"]:
        yield "mounts", mount_line(mount), mount["from"]
    for device in plan["devices"]:
        yield "devices", text(device["name"]), device["from"]
    for line in plan["startup"]:
        yield "startup", text(line["line"]), line["from"]
    for check in plan["runs"]:
        yield f"checks.{check['name']}", {**check, "from": ""}, check["from"]
    for entry in plan["env"]:
        value = entry["value"]
        yield f"env.{entry['name']}", None if value is None else text(value), entry["from"]
    for name, value in plan["annotations"].items():
        yield f"annotations.{name}", value, plan["annotations_from"].get(name, "")
    for name, value in plan["settings"].items():
        yield f"settings.{name}", value, plan["settings_from"].get(name, "")
    for hook in plan["hooks"]:
        yield from _of_hook(hook)


def _of_hook(hook: Mapping[str, Any]) -> Iterator[_Row]:
    """Yield what a hook decides; its parameter `secret` is new for each step."""
    place = f"hooks.{hook['name']}"
    for name, value in hook["parameters"].items():
        if name != "secret":
            yield f"{place}.{name}", value, hook["from"]
    for key, value in hook.items():
        if key in _OF_HOOK:
            continue
        if isinstance(value, dict):
            yield from ((f"{place}.{key}.{name}", one, hook["file"]) for name, one in value.items())
        else:
            yield f"{place}.{key}", value, hook["file"]


def phases(before: Sequence[Trace], after: Sequence[Trace]) -> Iterator[Difference]:
    """Yield the phases whose medians differ by more than noise."""
    mine, others = _took(before), _took(after)
    for name in dict.fromkeys((*mine, *others)):
        left, right = mine.get(name, [0.0]), others.get(name, [0.0])
        if _differ(*sorted((left, right), key=median)):
            was, now = (milliseconds(median(took)) for took in (left, right))
            yield Difference("~", f"phase.{name}", now, PHASES.get(name, ""), was)


def _took(traces: Sequence[Trace]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for trace in traces:
        for phase in trace.phases:
            found.setdefault(phase.name, []).append(phase.took)
    return found


def _differ(fast: Sequence[float], slow: Sequence[float]) -> bool:
    """Check whether noise cannot explain the difference: quartiles of several starts are apart."""
    several = min(len(fast), len(slow)) >= _FOR_QUARTILES
    factor, least = _SEVERAL if several else _FEW
    usual, took = median(fast), median(slow)
    apart = not several or quantiles(slow)[0] > quantiles(fast)[2]
    return apart and took > max(factor * usual, usual + least)

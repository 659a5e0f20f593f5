"""Decide whether the next start on this node can repeat, without Python, what hooks did.

It can if the hooks consist of data, and the data depend on nothing of the step but files of the
node: ce-node compares the signatures of these.
"""

from __future__ import annotations

import os

from container_engine.node.file_signatures import is_of_kernel
from container_engine.node.hook_conditions import may_apply
from container_engine.node.hooks.node_fields import BEGIN
from container_engine.node.pattern import expand
from container_engine.node.plan_json import to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from container_engine.node.container.edits import HookEdits
    from container_engine.node.plan_types import HookUse, LaunchPlan

# kinds of checks whose result depends on the step or its user
_OF_STEP = frozenset(["group", "variable", "mpi"])
_SEARCHED = "LD_LIBRARY_PATH"


class Repeatable:
    """Conditions under which hooks do the same again.

    `aspects` are those of the node's files that must not change (file_signatures.py). `without` are
    the variables that the next step must not have, `names` those that the hooks set.
    """

    def __init__(
        self, aspects: Sequence[str], without: Sequence[str], names: Sequence[str]
    ) -> None:
        self.aspects, self.without, self.names = aspects, without, names


def repeatable(
    plan: LaunchPlan,
    node: Mapping[str, str],
    edits: HookEdits,
    edf: Mapping[str, str | None],
    of_image: Sequence[str],
) -> Repeatable | None:
    """Return what a repetition depends on, None if it needs Python.

    `of_image` are the aspects of files on which the result of looking into the image depends.
    """
    hooks = [hook for hook in plan.get("hooks", ()) if may_apply(hook, node)]
    if not _are_data(edits) or not all(map(_is_data, hooks)):
        return None
    without = _variables_of_step(plan, edits, edf)
    if any(name in node for name in without):
        return None
    asked: dict[str, None] = {}
    for hook in hooks:
        for pattern in _patterns(hook):
            asked |= _asked(pattern)
    if any(is_of_kernel(aspect[1:]) for aspect in asked):
        return None
    asked |= dict.fromkeys(of_image)
    names = [name for name in (*edits.env, *edits.prepend) if name not in edf]
    return Repeatable(list(asked), without, list(dict.fromkeys(names)))


def _are_data(edits: HookEdits) -> bool:
    for_python = (edits.services, edits.oci_hooks, edits.cdi, edits.cdi_if_there, edits.per_task)
    return not any((*for_python, edits.operations, edits.warnings))


def _is_data(hook: HookUse) -> bool:
    checks = hook.get("checks", ())
    return (
        not hook.get("code")
        and not hook.get("automatic_when")
        and not any(check["kind"] in _OF_STEP for check in checks)
        and BEGIN not in to_json(hook)
    )


def _variables_of_step(
    plan: LaunchPlan, edits: HookEdits, edf: Mapping[str, str | None]
) -> list[str]:
    """Return variables whose value would be the step's: neither image, hooks nor EDF set them."""
    wanted = [*edits.prepend, *([_SEARCHED] if edits.tree else [])]
    known = {**plan["image"]["env"], **edits.env, **edf}
    return [name for name in dict.fromkeys(wanted) if name not in known]


def _patterns(hook: HookUse) -> Iterator[str]:
    yield from (device["path"] for device in hook.get("devices", ()))
    yield from (mount["source"] for mount in hook.get("mounts", ()))
    yield from (file for library in hook.get("libraries", ()) for file in library["files"])
    yield from (c["subject"] for c in hook.get("checks", ()) if c["kind"] == "device")


def _asked(pattern: str) -> dict[str, None]:
    """Return the aspects of all paths that matching a pattern depends on.

    The content of a file does not matter here: that of libraries is in `of_image` of `repeatable`.
    """
    asked: dict[str, None] = {}

    def exists(path: str) -> bool:
        asked[f"p{path}"] = None
        return os.path.lexists(path)

    def names(path: str) -> list[str]:
        asked[f"f{path}"] = None
        return os.listdir(path)

    return asked | dict.fromkeys(map("p".__add__, expand(pattern, (exists, names))))

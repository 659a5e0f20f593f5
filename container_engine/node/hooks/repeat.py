"""Decide whether the next start on this node can repeat, without Python, what hooks did.

It can if the hooks consist of data, or of code that asks for nothing but variables of the step, and
the data depend on files of the node: ce-guard compares the variables that were asked for
and the state of the files (base/answers.py).
"""

from __future__ import annotations

from container_engine.base.answers import is_of_kernel
from container_engine.node.hooks.prepare import BEGIN
from container_engine.node.node_plan import Frozen, may_apply
from container_engine.node.pattern import questions_of
from container_engine.node.plan_json import to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from container_engine.node.container.edits import HookEdits
    from container_engine.node.plan_types import HookUse

# kinds of checks whose result depends on the step or its user
_OF_STEP = frozenset(["group", "variable", "mpi"])
# code that looks at no file and no clock
_OF_VARIABLES = frozenset(["", "pytorch"])


class Repeatable(Frozen):
    """Conditions under which hooks do the same again.

    `asked` are the questions about files of the node (base/answers.py). `names` are the variables
    that the hooks set, None without hooks. `port` is the one among their values that differs in
    each step (step_port.py), "" for none.
    """

    asked: Sequence[str]
    names: Sequence[str] | None
    port: str


def repeatable(
    planned: Sequence[HookUse],
    node: Mapping[str, str],
    edits: HookEdits,
    edf: Mapping[str, str | None],
    of_image: Sequence[str],
) -> Repeatable | None:
    """Return what a repetition depends on, None if it needs Python.

    `of_image` are the questions about files on which the result of looking into the image depends.
    """
    hooks = [hook for hook in planned if may_apply(hook, node)]
    if not _are_data(edits) or not all(map(_is_data, hooks)):
        return None
    asked = {**edits.asked}
    for hook in hooks:
        for pattern in _patterns(hook):
            # the content of a file does not matter: that of libraries is in `of_image`
            asked |= questions_of(pattern)
    places = (*(question[1:] for question in asked), *(mount.target for mount in edits.mounts))
    if any(map(is_of_kernel, places)):
        return None
    asked |= dict.fromkeys(of_image)
    names = [name for name in (*edits.env, *edits.prepend) if name not in edf]
    return Repeatable(list(asked), list(dict.fromkeys(names)), edits.port)


def _are_data(edits: HookEdits) -> bool:
    return not any((edits.services, edits.oci_hooks, edits.operations, edits.warnings))


def _is_data(hook: HookUse) -> bool:
    checks, text = hook.get("checks", ()), to_json(hook)
    return (
        hook.get("code", "") in _OF_VARIABLES
        and not hook.get("automatic_when")
        and not any(check["kind"] in _OF_STEP for check in checks)
        # deferred strings, and fields of the node
        and '"var"' not in text
        and BEGIN not in text
    )


def _patterns(hook: HookUse) -> Iterator[str]:
    yield from (device["path"] for device in hook.get("devices", ()))
    yield from (mount["source"] for mount in hook.get("mounts", ()))
    yield from (file for library in hook.get("libraries", ()) for file in library["files"])
    yield from (c["subject"] for c in hook.get("checks", ()) if c["kind"] == "device")

"""Collect the changes of a plan's hooks on this node from their data and their code."""

from __future__ import annotations

from container_engine.base import hook_code
from container_engine.base.errors import LaunchError
from container_engine.node.container.edits import HookEdits
from container_engine.node.hooks import CODE
from container_engine.node.hooks.devices_and_mounts import (
    ON_NODE,
    add_devices,
    add_mounts,
    check_node,
    missing_path,
)
from container_engine.node.hooks.node_fields import fill
from container_engine.node.node_plan import NodePlan, applies
from container_engine.node.pattern import expand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from container_engine.node.plan_types import HookUse

    Code = Callable[[HookUse, NodePlan, Mapping[str, str], HookEdits], None]

# set if the user chose how MPI starts (spank_plugin/plugin/carry.h)
_CHOSEN = "SLURM_CE_MPI_CHOSEN"


def prepare(plan: NodePlan, node: Mapping[str, str], libexec: str) -> HookEdits:
    """Return the changes of all of the plan's hooks, in the order of the plan.

    What this node lacks is in `unmet` of the result.
    """
    edits = HookEdits(libexec, for_each=plan.for_each)
    for hook in plan.hooks:
        try:
            if applies(hook, node):
                _add(edits, hook, plan, node)
        except LaunchError as error:
            edits.add_unmet(hook, error)
    return edits


def _add(edits: HookEdits, hook: HookUse, plan: NodePlan, node: Mapping[str, str]) -> None:
    add_devices(edits, hook, node)
    add_mounts(edits, hook, node)
    check_node(edits, hook, node)
    for name, value in hook.get("env", {}).items():
        edits.env[name] = None if value is None else fill(value, hook, node)
    for name, directories in hook.get("prepend", {}).items():
        words = [fill(directory, hook, node) for directory in directories]
        # a later hook's directories precede an earlier one's, as with assignments
        edits.prepend[name] = [*words, *edits.prepend.get(name, [])]
    edits.services += [_service(service, hook, node) for service in hook.get("services", ())]
    edits.oci_hooks += hook.get("hooks", ())
    tree = _in_tree(edits, hook, node)
    if any(tree.values()):
        edits.tree.append({"name": hook["name"], **tree})
    if hook.get("code"):
        _code(hook, edits)(hook, plan, node, edits)


def _in_tree(edits: HookEdits, hook: HookUse, node: Mapping[str, str]) -> dict[str, Any]:
    """Return the parts of a hook that need to see the image's files."""
    return {
        "libraries": [
            {**libraries, "files": _libraries(edits, hook, libraries, node)}
            for libraries in hook.get("libraries", ())
        ],
        "search": [fill(directory, hook, node) for directory in hook.get("search", ())],
        "refresh": hook.get("refresh", False),
        "checks": [
            {**check, "subject": fill(check["subject"], hook, node)}
            for check in hook.get("checks", ())
            if check["kind"] not in ON_NODE and (check["kind"] != "mpi" or _chose_mpi(node))
        ],
    }


def _chose_mpi(node: Mapping[str, str]) -> bool:
    """Check whether the user chose how MPI starts, and there are several ranks to connect.

    A program that a site starts with PMIx by default need not be an MPI program.
    """
    tasks = node.get("SLURM_STEP_NUM_TASKS", node.get("SLURM_NTASKS", "1"))
    return _CHOSEN in node and tasks != "1"


def _libraries(
    edits: HookEdits,
    hook: HookUse,
    libraries: Mapping[str, Any],
    node: Mapping[str, str],
) -> list[str]:
    """Return the node's files; a pattern without a match is a lack unless it is optional."""
    found = []
    for file in libraries["files"]:
        pattern = fill(file, hook, node)
        paths = expand(pattern)
        found += paths
        if not paths and not libraries["optional"]:
            edits.add_unmet(hook, missing_path(hook, "library", pattern))
    return found


def _service(service: Mapping[str, Any], hook: HookUse, node: Mapping[str, str]) -> dict[str, Any]:
    return {
        "hook": hook["name"],
        "name": service["name"],
        "command": [fill(word, hook, node) for word in service["command"]],
        "ready": fill(service["ready"], hook, node),
        "running": service.get("running", ""),
        "stop": [fill(word, hook, node) for word in service["stop"]],
    }


def _code(hook: HookUse, edits: HookEdits) -> Code:
    """Return the function of the engine's module for the hook, or of the hook's own package."""
    name = hook["code"]
    if name in CODE:
        module = __import__(f"container_engine.node.hooks.code_{name}", fromlist=["prepare"])
    else:
        found = hook_code.load(edits.prefix, hook["name"], name, "node")
        if found is None:
            raise LaunchError(
                f"hook code '{name}' is not part of this node's container engine: submit host and"
                " node have different versions of it",
                see="engine-versions",
            )
        module = found
    prepare_hook: Code = module.prepare
    return prepare_hook

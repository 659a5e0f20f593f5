"""Collect the changes of a plan's hooks on this node from their data and their code.

Devices and mounts are those that exist on this node; the node is checked for the hook; and
`{node.NAME}` in a hook's strings is replaced with values that only the node knows.
"""

from __future__ import annotations

import os

from container_engine.base import hook_code
from container_engine.base.answers import state
from container_engine.base.errors import LaunchError
from container_engine.node.container.description import NodeMount
from container_engine.node.container.edits import HookEdits
from container_engine.node.node_plan import (
    BEGIN,
    OF_VARIABLES,
    NodePlan,
    applies,
    holds,
    is_of_step,
)
from container_engine.node.pattern import expand, has_wildcard, is_device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from container_engine.node.container.description import Paths
    from container_engine.node.hooks.built_in import Code
    from container_engine.node.plan_types import Check, HookUse


# set if the user chose how MPI starts (spank_plugin/plugin/carry.h)
_CHOSEN = "SLURM_CE_MPI_CHOSEN"


def prepare(plan: NodePlan, node: Mapping[str, str], paths: Paths) -> HookEdits:
    """Return the changes of all of the plan's hooks, in the order of the plan.

    What this node lacks is in `unmet` of the result.
    """
    edits = HookEdits(paths)
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
    _add_variables(edits, hook, node)
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


def _add_variables(edits: HookEdits, hook: HookUse, node: Mapping[str, str]) -> None:
    for name, value in hook.get("env", {}).items():
        edits.env[name] = None if value is None else fill(value, hook, node)


def of_step(plan: NodePlan, node: Mapping[str, str], paths: Paths) -> HookEdits:
    """Return the variables for a step that joins a container of hooks with others in each step."""
    edits = HookEdits(paths)
    for hook in plan.hooks:
        if is_of_step(hook) and applies(hook, node):
            _add_variables(edits, hook, node)
            if hook.get("code") == OF_VARIABLES:
                _code(hook, edits)(hook, plan, node, edits)
    return edits


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
    """Return the engine's function for the hook, or that of the hook's own package."""
    from container_engine.node.hooks.built_in import CODE

    name = hook["code"]
    if name in CODE:
        return CODE[name]
    module = hook_code.load(edits.prefix, hook["name"], name, "node")
    if module is None:
        raise LaunchError(
            f"hook code '{name}' is not part of this node's container engine: submit host and"
            " node have different versions of it",
            see="engine-versions",
        )
    own: Code = module.prepare
    return own


def add_devices(edits: HookEdits, hook: HookUse, node: Mapping[str, str]) -> None:
    """Add the hook's devices to `edits`; a missing one is a lack unless it is optional."""
    for device in hook.get("devices", ()):
        if device.get("optional") and not known(device["path"], node):
            continue
        wanted = fill(device["path"], hook, node)
        found = [path for path in expand(wanted) if is_device(path)]
        if not found and not device.get("optional"):
            edits.add_unmet(hook, missing_path(hook, "device", wanted))
        edits.devices += [path for path in found if path not in edits.devices]
    for name in hook.get("cdi", ()):
        edits.cdi.setdefault(name, hook["name"])
    for name in hook.get("cdi_if_there", ()):
        edits.cdi_if_there.setdefault(name, hook["name"])


def add_mounts(edits: HookEdits, hook: HookUse, node: Mapping[str, str]) -> None:
    """Add the hook's mounts to `edits`; a missing source is a lack unless it is optional."""
    for mount in hook.get("mounts", ()):
        if mount.get("optional") and not known(mount["source"], node):
            continue
        source = fill(mount["source"], hook, node)
        found = expand(source)
        if not found and not mount.get("optional"):
            edits.add_unmet(hook, missing_path(hook, "mount source", source))
        target = fill(mount.get("target", ""), hook, node)
        edits.mounts += [
            NodeMount("bind", path, _target(path, target, source), mount.get("options", ()))
            for path in found
        ]


def check_node(edits: HookEdits, hook: HookUse, node: Mapping[str, str]) -> None:
    """Run the pre-flight checks that need no container; add problems to `edits`."""
    before = len(edits.warnings) + len(edits.unmet)
    for check in hook.get("checks", ()):
        is_moot = check["kind"] == "memlock" and before < len(edits.warnings) + len(edits.unmet)
        is_moot = is_moot or (check["kind"] == "device" and _is_refused(check, hook, node))
        problem = "" if is_moot else _lacks(check, hook, node)
        if problem:
            hint = f" ({check['hint']})" if check.get("hint") else ""
            if check["severity"] == "fail":
                where, remedy = f"hook {hook['name']}", check.get("hint")
                edits.add_unmet(hook, LaunchError(problem, remedy, "hook-check", where=where))
            else:
                edits.warn(hook, f"{problem}{hint}")


def _is_refused(check: Check, hook: HookUse, node: Mapping[str, str]) -> bool:
    """Check whether the start is refused already, for a device of the hook as the check wants."""
    from fnmatch import fnmatchcase

    subject = fill(check["subject"], hook, node)
    needed = [one["path"] for one in hook.get("devices", ()) if not one.get("optional")]
    patterns = [fill(path, hook, node) for path in needed]
    return any(fnmatchcase(subject, one) and _lacks_device(one, node) for one in patterns)


def _lacks(check: Check, hook: HookUse, node: Mapping[str, str]) -> str:
    path, _, wanted = fill(check.get("file", ""), hook, node).partition("=")
    found = state(f"c{path}") if path else ""
    if found.startswith("="):
        content = found[1:].strip()
        return "" if content == wanted else f"{path} on this node is {content}, not {wanted}"
    find_problem = ON_NODE.get(check["kind"])
    return find_problem(fill(check["subject"], hook, node), node) if find_problem else ""


def _lacks_device(pattern: str, _node: Mapping[str, str]) -> str:
    found = any(is_device(path) for path in expand(pattern))
    return "" if found else f"no device '{pattern}' on this node"


def _lacks_variable(condition: str, node: Mapping[str, str]) -> str:
    return "" if holds(condition, node) else f"the step does not have {condition}"


def _lacks_memlock(wanted: str, node: Mapping[str, str]) -> str:
    """Return why tasks cannot lock so many KiB. The launcher has their limits.

    What the user hands on is looked up, too: the next step has the same limit if it is the same.
    """
    from resource import RLIM_INFINITY, RLIMIT_MEMLOCK, getrlimit

    node.get("SLURM_RLIMIT_MEMLOCK")
    bytes_, most = getrlimit(RLIMIT_MEMLOCK)
    if bytes_ == RLIM_INFINITY or bytes_ >> 10 >= int(wanted):
        return ""
    may_raise = most == RLIM_INFINITY or most >> 10 >= int(wanted)
    remedy = f": ulimit -l {wanted} in the job script raises it" if may_raise else ""
    return f"tasks can lock {bytes_ >> 10} KiB of memory (ulimit -l), and need {wanted}{remedy}"


def _lacks_group(name: str, _node: Mapping[str, str]) -> str:
    gid = group_id(name)
    if gid is None:
        return f"no group '{name}' on this node"
    return "" if gid in (os.getgid(), *os.getgroups()) else f"you are not in the group '{name}'"


def group_id(name: str) -> int | None:
    import grp

    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


ON_NODE: dict[str, Callable[[str, Mapping[str, str]], str]] = {
    "device": _lacks_device,
    "group": _lacks_group,
    "memlock": _lacks_memlock,
    "variable": _lacks_variable,
}


def _target(path: str, target: str, source: str) -> str:
    if not target:
        return path
    # paths that a pattern matches go into the target; a path without wildcards is mounted on it
    return f"{target.rstrip('/')}/{os.path.basename(path)}" if has_wildcard(source) else target


def missing_path(hook: HookUse, what: str, path: str) -> LaunchError:
    return missing(hook, f"{what} '{path}' does not exist on this node")


_END = "}"
_VARIABLES = {
    "user": "USER",
    "home": "HOME",
    "job": "SLURM_JOB_ID",
    "step": "SLURM_STEP_ID",
}


def fill(text: str, hook: HookUse, node: Mapping[str, str]) -> str:
    """Return the text with each `{node.NAME}` replaced.

    Raise LaunchError for a field that this step does not have.
    """
    if BEGIN not in text:
        return text
    before, _begin, rest = text.partition(BEGIN)
    name, end, after = rest.partition(_END)
    if not end:
        return text
    value = _value(name, node)
    if value is None:
        needs = f"'{text}' needs {{node.{name}}}, which this step does not have"
        raise missing(hook, f"{needs} ({hook['file']})")
    return before + value + fill(after, hook, node)


def missing(hook: HookUse, reason: str) -> LaunchError:
    """Return the error for something that this hook needs and this node or step lacks."""
    from container_engine.faults.hook_switches import leave_out

    remedy = leave_out([hook.get("switch", "")])
    return LaunchError(reason, remedy, "hook-file-missing", where=f"hook {hook['name']}")


def known(text: str, node: Mapping[str, str]) -> bool:
    """Check whether this step has every field that `fill` would look up."""
    names = (part.partition(_END)[0] for part in text.split(BEGIN)[1:])
    return all(_value(name, node) is not None for name in names)


def _value(name: str, node: Mapping[str, str]) -> str | None:
    if name in _VARIABLES:
        return node.get(_VARIABLES[name])
    if name == "uid":
        return str(os.getuid())
    if name == "gid":
        return str(os.getgid())
    if name == "arch":
        return os.uname().machine
    if name == "host":
        return node.get("SLURMD_NODENAME") or os.uname().nodename
    return node.get(name)

"""A launch plan as a node has it: read once from its JSON, with all that follows from it.

Deferred strings (container_engine.plan.model) stay: what needs one resolves it on its way.
"""

from __future__ import annotations

from container_engine.base.errors import LaunchError
from container_engine.node.plan_json import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Self, dataclass_transform

    from container_engine.node.plan_types import (
        Device,
        EnvEntry,
        HookUse,
        KeptContainer,
        Mount,
        Run,
        StartupLine,
        Text,
    )

else:

    def dataclass_transform(**_options: object) -> object:
        return lambda made: made


# the annotation of --container-save: the image to be made at the end of the step
SAVE = "com.ce.container_save"
# pyxis' annotation: show the output of an entrypoint
ENTRYPOINT_LOG = "com.pyxis.entrypoint_log"
# the variable with the times at which planning began and ended
PLANNED = "SLURM_CE_PLANNED"
PLAN_VERSIONS = (1,)
DAMAGED = "the plan that arrived on this node is damaged"
# in the text of a plan: a deferred string
DEFERRED = '"var"'
# variables of one step that make hooks apply
OF_STEPS = ("CE_PMIX_DIR", "CE_BATCH_SCRIPT")
# in a hook's strings: a value of the step or of the node
BEGIN = "{node."
# a hook's code that sets variables of the step, and looks at no file and no clock
OF_VARIABLES = "pytorch"
# the keys of the plans and the settings of every engine
_ALWAYS = (
    *("workdir", "workdir_from", "writable", "entrypoint", "mounts", "devices", "env"),
    *("annotations", "startup", "start_timeout_s", "tmpfs_size", "hooks_dirs", "cdi_dirs"),
    *("user_cdi_dir", "allowed_devices", "root_remap"),
)


@dataclass_transform(frozen_default=True)
class Frozen:
    """A frozen dataclass without `dataclasses`, whose import would cost each start 8 ms."""

    def __init__(self, *values: Any, **named: Any) -> None:  # noqa: ANN401  # mypy has the fields
        self.__dict__.update(zip(type(self).__annotations__, values, strict=False), **named)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} is fixed")

    def but(self, **values: Any) -> Self:  # noqa: ANN401
        """Return the same with other values of some fields."""
        return type(self)(**{**self.__dict__, **values})


class ImageFile(Frozen):
    """A SquashFS file. `digest` is its manifest's, else the file's; "" if none is recorded."""

    path: str
    name: str
    digest: str


class Secrets(Frozen):
    """What tells secrets: patterns of variables' names, and the literal values of the EDF's."""

    patterns: tuple[str, ...] = ()
    known: Sequence[tuple[str, str]] = ()


class NodePlan(Frozen):
    """A plan; without arguments, one that starts nothing. Fields have the names of its keys."""

    version: object = None
    # keys that each plan has, and this one has not: a start refuses it
    lacks: Sequence[str] = ()
    engine: str = ""
    name: str = ""
    # of the whole plan, by which its user's home keeps it
    digest: str = ""
    files: Sequence[str] = ()
    # the base first, the highest last
    images: Sequence[ImageFile] = ()
    image_env: Mapping[str, str] = {}
    image_workdir: str = "/"
    # a store that goes with the step
    passing: str = ""
    # only nodes have the image, which complete_plan.py asks for its variables
    on_nodes: bool = False
    # lines for the user, about the image
    notices: Sequence[str] = ()
    workdir: Text = "/"
    workdir_from: str = ""
    writable: bool = True
    writable_from: str = ""
    entrypoint: Sequence[str] = ()
    shows_entrypoint_output: bool = False
    mounts: Sequence[Mount] = ()
    devices: Sequence[Device] = ()
    env: Sequence[EnvEntry] = ()
    annotations: Mapping[str, str] = {}
    annotations_from: Mapping[str, str] = {}
    startup: Sequence[StartupLine] = ()
    hooks: Sequence[HookUse] = ()
    # checks of site and EDF that run a program
    runs: Sequence[Run] = ()
    checks_again: bool = False
    # a container that lives with its job, and its name
    kept: KeptContainer | None = None
    container_name: str = ""
    # the path at which to save the container, None for none, and where that is asked for
    save: str | None = None
    save_from: str = "--container-save"
    secrets: Secrets = Secrets()
    # the site's settings
    devices_if_there: Sequence[str] = ()
    start_timeout_s: float = 120
    tmpfs_size: str = "50%"
    hooks_dirs: Sequence[str] = ()
    podman: str = ""
    runtime: str = ""
    trace_dir: str = ""
    tracking_tool: Sequence[str] = ()
    cdi_dirs: Sequence[str] = ()
    user_cdi_dir: str = ""
    allowed_devices: Sequence[str] = ()
    root_remap: bool = False
    unshare: Sequence[str] = ()
    # limits of the container; "" and 0 are none
    memory_limit: str = ""
    pids_limit: int = 0
    time_limit_s: float = 0
    # a container for each task
    for_each: bool = False
    # Podman creates the container, not crun itself
    by_podman: bool = False

    @property
    def image_paths(self) -> list[str]:
        return [image.path for image in self.images]


def node_plan(document: Mapping[str, Any]) -> NodePlan:
    """Return the plan of a JSON object; what reports need is there in a damaged one as well."""
    image, settings = document.get("image", {}), document.get("settings", {})
    values: dict[str, Any] = {**settings, **document}
    annotations, entries = values.get("annotations", {}), values.get("env", ())
    literal = [(one["name"], one["value"]) for one in entries if isinstance(one["value"], str)]
    derived: dict[str, Any] = {
        "lacks": [
            *(key for key in _ALWAYS if key not in values),
            *(f"image.{key}" for key in ("path", "env") if key not in image),
        ],
        "images": [
            ImageFile(
                path=one.get("path", ""),
                name=one.get("name", ""),
                digest=one.get("digest") or one.get("content") or "",
            )
            for one in (image, *image.get("above", ()))
        ],
        "image_env": image.get("env", {}),
        "image_workdir": image.get("workdir") or "/",
        "passing": image.get("passing", ""),
        "on_nodes": image.get("on_nodes", False),
        "notices": (),
        "container_name": (values.get("kept") or {}).get("name") or "",
        "save": annotations.get(SAVE),
        "save_from": values.get("annotations_from", {}).get(SAVE, "--container-save"),
        "shows_entrypoint_output": bool(values.get("entrypoint"))
        and annotations.get(ENTRYPOINT_LOG) == "true",
        "secrets": Secrets(patterns=tuple(values.get("secret_variables", ())), known=literal),
        "for_each": values.get("scope") == "task",
        "by_podman": values.get("start") == "podman",
    }
    fields = NodePlan.__annotations__
    return NodePlan(**{name: values[name] for name in fields if name in values} | derived)


def read_plan(text: str) -> NodePlan:
    """Return the plan that this node received. Raise LaunchError if it is not a JSON object."""
    try:
        document = parse_json(text)
    except RecursionError:
        raise LaunchError("it is nested too deeply", see="plan-damaged", where=DAMAGED) from None
    except (ValueError, SystemError) as error:  # SystemError: a lone brace
        raise LaunchError(str(error), see="plan-damaged", where=DAMAGED) from None
    if not isinstance(document, dict):
        raise LaunchError("it is not a JSON object", see="plan-damaged", where=DAMAGED)
    return node_plan(document)


def may_apply(hook: HookUse, node: Mapping[str, str]) -> bool:
    """Check cheaply whether a hook may apply.

    Automatic hooks are in every plan; without their variables they must cost nothing.
    """
    conditions = hook.get("automatic_when")
    return not conditions or any(word.partition("=")[0] in node for word in conditions)


def applies(hook: HookUse, node: Mapping[str, str]) -> bool:
    """Check whether a hook applies: it has no conditions, or one of them holds."""
    conditions: Sequence[str] | None = hook.get("automatic_when")
    return not conditions or any(holds(condition, node) for condition in conditions)


def is_of_step(hook: HookUse) -> bool:
    """Check whether variables that a hook sets are others in each step of a container."""
    values = hook.get("env", {}).values()
    return hook.get("code") == OF_VARIABLES or any(BEGIN in (value or "") for value in values)


def holds(condition: str, node: Mapping[str, str]) -> bool:
    """Check whether the step has the variable NAME, or one whose value matches NAME=pattern."""
    name, equals, pattern = condition.partition("=")
    if name not in node or not equals:
        return name in node
    from container_engine.node.pattern import matches

    return matches(node[name], pattern)

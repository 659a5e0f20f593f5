"""The launch plan: everything a launch does, decided once on the submit host, frozen, as JSON.

The node launcher reads the JSON with the standard library alone. Every part records its origin
(`from`: "file:line", or words if no file asked for it).
"""

from __future__ import annotations

import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from container_engine.catalog.model import (  # noqa: TC001  # pydantic evaluates them
    Check,
    DeviceEdit,
    LibraryEdit,
    MountEdit,
    OciHook,
    Service,
)
from container_engine.edf.model import Device, Mount  # noqa: TC001  # pydantic evaluates them
from container_engine.edf.text import Text  # noqa: TC001  # pydantic evaluates it
from container_engine.secrecy import WORDS
from container_engine.site.model import Namespace  # noqa: TC001  # pydantic evaluates it

VERSION: Literal[1] = 1
# of a plan with several images, with one that only nodes have, or of a container that lives with
# its job: an older engine would start the base alone, without the image's variables, or a container
# that ends with its step
EXTENDED: Literal[2] = 2
_FROM = "file:line that asks for it, or words where no file does"


class _Frozen(BaseModel):
    # validators of models that this launch does not use are never built
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, defer_build=True)


class Part(_Frozen):
    """An image that lies above another one: what it has, hides or removes counts."""

    path: str = Field(description="absolute path of a SquashFS file")
    name: str = Field(description="the image as the user wrote it, variables expanded")
    digest: str | None = Field(None, description="of the registry's manifest, sha256:…")
    content: str = Field("", description="of the SquashFS file, sha256:…; empty: not recorded")
    origin: str = Field("", alias="from", description=_FROM)


class Image(_Frozen):
    """The file system that a container starts from: a SquashFS file and what its maker said of it.

    `env` always has a PATH. `entrypoint` is what the image wants run, whether or not a launch does.
    """

    path: str = Field(description="absolute path of a SquashFS file")
    name: str = Field(description="the image as the user wrote it, variables expanded")
    env: dict[str, str] = Field(description="variables of the image")
    entrypoint: tuple[str, ...] = Field((), description="what the image wants run first")
    workdir: str | None = Field(None, description="where the image wants commands to start")
    digest: str | None = Field(None, description="of the registry's manifest, sha256:…")
    content: str = Field("", description="of the SquashFS file, sha256:…; empty: not recorded")
    source: str = Field("", description="where env, entrypoint and workdir were read")
    passing: str = Field("", description="a store that goes with the step; empty: the image stays")
    on_nodes: bool = Field(
        False, description="the submit host lacks the file: nodes read env and workdir themselves"
    )
    above: tuple[Part, ...] = Field((), description="images above it, the highest last")
    origin: str = Field("", alias="from", description=_FROM)


class EnvEntry(_Frozen):
    """A variable of the tasks; null removes it, whatever its source."""

    name: str = Field(description="name of the variable")
    value: Text | None = Field(description="null: the variable is removed")
    origin: str = Field(alias="from", description=_FROM)


class StartupLine(_Frozen):
    line: Text = Field(description="a line for a shell in the container")
    origin: str = Field(alias="from", description=_FROM)


class HookUse(_Frozen):
    """A hook that is applied, with everything that its data say for these parameters.

    Strings may contain `{node.NAME}`, which only the node fills in.
    """

    name: str = Field(description="name of the hook")
    release: str = Field(description="of the hook's data")
    file: str = Field(description="the hook.toml, the site's own where there is one")
    reason: str = Field(description="why it is applied")
    origin: str = Field(alias="from", description=_FROM)
    parameters: dict[str, str] = Field(description="checked, with defaults")
    settings: dict[str, str] = Field(default_factory=dict, description="the site's, filled in")
    automatic_when: tuple[str, ...] | None = Field(
        None,
        description="an automatic hook: NAME or NAME=pattern of the step's environment, one of"
        " which must hold on the node; empty: always. null: not automatic",
    )
    profile: str = Field("", description="of the variables, where the hook has profiles")
    devices: tuple[DeviceEdit, ...] = Field((), description="looked up on the node")
    cdi: tuple[str, ...] = Field((), description="CDI devices")
    cdi_if_there: tuple[str, ...] = Field((), description="CDI devices that a node may lack")
    mounts: tuple[MountEdit, ...] = Field((), description="looked up on the node")
    env: dict[str, str | None] = Field(
        default_factory=dict,
        description="above the image's, below the EDF's; null removes a variable",
    )
    prepend: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="put before what the image has, for paths"
    )
    libraries: tuple[LibraryEdit, ...] = Field((), description="libraries of the node")
    search: tuple[str, ...] = Field((), description="directories for the loader, in the container")
    refresh: bool = Field(False, description="whether the loader's cache must be rebuilt")
    services: tuple[Service, ...] = Field((), description="programs in the container")
    code: str = Field("", description="module of the engine for what data cannot say")
    checks: tuple[Check, ...] = Field((), description="looked at before the tasks start")
    hooks: tuple[OciHook, ...] = Field((), description="programs that the OCI runtime runs")


class Settings(_Frozen):
    """What the site decided."""

    devices_if_there: tuple[str, ...] = Field(
        (), description="devices of every container, where the node has them"
    )
    start_timeout_s: float = Field(120, gt=0, description="limit for the start, in seconds")
    tmpfs_size: str = Field("50%", description="limit of what a container may write")
    hooks_dirs: tuple[str, ...] = Field((), description="directories of OCI hooks")
    podman: str = Field("", description="path of Podman on the nodes; empty: by PATH")
    runtime: str = Field("", description="path of crun on the nodes; empty: as Podman finds it")
    trace_dir: str = Field("", description="where traces are written; empty: nowhere")
    tracking_tool: tuple[str, ...] = Field(
        (), description="program of the nodes that gets the trace of a step's first node"
    )
    cdi_dirs: tuple[str, ...] = Field((), description="directories of CDI files, later ones win")
    user_cdi_dir: str = Field("", description="the same, below a user's home; empty: none")
    allowed_devices: tuple[str, ...] = Field(("*",), description="patterns of paths and CDI names")
    root_remap: bool = Field(False, description="users are root in their containers")
    unshare: tuple[Namespace, ...] = Field(
        (), description="namespaces that the container does not share with the node"
    )
    scope: Literal["step", "task"] = Field(
        "step", description="whether the tasks of a node share a container or have one each"
    )
    start: Literal["crun", "podman"] = Field(
        "podman", description="what creates the container on the nodes"
    )
    secret_variables: tuple[str, ...] = Field(
        WORDS, description="patterns of words in names whose values are not shown"
    )
    batch_script: Literal["host", "inside"] = Field(
        "host", description="where the script of sbatch runs"
    )


class KeptContainer(_Frozen):
    """A container that lives with its job."""

    name: str = Field(description="as the user calls it; empty: by its environment")
    key: str = Field(pattern="^[0-9a-f]{16}$", description="tells it from others of the job")
    mode: Literal["auto", "create", "exec", "no_exec"] = Field(
        "auto",
        description="auto: join it, else go on with it, else make it; create: make it; exec: join"
        " it; no_exec: go on with it or make it",
    )
    directory: str = Field(description="of the nodes, below which it is kept")


class LaunchPlan(_Frozen):
    """One launch. `to_json` is what travels to the nodes and what `ce plan --json` prints."""

    version: Literal[1, 2] = Field(
        VERSION,
        description="of this format; 2 where there are images above the base, or images that only"
        " nodes have, or the container is kept or saved",
    )
    engine: str = Field(description="version of the container engine that made the plan")
    name: str = Field(description="the EDF as the user asked for it")
    files: tuple[str, ...] = Field(description="the EDF files, in the order of evaluation")
    image: Image = Field(description="what the container starts from")
    workdir: Text = Field(description="where commands start")
    workdir_from: str = Field(description=_FROM)
    writable: bool = Field(True, description="whether the file system can be written")
    writable_from: str = Field("default", description=_FROM)
    entrypoint: tuple[str, ...] = Field((), description="run before the tasks; empty: nothing")
    entrypoint_from: str = Field("default", description=_FROM)
    mounts: tuple[Mount, ...] = Field((), description="in the order of mounting")
    devices: tuple[Device, ...] = Field((), description="that the container gets")
    env: tuple[EnvEntry, ...] = Field((), description="what the EDF says, sorted by name")
    annotations: dict[str, str] = Field(
        default_factory=dict, description="for hooks and the OCI runtime, by dotted name"
    )
    annotations_from: dict[str, str] = Field(default_factory=dict, description=_FROM)
    startup: tuple[StartupLine, ...] = Field((), description="run once per node before tasks")
    hooks: tuple[HookUse, ...] = Field((), description="in the order of application")
    kept: KeptContainer | None = Field(
        None, description="a container that lives with its job; null: it ends with its step"
    )
    settings: Settings = Field(Settings(), description="what the site decided")
    settings_from: dict[str, str] = Field(default_factory=dict, description=_FROM)

    def to_json(self) -> str:
        """Return the plan as one line of JSON.

        Bytes that are not UTF-8 (PEP 383) are kept, as escapes such as "\\udcff".
        """
        document = self.model_dump(by_alias=True)
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "backslashreplace").decode()


def from_json(text: str) -> LaunchPlan:
    """Return the plan that `to_json` wrote. Raises ValueError for anything else."""
    return LaunchPlan.model_validate(json.loads(text))

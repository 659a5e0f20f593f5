"""The format of hook.toml files.

Strings of the edits may contain `{name}` for a parameter or setting of the hook, `{hook.name}` for
one of another hook, `{arch}` for the machine (uname -m), `{here}` for the directory of the
hook.toml, and `{node.…}`, which only the node fills in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from pydantic.config import JsonDict

HOOK_NAME = r"^[a-z][a-z0-9_]*$"
Stage: TypeAlias = Literal[
    "precreate",
    "prestart",
    "createRuntime",
    "createContainer",
    "startContainer",
    "poststart",
    "poststop",
]
HookName: TypeAlias = Annotated[str, Field(pattern=HOOK_NAME)]
VariableName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


When: TypeAlias = dict[str, str | tuple[str, ...]]
_WHEN = "only if each parameter named here has this value, or one of these"


class _Frozen(BaseModel):
    # the validator of a part is built with that of the whole model, not separately
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, defer_build=True)


def _partial(schema: JsonDict) -> None:
    """Drop `required`: a site's file may hold only what it changes."""
    schema.pop("required", None)


class _Mergeable(_Frozen):
    """A table that a site's file of the same name may change key by key."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        defer_build=True,
        json_schema_extra=_partial,
    )


class DeviceEdit(_Frozen):
    path: str = Field(description="path or pattern of device nodes, looked up on the node")
    optional: bool = Field(False, description="it may be missing on a node")
    permissions: str = Field("rw", pattern=r"^[rwm]+$", description="as in cgroups: r, w, m")


class MountEdit(_Frozen):
    source: str = Field(description="path or pattern on the node")
    target: str = Field("", description="path in the container; empty: the same as the source")
    options: tuple[str, ...] = Field(("ro",), description="flags, as in the mounts of an EDF")
    optional: bool = Field(False, description="it may be missing on a node")


class LibraryEdit(_Frozen):
    """Libraries of the node that the container's programs shall load."""

    files: tuple[str, ...] = Field(description="paths or patterns on the node")
    place: Literal["replace", "beside"] = Field(
        "beside",
        description="replace: in place of the container's library of the same name and major"
        " version, else beside; beside: in a directory that the loader searches first",
    )
    closure: bool = Field(True, description="with what the libraries need themselves")
    stay: bool = Field(
        False,
        description="they are loaded from where a mount of a hook shows them, with the"
        " files beside them; the image's files of these names are hidden",
    )
    optional: bool = Field(False, description="they may be missing on a node")


class Service(_Frozen):
    """A program in the container for as long as it lives."""

    name: str = Field("", description="for messages; in a hook.toml the table's name")
    command: tuple[str, ...] = Field(min_length=1, description="program and arguments")
    ready: str = Field("", description="a path in the container that says it is ready")
    running: str = Field(
        "", description="what it prints if it is running already, which counts as started"
    )
    stop: tuple[str, ...] = Field((), description="a command that stops it cleanly")


CheckKind: TypeAlias = Literal[
    "device",
    "file",
    "group",
    "libc",
    "loadable",
    "unversioned",
    "major",
    "glibc",
    "mpi",
    "program",
    "variable",
]


class Check(_Frozen):
    """What is looked at before the tasks start."""

    kind: CheckKind = Field(description="what is asked of the subject")
    severity: Literal["warn", "fail"] = Field("warn", description="what happens if the check fails")
    subject: str = Field(description="a path, pattern or name, depending on the kind")
    hint: str = Field("", description="what to do about it")


class OciHook(_Frozen):
    """As in the containerEdits of CDI and in the OCI runtime specification."""

    hookName: Stage = Field(description="the stage at which it runs")  # noqa: N815
    path: str = Field(pattern="^[/{]", description="absolute path of the program on the node")
    args: tuple[str, ...] = Field((), description="its arguments, the program's name first")
    env: tuple[str, ...] = Field((), description="NAME=value, its whole environment")
    timeout: int | None = Field(None, gt=0, description="seconds after which it failed")


class Edit(_Frozen):
    """What the hook changes in the container."""

    when: When = Field(default_factory=dict, description=_WHEN)
    devices: tuple[DeviceEdit, ...] = Field((), description="device nodes")
    cdi: tuple[str, ...] = Field((), description="CDI devices, vendor.com/class=name")
    cdi_if_there: tuple[str, ...] = Field((), description="CDI devices that a node may lack")
    mounts: tuple[MountEdit, ...] = Field((), description="files and directories of the node")
    env: dict[VariableName, str] = Field(default_factory=dict, description="variables")
    prepend: dict[VariableName, tuple[str, ...]] = Field(
        default_factory=dict, description="put before what the image has, for paths"
    )
    libraries: tuple[LibraryEdit, ...] = Field((), description="libraries of the node")
    search: tuple[str, ...] = Field((), description="directories for the loader, in the container")
    refresh: bool = Field(False, description="whether the loader's cache must be rebuilt")
    hooks: tuple[OciHook, ...] = Field((), description="programs that the OCI runtime runs")


class HookService(Service, _Mergeable):
    when: When = Field(default_factory=dict, description=_WHEN)


class HookCheck(Check, _Mergeable):
    when: When = Field(default_factory=dict, description=_WHEN)


ParameterType: TypeAlias = Literal["string", "boolean", "integer", "port", "file", "public_key"]


class Parameter(_Mergeable):
    """What users may say below the hook's annotation. Values are strings."""

    type: ParameterType = Field("string", description="what a value must be")
    help: str = Field(description="one line")
    default: str = Field("", description="the value if the user sets none")
    required: bool = Field(False, description="whether the user must set it")
    values: tuple[str, ...] = Field((), description="what is allowed; empty: anything of the type")
    values_in: str = Field("", description="a directory whose entries are what is allowed")
    minimum: int | None = Field(None, description="of an integer")
    maximum: int | None = Field(None, description="of an integer")
    enables: bool = Field(False, description="whether setting it enables the hook")
    when: When = Field(default_factory=dict, description=f"it is used {_WHEN}")


class Requires(_Frozen):
    writable: bool = Field(False, description="a writable container")
    libc: Literal["", "glibc", "musl"] = Field("", description="what the image must be built with")
    hooks: tuple[HookName, ...] = Field((), description="hooks that the user must have enabled")


class HookFile(_Mergeable):
    """One hook.toml. A site's file of the same name is merged over it, key by key."""

    version: Literal[1] = Field(1, description="version of this format")
    release: str = Field("1", description="of the hook's data; change it when the data change")
    summary: str = Field(description="one line for `ce hooks list`")
    help: str = Field(description="a paragraph for `ce hooks show`")
    annotation: str = Field("", description="prefix; empty: com.hooks.NAME")
    switch: str = Field("", description="annotation that enables it; empty: PREFIX.enabled")
    default: Literal["off", "on", "automatic", "required"] = Field(
        "off",
        description="without an annotation; automatic: on where the node finds what it is for;"
        " required: on, and an environment that turns it off is refused",
    )
    turned_off: bool = Field(False, description="the site does not offer this hook")
    automatic_when: tuple[str, ...] = Field(
        (),
        description="for automatic hooks: NAME or NAME=pattern of the step's environment,"
        " one of which must hold on the node; empty: always",
    )
    implies: tuple[HookName, ...] = Field((), description="hooks that it enables")
    conflicts: tuple[HookName, ...] = Field((), description="hooks it cannot be used with")
    after: tuple[HookName, ...] = Field((), description="hooks that are applied before it")
    requires: Requires = Field(Requires(), description="what a launch must have")
    parameters: dict[VariableName, Parameter] = Field(
        default_factory=dict, description="parameters that users may set"
    )
    settings: dict[VariableName, str] = Field(
        default_factory=dict, description="values that the site sets, such as paths"
    )
    allow: tuple[VariableName, ...] = Field(
        (), description="settings that users may override by annotation"
    )
    profile: str = Field("", description="which of the profiles is active")
    profiles: dict[str, dict[VariableName, str]] = Field(
        default_factory=dict, description="named sets of variables"
    )
    edits: dict[str, Edit] = Field(default_factory=dict, description="what it changes, by part")
    services: dict[str, HookService] = Field(default_factory=dict, description="programs it runs")
    checks: dict[str, HookCheck] = Field(default_factory=dict, description="pre-flight checks")
    code: str = Field(
        "", pattern="^([a-z][a-z0-9_]*)?$", description="module of the engine for what data cannot"
    )

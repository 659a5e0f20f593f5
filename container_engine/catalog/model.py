"""The format of hook.toml files.

Strings of the edits may contain `{name}` for a parameter or setting of the hook, `{hook.name}` for
one of another hook, `{arch}` for the machine (uname -m), `{here}` for the directory of the
hook.toml, and `{node.…}`, which only the node fills in.
"""

# no `from __future__ import annotations`: with it, pydantic would have to compile each annotation
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from container_engine.base.model import Array, Mergeable, Model, about
from container_engine.base.run_check import RunCheck

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


When: TypeAlias = dict[str, str | Array[str]]
_WHEN = "only if each parameter named here has this value, or one of these"


class DeviceEdit(Model):
    """Device nodes that the container gets."""

    path: Annotated[str, about("path or pattern of device nodes, looked up on the node")]
    optional: Annotated[bool, about("it may be missing on a node")] = False
    permissions: Annotated[str, about("as in cgroups: r, w, m", pattern=r"^[rwm]+$")] = "rw"


class MountEdit(Model):
    """Files or directories of the node that the container gets."""

    source: Annotated[str, about("path or pattern on the node")]
    target: Annotated[str, about("path in the container; empty: the same as the source")] = ""
    options: Annotated[Array[str], about("flags, as in the mounts of an EDF")] = ("ro",)
    optional: Annotated[bool, about("it may be missing on a node")] = False


class LibraryEdit(Model):
    """Libraries of the node that the container's programs are to load."""

    files: Annotated[Array[str], about("paths or patterns on the node")]
    place: Annotated[
        Literal["replace", "beside"],
        about(
            "replace: in place of the container's library of the same name and major version, "
            "else beside; beside: in a directory that the loader searches first"
        ),
    ] = "beside"
    closure: Annotated[bool, about("with what the libraries need themselves")] = True
    stay: Annotated[
        bool,
        about(
            "they are loaded from where a mount of a hook shows them, with the files beside "
            "them; the image's files of these names are hidden"
        ),
    ] = False
    optional: Annotated[bool, about("they may be missing on a node")] = False


class Service(Model):
    """A program that runs in the container until the container ends."""

    name: Annotated[str, about("for messages; in a hook.toml the table's name")] = ""
    command: Annotated[Array[str], about("program and arguments", min_length=1)]
    ready: Annotated[str, about("a path in the container that says it is ready")] = ""
    running: Annotated[
        str, about("what it prints if it is running already, which is a successful start")
    ] = ""
    stop: Annotated[Array[str], about("a command that stops it cleanly")] = ()


CheckKind: TypeAlias = Literal[
    "device",
    "file",
    "group",
    "libc",
    "loadable",
    "unversioned",
    "major",
    "memlock",
    "glibc",
    "mpi",
    "program",
    "variable",
]


class Check(Model):
    """A check of the node and the container that is made before the tasks start."""

    kind: Annotated[CheckKind, about("what is asked of the subject")]
    severity: Annotated[Literal["warn", "fail"], about("what happens if the check fails")] = "warn"
    subject: Annotated[str, about("a path, pattern or name, depending on the kind")]
    file: Annotated[
        str, about("PATH=CONTENT: where a node has this file, its content decides, not the subject")
    ] = ""
    hint: Annotated[str, about("what to do about it")] = ""


class OciHook(Model):
    """An OCI hook, as in the containerEdits of CDI and in the OCI runtime specification."""

    hookName: Annotated[Stage, about("the stage at which it runs")]  # noqa: N815
    path: Annotated[str, about("absolute path of the program on the node", pattern="^[/{]")]
    args: Annotated[Array[str], about("its arguments, the program's name first")] = ()
    env: Annotated[Array[str], about("NAME=value, its whole environment")] = ()
    timeout: Annotated[
        Annotated[int, Field(gt=0)] | None, about("seconds after which it failed")
    ] = None


class Additions(Model):
    """Additions of a hook to a container, besides variables."""

    devices: Annotated[Array[DeviceEdit], about("device nodes, looked up on the node")] = ()
    cdi: Annotated[Array[str], about("CDI devices, vendor.com/class=name")] = ()
    cdi_if_there: Annotated[Array[str], about("CDI devices that a node may lack")] = ()
    mounts: Annotated[Array[MountEdit], about("files and directories of the node")] = ()
    prepend: Annotated[
        dict[VariableName, Array[str]],
        about("put before what the image has, for paths"),
    ] = Field(default_factory=dict)
    libraries: Annotated[Array[LibraryEdit], about("libraries of the node")] = ()
    search: Annotated[Array[str], about("directories for the loader, in the container")] = ()
    refresh: Annotated[bool, about("whether the loader's cache must be rebuilt")] = False
    hooks: Annotated[Array[OciHook], about("programs that the OCI runtime runs")] = ()


class Edit(Additions):
    """The changes that the hook makes to the container."""

    when: Annotated[When, about(_WHEN)] = Field(default_factory=dict)
    env: Annotated[dict[VariableName, str], about("variables")] = Field(default_factory=dict)


class HookService(Service, Mergeable):
    """A program that the hook runs in the container."""

    when: Annotated[When, about(_WHEN)] = Field(default_factory=dict)


class Conditional(Mergeable):
    when: Annotated[When, about(_WHEN)] = Field(default_factory=dict)
    needed_by: Annotated[
        str, about("NAME or NAME=pattern: only if the hook or the EDF sets the variable so")
    ] = ""


class HookCheck(Check, Conditional):
    """A check of the node and the container that the hook asks for."""


class HookRunCheck(RunCheck, Conditional):
    """A check of the hook that runs a program."""


AnyCheck: TypeAlias = Annotated[HookCheck | HookRunCheck, Field(discriminator="kind")]


ParameterType: TypeAlias = Literal["string", "boolean", "integer", "port", "file", "public_key"]


class Parameter(Mergeable):
    """A parameter that users may set below the hook's annotation. Its value is a string."""

    type: Annotated[ParameterType, about("what a value must be")] = "string"
    help: Annotated[str, about("one line")]
    default: Annotated[str, about("the value if the user sets none")] = ""
    required: Annotated[bool, about("whether the user must set it")] = False
    values: Annotated[Array[str], about("what is allowed; empty: anything of the type")] = ()
    values_in: Annotated[str, about("a directory whose entries are what is allowed")] = ""
    minimum: Annotated[int | None, about("of an integer")] = None
    maximum: Annotated[int | None, about("of an integer")] = None
    enables: Annotated[bool, about("whether setting it enables the hook")] = False
    when: Annotated[When, about(f"it is used {_WHEN}")] = Field(default_factory=dict)


class Requires(Model):
    """Conditions that an environment must fulfil to use the hook."""

    writable: Annotated[bool, about("a writable container")] = False
    libc: Annotated[Literal["", "glibc", "musl"], about("what the image must be built with")] = ""
    hooks: Annotated[Array[HookName], about("hooks that the user must have enabled")] = ()


VerbName: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]


class HookVerb(Model):
    """A verb of `ce`, whose module is verb_NAME of the hook's package."""

    help: Annotated[str, about("one line")]
    examples: Annotated[Array[str], about("command lines")] = ()


class HookFile(Mergeable):
    """One hook.toml. A site's file of the same name is merged over it, key by key."""

    version: Annotated[Literal[1], about("version of this format")] = 1
    release: Annotated[str, about("of the hook's data; change it when the data change")] = "1"
    summary: Annotated[str, about("one line for `ce hooks list`")]
    help: Annotated[str, about("a paragraph for `ce hooks show`")]
    annotation: Annotated[str, about("prefix; empty: com.hooks.NAME")] = ""
    switch: Annotated[str, about("annotation that enables it; empty: PREFIX.enabled")] = ""
    default: Annotated[
        Literal["off", "on", "automatic", "required"],
        about(
            "without an annotation; automatic: on where the node finds what it is for; "
            "required: on, and an environment that turns it off is refused"
        ),
    ] = "off"
    turned_off: Annotated[bool, about("the site does not offer this hook")] = False
    automatic_when: Annotated[
        Array[str],
        about(
            "for automatic hooks: NAME or NAME=pattern of the step's environment, one of which "
            "must hold on the node; empty: always"
        ),
    ] = ()
    implies: Annotated[Array[HookName], about("hooks that it enables")] = ()
    conflicts: Annotated[Array[HookName], about("hooks it cannot be used with")] = ()
    after: Annotated[Array[HookName], about("hooks that are applied before it")] = ()
    requires: Annotated[Requires, about("what a launch must have")] = Field(
        default_factory=Requires
    )
    parameters: Annotated[dict[VariableName, Parameter], about("parameters that users may set")] = (
        Field(default_factory=dict)
    )
    settings: Annotated[
        dict[VariableName, str], about("values that the site sets, such as paths")
    ] = Field(default_factory=dict)
    allow: Annotated[
        Array[VariableName], about("settings that users may override by annotation")
    ] = ()
    profile: Annotated[str, about("which of the profiles is active")] = ""
    profiles: Annotated[dict[str, dict[VariableName, str]], about("named sets of variables")] = (
        Field(default_factory=dict)
    )
    edits: Annotated[dict[str, Edit], about("what it changes, by part")] = Field(
        default_factory=dict
    )
    services: Annotated[dict[str, HookService], about("programs it runs")] = Field(
        default_factory=dict
    )
    checks: Annotated[dict[str, AnyCheck], about("pre-flight checks")] = Field(default_factory=dict)
    code: Annotated[
        str,
        about(
            "for what data cannot: a Python package in the hook's directory, or a module of the "
            "engine",
            pattern=r"^([a-z][a-z0-9_]*)?$",
        ),
    ] = ""
    serves: Annotated[bool, about("whether its code starts a service beside the tasks")] = False
    verbs: Annotated[dict[VerbName, HookVerb], about("verbs of ce that its package brings")] = (
        Field(default_factory=dict)
    )

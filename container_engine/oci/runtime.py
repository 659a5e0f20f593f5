"""The OCI runtime specification, as far as the engine writes and reads it: for the type checker.

Never imported by a launch. The hooks of oci-hooks(5) have their place here, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

Stage = Literal[
    "precreate",
    "prestart",
    "createRuntime",
    "createContainer",
    "startContainer",
    "poststart",
    "poststop",
]


class User(TypedDict):
    uid: int
    gid: int
    umask: int
    additionalGids: Sequence[int]


class Process(TypedDict):
    user: User
    args: Sequence[str]
    env: Sequence[str]
    cwd: str
    capabilities: Mapping[str, Sequence[str]]


class Root(TypedDict):
    path: str
    readonly: bool


class Mount(TypedDict):
    destination: str
    type: str
    source: str
    options: Sequence[str]


class Hook(TypedDict, total=False):
    path: str
    args: Sequence[str]
    env: Sequence[str]
    timeout: int


class IdMapping(TypedDict):
    containerID: int
    hostID: int
    size: int


class Namespace(TypedDict):
    type: str


class Linux(TypedDict):
    uidMappings: Sequence[IdMapping]
    gidMappings: Sequence[IdMapping]
    namespaces: Sequence[Namespace]
    rootfsPropagation: str
    maskedPaths: Sequence[str]


class Spec(TypedDict):
    """A bundle's config.json."""

    ociVersion: str
    process: Process
    root: Root
    mounts: Sequence[Mount]
    hooks: Mapping[str, Sequence[Hook]]
    annotations: Mapping[str, str]
    linux: Linux


class State(TypedDict, total=False):
    """The state of a container, which hooks read from standard input."""

    ociVersion: str
    id: str
    status: Literal["creating", "created", "running", "stopped"]
    pid: int
    bundle: str
    annotations: Mapping[str, str]


class When(TypedDict, total=False):
    """The conditions of a file of oci-hooks(5)."""

    always: bool
    hasBindMounts: bool
    annotations: Mapping[str, str]
    commands: Sequence[str]


class HookFile(TypedDict, total=False):
    """A file of oci-hooks(5)."""

    version: str
    hook: Hook
    when: When
    stages: Sequence[str]

"""Types of a plan's parts, for the type checker alone: never imported by a launch.

Generated from plan/model.py by `make generated`. All keys are optional here: an
older engine may have made the plan.
"""

# ruff: noqa: E501
# fmt: off
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict


class Variable(TypedDict, total=False):
    var: str
    op: Literal['', ':-', '-', ':+', '+', ':?', '?']
    word: Text


Text = str | Sequence[str | Variable]

Part = TypedDict(
    "Part",
    {
        "path": str,
        "name": str,
        "digest": str | None,
        "content": str,
        "from": str,
    },
    total=False,
)

Image = TypedDict(
    "Image",
    {
        "path": str,
        "name": str,
        "env": Mapping[str, str],
        "entrypoint": Sequence[str],
        "workdir": str | None,
        "digest": str | None,
        "content": str,
        "source": str,
        "left_out": Sequence[str],
        "passing": str,
        "on_nodes": bool,
        "above": Sequence[Part],
        "from": str,
    },
    total=False,
)

Mount = TypedDict(
    "Mount",
    {
        "kind": Literal['bind', 'squashfs', 'tmpfs'],
        "source": Text,
        "target": Text,
        "options": Sequence[str],
        "from": str,
    },
    total=False,
)

Device = TypedDict(
    "Device",
    {
        "name": Text,
        "cdi": bool,
        "from": str,
    },
    total=False,
)

EnvEntry = TypedDict(
    "EnvEntry",
    {
        "name": str,
        "value": str | Sequence[str | Variable] | None,
        "from": str,
    },
    total=False,
)

StartupLine = TypedDict(
    "StartupLine",
    {
        "line": Text,
        "from": str,
    },
    total=False,
)

class DeviceEdit(TypedDict, total=False):
    path: str
    optional: bool
    permissions: str


class MountEdit(TypedDict, total=False):
    source: str
    target: str
    options: Sequence[str]
    optional: bool


class LibraryEdit(TypedDict, total=False):
    files: Sequence[str]
    place: Literal['replace', 'beside']
    closure: bool
    stay: bool
    optional: bool


class Service(TypedDict, total=False):
    name: str
    command: Sequence[str]
    ready: str
    running: str
    stop: Sequence[str]


class Check(TypedDict, total=False):
    kind: Literal['device', 'file', 'group', 'libc', 'loadable', 'unversioned', 'major', 'memlock', 'glibc', 'mpi', 'program', 'variable']
    severity: Literal['warn', 'fail']
    subject: str
    file: str
    hint: str


class RunCheck(TypedDict, total=False):
    kind: Literal['run']
    name: str
    command: Sequence[str]
    program: Literal['image', 'host', 'hook', 'engine']
    inside: bool
    per: Literal['node', 'pair']
    limit_s: float
    exit_code: int
    words: Sequence[str]
    forbid: Sequence[str]
    severity: Literal['warn', 'fail']
    message: str
    hint: str
    valid_s: float
    unchanged: Sequence[str]
    variables: Sequence[str]


class OciHook(TypedDict, total=False):
    hookName: Literal['precreate', 'prestart', 'createRuntime', 'createContainer', 'startContainer', 'poststart', 'poststop']
    path: str
    args: Sequence[str]
    env: Sequence[str]
    timeout: int | None


HookUse = TypedDict(
    "HookUse",
    {
        "name": str,
        "switch": str,
        "release": str,
        "file": str,
        "reason": str,
        "from": str,
        "parameters": Mapping[str, str],
        "settings": Mapping[str, str],
        "automatic_when": Sequence[str] | None,
        "profile": str,
        "devices": Sequence[DeviceEdit],
        "cdi": Sequence[str],
        "cdi_if_there": Sequence[str],
        "mounts": Sequence[MountEdit],
        "env": Mapping[str, str | None],
        "prepend": Mapping[str, Sequence[str]],
        "libraries": Sequence[LibraryEdit],
        "search": Sequence[str],
        "refresh": bool,
        "services": Sequence[Service],
        "code": str,
        "checks": Sequence[Check],
        "runs": Sequence[RunCheck],
        "hooks": Sequence[OciHook],
    },
    total=False,
)

Run = TypedDict(
    "Run",
    {
        "kind": Literal['run'],
        "name": str,
        "command": Sequence[str],
        "program": Literal['image', 'host', 'hook', 'engine'],
        "inside": bool,
        "per": Literal['node', 'pair'],
        "limit_s": float,
        "exit_code": int,
        "words": Sequence[str],
        "forbid": Sequence[str],
        "severity": Literal['warn', 'fail'],
        "message": str,
        "hint": str,
        "valid_s": float,
        "unchanged": Sequence[str],
        "variables": Sequence[str],
        "from": str,
    },
    total=False,
)

class KeptContainer(TypedDict, total=False):
    name: str
    key: str
    mode: Literal['auto', 'create', 'exec', 'no_exec']
    directory: str

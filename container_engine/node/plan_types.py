"""Types of a plan's parts, for the type checker alone: never imported by a launch.

Generated from plan/model.py by `make generated`. All keys are optional here: a
plan is its user's until it arrives.
"""

# ruff: noqa: E501
# fmt: off
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

_From = TypedDict("_From", {"from": str}, total=False)


class Variable(TypedDict, total=False):
    var: str
    op: Literal['', ':-', '-', ':+', '+', ':?', '?']
    word: Text


Text = str | Sequence[str | Variable]

class Part(_From, total=False):
    path: str
    name: str
    digest: str | None
    content: str


class Image(Part, total=False):
    env: Mapping[str, str]
    entrypoint: Sequence[str]
    workdir: str | None
    source: str
    left_out: Sequence[str]
    passing: str
    on_nodes: bool
    above: Sequence[Part]


class Mount(_From, total=False):
    kind: Literal['bind', 'squashfs', 'tmpfs']
    source: Text
    target: Text
    options: Sequence[str]


class Device(_From, total=False):
    name: Text
    cdi: bool


class EnvEntry(_From, total=False):
    name: str
    value: str | Sequence[str | Variable] | None


class StartupLine(_From, total=False):
    line: Text


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


class OciHook(TypedDict, total=False):
    hookName: Literal['precreate', 'prestart', 'createRuntime', 'createContainer', 'startContainer', 'poststart', 'poststop']
    path: str
    args: Sequence[str]
    env: Sequence[str]
    timeout: int | None


class Additions(TypedDict, total=False):
    devices: Sequence[DeviceEdit]
    cdi: Sequence[str]
    cdi_if_there: Sequence[str]
    mounts: Sequence[MountEdit]
    prepend: Mapping[str, Sequence[str]]
    libraries: Sequence[LibraryEdit]
    search: Sequence[str]
    refresh: bool
    hooks: Sequence[OciHook]


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


class HookUse(Additions, _From, total=False):
    name: str
    switch: str
    release: str
    file: str
    reason: str
    parameters: Mapping[str, str]
    settings: Mapping[str, str]
    automatic_when: Sequence[str] | None
    profile: str
    env: Mapping[str, str | None]
    services: Sequence[Service]
    code: str
    checks: Sequence[Check]
    runs: Sequence[RunCheck]


class Run(RunCheck, _From, total=False):
    pass


class KeptContainer(TypedDict, total=False):
    name: str
    key: str
    mode: Literal['auto', 'create', 'exec', 'no_exec']
    directory: str

"""The Container Device Interface, versions 0.1 to 1.1: for the type checker.

Never imported by a launch, whose reader (node/devices/cdi.py) judges such files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict


class DeviceNode(TypedDict, total=False):
    path: str
    hostPath: str
    type: str
    major: int
    minor: int
    fileMode: int
    permissions: str
    uid: int
    gid: int


class Mount(TypedDict, total=False):
    hostPath: str
    containerPath: str
    options: Sequence[str]
    type: str


class Hook(TypedDict, total=False):
    hookName: str
    path: str
    args: Sequence[str]
    env: Sequence[str]
    timeout: int


class ContainerEdits(TypedDict, total=False):
    env: Sequence[str]
    deviceNodes: Sequence[DeviceNode]
    mounts: Sequence[Mount]
    hooks: Sequence[Hook]
    additionalGids: Sequence[int]


class Device(TypedDict, total=False):
    name: str
    annotations: Mapping[str, str]
    containerEdits: ContainerEdits


class Spec(TypedDict, total=False):
    cdiVersion: str
    kind: str
    annotations: Mapping[str, str]
    devices: Sequence[Device]
    containerEdits: ContainerEdits

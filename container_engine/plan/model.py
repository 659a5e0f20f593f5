"""The launch plan: everything a launch does, decided once on the submit host, frozen, as JSON.

The node launcher reads the JSON with the standard library alone. Every part says where it came from
(`from`: "file:line", or words where no file asked for it).
"""

from __future__ import annotations

import json
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

VERSION: Literal[1] = 1

Operator: TypeAlias = Literal["", ":-", "-", ":+", "+", ":?", "?"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Variable(_Frozen):
    """`${var<op>word}`, which only the compute node can look up."""

    var: str
    op: Operator = ""
    word: Text = ""


# A plain string is literal; a list is joined on the node after its variables have been looked up.
Text: TypeAlias = str | tuple[str | Variable, ...]


class Image(_Frozen):
    """The file system that a container starts from: a SquashFS file and what its maker said of it.

    `env` always has a PATH. `entrypoint` is what the image wants run, whether or not a launch does.
    """

    path: str = Field(description="absolute path of a SquashFS file")
    name: str = Field(description="the image as the user wrote it, variables expanded")
    env: dict[str, str]
    entrypoint: tuple[str, ...] = ()
    workdir: str | None = None
    digest: str | None = Field(None, description="of the registry's manifest, sha256:…")
    source: str = Field("", description="where env, entrypoint and workdir were read")
    origin: str = Field("", alias="from")


class Mount(_Frozen):
    """Sources and targets are absolute once their variables are known."""

    kind: Literal["bind", "squashfs", "tmpfs"]
    source: Text
    target: Text
    options: tuple[str, ...] = ()
    origin: str = Field(alias="from")


class Device(_Frozen):
    """A CDI name or the path of a device node."""

    name: Text
    cdi: bool
    origin: str = Field(alias="from")


class EnvEntry(_Frozen):
    """A variable of the tasks; null removes it, whatever its source."""

    name: str
    value: Text | None
    origin: str = Field(alias="from")


class StartupLine(_Frozen):
    line: Text
    origin: str = Field(alias="from")


class Settings(_Frozen):
    """What the site decided."""

    start_timeout_s: float = Field(120, gt=0)
    tmpfs_size: str = "50%"
    hooks_dirs: tuple[str, ...] = ()
    root_remap: bool = False


class LaunchPlan(_Frozen):
    """One launch. `to_json` is what travels to the nodes and what `ce plan --json` prints."""

    version: Literal[1] = VERSION
    engine: str = Field(description="version of the container engine that made the plan")
    name: str = Field(description="the EDF as the user asked for it")
    files: tuple[str, ...] = Field(description="the EDF files, in the order of evaluation")
    image: Image
    workdir: Text
    workdir_from: str
    writable: bool = True
    writable_from: str = "default"
    entrypoint: tuple[str, ...] = Field((), description="run before the tasks; empty: nothing")
    entrypoint_from: str = "default"
    mounts: tuple[Mount, ...] = ()
    devices: tuple[Device, ...] = ()
    env: tuple[EnvEntry, ...] = ()
    annotations: dict[str, str] = Field(default_factory=dict)
    annotations_from: dict[str, str] = Field(default_factory=dict)
    startup: tuple[StartupLine, ...] = ()
    settings: Settings = Settings()

    def to_json(self) -> str:
        """One line. Bytes that are not UTF-8 (PEP 383) survive: JSON writes them as "\\udcff"."""
        document = self.model_dump(by_alias=True)
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "backslashreplace").decode()


def from_json(text: str) -> LaunchPlan:
    """The plan that `to_json` wrote. Raises ValueError for anything else."""
    return LaunchPlan.model_validate(json.loads(text))

"""The models of what verbs print with --json: objects with a version.

`locks` is what `ce lock` prints.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


_VERSION = "version of this format"


class ListedImage(_Frozen):
    """An image of a store."""

    path: str = Field(description="its SquashFS file")
    digest: str = Field(description="of its content in the registry")
    arch: str = Field(description="the machine it is for (amd64, arm64)")
    names: list[str] = Field(description="in full, as REGISTRY/REPOSITORY:TAG")
    size: int = Field(description="of the file, in bytes")
    created: float = Field(description="in seconds since 1970")
    imported: float = Field(description="in seconds since 1970")
    used: float = Field(description="last launch, to some hours, in seconds since 1970")
    store: str = Field(description="the directory of the store")


class ListOfImages(_Frozen):
    """`ce images --json`: the images of the stores."""

    version: Literal[1] = Field(1, description=_VERSION)
    images: list[ListedImage] = Field(description="the user's store first, then the site's")


class RunningStep(_Frozen):
    """A step that runs in containers."""

    id: str = Field(description="JOB.STEP")
    name: str = Field(description="its command, as squeue shows it")
    nodes: str = Field(description="Slurm's list of its nodes")
    elapsed: str = Field(description="[DAYS-][HOURS:]MINUTES:SECONDS")
    environment: str = Field(description="as in --environment")
    image: str = Field(description="the image's name")
    traced: bool = Field(description="whether it has a trace; always true here")
    plain: str = Field(description="JOB.STEP with the job's own number, also of a job array")
    container: str = Field(description="as in --container-name; empty without a name")


class ListOfSteps(_Frozen):
    """`ce ps --json`: the user's steps that run in containers."""

    version: Literal[1] = Field(1, description=_VERSION)
    steps: list[RunningStep] = Field(description="in Slurm's order")


class TracedImage(_Frozen):
    """The image of a launch."""

    name: str = Field(description="the image's name")
    path: str = Field(description="its SquashFS file")
    digest: str = Field(description="of its content; empty if unknown")


class TracedStep(_Frozen):
    """A step with a trace."""

    step: str = Field(description="JOB.STEP")
    user: str = Field(description="name of the step's user")
    started: float = Field(description="in seconds since 1970")
    environment: str = Field(description="as in --environment")
    image: TracedImage = Field(description="the image that was launched")
    nodes: list[str] = Field(description="nodes that have left a trace")
    missing: list[str] = Field(description="nodes of the step without a trace")
    start_took: float = Field(description="of the slowest node, in seconds")
    ended: bool = Field(description="whether all nodes have recorded the end")
    failed: dict[str, str] = Field(description="the error of each node that failed")


class ListOfTraces(_Frozen):
    """`ce trace --json` without a step: the steps that have a trace."""

    version: Literal[1] = Field(1, description=_VERSION)
    steps: list[TracedStep] = Field(description="the newest first")


class ExplainedValue(_Frozen):
    """A key that has a value, or the variable that was asked for."""

    key: str = Field(description="as in `ce explain`: image, mounts[0], env.PATH, …")
    value: str | None = Field(description="as an EDF writes it; null if it has none")
    about: list[str] = Field(description="where it comes from and what it replaces, one line each")


class Explanation(_Frozen):
    """`ce explain --json`: the values of an environment and their origins."""

    version: Literal[1] = Field(1, description=_VERSION)
    name: str = Field(description="the environment, as it was given")
    values: list[ExplainedValue] = Field(description="in the order of the text")


class Difference(_Frozen):
    """A value that only one of two environments has."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, populate_by_name=True)
    change: Literal["removed", "added", "reordered"] = Field(
        description="only in the first, only in the second, or an array in another order"
    )
    key: str = Field(description="as in `ce explain`")
    value: str | None = Field(description="as an EDF writes it; null if reordered")
    origin: str | None = Field(alias="from", description="FILE:LINE, or default")


class ListOfDifferences(_Frozen):
    """`ce diff --json`: what two environments do differently."""

    version: Literal[1] = Field(1, description=_VERSION)
    differences: list[Difference] = Field(description="sorted by key; empty if there are none")


class Advice(_Frozen):
    """A piece of advice on an environment."""

    name: str = Field(description="the environment, as it was given")
    file: str = Field(description="the file that it is about, or 'your shell'")
    line: int = Field(description="counted from 1; 0 if unknown")
    key: str = Field(description="the key that it is about; empty if none")
    message: str = Field(description="the advice")
    hint: str | None = Field(description="what to write instead")


class ListOfAdvice(_Frozen):
    """`ce lint --json`: advice on valid environments."""

    version: Literal[1] = Field(1, description=_VERSION)
    advice: list[Advice] = Field(description="in the order of the text")


class LockedImage(_Frozen):
    """The image of a lock for one architecture."""

    arch: str = Field(description="amd64, arm64, or file for an image file")
    digest: str = Field(description="of the image's content")
    size: int = Field(description="in bytes")


class LockFile(_Frozen):
    """A lock file that was written or checked."""

    file: str = Field(description="its path")
    images: list[LockedImage] = Field(description="what was written; empty with --check")
    differences: list[str] = Field(description="with --check: why it must be renewed")


class ListOfLocks(_Frozen):
    """`ce lock --json`: the lock files of environments."""

    version: Literal[1] = Field(1, description=_VERSION)
    locks: list[LockFile] = Field(description="in the order of the command line")


class StoreDamage(_Frozen):
    """A damaged path of a store."""

    path: str = Field(description="a file or directory of the store")
    problem: str = Field(description="what is wrong with it")
    state: Literal["found", "removed", "repaired", "left"] = Field(description="what was done")
    reason: str = Field(description="why it was left, else empty")


class StoreCheck(_Frozen):
    """`ce store check --json` and `ce store repair --json`: damage in a store."""

    version: Literal[1] = Field(1, description=_VERSION)
    store: str = Field(description="its directory")
    read: int = Field(description="bytes that were read")
    damages: list[StoreDamage] = Field(description="empty if nothing is wrong")


class CollectedImage(_Frozen):
    """An image that is removed, or that jobs keep."""

    path: str = Field(description="its SquashFS file")
    names: list[str] = Field(description="in full, as REGISTRY/REPOSITORY:TAG")
    digest: str = Field(description="of its content in the registry")
    arch: str = Field(description="the machine it is for (amd64, arm64)")
    size: int = Field(description="of the file, in bytes")
    reason: str = Field(description="why it is removed or kept")
    kept: bool = Field(description="whether it stays")


class Collection(_Frozen):
    """`ce gc --json`: what was removed, or would be with --dry-run."""

    version: Literal[1] = Field(1, description=_VERSION)
    dry_run: bool = Field(description="whether nothing was removed")
    store: str | None = Field(description="its directory; null for EDF_IMAGESTORE=void")
    images: list[CollectedImage] = Field(description="those that the limits chose")
    layers: int = Field(description="how many compressed layers are removed")
    void_stores: list[str] = Field(description="stores left by killed launches")
    freed: int = Field(description="in bytes")
    refreshed: int = Field(description="how many images --keep-alive has touched")


class EngineVersion(_Frozen):
    """`ce version --json`: the version of the engine."""

    version: Literal[1] = Field(1, description=_VERSION)
    engine: str = Field(description="the version of the engine")
    prefix: str = Field(description="the directory of the installation")
    python: str = Field(description="the version of its Python")
    plans: tuple[int, ...] = Field(description="the versions of launch plans that its nodes accept")


MODELS: dict[str, type[BaseModel]] = {
    "diff": ListOfDifferences,
    "explain": Explanation,
    "gc": Collection,
    "images": ListOfImages,
    "lint": ListOfAdvice,
    "locks": ListOfLocks,
    "ps": ListOfSteps,
    "store": StoreCheck,
    "trace": ListOfTraces,
    "version": EngineVersion,
}

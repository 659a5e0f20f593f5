"""`python -m container_engine.cli.schema_lists [DIRECTORY]` writes the schemas of lists.

They describe what the verbs of these names print with --json. Each document is an object with a
version and one list.
"""

from __future__ import annotations

import sys
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from container_engine.schemas import write


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


MODELS: dict[str, type[BaseModel]] = {
    "images.json": ListOfImages,
    "ps.json": ListOfSteps,
    "trace.json": ListOfTraces,
}

if __name__ == "__main__":
    write(MODELS, sys.argv[1:])

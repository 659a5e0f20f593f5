"""The models of what verbs print with --json: objects with a version.

`locks` is what `ce lock` prints.
"""

from __future__ import annotations

from typing import Annotated, Literal

from container_engine.base.model import Array, Model, about


class _Document(Model):
    version: Annotated[Literal[1], about("version of this format")] = 1


class ListedImage(Model):
    """An image of a store."""

    path: Annotated[str, about("its SquashFS file")]
    digest: Annotated[str, about("of its content in the registry")]
    arch: Annotated[str, about("the machine it is for (amd64, arm64)")]
    names: Annotated[list[str], about("in full, as REGISTRY/REPOSITORY:TAG")]
    size: Annotated[int, about("of the file, in bytes")]
    created: Annotated[float, about("in seconds since 1970")]
    imported: Annotated[float, about("in seconds since 1970")]
    used: Annotated[float, about("last launch, to some hours, in seconds since 1970")]
    store: Annotated[str, about("the directory of the store")]


class ListOfImages(_Document):
    """`ce images --json`: the images of the stores."""

    images: Annotated[list[ListedImage], about("the user's store first, then the site's")]


class ImageReads(Model):
    """Figures of a node's reads from an image's file, since the file was mounted there."""

    path: Annotated[str, about("the file")]
    size: Annotated[int, about("of the file, in bytes")]
    shared: Annotated[bool, about("whether other steps of the job may use the same mount")]
    bytes: Annotated[int, about("read from the file")]
    reads: Annotated[int, about("reads of the file")]
    waited_ns: Annotated[int, about("time waited for these, the sum of all threads")]
    requests: Annotated[int, about("requests of the kernel")]
    lookups: Annotated[int, about("how many of these are about a name")]
    hits: Annotated[int, about("blocks found in the memory of ce-image")]
    misses: Annotated[int, about("blocks read from the file")]


class RunningStep(Model):
    """A step that runs in containers."""

    id: Annotated[str, about("JOB.STEP")]
    name: Annotated[str, about("its command, as squeue shows it")]
    nodes: Annotated[str, about("Slurm's list of its nodes")]
    elapsed: Annotated[str, about("[DAYS-][HOURS:]MINUTES:SECONDS")]
    environment: Annotated[str, about("as in --environment")]
    image: Annotated[str, about("the image's name")]
    traced: Annotated[bool, about("whether it has a trace; always true here")]
    plain: Annotated[str, about("JOB.STEP as the step's variables have it, also of a job array")]
    container: Annotated[str, about("as in --container-name; empty without a name")]
    job: Annotated[str, about("JOB, or JOB+COMPONENT of a heterogeneous job")]
    image_reads: Annotated[
        dict[str, list[ImageReads]] | None, about("with -v: what each node has read")
    ] = None


class ListOfSteps(_Document):
    """`ce ps --json`: the user's steps that run in containers."""

    steps: Annotated[list[RunningStep], about("in Slurm's order")]


class TracedImage(Model):
    """The image of a launch."""

    name: Annotated[str, about("the image's name")]
    path: Annotated[str, about("its SquashFS file")]
    digest: Annotated[str, about("of its content; empty if unknown")]


class TracedStep(Model):
    """A step with a trace."""

    step: Annotated[str, about("JOB.STEP")]
    user: Annotated[str, about("name of the step's user")]
    started: Annotated[float, about("in seconds since 1970")]
    environment: Annotated[str, about("as in --environment")]
    image: Annotated[TracedImage, about("the image that was launched")]
    nodes: Annotated[list[str], about("nodes that have left a trace")]
    missing: Annotated[list[str], about("nodes of the step without a trace")]
    start_took: Annotated[float, about("of the slowest node, in seconds")]
    ended: Annotated[bool, about("whether all nodes have recorded the end")]
    failed: Annotated[dict[str, str], about("the error of each node that failed")]


class ListOfTraces(_Document):
    """`ce trace --json` without a step: the steps that have a trace."""

    steps: Annotated[list[TracedStep], about("the newest first")]


class ExplainedValue(Model):
    """A key that has a value, or the variable that was asked for."""

    key: Annotated[str, about("as in `ce explain`: image, mounts[0], env.PATH, …")]
    value: Annotated[str | None, about("as an EDF writes it; null if it has none")]
    about: Annotated[list[str], about("where it comes from and what it replaces, one line each")]


class Explanation(_Document):
    """`ce explain --json`: the values of an environment and their origins."""

    name: Annotated[str, about("the environment, as it was given")]
    values: Annotated[list[ExplainedValue], about("in the order of the text")]


class Difference(Model):
    """A value that only one of two environments or steps has, or that differs."""

    change: Annotated[
        Literal["removed", "added", "changed", "reordered"],
        about("only in the first, only in the second, another one, or an array in another order"),
    ]
    key: Annotated[str, about("as in `ce explain`")]
    value: Annotated[str | None, about("as an EDF writes it; null if reordered")]
    was: Annotated[str | None, about("in the first, of a step's changed value; else null")] = None
    origin: Annotated[str | None, about("FILE:LINE, or default", alias="from")]


class ListOfDifferences(_Document):
    """`ce diff --json`: what two environments or steps do differently."""

    differences: Annotated[
        list[Difference], about("by key, of steps by likelihood; empty if there are none")
    ]


class Advice(Model):
    """A piece of advice on an environment."""

    name: Annotated[str, about("the environment, as it was given")]
    file: Annotated[str, about("the file that it is about, or 'your shell'")]
    line: Annotated[int, about("counted from 1; 0 if unknown")]
    key: Annotated[str, about("the key that it is about; empty if none")]
    message: Annotated[str, about("the advice")]
    hint: Annotated[str | None, about("what to write instead")]


class ListOfAdvice(_Document):
    """`ce lint --json`: advice on valid environments."""

    advice: Annotated[list[Advice], about("in the order of the text")]


class LockedImage(Model):
    """The image of a lock for one architecture."""

    arch: Annotated[str, about("amd64, arm64, or file for an image file")]
    digest: Annotated[str, about("of the image's content")]
    size: Annotated[int, about("in bytes")]


class LockFile(Model):
    """A lock file that was written or checked."""

    file: Annotated[str, about("its path")]
    images: Annotated[list[LockedImage], about("what was written; empty with --check")]
    differences: Annotated[list[str], about("with --check: why it must be renewed")]


class ListOfLocks(_Document):
    """`ce lock --json`: the lock files of environments."""

    locks: Annotated[list[LockFile], about("in the order of the command line")]


class StoreDamage(Model):
    """A damaged path of a store."""

    path: Annotated[str, about("a file or directory of the store")]
    problem: Annotated[str, about("what is wrong with it")]
    state: Annotated[Literal["found", "removed", "repaired", "left"], about("what was done")]
    reason: Annotated[str, about("why it was left, else empty")]


class StoreCheck(_Document):
    """`ce store check --json` and `ce store repair --json`: damage in a store."""

    store: Annotated[str, about("its directory")]
    read: Annotated[int, about("bytes that were read")]
    damages: Annotated[list[StoreDamage], about("empty if nothing is wrong")]


class CollectedImage(Model):
    """An image that is removed, or that jobs keep."""

    path: Annotated[str, about("its SquashFS file")]
    names: Annotated[list[str], about("in full, as REGISTRY/REPOSITORY:TAG")]
    digest: Annotated[str, about("of its content in the registry")]
    arch: Annotated[str, about("the machine it is for (amd64, arm64)")]
    size: Annotated[int, about("of the file, in bytes")]
    reason: Annotated[str, about("why it is removed or kept")]
    kept: Annotated[bool, about("whether it stays")]


class Collection(_Document):
    """`ce gc --json`: what was removed, or would be with --dry-run."""

    dry_run: Annotated[bool, about("whether nothing was removed")]
    store: Annotated[str | None, about("its directory; null for EDF_IMAGESTORE=void")]
    images: Annotated[list[CollectedImage], about("those that the limits chose")]
    layers: Annotated[int, about("how many compressed layers are removed")]
    void_stores: Annotated[list[str], about("stores left by killed launches")]
    freed: Annotated[int, about("in bytes")]
    refreshed: Annotated[int, about("how many images --keep-alive has touched")]


class VettedCheck(Model):
    """A check that ran a program on a node."""

    check: Annotated[str, about("whose it is, and its name")]
    peer: Annotated[str, about("the other node of a pair, empty for a check of one node")]
    verdict: Annotated[
        str, about("passed, failed, believed; alone: a pair in a step of one node; unasked")
    ]
    problem: Annotated[str, about("what a failed check says")]
    took: Annotated[float, about("in seconds")]


class VettedNode(Model):
    """A node of the allocation."""

    node: Annotated[str, about("its name in Slurm")]
    verdict: Annotated[
        Literal["good", "failed", "silent", "unknown", "excluded"],
        about(
            "failed: no container; silent: no answer; unknown: the same, with a limit too short for"
            " others, too; excluded: by the file, and not asked"
        ),
    ]
    reason: Annotated[str, about("why it is not good")]
    warnings: Annotated[Array[str], about("what containers on it warn about")]
    checks: Annotated[
        Array[VettedCheck], about("the checks that ran programs, if a trace has them")
    ]


class ListOfVerdicts(_Document):
    """`ce vet --json FILE`: the verdict on each node of the allocation."""

    environment: Annotated[str, about("as in --environment")]
    good: Annotated[list[str], about("the good nodes, those with warnings last")]
    nodes: Annotated[list[VettedNode], about("in Slurm's order")]


class Outcome(_Document):
    """`ce run --json FILE`: what became of the command, written when it has ended."""

    started: Annotated[bool, about("whether the command was executed")]
    exit_code: Annotated[int, about("as a shell has it: 128 and the signal after one")]
    signal: Annotated[int | None, about("the number of the signal that ended it")]
    limit: Annotated[
        Literal["memory", "pids", "time"] | None,
        about("the limit that ended the container; pids: it refused further processes"),
    ]
    seconds: Annotated[float, about("that the command ran")]
    peak_memory: Annotated[
        int | None,
        about(
            "of the container, in bytes: the most that was seen, where memory that processes share "
            "may count for each; null if it has no processes of its own (com.ce.unshare)"
        ),
    ]
    error: Annotated[
        str | None,
        about(
            "why the container or the command could not be started, or the container ended before "
            "the command"
        ),
    ]


class EngineVersion(_Document):
    """`ce version --json`: the version of the engine."""

    engine: Annotated[str, about("the version of the engine")]
    prefix: Annotated[str, about("the directory of the installation")]
    python: Annotated[str, about("the version of its Python")]
    plans: Annotated[Array[int], about("the versions of launch plans that its nodes accept")]


MODELS: dict[str, type[Model]] = {
    "diff": ListOfDifferences,
    "explain": Explanation,
    "gc": Collection,
    "images": ListOfImages,
    "lint": ListOfAdvice,
    "locks": ListOfLocks,
    "ps": ListOfSteps,
    "run": Outcome,
    "store": StoreCheck,
    "trace": ListOfTraces,
    "version": EngineVersion,
    "vet": ListOfVerdicts,
}

"""A check that runs a program before the first task, as hooks, sites and environments write it."""

# no `from __future__ import annotations`: with it, pydantic would have to compile each annotation
from collections.abc import Iterator
from typing import Annotated, Literal

from container_engine.base.model import Array, Model, about


class RunCheck(Model):
    """A program that must pass before the first task."""

    kind: Annotated[Literal["run"], about("a program is run")] = "run"
    name: Annotated[str, about("for messages; in a hook.toml the table's name")] = ""
    command: Annotated[
        Array[str],
        about("program and arguments, without a shell", examples=[["fi_info", "-p", "cxi"]]),
    ]
    program: Annotated[
        Literal["image", "host", "hook", "engine"],
        about("whose program it is; hook: it is beside the hook.toml, on the node; engine: ce-ask"),
    ] = "image"
    inside: Annotated[
        bool, about("in the container, as a task would run it; false: before there is one")
    ] = True
    per: Annotated[
        Literal["node", "pair"], about("once on each node, or between neighbours of the step")
    ] = "node"
    limit_s: Annotated[
        float, about("seconds after which it has failed and is killed", gt=0, le=3600)
    ] = 10
    exit_code: Annotated[int, about("what it must end with", ge=0, le=255)] = 0
    words: Annotated[Array[str], about("texts, each of which it must print")] = ()
    forbid: Annotated[Array[str], about("texts, none of which it may print")] = ()
    severity: Annotated[Literal["warn", "fail"], about("what happens if the check fails")] = "warn"
    message: Annotated[str, about("what a failure means")] = ""
    hint: Annotated[str, about("what to do about it")] = ""
    valid_s: Annotated[
        float, about("seconds for which a node believes that it has passed; 0: not at all", ge=0)
    ] = 0
    unchanged: Annotated[
        Array[str],
        about(
            "files, or patterns of them: it is believed while they say the same",
            examples=[["/sys/class/net/hsn*/operstate"]],
        ),
    ] = ()
    variables: Annotated[
        Array[str],
        about(
            "names of the step's variables: it is believed while they have the same values",
            examples=[["NCCL_NET_PLUGIN"]],
        ),
    ] = ()


class ListedCheck(RunCheck):
    """One of `[[checks]]`, which no hook has beside it."""

    name: Annotated[str, about("for messages", min_length=1)]
    program: Annotated[Literal["image", "host"], about("whose program it is")] = "image"

    @property
    def text(self) -> str:
        """Return all of it but its name, on one line."""
        import shlex  # where a check is only run, nobody asks

        others = self.model_dump(exclude_defaults=True, exclude={"name", "command"})
        said = {"severity": self.severity, **others}
        words = (f"{key} {value}" for key, value in said.items())
        return f"{shlex.join(self.command)} ({', '.join(words)})"


def faults(check: RunCheck) -> Iterator[tuple[str, str]]:
    """Yield the keys that do not go together, each with what is wrong."""
    if not check.command or not check.command[0]:
        yield "command", "must have a program"
    elif check.program == "host" and "/" in check.command[0] and check.command[0][0] not in "/{":
        yield "command", "a program of the host has an absolute path, or a name alone"
    elif check.program == "hook" and check.command[0].startswith("/"):
        yield "command", "a program of the hook is named relative to the hook.toml"
    if check.program == "image" and not check.inside:
        yield "inside", 'the image is not there yet: set program = "host"'
    if check.valid_s and check.per == "pair":
        yield "valid_s", "a pair is never believed later: the other node could not know"
    if not all(path.startswith(("/", "{")) for path in check.unchanged):
        yield "unchanged", "must have absolute paths"
    elif (check.unchanged or check.variables) and not check.valid_s:
        key = "unchanged" if check.unchanged else "variables"
        yield key, "has no meaning without valid_s"
    if any("\0" in word for word in (*check.command, *check.words, *check.forbid)):
        yield "command", "contains a NUL character"

"""The command line as the completion scripts of each shell describe it. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

# what `ce completion --list KIND` prints at the time of completion; "named" are environments and
# images, "source" is what Podman has, "trace" are steps that have one
Kind = Literal["environment", "hook", "image", "named", "source", "step", "trace"]
LISTED: tuple[Kind, ...] = ("environment", "hook", "image", "named", "source", "step", "trace")
# these may also be files *.toml, and this one any file
FILES = ("environment", "hook", "named")
ANY_FILE: Kind = "source"
SLURM = ("srun", "sbatch", "salloc")


class Value(NamedTuple):
    """The possible values of an argument: `words`, files, anything, or what ce lists."""

    kind: Literal["words", "file", "any"] | Kind
    words: tuple[str, ...] = ()


class Option(NamedTuple):
    """An option of a verb; `value` is None for a switch."""

    names: tuple[str, ...]
    about: str
    value: Value | None


class Command(NamedTuple):
    """A verb and its arguments, `words`, the last of which may occur many times if `repeats`."""

    name: str
    about: str
    options: tuple[Option, ...]
    words: tuple[Value, ...]
    repeats: bool

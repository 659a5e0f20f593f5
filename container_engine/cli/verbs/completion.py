"""`ce completion SHELL`: print the script with which a shell completes `ce` command lines."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from container_engine.cli.completion import bash, fish, zsh
from container_engine.cli.completion.commands import commands
from container_engine.cli.completion.names import names
from container_engine.printing import output

if TYPE_CHECKING:
    from container_engine.submit.context import Context

SHELLS = {"bash": bash.of_ce, "zsh": zsh.of_ce, "fish": fish.of_ce}
SLURM = {"bash": bash.of_slurm, "zsh": zsh.of_slurm, "fish": fish.of_slurm}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shell", metavar="SHELL", nargs="?", choices=tuple(SHELLS), help="bash, zsh or fish"
    )
    parser.add_argument(
        "--slurm",
        action="store_true",
        help="only srun, sbatch and salloc, for a file that shells read when they start",
    )
    # used by the completion scripts
    parser.add_argument("--list", metavar="KIND", help=argparse.SUPPRESS)


def execute(arguments: argparse.Namespace, context: Context) -> int:
    shell = arguments.shell or "bash"
    if arguments.list is not None:
        kind, _colon, word = arguments.list.partition(":")
        output.exact(b"".join(os.fsencode(f"{name}\n") for name in names(kind, word, context)))
    else:
        text = SLURM[shell]() if arguments.slurm else SHELLS[shell](commands())
        output.exact(text.encode())
    return 0

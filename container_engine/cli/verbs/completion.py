"""`ce completion SHELL`: print the script with which a shell completes `ce` command lines."""

from __future__ import annotations

import argparse
from pathlib import Path

from container_engine.cli import completion
from container_engine.printing import output
from container_engine.submit.context import Context

SHELLS = ("bash", "zsh", "fish")
_OF_CE, _OF_SLURM = "#compdef ce\n", "#compdef -p (*/|)(srun|sbatch|salloc)\n"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shell", metavar="SHELL", nargs="?", choices=SHELLS, help="bash, zsh or fish"
    )
    parser.add_argument(
        "--slurm",
        action="store_true",
        help="as a file for srun, sbatch and salloc that shells read when they start",
    )


def execute(arguments: argparse.Namespace, _context: Context) -> int:
    file = Path(completion.__file__).with_name(f"ce.{arguments.shell or 'bash'}")
    text = file.read_text(encoding="utf-8")
    # zsh reads from the first line of a file what it completes
    output.exact((text.replace(_OF_CE, _OF_SLURM, 1) if arguments.slurm else text).encode())
    return 0

"""`ce plan NAME`: print what a launch would do."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from container_engine.base.errors import UserError
from container_engine.cli.command_line.options import (
    add_container_options,
    add_pull,
    add_show_secrets,
    refuse_nothing,
    secrecy,
)
from container_engine.printing import messages, output
from container_engine.submit import plan_output
from container_engine.submit.context import NONE_GIVEN, Context, Options


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="an environment: a name or the path of a file"
    )
    parser.add_argument("--json", action="store_true", help="the plan itself, as nodes receive it")
    add_show_secrets(parser)
    parser.add_argument(
        "--for",
        dest="caller",
        choices=("srun", "salloc", "sbatch"),
        help="for the plugin: print a word before the plan that tells whether there is one",
    )

    add_pull(parser)
    add_container_options(parser, of_plugin=True)


def execute(arguments: argparse.Namespace, context: Context) -> int:
    if arguments.name is None and not arguments.container_options:
        return refuse_nothing("plan")
    if context.env.get("EDF_IMAGESTORE") != "void":
        _print(arguments, context)
    elif arguments.caller == "srun":
        _print_for_step(arguments, context)
    else:
        _print(arguments, context._replace(only_asks=True))
    return 0


def _print_for_step(arguments: argparse.Namespace, context: Context) -> None:
    """Print the plan of a step whose image lasts as long as srun, which started this process."""
    from container_engine.submit.context import site_config
    from container_engine.submit.stores import ephemeral_store

    store = ephemeral_store(context, site_config(context), os.getppid())
    try:
        _print(arguments, context._replace(ephemeral_store=store))
        store.hand_over(context.libexec)
    except BaseException:
        store.remove()
        raise


def _refuse_inside(plan: Mapping[str, Any]) -> None:
    """Raise UserError if a batch script would need an image imported only for steps of srun."""
    if plan["image"]["passing"] and plan["settings"]["batch_script"] == "inside":
        raise UserError(
            "EDF_IMAGESTORE=void: the site runs batch scripts in the container, and no image is "
            "kept for that",
            "unset EDF_IMAGESTORE, or set it to a directory",
        )


def _options(words: Sequence[str]) -> Options:
    if not words:
        return NONE_GIVEN
    from container_engine.compat.pyxis_options import PyxisOptions

    return PyxisOptions(words)


def _print(arguments: argparse.Namespace, context: Context) -> None:
    # for Slurm's commands this process starts only after ce-start has found no cached plan
    make = plan_output.new_plan_of if arguments.caller else plan_output.plan_of
    options = _options(arguments.container_options)
    notices, head, text = make(arguments.name, context, arguments.pull, options)
    plan: dict[str, Any] | None = None
    if text and (arguments.caller or not arguments.json):
        import json  # a cached plan that is printed as it is needs none

        plan = json.loads(text)
    if plan and arguments.caller == "sbatch" and context.only_asks:
        _refuse_inside(plan)
    messages.say(notices)
    if plan and arguments.caller == "srun" and plan["settings"]["stage"] != "none":
        from container_engine.tools import staging

        staging.copy_for_step(plan, context)
    if arguments.json and arguments.caller:
        # a Slurm command gets a word before the plan, because empty output would be ambiguous
        output.exact((head + text).encode("utf-8", "surrogateescape"))
    elif arguments.json:
        output.json_text(text)
    elif plan:
        from container_engine.printing.plan import show

        hidden = secrecy(arguments, context, plan["settings"]["secret_variables"])
        output.text(show(plan, hidden, output.columns()))
    sys.stdout.flush()

"""`ce run NAME [--] COMMAND…` and `ce shell NAME`: run a command or a shell, without Slurm."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from container_engine.base.errors import (
    EXIT_ENGINE,
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
    CeError,
    UserError,
)
from container_engine.base.files import with_given_umask
from container_engine.base.process import reason
from container_engine.base.text_layout import one_line, warning_text
from container_engine.cli.command_line.options import (
    SHELL,
    add_container_options,
    add_pull,
    has_terminal,
    names_image,
)
from container_engine.compat.foreign import add_foreign, refuse_foreign
from container_engine.compat.pyxis_options import PyxisOptions
from container_engine.node.node_plan import NodePlan, read_plan
from container_engine.printing import messages
from container_engine.printing.messages import refuse
from container_engine.submit import plan_output
from container_engine.submit.context import Context
from container_engine.submit.refused import RefusedError

if TYPE_CHECKING:
    from container_engine.node.plan_types import RunCheck

_ONE_EACH = (
    "this srun starts ce run once per task, each with a container of its own: "
    "MPI between them fails (srun --environment=NAME COMMAND starts one per node)"
)
_ONE_EACH_OF_MPIRUN = (
    "this mpirun starts ce run once per rank, each with a container of its own: MPI between them "
    "may fail (in a job: srun --mpi=pmix --environment=NAME COMMAND, --mpi=pmi2 for MPICH; on this "
    "host: ce run NAME -- mpirun -n N COMMAND)"
)
# variables with a rank's number and the count of ranks, of Open MPI and Hydra (MPICH, Intel MPI)
_OF_MPIRUN = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))
_IMAGE = re.compile(r"[a-z0-9][a-z0-9._/#-]*(:[A-Za-z0-9._-]+)?")
_STANDARD = {"/dev/stdout": "/dev/fd/1", "/dev/stderr": "/dev/fd/2"}
_JOB = re.compile(r"\d+(?:_\d+)?(?:\.\d+)?")  # or one of its steps


def configure(parser: argparse.ArgumentParser) -> None:
    _add_options(parser)
    parser.add_argument(
        "--environment",
        metavar="NAME",
        help="the environment, spelled as for srun, instead of NAME",
    )
    name = parser.add_argument(
        "name", metavar="NAME", help="an environment: a name or the path of a file"
    )
    command = parser.add_argument(
        "command",
        metavar="COMMAND",
        nargs="...",
        help="the command and its arguments, after --; without it a shell, on a terminal",
    )
    # optional, but not by nargs="?": argparse would then mistake options for the command
    name.required = command.required = False
    parser.add_argument(
        "--json", metavar="FILE", help="write what became of the command as JSON when it has ended"
    )
    # for the container of `ce doctor`, whose image has no programs
    parser.add_argument("--no-checks-inside", action="store_true", help=argparse.SUPPRESS)
    parser.usage = "ce run [-h] [--pull WHEN] [--image REF] NAME -- COMMAND [ARGUMENT ...]"
    parser.set_defaults(failure=EXIT_ENGINE)


def _add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `ce run` and `ce shell` share."""
    add_pull(parser)
    parser.add_argument(
        "--image", metavar="REF", help="an image instead of NAME: an environment without a file"
    )
    add_container_options(parser)
    add_foreign(parser)


def execute(arguments: argparse.Namespace, context: Context) -> int:
    name, command = _words(arguments)
    rest = [*([] if name is None else [name]), *(["--", *command] if command else [])]
    if (refused := refuse_foreign(arguments, rest)) != 0:
        return refused
    if misuse := _misuse_of_image(name, arguments):
        return refuse(f"run: {misuse[0]}", misuse[1])
    if _lacks_name(name, arguments):
        return refuse(
            "run: no environment is given", "ce run NAME -- COMMAND; ce list shows the environments"
        )
    if _has_late_option(arguments):
        message = f"run: '{arguments.command[0]}': options go before the name"
        return refuse(message, "ce run [OPTION ...] NAME -- COMMAND")
    return _start(name, command, arguments, context)


def _start(
    name: str | None, command: list[str], arguments: argparse.Namespace, context: Context
) -> int:
    """Run the command, or a shell if it is empty, in the environment `name`, else in the image.

    Return the exit code. Raise CeError if there is no container.
    """
    if not command:
        if not has_terminal():
            _check_name(name, arguments, context)
            which = _shown(name, arguments)
            message = (
                f"{arguments.verb}: without a command it opens a shell, which needs a terminal"
            )
            return refuse(message, f"ce run {which} -- COMMAND")
        command = list(SHELL)
    if warning := _of_one_each(context.env):
        messages.say(warning_text(warning))
    if getattr(arguments, "json", None) is None:
        return _run(name, command, arguments, context)
    file = _opened(arguments.json)
    try:
        return _run(name, command, arguments, context, file)
    except CeError as error:
        _write_failure(file, error)
        raise


def _opened(path: str) -> int:
    """Open the file for the outcome, before anything is started. Raise UserError."""
    if path == "-":
        hint = "--json FILE; --json /dev/fd/3 3>FILE writes to a descriptor"
        raise UserError("run: standard output is the command's", hint, where="--json")
    given = re.fullmatch(r"/dev/fd/(\d+)", _STANDARD.get(path, path))
    try:
        if given:  # opened by its name, a file would lose what is in it
            return os.dup(int(given[1]))
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    except OSError as error:
        raise UserError(reason(error), where=f"--json {path}") from None


def _write_failure(file: int, error: CeError) -> None:
    """Write that no container could be started; once the command runs, ce-enter writes the rest."""
    from container_engine.printing.json_models import Outcome

    failed = Outcome(
        started=False,
        exit_code=EXIT_ENGINE,
        signal=None,
        limit=None,
        seconds=0,
        peak_memory=None,
        error=one_line(error.message),
    )
    try:
        with open(file, "w", encoding="utf-8") as stream:
            stream.write(failed.model_dump_json() + "\n")
    except OSError as full:
        messages.say(messages.of_error(UserError(reason(full), where="--json")))


def _run(
    name: str | None,
    command: list[str],
    arguments: argparse.Namespace,
    context: Context,
    json_file: int = -1,
) -> int:
    """Run the command in its container, or on the host if the environment has no image."""
    with contextlib.ExitStack() as stack:
        plan = _plan(name, arguments, _with_ephemeral_store(context, stack))
        with_given_umask()
        if plan is None:
            stack.close()
            if json_file >= 0:
                raise UserError("run: --json is about a container, and this image is empty")
            return _run_on_host(command)
        from container_engine.node.start.without_slurm import run_in_container

        # a mounted image stays usable after its file has been removed
        return run_in_container(
            plan, command, context.libexec, started=stack.close, json_file=json_file
        )


def _check_name(name: str | None, arguments: argparse.Namespace, context: Context) -> None:
    """Raise UserError for a wrong name, so that it is reported before the missing terminal."""
    from container_engine.submit.environment import load_effective, site_here
    from container_engine.submit.image_names import image_named, is_environment

    site_context = site_here(context)
    image = arguments.image
    if name is not None:
        problems = load_effective(
            name, context, site_context, PyxisOptions(arguments.container_options)
        ).problems
        if any(problem.severity == "error" for problem in problems):
            raise _with_image_hint(RefusedError(problems), name)
    elif image is not None and is_environment(image, context, site_context.site):
        if image_named(image, context, site_context.site) is not None:
            return
        hint = f"ce {arguments.verb} {image}, or ce run {image} -- COMMAND"
        raise UserError("an environment, not an image", hint, where="--image", name=image)


def _shown(name: str | None, arguments: argparse.Namespace) -> str:
    """Return what the user has asked for, in the form that precedes a command."""
    if arguments.image is not None:
        return f"--image {arguments.image}"
    return " ".join([*arguments.container_options, *([] if name is None else [name])])


def _has_late_option(arguments: argparse.Namespace) -> bool:
    """Check whether an option follows the name; what follows -- belongs to the command."""
    command: list[str] = arguments.command or []
    if not command or not command[0].startswith("-") or command[0] == "--":
        return False
    before: str = arguments.words[-len(command) - 1]
    return before != "--" and not _is_named_by_option(arguments)


def _lacks_name(name: str | None, arguments: argparse.Namespace) -> bool:
    """Check whether nothing names a container. The word after -- begins a command."""
    if _is_named_by_option(arguments):
        return False
    if name is None:
        return True
    before = len(arguments.words) - len(arguments.command or ()) - 2
    return before >= 0 and bool(arguments.words[before] == "--")


def _misuse_of_image(
    name: str | None, arguments: argparse.Namespace
) -> tuple[str, str | None] | None:
    """Return what cannot be combined with the option of an image, and the remedy, or None."""
    if arguments.environment is not None and arguments.image is not None:
        return "either --environment or --image, not both", "see ce run --help"
    if arguments.image is not None and arguments.container_options:
        return "--image: beside options of pyxis write --container-image", None
    words: list[str] = arguments.words
    # the word in the place of NAME, which users of srun may mean as an environment
    before = words[words.index("--") - 1] if "--" in words[1:] else ""
    if name is None and before.endswith(".toml") and not before.startswith("-"):
        option = "--image" if arguments.image is not None else "--container-image"
        both = f"ce run --container-image=REF --environment={before} -- COMMAND"
        return f"'{before}': {option} takes the place of an environment", f"for both: {both}"
    return None


def _is_named_by_option(arguments: argparse.Namespace) -> bool:
    """Check whether all words are the command, because an option names the container."""
    by_option = (arguments.environment, arguments.image)
    return any(one is not None for one in by_option) or names_image(arguments)


def _words(arguments: argparse.Namespace) -> tuple[str | None, list[str]]:
    """Return the name of the environment, None for an image alone, and the command line."""
    first: list[str] = [] if arguments.name is None else [arguments.name]
    rest: list[str] = arguments.command or []
    if _is_named_by_option(arguments):
        return arguments.environment, [*first, *rest]
    return arguments.name, rest[1:] if rest[:1] == ["--"] else rest


def _of_one_each(env: Mapping[str, str]) -> str:
    """Return the warning of the first of several tasks or ranks, which warns for all; else "".

    SLURM_PROCID is 0 in a batch script, too, which has no SLURM_STEP_NUM_TASKS. srun --mpi=pmi2
    sets PMI_RANK as well.
    """
    if env.get("SLURM_STEP_NUM_TASKS", "1") != "1":
        return _ONE_EACH if env.get("SLURM_PROCID") == "0" else ""
    first = any(env.get(rank) == "0" and env.get(size, "1") != "1" for rank, size in _OF_MPIRUN)
    return _ONE_EACH_OF_MPIRUN if first else ""


def _with_ephemeral_store(context: Context, stack: contextlib.ExitStack) -> Context:
    """Return the context; with EDF_IMAGESTORE=void it has a store that `stack` removes."""
    if context.env.get("EDF_IMAGESTORE") != "void":
        return context
    import tempfile

    from container_engine.images.store.ephemeral_store import EphemeralStore

    ephemeral_store = EphemeralStore(context.env, tempfile.gettempdir(), os.getpid())
    stack.callback(ephemeral_store.remove)
    return context._replace(ephemeral_store=ephemeral_store)


def _plan(name: str | None, arguments: argparse.Namespace, context: Context) -> NodePlan | None:
    """Return the plan as the node launcher reads it, or None for no container."""
    options = PyxisOptions(arguments.container_options)
    if options.words:
        notices, _head, text = plan_output.plan_of(name, context, arguments.pull, options)
    elif name is None:
        image: str = arguments.image
        notices, _head, text = plan_output.plan_of_image(image, context, arguments.pull, options)
    else:
        notices, _head, text = _plan_of(name, context, arguments.pull)
    messages.say(notices)
    if not text:
        return None
    plan = read_plan(text)
    if getattr(arguments, "no_checks_inside", False):
        hooks = [{**hook, "runs": _outside(hook.get("runs", ()))} for hook in plan.hooks]
        return plan.but(runs=_outside(plan.runs), hooks=hooks)
    return plan


def _outside(runs: Sequence[RunCheck]) -> list[RunCheck]:
    return [run for run in runs if not run["inside"]]


def _plan_of(name: str, context: Context, pull: str | None) -> tuple[str, str, str]:
    try:
        return plan_output.plan_of(name, context, pull)
    except RefusedError as refused:
        raise _with_image_hint(refused, name) from None


def _with_image_hint(refused: RefusedError, name: str) -> RefusedError:
    """Return the error with a hint for users who gave the name of an image."""
    from container_engine.faults.catalogue import remedy

    problem = refused.problems[0]
    is_similar = problem.hint != remedy(problem.see, None) and ":" not in name
    if problem.see != "environment-not-found" or is_similar or not _IMAGE.fullmatch(name):
        return refused
    from dataclasses import replace

    hint = f"ce list shows the environments; for the image: ce run --image {name} -- COMMAND"
    if _JOB.fullmatch(name):
        hint = f"ce list shows the environments; for a shell in a running job: ce exec {name}"
    return RefusedError([replace(problem, hint=hint)])


def _run_on_host(command: list[str]) -> int:
    # Python ignores SIGPIPE, which would survive execve
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        # with the variables that ce-start keeps from Python
        os.execvpe(command[0], command, os.environ)
    except FileNotFoundError:
        messages.say(messages.of_error(UserError("command not found", where=command[0])))
        return EXIT_NOT_FOUND
    except OSError as error:
        messages.say(messages.of_error(UserError(reason(error), where=command[0])))
        return EXIT_NOT_EXECUTABLE


def configure_shell(parser: argparse.ArgumentParser) -> None:
    _add_options(parser)
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="an environment: a name or the path of a file"
    )
    parser.set_defaults(failure=EXIT_ENGINE)


def execute_shell(arguments: argparse.Namespace, context: Context) -> int:
    """Run bash if the image has it, else sh; return its exit code."""
    rest = [] if arguments.name is None else [arguments.name]
    if (refused := refuse_foreign(arguments, rest)) != 0:
        return refused
    has_image = arguments.image is not None or names_image(arguments)
    if (arguments.name is None) != has_image:
        message = "shell: expected either an environment or --image REF"
        return messages.refuse(message, "ce shell NAME; ce list shows the environments")
    return _start(arguments.name, [], arguments, context)

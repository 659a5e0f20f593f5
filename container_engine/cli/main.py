"""The command `ce`: finds the verb, runs it, turns every failure into one line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeAlias

from container_engine import __version__
from container_engine.cli import context, messages
from container_engine.errors import CeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Execute: TypeAlias = Callable[[argparse.Namespace, context.Context], int]

PROBLEM, USAGE = 1, 2
OVERVIEW = """\
ce runs commands in containers that a file describes (an environment, NAME.toml).

  ce validate NAME            is the file right? every problem in one go
  ce plan NAME                what would a launch do, and which line asks for it?
  ce run NAME -- COMMAND      run a command in it here
  srun --environment=NAME …   run every task of a Slurm step in it
  ce init NAME                write a commented environment to begin with
  ce render NAME              the file with its bases merged and its variables expanded
  ce explain NAME [KEY]       which line says a value, what it overrode, what it is made of
  ce diff NAME OTHER          what two environments do differently
  ce lint NAME                advice: tuning, paths, secrets, mounts, versions
  ce schema edf               the format for editors, as JSON Schema
  ce pull IMAGE               get an image from a registry ahead of time
  ce import SOURCE            make an image of what another tool has: an archive, a layout
  ce images                   what the stores have; ce rmi, ce gc, ce store check
  ce doctor                   can containers be had here, and if not, what is to be done?
  ce version

NAME is looked for in EDF_PATH (else ~/.edf), then among the site's; a path begins with / or ./
'ce VERB --help' says more about one of them.
"""


class Verb(NamedTuple):
    """A module of this package, imported only when its verb is used.

    It offers configure(parser), which may set the default `failure` (the exit code of a CeError,
    else 1), and execute(arguments, context), which returns the exit code or raises CeError.
    """

    module: str
    help: str


VERBS = {
    "validate": Verb("validate", "check an environment and report every problem"),
    "plan": Verb("plan", "show what a launch would do"),
    "run": Verb("run", "run a command in a container, here"),
    "render": Verb("render", "print the effective environment"),
    "explain": Verb("explain", "say for each value which line it comes from"),
    "diff": Verb("diff", "show what two environments do differently"),
    "lint": Verb("lint", "give advice on an environment"),
    "init": Verb("init", "write a commented environment to begin with"),
    "schema": Verb("schema", "print the JSON Schema of a format"),
    "import": Verb("importing", "make an image of what a registry or another tool has"),
    "pull": Verb("pull", "get an image from its registry, if there is a newer one"),
    "images": Verb("images", "list what the image stores have"),
    "rmi": Verb("rmi", "remove an image from your store"),
    "gc": Verb("gc", "make room in your store"),
    "store": Verb("store", "check or repair your store"),
    "doctor": Verb("doctor", "find out whether containers can be had here, and why not"),
    "version": Verb("version", "print the version"),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        messages.say(f"ce: error: {message}\nce: hint: '{self.prog} --help' says how to use it\n")
        sys.exit(USAGE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code. No exception leaves it, except for SystemExit."""
    failure = PROBLEM
    try:
        words = sys.argv[1:] if arguments is None else list(arguments)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # for locales without UTF-8
        if not words:
            sys.stdout.write(OVERVIEW)
            return 0
        parsed = _parser(words).parse_args(words)
        failure = parsed.failure
        execute: Execute = parsed.execute
        return execute(parsed, context.of_this_process(parsed.site))
    except CeError as error:
        messages.say(messages.of_error(error))
    except KeyboardInterrupt:
        _die_of(signal.SIGINT)
    except BrokenPipeError:
        _die_of(signal.SIGPIPE)
    except Exception as error:  # noqa: BLE001 - nobody shall have to read a traceback
        _report_mistake(error)
    return failure


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """A parser that knows all verbs, and of the one in `words` also its options."""
    parser = _Parser(prog="ce", description="Containers that a file describes.")
    parser.add_argument("--version", action="version", version=f"ce {__version__}")
    parser.add_argument("--site", metavar="FILE", help=argparse.SUPPRESS)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    chosen = next((word for word in words if word in VERBS), None)
    for name, verb in VERBS.items():
        own = verbs.add_parser(name, help=verb.help, description=verb.help)
        if name == chosen:
            module = importlib.import_module(f"container_engine.cli.{verb.module}")
            own.set_defaults(execute=module.execute, failure=PROBLEM)
            module.configure(own)
    return parser


def _report_mistake(error: Exception) -> None:
    if os.environ.get("CE_DEBUG"):
        traceback.print_exception(error)
    messages.say(
        f"ce: internal error: {type(error).__name__}: {error}\n"
        "ce: hint: CE_DEBUG=1 shows where; please report it\n"
    )


def _die_of(number: signal.Signals) -> None:
    """Ends as a program without Python would, so that shells and scripts see the signal."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)

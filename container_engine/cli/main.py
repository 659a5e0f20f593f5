"""The command `ce`: find and run the verb, turn each failure into one line and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TypeAlias

from container_engine.base.errors import CeError, InternalError, SiteError
from container_engine.base.files import keep_others_out
from container_engine.base.text_layout import wrap_lines
from container_engine.cli.command_line.parser import PROBLEM, build
from container_engine.cli.command_line.verb_table import overview, verb_in
from container_engine.images.listener import Listener
from container_engine.printing import interrupts, messages, output
from container_engine.submit import context

# to ask all packages for plugins takes pydantic a tenth of its import, and none has a say here;
# a program that imports the API may have some for its own models
sys.modules["pydantic.plugin._loader"] = SimpleNamespace(get_plugins=tuple)  # type: ignore[assignment]

Execute: TypeAlias = Callable[[argparse.Namespace, context.Context], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code.

    Raise no exception except SystemExit, and KeyboardInterrupt for `arguments`, whose caller has
    something to tidy up.
    """
    with interrupts.interruptible() if arguments is None else contextlib.nullcontext():
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    failure = PROBLEM
    try:
        keep_others_out()
        words = sys.argv[1:] if arguments is None else list(arguments)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # for locales without UTF-8
        if not words:
            output.text(wrap_lines(overview(), output.columns()))
            return 0
        if words[0] == "complete":  # by the scripts of `ce completion`, at each tab
            from container_engine.cli.completion.offer import complete

            return complete(words[1:] or [""], context.of_this_process(None))
        verb = verb_in(words)
        parsed = build([verb] if verb else []).parse_args(words)
        failure = parsed.failure
        execute: Execute = parsed.execute
        known = context.of_this_process(parsed.site)
        return execute(parsed, known._replace(listener=_listener))
    except CeError as error:
        interrupts.raise_again()
        messages.say(messages.of_error(error))
    except BrokenPipeError:
        interrupts.die_of(signal.SIGPIPE)
    except Exception as error:  # noqa: BLE001 - users must not have to read a traceback
        interrupts.raise_again()
        _report_mistake(error)
    return failure


def _listener() -> Listener:
    from container_engine.printing.messages import listener

    return listener()


def _report_mistake(error: Exception) -> None:
    if os.environ.get("CE_DEBUG"):
        import traceback

        traceback.print_exception(error)
    from container_engine.base import shortage
    from container_engine.node.report import errors

    where = errors.of_exception(error)
    message, hint = shortage.of_error(error)
    if message:
        mistake: CeError = SiteError(message, hint, shortage.CODE, details=where)
    else:
        message = f"internal error: {type(error).__name__}: {error}"
        mistake = InternalError(message, see="internal-error", details=where)
    messages.say(messages.of_error(mistake))

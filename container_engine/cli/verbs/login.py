"""`ce login` and `ce logout`: leave both to Podman or skopeo, so that `ce` sees no password."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import termios
from collections.abc import Iterator, Mapping

from container_engine.base import process
from container_engine.base.errors import SiteError, UserError
from container_engine.images.fetch.refusal import skopeos_words, trust_hint, unreached
from container_engine.images.free_space import refuse_full, unusable
from container_engine.printing import messages, output
from container_engine.submit.context import Context

_LIMIT_S = 60
_PATIENCE_S = 3600  # for the user to type


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("registry", metavar="REGISTRY", help="for example nvcr.io")
    parser.add_argument("-u", "--username", metavar="USER", help="else it is asked for")
    parser.add_argument(
        "--password-stdin", action="store_true", help="read the password from the standard input"
    )


def execute(arguments: argparse.Namespace, context: Context) -> int:
    """Let a program ask for the password, and print where it keeps the login."""
    program = _program(context.env)
    if not (arguments.password_stdin or sys.stdin.isatty()):
        message = "not logged in: there is no terminal to type a password"
        hint = f"ce login -u USER --password-stdin {arguments.registry} < FILE"
        raise UserError(message, hint, "registry-login", name=arguments.registry)
    path = state_file(context.env)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    except OSError as error:
        refuse_full(path, error)
        raise unusable(path, error) from None
    argv = [program, "login", "--authfile", path]
    if arguments.username:
        argv += ["--username", arguments.username]
    if arguments.password_stdin:
        argv.append("--password-stdin")
    try:
        with _same_terminal():
            process.attended([*argv, arguments.registry], context.env, _PATIENCE_S)
    except process.CommandError as error:
        raise _refusal(arguments.registry, error, context.env) from None
    messages.say_progress(f"the login is saved in {path}, for this host and the nodes")
    return 0


def configure_logout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("registry", metavar="REGISTRY", help="for example nvcr.io")


def execute_logout(arguments: argparse.Namespace, context: Context) -> int:
    if not _log_out(arguments.registry, context.env):
        raise UserError("you are not logged in there", name=arguments.registry)
    output.line(f"logged out from {arguments.registry}")
    return 0


@contextlib.contextmanager
def _same_terminal() -> Iterator[None]:
    """Restore the terminal, whose echo a program that asks for a password turns off."""
    try:
        before = termios.tcgetattr(0)
    except (OSError, termios.error):
        yield  # stdin is not a terminal
        return
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def _refusal(registry: str, error: process.CommandError, env: Mapping[str, str]) -> UserError:
    text = skopeos_words(error)
    if (found := unreached(text, registry, env)) is not None:
        text, see, hint = found
        return UserError(f"not logged in: {text}", hint, see, details=error.stderr, name=registry)
    is_refused = re.search("invalid username|unauthorized|denied|40[13]", text, re.IGNORECASE)
    see = "registry-login" if is_refused else "registry-unreachable"
    hint = trust_hint(registry, text)
    if is_refused and hint is None:
        hint = "check the user name and the password or token"
    return UserError(f"not logged in: {text}", hint, see, details=error.stderr, name=registry)


def state_file(env: Mapping[str, str]) -> str:
    """Return the path of the file with the logins.

    It is REGISTRY_AUTH_FILE's, or else one in the home, which nodes see, unlike Podman's default.
    """
    named = env.get("REGISTRY_AUTH_FILE")
    if named:
        return named
    base = env.get("XDG_CONFIG_HOME", "")
    if not base.startswith("/"):
        base = os.path.join(env.get("HOME", "/"), ".config")
    return f"{base}/containers/auth.json"


def all_state_files(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the file of `ce login` and the one of Podman, which takes precedence over it."""
    runtime = env.get("XDG_RUNTIME_DIR")
    others = (f"{runtime}/containers/auth.json",) if runtime else ()
    return (state_file(env), *others)


def _log_out(registry: str, env: Mapping[str, str]) -> bool:
    """Log out of the registry; return whether there was a login."""
    found = False
    for path in all_state_files(env):
        if not os.path.exists(path):
            continue
        try:
            argv = [_program(env), "logout", "--authfile", path, registry]
            process.output(argv, env, _LIMIT_S)
            found = True
        except process.CommandError:
            pass  # not logged in there
    return found


def _program(env: Mapping[str, str]) -> str:
    for name in ("skopeo", "podman"):
        if process.find(name, env.get("PATH")):
            return name
    raise SiteError("neither skopeo nor podman is installed here", "install skopeo")

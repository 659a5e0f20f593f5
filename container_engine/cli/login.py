"""`ce login` and `ce logout`: leave both to Podman or skopeo, so that we see no password."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from container_engine import process
from container_engine.cli import messages
from container_engine.errors import SiteError
from container_engine.images.fetch.importing import unusable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from container_engine.submit.context import Context

_LIMIT_S = 60


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("registry", metavar="REGISTRY", help="for example nvcr.io")
    parser.add_argument("-u", "--username", metavar="USER", help="else it is asked for")
    parser.add_argument(
        "--password-stdin", action="store_true", help="read the password from the standard input"
    )


def execute(arguments: argparse.Namespace, context: Context) -> int:
    """Replace this process with the program that asks for the password."""
    path = state_file(context.env)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    except OSError as error:
        raise unusable(path, error) from None
    argv = [_program(context.env), "login", "--authfile", path]
    if arguments.username:
        argv += ["--username", arguments.username]
    if arguments.password_stdin:
        argv.append("--password-stdin")
    messages.say_progress(f"the login is kept in {path}, for this host and the nodes")
    process.become([*argv, arguments.registry], context.env)


def state_file(env: Mapping[str, str]) -> str:
    """Return the path of the login, on a file system that nodes see, unlike Podman's default."""
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


def log_out(registry: str, env: Mapping[str, str]) -> bool:
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
        if shutil.which(name, path=env.get("PATH")):
            return name
    raise SiteError("neither skopeo nor podman is installed here", "install skopeo")

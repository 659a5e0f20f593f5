"""Finds the path of an environment's file by name."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import NamedTuple

from container_engine.base.did_you_mean import nearest
from container_engine.base.errors import UserError
from container_engine.edf.source import open_trusted, reason, remedy

SITE_DIRECTORY = "/etc/edf"
_MAX_LISTED = 2000
# endings of commands: a name with one means that the environment's name was left out before it
_SCRIPTS = (".py", ".sh")
# for a name with "="
_EQUALS = "variables go before the command (NAME=VALUE srun …), or below [env] in the file"


class NotFoundError(UserError):
    """The error if no file is found for a name; the message lists the places searched."""

    def __init__(self, message: str, hint: str | None = None, *, denied: bool = False) -> None:
        see = "environment-unreadable" if denied else "environment-not-found"
        super().__init__(message, hint, see)


def search_path(
    env: Mapping[str, str], site: tuple[str, ...] = (SITE_DIRECTORY,)
) -> tuple[str, ...]:
    """Return the directories in which a plain name is searched: the user's, then the site's."""
    own = env.get("EDF_PATH")
    if own:
        return (*filter(None, own.split(":")), *site)
    home = env.get("HOME")
    return (os.path.join(home, ".edf"), *site) if home else site


def is_path(name: str) -> bool:
    """Check whether a name is itself a path and is not searched in the search path."""
    return name.startswith(("/", "./", "../")) or name.endswith(".toml")


class Located(NamedTuple):
    """The absolute path for a name, and the searched directory in which it was found, if any."""

    path: str
    directory: str | None


def locate(name: str, cwd: str, search: tuple[str, ...], probed: dict[str, None]) -> Located:
    """Find the file for an expanded name. Raise NotFoundError.

    Add every path examined to `probed`. Raise UserError for a file that another user has put
    into a directory of the search path.
    """
    if not name:
        raise NotFoundError(
            "the name of the environment is empty",
            "is a variable set to nothing, CE_ENVIRONMENT perhaps?",
        )
    if is_path(name):
        # also as written: a symlink in it may later lead elsewhere
        probed.setdefault(os.path.join(cwd, name))
        path = _absolute(name, cwd)
        if (failure := _failure(path, probed)) is None:
            return Located(path, None)
        if _is_absence(failure):
            hint = _path_hint(name, path, cwd, search)
            raise NotFoundError(f"no such file: '{path}'", hint)
        raise NotFoundError(f"{reason(failure)}: '{path}'", remedy(failure, path), denied=True)
    denied, hint = "", None
    for directory in search:
        path = _absolute(os.path.join(directory, f"{name}.toml"), cwd)
        failure = _failure(path, probed)
        if failure is None:
            place = _above(path, directory, cwd)
            try:
                os.close(open_trusted(path, place))
            except OSError as error:
                failure = error  # it has been removed since it was found
            else:
                return Located(path, place)
        if not _is_absence(failure):
            denied += f" ({directory}: {reason(failure)})"
            hint = hint or remedy(failure)
    places = ", ".join(search) or "an empty search path"
    raise NotFoundError(
        f"no environment '{name}' in {places}{denied}",
        hint or _name_hint(name, cwd, search),
        denied=bool(denied),
    )


def _failure(path: str, probed: dict[str, None]) -> OSError | ValueError | None:
    probed.setdefault(path)
    try:
        os.stat(path)
    except (OSError, ValueError) as error:
        return error
    return None


def _is_absence(error: OSError | ValueError) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOENT, errno.ENOTDIR)


def _absolute(path: str, cwd: str) -> str:
    joined = os.path.join(cwd, path)
    if "/../" in f"{joined}/" and "\0" not in joined:
        return os.path.realpath(joined)  # a/.. is not . if a is a symlink
    return os.path.normpath(joined)


def _above(path: str, directory: str, cwd: str) -> str:
    """Return the absolute path of the searched directory in which `path` was found."""
    place = _absolute(directory, cwd)
    # a name with .. has been resolved as a whole
    return place if path.startswith(f"{place}/") else os.path.realpath(place)


def _path_hint(name: str, path: str, cwd: str, search: tuple[str, ...]) -> str | None:
    if not name.endswith(".toml") and os.path.exists(f"{path}.toml"):
        return f"did you mean '{name}.toml'?"
    plain = name.removesuffix(".toml")
    if not is_path(plain) and any(
        os.path.exists(_absolute(os.path.join(directory, name), cwd)) for directory in search
    ):
        return f"write '{plain}', without '.toml', to search for it"
    if hint := _home_hint(name):
        return hint
    # compare without the common suffix, which makes any two short names similar
    stems = [entry.removesuffix(".toml") for entry in _entries(os.path.dirname(path))]
    close = nearest(os.path.basename(path).removesuffix(".toml"), stems)
    meant = os.path.join(os.path.dirname(name), f"{close}.toml")
    return f"did you mean '{meant}'?" if close else None


def _name_hint(name: str, cwd: str, search: tuple[str, ...]) -> str | None:
    if os.path.exists(_absolute(f"{name}.toml", cwd)):
        return f"did you mean './{name}.toml'?"
    if os.path.isfile(_absolute(name, cwd)):
        left_out = f"the name is missing: --environment=NAME {name}"
        return left_out if name.endswith(_SCRIPTS) else f"did you mean './{name}'?"
    if hint := _home_hint(name) or (_EQUALS if "=" in name else None):
        return hint
    folder, base = os.path.split(name)
    known = {
        entry.removesuffix(".toml")
        for directory in search
        for entry in _entries(_absolute(os.path.join(directory, folder), cwd))
    }
    close = nearest(base, sorted(known))
    if close:
        return f"did you mean '{os.path.join(folder, close)}'?"
    if ":" in base:
        return f"for an image write an environment first: ce init NAME --image {name}"
    return None


def _home_hint(name: str) -> str | None:
    first, slash, _rest = name.partition("/")
    if slash and len(first) > 1 and first[0] == "~":
        return f"'{first}' is not expanded, write the path of that directory"
    return "'~' is not expanded, write ${HOME}" if "~" in name else None


def _entries(directory: str) -> list[str]:
    try:
        return sorted(e for e in os.listdir(directory)[:_MAX_LISTED] if e.endswith(".toml"))
    except (OSError, ValueError):
        return []

"""Finds the path of an environment's file by name."""

from __future__ import annotations

import errno
import os
import stat

from container_engine.did_you_mean import nearest
from container_engine.edf.source import owner_name, reason, remedy
from container_engine.errors import UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SITE_DIRECTORY = "/etc/edf"
_MAX_LISTED = 2000


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


def locate(name: str, cwd: str, search: tuple[str, ...], probed: dict[str, None]) -> str:
    """Return the absolute path for an expanded name. Raises NotFoundError.

    Adds every path examined to `probed`. Raises UserError for a file that another user has put
    into a directory of the search path.
    """
    if not name:
        raise NotFoundError("the name of the environment is empty")
    if is_path(name):
        # also as written: a symlink in it may later lead elsewhere
        probed.setdefault(os.path.join(cwd, name))
        path = _absolute(name, cwd)
        if (failure := _failure(path, probed)) is None:
            return path
        if _is_absence(failure):
            hint = _path_hint(name, path, cwd, search)
            raise NotFoundError(f"no such file: '{path}'", hint)
        raise NotFoundError(f"{reason(failure)}: '{path}'", remedy(failure, path), denied=True)
    denied, hint = "", None
    for directory in search:
        path = _absolute(os.path.join(directory, f"{name}.toml"), cwd)
        failure = _failure(path, probed)
        if failure is None:
            try:
                _check_owners(_absolute(directory, cwd), path)
            except OSError as error:
                failure = error  # it is gone since it was found
            else:
                return path
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


def _check_owners(directory: str, path: str) -> None:
    """Raise UserError if any user could have put what is found below a searched directory.

    The user who names the directory trusts its owner. In one that everybody may write, /tmp for
    example, only files of its owner's, of this user and of root count.
    """
    if not path.startswith(f"{directory}/"):
        directory = os.path.realpath(directory)  # as _absolute did, for a name with ..
    for name in os.path.relpath(path, directory).split("/"):
        above, directory = os.stat(directory), os.path.join(directory, name)
        own = os.lstat(directory).st_uid
        if above.st_mode & stat.S_IWOTH and own not in {above.st_uid, os.geteuid(), 0}:
            message = f"owned by {owner_name(own)}, in a directory that everybody may write"
            hint = f"take {os.path.dirname(directory)} out of EDF_PATH, or give the file's path"
            raise UserError(message, hint, "untrusted-file", where=directory)


def _is_absence(error: OSError | ValueError) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOENT, errno.ENOTDIR)


def _absolute(path: str, cwd: str) -> str:
    joined = os.path.join(cwd, path)
    if "/../" in f"{joined}/" and "\0" not in joined:
        return os.path.realpath(joined)  # a/.. is not . if a is a symlink
    return os.path.normpath(joined)


def _path_hint(name: str, path: str, cwd: str, search: tuple[str, ...]) -> str | None:
    if not name.endswith(".toml") and os.path.exists(f"{path}.toml"):
        return f"did you mean '{name}.toml'?"
    plain = name.removesuffix(".toml")
    if not is_path(plain) and any(
        os.path.exists(_absolute(os.path.join(directory, name), cwd)) for directory in search
    ):
        return f"write '{plain}', without '.toml', to search for it"
    if name.startswith("~") or "/~" in name:
        return "'~' is not expanded, write ${HOME}"
    # compare without the common suffix, which makes any two short names similar
    stems = [entry.removesuffix(".toml") for entry in _entries(os.path.dirname(path))]
    close = nearest(os.path.basename(path).removesuffix(".toml"), stems)
    meant = os.path.join(os.path.dirname(name), f"{close}.toml")
    return f"did you mean '{meant}'?" if close else None


def _name_hint(name: str, cwd: str, search: tuple[str, ...]) -> str | None:
    if os.path.exists(_absolute(f"{name}.toml", cwd)):
        return f"did you mean './{name}.toml'?"
    if os.path.isfile(_absolute(name, cwd)):
        return f"did you mean './{name}'?"
    if name.startswith("~"):
        return "'~' is not expanded, write ${HOME}"
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


def _entries(directory: str) -> list[str]:
    try:
        return sorted(e for e in os.listdir(directory)[:_MAX_LISTED] if e.endswith(".toml"))
    except (OSError, ValueError):
        return []

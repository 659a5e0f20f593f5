"""Finds the file of an environment by name, and reads it within limits."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping

from container_engine.base.errors import UserError
from container_engine.base.files import owner_name
from container_engine.base.process import reason
from container_engine.base.text_layout import nearest
from container_engine.edf.names import TILDE_HINT

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


def locate(
    name: str, cwd: str, search: tuple[str, ...], probed: dict[str, None]
) -> tuple[str, str | None]:
    """Return the absolute path for an expanded name, and in which searched directory it is, if any.

    Raise NotFoundError.
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
            return path, None
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
                return path, place
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
    return TILDE_HINT if "~" in name else None


def _entries(directory: str) -> list[str]:
    try:
        return sorted(e for e in os.listdir(directory)[:_MAX_LISTED] if e.endswith(".toml"))
    except (OSError, ValueError):
        return []


MAX_BYTES = 1 << 20
_SQUASHFS, _SIF = b"hsqs", b"SIF_MAGIC"
_NAMED = os.O_PATH | os.O_CLOEXEC


class SourceError(UserError):
    """A file that cannot be used as an EDF; `line` is 0 if no line is at fault."""

    def __init__(
        self,
        message: str,
        hint: str | None = None,
        line: int = 0,
        see: str = "environment-unreadable",
        where: str = "",
    ) -> None:
        super().__init__(message, hint, see, where=where)
        self.line = line


def read_source(path: str, directory: str | None = None) -> str:
    """Return the text of a file, its line endings as "\\n". Raise SourceError.

    This is the only place where an EDF is read. It never blocks (a FIFO is refused), and it stops
    reading at the limit. A byte order mark, which some editors write, is dropped. `directory` is
    where a search found the file; None if its name was a path.
    """
    data = _read_bytes(path, directory)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SourceError("is UTF-16, not UTF-8", "save it as UTF-8", 1, "edf-syntax")
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise SourceError(
            "contains a NUL byte, so it is not a text file", line=line, see="edf-syntax"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{data[error.start]:02x}"
        raise SourceError(
            f"is not valid UTF-8: {found}", "save it as UTF-8", line, "edf-syntax"
        ) from error
    return text.replace("\r\n", "\n")


def _read_bytes(path: str, directory: str | None) -> bytes:
    try:
        descriptor = _open(path, directory)
    except (OSError, ValueError) as error:
        raise SourceError(f"cannot be read: {reason(error)}", remedy(error)) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "a pipe or a device"
            raise SourceError(f"is {kind}, not an EDF", "use a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SourceError(f"cannot be read: {reason(error)}", remedy(error, path)) from error
    finally:
        os.close(descriptor)
    if data.startswith(_SQUASHFS) or data[32:].startswith(_SIF):
        hint = "'ce init NAME --image FILE' writes an environment for it"
        raise SourceError("is an image, not an EDF", hint)
    if len(data) > MAX_BYTES:
        message = f"is larger than {MAX_BYTES >> 20} MiB, the limit for an EDF"
        raise SourceError(message, see="edf-too-large")
    return data


def _open(path: str, directory: str | None) -> int:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    if directory is None:
        return os.open(path, flags)
    found = open_trusted(path, directory)
    try:
        return os.open(f"/proc/self/fd/{found}", flags)
    finally:
        os.close(found)


def open_trusted(path: str, directory: str) -> int:
    """Return an O_PATH descriptor of `path`, a file below `directory`, if its owner is trusted.

    A user who puts a directory into the search path trusts its owner. In a directory that everybody
    may write, such as /tmp, only files of its owner, of this user and of root are accepted. The
    descriptor is that of the file that was checked, whatever is renamed meanwhile. Raise
    SourceError for another owner, and OSError.
    """
    place, above = directory, os.open(directory, _NAMED)
    try:
        for name in os.path.relpath(path, directory).split("/"):
            place = os.path.join(place, name)
            entry = os.open(name, _NAMED | os.O_NOFOLLOW, dir_fd=above)
            try:
                _check_owner(place, os.fstat(above), os.fstat(entry))
                below = _followed(entry, above)
            finally:
                os.close(entry)
            os.close(above)
            above = below
        return os.dup(above)
    finally:
        os.close(above)


def _check_owner(path: str, above: os.stat_result, entry: os.stat_result) -> None:
    is_anybodys = above.st_mode & stat.S_IWOTH
    if is_anybodys and entry.st_uid not in {above.st_uid, os.geteuid(), 0}:
        who = owner_name(entry.st_uid)
        message = f"owned by {who}, in a directory that everybody may write"
        hint = f"remove {os.path.dirname(path)} from EDF_PATH, or use the file's path"
        raise SourceError(message, hint, see="untrusted-file", where=path)


def _followed(entry: int, above: int) -> int:
    """Return a new descriptor of the entry or, if it is a symlink, of the file it leads to."""
    if not stat.S_ISLNK(os.fstat(entry).st_mode):
        return os.dup(entry)
    return os.open(os.readlink("", dir_fd=entry), _NAMED, dir_fd=above)


def remedy(error: OSError | ValueError, path: str = "") -> str | None:
    """Return a hint, or None where that of the catalogue applies.

    If another user owns the file at `path`, which may not be read, the hint names that user.
    """
    if isinstance(error, PermissionError):
        owner = _other_owner(path)
        return (
            f"ask {owner} for r on the file, and x on the directories above it" if owner else None
        )
    return _REMEDIES.get(error.errno or 0) if isinstance(error, OSError) else None


def _other_owner(path: str) -> str:
    """Return who owns the file, or the directory in which it cannot be seen; "" for the user."""
    while path:
        try:
            uid = os.stat(path).st_uid
        except OSError:
            path = os.path.dirname(path) if os.path.dirname(path) != path else ""
            continue
        return "" if uid == os.geteuid() else owner_name(uid)
    return ""


_BROKEN = "the file system reports an error there: try again, then ask its administrator"
_REMEDIES = {
    errno.ELOOP: "a symbolic link leads back to itself: ls -l shows where each one leads",
    errno.ENAMETOOLONG: "check the name: no file can have one so long",
    errno.EIO: _BROKEN,
    errno.ESTALE: _BROKEN,
}

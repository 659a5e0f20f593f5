"""Read files that belong to a main file beside them, and refuse those that others wrote.

In a directory that others may write, such as /tmp or a project's scratch, any user could add such
a file to another user's image or environment, and would decide what runs.
"""

from __future__ import annotations

import os
import stat

from container_engine.base.errors import UserError
from container_engine.base.files import owner_name, read_regular
from container_engine.base.process import reason

MOST = 4 << 20
_SEE = "untrusted-file"


def read(path: str, main: str, see: str = "image-file-unreadable") -> bytes | None:
    """Return the content of `path`, or None if there is no such file.

    Raise UserError if it is not a regular file of at most 4 MiB, if everybody may write it, or if
    its owner is neither the owner of `main` nor this user nor root; beside an image of a store, as
    `check_stored` does. `see` is the error's code if the file cannot be read.
    """
    try:
        link = os.lstat(path)
        is_link = stat.S_ISLNK(link.st_mode)
        if is_link:
            _check(path, link, main)  # only its owner can replace a symlink, and chose its target
        return read_regular(path, MOST, lambda found: _check(path, found, main), follow=is_link)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(reason(error), see=see, where=path) from None


def small(path: str) -> bytes:
    """Return the content of a file of at most 4 MiB, regardless of its owner. Raise OSError."""
    return read_regular(path, MOST, follow=True)


def check_stored(path: str, status: os.stat_result) -> None:
    """Raise UserError if a user whom nobody has to trust may have put the file into its store.

    That is so if all users may write it; if they may exchange it, or the directory that it is in;
    and if they may add files, and its owner is one of them. A group that shares a store trusts its
    members: each of them may write all of it.
    """
    if status.st_mode & stat.S_IWOTH:
        raise UserError("everybody may write it", f"chmod o-w {path}", _SEE, where=path)
    place = os.path.dirname(path)
    for one in (place, os.path.dirname(place)):
        found = os.stat(one)
        if not found.st_mode & stat.S_IWOTH:
            continue
        remedy = f"chmod -R o-w {os.path.dirname(place)}, after a look at what is in it"
        if not found.st_mode & stat.S_ISVTX:
            raise UserError(f"everybody may exchange what is in {one}", remedy, _SEE, where=path)
        if status.st_uid not in {found.st_uid, os.geteuid(), 0}:
            raise UserError(
                f"owned by {owner_name(status.st_uid)}, in a store that everybody may write",
                f"remove it, and chmod o-w {one}",
                _SEE,
                where=path,
            )


def _check(path: str, status: os.stat_result, main: str) -> None:
    if _is_stored(main):
        check_stored(path, status)
        return
    of_main = os.stat(main).st_uid
    if status.st_uid not in {of_main, os.geteuid(), 0}:
        raise UserError(
            f"owned by {owner_name(status.st_uid)}, and {main} by {owner_name(of_main)}",
            "it would decide what runs: remove it, or let both have one owner",
            _SEE,
            where=path,
        )
    if stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IWOTH:
        message = "everybody may write it, and it decides what runs"
        raise UserError(message, f"chmod o-w {path}", _SEE, where=path)


def _is_stored(main: str) -> bool:
    directory, name = os.path.split(main)
    return name.startswith("sha256-") and os.path.basename(directory) == "images"

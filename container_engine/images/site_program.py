"""Programs that the site has run where images are imported or launched, as the user."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence

from container_engine.base import process
from container_engine.base.errors import SiteError
from container_engine.base.files import owner_fault

_SEE = "site-configuration"


def check(path: str, source: str, key: str) -> None:
    """Raise SiteError unless `path` is a program that only root or `source`'s owner can change.

    `source` is the file that names it as `key`.
    """
    where = f"{source}: {key}: '{path}'"
    if not path.startswith("/"):
        raise SiteError("not an absolute path", see=_SEE, where=where)
    try:
        status = os.stat(path)
    except OSError as error:
        raise SiteError(process.reason(error), see=_SEE, where=where) from None
    found = owner_fault(path, status, {0, os.stat(source).st_uid})
    if found:
        raise SiteError(*found[1:], _SEE, where=where)
    if not (stat.S_ISREG(status.st_mode) and os.access(path, os.X_OK)):
        raise SiteError("not an executable file", f"chmod a+rx {path}", _SEE, where=where)


def filled(words: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Return a command with the placeholders, such as {image}, replaced by their values."""
    command = []
    for word in words:
        for name, value in values.items():
            word = word.replace(f"{{{name}}}", value)  # noqa: PLW2901
        command.append(word)
    return command

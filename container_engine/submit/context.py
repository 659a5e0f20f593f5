"""What a verb knows of the world around it: handed down instead of looked up."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from container_engine.errors import UserError
from container_engine.images.fetch.listener import Quiet
from container_engine.process import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from container_engine.images.fetch.listener import Listener
    from container_engine.images.store.void_store import Passing


class Context(NamedTuple):
    """The environment, directory and user of the caller, and where this program is installed.

    `started_ns` is a time before anything was read, by the clock of file systems. `site_file` is
    what the hidden option --site names, else None. Of images that shall not be kept
    (EDF_IMAGESTORE=void), `passing` takes those of a launch; `only_asks` is for who wants no file.
    """

    env: Mapping[str, str]
    cwd: str
    uid: int
    prefix: str
    started_ns: int
    site_file: str | None = None
    passing: Passing | None = None
    only_asks: bool = False
    listener: Callable[[], Listener] = Quiet

    @property
    def libexec(self) -> str:
        return f"{self.prefix}/libexec/container-engine"


def of_this_process(site_file: str | None) -> Context:
    try:
        cwd = os.getcwd()
    except OSError as error:
        raise UserError(
            f"current directory: {reason(error)}",
            "it was removed; change into another one",
            "current-directory",
        ) from None
    return Context(os.environ, cwd, os.geteuid(), sys.prefix, time.time_ns(), site_file)

"""The process context of a verb: passed down as an argument, never looked up below `cli`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.process import reason
from container_engine.images.listener import Listener, Quiet

if TYPE_CHECKING:
    from container_engine.images.store.void_store import VoidStore
    from container_engine.site.load import Configuration


class Context(NamedTuple):
    """The environment, directory and user of the caller, and where this program is installed.

    If `env` records which variables are looked up, `whole_env` is all of it. `started_ns` is a time
    before anything was read, by the clock of time.time_ns. `site_file` is the argument of the
    hidden option --site, else None. With EDF_IMAGESTORE=void no image is kept: `void_store` then
    stores the images of one launch, and `only_asks` is set if no file is needed. `site_read` has
    the site's configuration once it was read; None if it may change meanwhile.
    """

    env: Mapping[str, str]
    cwd: str
    uid: int
    prefix: str
    started_ns: int
    site_file: str | None = None
    void_store: VoidStore | None = None
    only_asks: bool = False
    listener: Callable[[], Listener] = Quiet
    site_read: list[Configuration] | None = None
    whole_env: Mapping[str, str] | None = None

    @property
    def tools_env(self) -> Mapping[str, str]:
        """Return the environment for programs that this process runs."""
        return self.env if self.whole_env is None else self.whole_env

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
    now = time.time_ns()
    return Context(os.environ, cwd, os.geteuid(), sys.prefix, now, site_file, site_read=[])

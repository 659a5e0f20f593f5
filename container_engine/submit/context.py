"""Holds what a verb passes down: the process context, and options over an environment.

Neither is looked up below `cli`. What reads the site's configuration, as the models do, is imported
where it is needed: most verbs start without it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.process import reason
from container_engine.images.listener import Listener, Quiet

if TYPE_CHECKING:
    from container_engine.edf.layer import Overlay
    from container_engine.edf.model import Edf
    from container_engine.images.reference import Pull
    from container_engine.images.store.ephemeral_store import EphemeralStore
    from container_engine.site.load import Configuration
    from container_engine.site.model import SiteConfig
    from container_engine.site.places import Places

PULL = "CE_PULL"
# what `ce` of an installation is a link to
_START = "/libexec/container-engine/ce-start"


class Context(NamedTuple):
    """The environment, directory and user of the caller, and where this program is installed.

    If `env` records which variables are looked up, `whole_env` is all of it. `started_ns` is a time
    before anything was read, by the clock of time.time_ns. `site_file` is the argument of the
    hidden option --site, else None. With EDF_IMAGESTORE=void no image is kept: `ephemeral_store`
    then stores the images of one launch, and `only_asks` is set if no file is needed. `site_read`
    has the site's configuration once it was read; None if it may change meanwhile.
    """

    env: Mapping[str, str]
    cwd: str
    uid: int
    prefix: str
    started_ns: int
    site_file: str | None = None
    ephemeral_store: EphemeralStore | None = None
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

    def with_pull(self, pull: str | None) -> Context:
        """Return the context in which --pull has this value; None if the option is not given."""
        return self if pull is None else self._replace(env={**self.env, PULL: str(pull)})

    def pull_policy(self, usual: Pull) -> Pull:
        """Return the policy in the variable CE_PULL, which the option --pull sets, else `usual`.

        Raise UserError for an unknown policy.
        """
        text = self.env.get(PULL)
        if not text:
            return usual
        from container_engine.images.reference import Pull

        try:
            return Pull(text)
        except ValueError:
            known = ", ".join(Pull)
            raise UserError(
                f"{PULL}={text}: must be one of {known}", see="image-not-in-store"
            ) from None


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
    return Context(os.environ, cwd, os.geteuid(), _prefix(), now, site_file, site_read=[])


def _prefix() -> str:
    """Return where the engine is installed; for a wheel, the installation on PATH if there is one.

    It has the site's configuration, and programs that a wheel lacks.
    """
    if not os.path.exists(f"{sys.prefix}{_START}"):
        for directory in os.environ.get("PATH", "").split(":"):
            program = os.path.realpath(f"{directory}/ce") if directory[:1] == "/" else ""
            if program.endswith(_START):
                return program.removesuffix(_START)
    return sys.prefix


def configuration(context: Context) -> Configuration:
    """Return the site's configuration, read once per context. Raise SiteError with all faults."""
    if context.site_read:
        return context.site_read[0]
    from container_engine.site import load

    found = load.load(context.prefix, context.uid, context.site_file, context.env)
    if context.site_read is not None:
        context.site_read.append(found)
    return found


def site_config(context: Context) -> SiteConfig:
    """Return the site's settings. Raise SiteError."""
    return configuration(context).settings


def places(context: Context) -> Places:
    """Return where the site has things, without the model if its files say it well.

    Raise SiteError.
    """
    from container_engine.site import load

    found = load.places(context.prefix, context.uid, context.site_file, context.env)
    return found or site_config(context).places


def with_faults(context: Context) -> Configuration:
    """Return the site's configuration, read again, including its faults."""
    from container_engine.site import load

    return load.read(context.prefix, context.uid, context.site_file, context.env)


class Options:
    """No options; `words`, as written, tell cached plans apart.

    `env` is asked for single names only: a plan is cached with those.
    """

    def __init__(self, words: Sequence[str] = ()) -> None:
        self.words = tuple(words)

    def overlay(self, env: Mapping[str, str], cwd: str) -> Overlay:
        """Return what they add to an environment, with all their faults."""
        from container_engine.edf.layer import NO_OPTIONS  # the models, which load slowly

        del env, cwd
        return NO_OPTIONS

    def container(self, env: Mapping[str, str]) -> str:
        """Return the name of a container that lives with its job, as written; "" for none."""
        del env
        return ""

    def image(self, env: Mapping[str, str]) -> str | None:
        """Return the image, as written; None if they name none."""
        del env
        return None

    def with_more(self, *, image: str = "", container: str = "") -> Options:
        """Return these options with an image and the name of a container, if they are given."""
        del image, container
        return self

    def completed(self, edf: Edf, image_env: Mapping[str, str]) -> Edf:
        """Return the environment as it becomes where the image of an option has these variables."""
        del image_env
        return edf


NONE_GIVEN = Options()

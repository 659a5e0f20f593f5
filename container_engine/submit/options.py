"""Options over an environment, as a plan needs them; compat/ knows the words of other tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from container_engine.edf.layer import Overlay
    from container_engine.edf.model import Edf


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

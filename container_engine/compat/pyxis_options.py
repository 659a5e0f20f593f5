"""The options of pyxis over an environment, read when a plan needs them.

Imports no models, as `ce run` must start quickly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from container_engine.compat.pyxis_names import PREFIX, VARIABLES_COUNT
from container_engine.submit.context import Options

if TYPE_CHECKING:
    from container_engine.edf.layer import Overlay
    from container_engine.edf.model import Edf

_IMAGE, _NAME = "--container-image=", "--container-name="


class PyxisOptions(Options):
    """Words `--NAME[=VALUE]`; with VARIABLES_COUNT among them, variables take effect, too."""

    def overlay(self, env: Mapping[str, str], cwd: str) -> Overlay:
        from container_engine.compat.pyxis_overlay import read

        return read(self.words, env, cwd)

    def container(self, env: Mapping[str, str]) -> str:
        return self._value(env, _NAME, "NAME") or ""

    def image(self, env: Mapping[str, str]) -> str | None:
        return self._value(env, _IMAGE, "IMAGE")

    def with_more(self, *, image: str = "", container: str = "") -> Options:
        more = [f"{_IMAGE}{image}"] if image else []
        more += [f"{_NAME}{container}"] if container else []
        return PyxisOptions([*self.words, *more])

    def completed(self, edf: Edf, image_env: Mapping[str, str]) -> Edf:
        from container_engine.compat.pyxis_overlay import with_pytorch

        return with_pytorch(edf, image_env)

    def _value(self, env: Mapping[str, str], option: str, variable: str) -> str | None:
        """Return the last value of the option, else that of its variable, None without either."""
        given = [word.removeprefix(option) for word in self.words if word.startswith(option)]
        if given:
            return given[-1]
        return (env.get(PREFIX + variable) or None) if VARIABLES_COUNT in self.words else None

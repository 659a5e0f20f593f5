"""Have a site's importer make the file of an image: a program with the interface of pyxis's."""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import TYPE_CHECKING, NamedTuple

from container_engine.base import process
from container_engine.base.errors import CeError, SiteError, UserError
from container_engine.images.importing import file_system

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from container_engine.images.pack.pack import Packer

RUNTIME = "PYXIS_RUNTIME_PATH"
_PYXIS = "0.24.0"  # whose interface it is


class SiteImporter(NamedTuple):
    """The program, which runs as the user with the environment `env`."""

    program: str
    env: Mapping[str, str]
    packer: Packer

    def make(self, uri: str, arch: str, made: str, far: Callable[[int, int], None]) -> None:
        """Write the file that the program has for an image to `made`.

        What it leaves is removed by itself, or with the directory. Raise CeError or OSError.
        """
        runtime = f"{made}.importer"
        os.mkdir(runtime)
        known = {
            RUNTIME: runtime,
            "PYXIS_VERSION": _PYXIS,
            "SLURM_JOB_UID": str(os.getuid()),
            # no other import has it, on any host or later: it would get, or remove, its file
            "SLURM_JOB_ID": str(secrets.randbits(31)),
            "SLURM_STEP_ID": "0",
        }
        own = {**self.env, **known}
        try:
            said = self._run(own, "get", uri)
            path = os.fsdecode(said.partition(b"\n")[0])
            if not os.path.isabs(path):
                raise self._refused(f"printed no absolute path, but '{path[:200]}'")
            file_system.check(path, arch, self.env)
            file_system.copy(path, made, self.packer, far)
        except process.CommandError as error:
            raise self._refused(error.complaint, error.details) from None
        except UserError as error:
            raise self._refused(error.message) from None
        finally:
            with contextlib.suppress(CeError):
                self._run(own, "release")

    def _run(self, env: Mapping[str, str], *words: str) -> bytes:
        return process.output([self.program, *words], env, self.packer.timeout_s, 1 << 16)

    def _refused(self, why: str, details: str = "") -> SiteError:
        return SiteError(why, see="program-failed", where=self.program, details=details)

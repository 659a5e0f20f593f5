"""Checks the programs that start a container, as the launcher finds them, and their versions."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from container_engine.base.errors import CeError
from container_engine.base.process import CommandError, output
from container_engine.tools.doctor.finding import Finding, failed, ok, warning

Verdict: TypeAlias = Callable[[str, str, str], Finding]

# the PATH for Podman and crun (PATH in node/container/description.py)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TIMEOUT_S = 20


class _Program(NamedTuple):
    name: str
    package: str
    oldest: tuple[int, ...]  # the oldest version that the tests were run with
    version: tuple[str, ...] = ("--version",)


_NODE = (
    _Program("podman", "podman", (4, 3)),
    _Program("crun", "crun", (1, 8)),
    _Program("conmon", "conmon", (2, 1)),
)
_SUBMIT = (
    _Program("skopeo", "skopeo", (1, 9)),
    _Program("tar2sqfs", "squashfs-tools-ng", (1, 0)),
    _Program("mksquashfs", "squashfs-tools", (4, 5), ("-version",)),
    _Program("unsquashfs", "squashfs-tools", (4, 5), ("-version",)),
    _Program("zstd", "zstd", (1, 4)),
)


_NO_CHOICE: Mapping[str, str] = MappingProxyType({})


def look(
    env: Mapping[str, str],
    path: str = PATH,
    site: Mapping[str, str] = _NO_CHOICE,
    *,
    is_crun_enough: bool = False,
) -> Iterator[Finding]:
    """Check the programs that a compute node must have; `site` has the paths that the site chose.

    If crun is enough to start containers, the absence of another program is only a warning.
    """
    absent = dict.fromkeys(("podman", "conmon"), warning) if is_crun_enough else {}
    with tempfile.TemporaryDirectory(prefix="ce-doctor-") as runtime:
        # both set, as in a session: crun and Podman need them even to print their versions
        own = {**env, "PATH": path, "XDG_RUNTIME_DIR": runtime, "HOME": runtime}
        for program in _NODE:
            verdict = absent.get(program.name, failed)
            yield _check(program, own, verdict, site.get(program.name))


def look_for_imports(env: Mapping[str, str], path: str = PATH) -> Iterator[Finding]:
    """Check the programs for imports of images; the absence of one is only a warning."""
    yield from (_check(program, {**env, "PATH": path}, warning) for program in _SUBMIT)


def _check(
    program: _Program, env: Mapping[str, str], absent: Verdict, chosen: str | None = None
) -> Finding:
    where = shutil.which(chosen or program.name, path=env["PATH"])
    if where is None and chosen:
        return absent(program.name, f"'{chosen}' is not a program", "correct the site's setting")
    if where is None:
        return absent(program.name, f"not in {env['PATH']}", f"install {program.package}")
    try:
        said = output([where, *program.version], env, _TIMEOUT_S).decode(errors="replace")
    except CommandError as error:
        # unsquashfs -version exits with 1
        if not error.stdout:
            return failed(program.name, str(error), f"reinstall {program.package}")
        said = error.stdout.decode(errors="replace")
    except CeError as error:
        return failed(program.name, str(error), f"reinstall {program.package}")
    return _judge(program, said, where)


def _judge(program: _Program, said: str, where: str) -> Finding:
    found = re.search(r"\d+(?:\.\d+)+", said)
    if found is None:
        return warning(program.name, f"{where}: unknown version", f"reinstall {program.package}")
    numbers = tuple(map(int, found[0].split(".")))
    if numbers[: len(program.oldest)] < program.oldest:
        oldest = ".".join(map(str, program.oldest))
        text = f"{found[0]}: older than all that was tested"
        return warning(program.name, text, f"{oldest} or later is known to work")
    return ok(program.name, found[0])

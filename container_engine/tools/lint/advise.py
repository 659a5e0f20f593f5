"""Collects all advice on an environment; has that on image, mounts, secrets, start-up, packages.

Pure.

The advice never repeats a value: the output of `ce` ends up in logs and tickets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.mounts import is_in
from container_engine.base.secrecy import TOKENS, is_secret_name
from container_engine.edf.entries import activated, on_host
from container_engine.edf.model import Origin, Problem
from container_engine.images.reference import RegistryImage, parse
from container_engine.tools.lint.network import network, sockets
from container_engine.tools.lint.subject import Subject, variables_in, written
from container_engine.tools.lint.tuning import (
    caches,
    gpus,
    quoted_values,
    search_paths,
    shell_variables,
    slurm_variables,
    tuning,
    unmounted,
)

# Tags that move to every new image, alone or with a suffix: latest-arm64.
_MOVING = ("latest", "nightly")


def pinning(subject: Subject) -> Iterator[Problem]:
    """Warn of a tag like `latest`, written or implied, without a digest."""
    for name, origin in subject.edf.images:
        if origin is not None:
            yield from _of(name, origin, subject.cwd)


def _of(name: str, origin: Origin, cwd: str) -> Iterator[Problem]:
    try:
        image = parse(name, cwd)
    except UserError:
        return
    if not isinstance(image, RegistryImage) or image.digest is not None or image.tag is None:
        return
    if image.tag.partition("-")[0] in _MOVING:
        says = "names" if image.name.endswith(f":{image.tag}") else "implies"
        message = f"'{image.name}' {says} the tag '{image.tag}', which changes"
        hint = "use the tag of a version, or a digest with @sha256:…"
        yield origin.warning("image", message, hint)


_SHORTEST = 8
_WRITTEN = "a secret is written into the file"


def secrets(subject: Subject) -> Iterator[Problem]:
    """Warn of secrets in variables, and of tokens in start-up lines."""
    for name, history in subject.below("env"):
        text = written(history)
        named = is_secret_name(name) and not variables_in(history) and _could_be_secret(text)
        if named or re.search(TOKENS, text):
            hint = f'write {name} = "${{{name}}}" and export {name} before the launch'
            yield history.effective.origin.warning(history.key, _WRITTEN, hint)
    for _, history in subject.below("startup"):
        if re.search(TOKENS, written(history)):
            hint = "let the line read it from a file that only you can read"
            yield history.effective.origin.warning("startup", _WRITTEN, hint)


def _could_be_secret(text: str) -> bool:
    return len(text) >= _SHORTEST and not text.isdigit() and not text.startswith(("/", "./", "~"))


_SYSTEM = (
    *("/bin", "/lib", "/lib64", "/sbin", "/usr", "/usr/bin", "/usr/lib", "/usr/lib64"),
    *("/usr/lib/aarch64-linux-gnu", "/usr/lib/x86_64-linux-gnu"),
)
_SLURMS = ("/run/munge", "/var/run/munge", "/etc/munge", "/usr/lib64/slurm", "/usr/lib/slurm")


def mounts(subject: Subject) -> Iterator[Problem]:
    """Warn of mounts of `/`, over the image's system directories, and of Slurm without its hook.

    With the ssh hook, also warn of a writable mount of the home directory.
    """
    has_server = subject.switched("ssh") == "true"
    has_slurm = subject.switched("slurm") == "true"
    for mount in subject.edf.mounts:
        if mount.kind != "bind" or not isinstance(mount.source, str):
            continue
        # no index: the one in the merged environment is not the one in the file
        key = "mounts"
        if mount.source == "/":
            message = "mounts all of the host's file systems"
            yield mount.origin.warning(key, message, "mount only the directories that you need")
        elif mount.target in _SYSTEM:
            message = f"hides the image's {mount.target} below the host's, with its libraries"
            yield mount.origin.warning(key, message, "mount only the files that you need")
        elif mount.source in _SLURMS and not has_slurm:
            message = f"mounts {mount.source}, which alone does not provide srun or sbatch"
            hint = f"{subject.turn_on('slurm')}, which provides all that they need"
            yield mount.origin.warning(key, message, hint)
            has_slurm = True  # once is enough
        elif has_server and "ro" not in mount.options and is_in(subject.home, mount.source):
            message = (
                f"'{mount.source}' holds your home directory, which the ssh hook's logins reach"
            )
            hint = "mount only the directories that you need, or add the flag 'ro'"
            yield mount.origin.warning(key, message, hint)


_CHANGES_DIRECTORY = re.compile(r"\s*cd(\s+[^\s;&|]+)?\s*")


def startup(subject: Subject) -> Iterator[Problem]:
    """Warn of each `$NAME` that is replaced at submit, before a shell in the container runs.

    A path that is mounted is meant as the host's. Also warn of a last line that only changes the
    directory: tasks do not start there.
    """
    lines = subject.below("startup")
    is_deferred = subject.site_context.site.is_deferred
    if lines and _CHANGES_DIRECTORY.fullmatch(written(lines[-1][1])):
        message = "changes the directory of later start-up lines only"
        hint = "workdir is the directory in which tasks start"
        yield lines[-1][1].effective.origin.warning(lines[-1][1].key, message, hint)
    for _, history in lines:
        for name in sorted(variables_in(history)):
            if name == "EDF_DIR" or name.startswith("image:") or is_deferred(name):
                continue
            value = subject.variables.get(name, "")
            if value.startswith("/") and ":" not in value and subject.is_mounted(value):
                continue
            message = f"'${name}' is replaced when the job is submitted, by the host's value"
            hint = f"write '$${name}' for the value that the container's shell has"
            yield history.effective.origin.warning(history.key, message, hint)


# `import scipy.stats` opens 726 of the 2319 modules of an environment with NumPy, SciPy and pip
_IMPORTED = 1 / 3
_FEW = 100
_KINDS = {"virtual": "a virtual environment", "conda": "a conda environment", "": "Python packages"}
_HINTS = {
    "virtual": "ce pack --venv DIRECTORY FILE.sqsh makes one file of it: ce help python-packages",
    "conda": "conda-pack --format squashfs makes one file of it: ce help python-packages",
    "": "ce pack DIRECTORY FILE.sqsh makes one file of them: ce help python-packages",
}


class _Place(NamedTuple):
    path: str
    key: str
    origin: Origin


def packages(subject: Subject) -> Iterator[Problem]:
    """Warn of virtual and conda environments, and of PYTHONPATH, on a network file system."""
    seen: set[str] = set()
    for place in _places(subject):
        kind = subject.network_of(place.path)
        if not kind or place.path in seen:
            continue
        seen.add(place.path)
        found = subject.packages(place.path)
        is_named = place.key != "mounts"
        if found is None or found.modules < _FEW or not (found.kind or is_named):
            continue
        opens = round(found.modules * _IMPORTED)
        message = (
            f"{_KINDS[found.kind]}, {found.files} files in '{place.path}' on {kind}: to import a "
            f"third of its {found.modules} modules is {opens} opens there, times the ranks"
        )
        yield place.origin.warning(place.key, message, _HINTS[found.kind])


def _places(subject: Subject) -> Iterator[_Place]:
    mounts = subject.edf.mounts
    for directory, origin in activated(subject.edf.startup):
        yield _Place(on_host(directory, mounts), "startup", origin)
    for entry in subject.edf.env:
        if entry.name in {"PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX"}:
            parts = (entry.value,) if isinstance(entry.value, str) else entry.value
            text = "".join(part if isinstance(part, str) else ":" for part in parts)
            for path in filter(None, text.split(":")):
                yield _Place(on_host(path, mounts), f"env.{entry.name}", entry.origin)
    for mount in mounts:
        if mount.kind == "bind" and isinstance(mount.source, str):
            yield _Place(mount.source, "mounts", mount.origin)


MATTERS = (
    pinning,
    search_paths,
    secrets,
    tuning,
    network,
    mounts,
    startup,
    shell_variables,
    sockets,
    packages,
    slurm_variables,
    gpus,
    quoted_values,
    unmounted,
    caches,
)


def advise(subject: Subject) -> list[Problem]:
    """Return all advice, sorted by file in the order of evaluation and by line."""
    order = {file: index for index, file in enumerate(subject.edf.files)}
    found = [problem for matter in MATTERS for problem in matter(subject)]
    return sorted(found, key=lambda problem: (order.get(problem.file, 0), problem.line))

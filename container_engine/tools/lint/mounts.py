"""Advises on mounts with effects that their author may not expect. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.edf.model import Problem
    from container_engine.tools.lint.subject import Subject


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
        elif has_server and "ro" not in mount.options and _has_home(mount.source, subject.home):
            message = (
                f"'{mount.source}' holds your home directory, which the ssh hook's logins reach"
            )
            hint = "mount only the directories that you need, or add the flag 'ro'"
            yield mount.origin.warning(key, message, hint)


def _has_home(source: str, home: str) -> bool:
    return bool(home) and f"{home}/".startswith(f"{source}/")

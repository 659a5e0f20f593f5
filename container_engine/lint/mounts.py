"""Advises on mounts that let a container change more than its author may intend. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.lint.subject import advice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.edf.model import Problem
    from container_engine.lint.subject import Subject


def exposure(subject: Subject) -> Iterator[Problem]:
    """Warn of a mount of `/`, and of a writable mount of the home directory with the ssh hook."""
    has_server = subject.is_enabled("ssh")
    for mount in subject.edf.mounts:
        if mount.kind != "bind" or not isinstance(mount.source, str):
            continue
        # no index: the one in the merged environment is not the one in the file
        key = "mounts"
        if mount.source == "/":
            message = "mounts all of the host's file systems"
            yield advice(mount.origin, key, message, "mount only the directories that you need")
        elif has_server and "ro" not in mount.options and _has_home(mount.source, subject.home):
            message = (
                f"'{mount.source}' holds your home directory, which the ssh hook's logins reach"
            )
            hint = "mount only the directories that you need, or add the flag 'ro'"
            yield advice(mount.origin, key, message, hint)


def _has_home(source: str, home: str) -> bool:
    return bool(home) and f"{home}/".startswith(f"{source}/")

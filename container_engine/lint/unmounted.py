"""Advises on variables with the path of a user's directory that no mount contains. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.edf.model import Origin
from container_engine.lint.subject import advice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.edf.model import Problem
    from container_engine.lint.subject import Subject

_LOST = "in no mount: the host's files are not there, and what tasks write there is lost"
# the origin in advice that is not about a file
_SHELL = Origin("your shell", 0)


def unmounted(subject: Subject) -> Iterator[Problem]:
    """Warn of values of [env] below HOME or SCRATCH that no mount contains, and of SCRATCH itself.

    Tasks inherit SCRATCH from the shell. A mount of a directory below it is a choice of the author
    and prevents the warning.
    """
    if subject.edf.image_origin is None or subject.edf.image == "":
        return
    scratch = subject.variables.get("SCRATCH", "").rstrip("/")
    every = (*subject.edf.mounts, *subject.site_mounts)
    targets = [mount.target for mount in every if isinstance(mount.target, str)]
    places = {"SCRATCH": scratch, "HOME": subject.home}
    for _name, history in subject.below("env"):
        value = history.effective.value
        text = value if isinstance(value, str) else ""
        within = next((name for name, place in places.items() if _is_below(text, place)), None)
        if within and ":" not in text and not any(_is_in(text, target) for target in targets):
            hint = f'add "${{{within}}}", or a directory below it, to mounts'
            yield advice(history.effective.origin, history.key, f"is {_LOST}", hint)
    is_chosen = any(_is_in(scratch, one) or _is_in(one, scratch) for one in targets)
    if scratch and not is_chosen and not any(entry.name == "SCRATCH" for entry in subject.edf.env):
        yield advice(_SHELL, "SCRATCH", f"is {_LOST}", 'add "${SCRATCH}" to mounts')


def _is_in(path: str, directory: str) -> bool:
    return f"{path}/".startswith(f"{directory}/")


def _is_below(path: str, directory: str) -> bool:
    return bool(directory) and path.startswith(f"{directory}/")

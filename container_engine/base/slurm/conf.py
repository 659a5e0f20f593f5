"""Read values from this host's slurm.conf, without asking slurmctld."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_USUAL = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")
_MAX_INCLUDES = 32


def places(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return where to look for a slurm.conf: where the environment says, then the usual places."""
    named = env.get("SLURM_CONF", "")
    return (named, *_USUAL) if named else _USUAL


def find(env: Mapping[str, str], more: Sequence[str] = ()) -> str:
    """Return the first slurm.conf that is there, of `places` and then of `more`; or ""."""
    return next((path for path in (*places(env), *more) if os.path.isfile(path)), "")


def value(path: str, key: str, files: list[str] | None = None) -> str:
    """Return the last value of `key` in the file and its included files, or "" if it is not set.

    Append to `files` the paths of all these files.
    """
    found = ""
    seen = [path]
    lines = _lines(path, seen)
    if files is not None:
        files += seen
    for line in lines:
        name, equals, text = line.partition("=")
        if equals and name.strip().lower() == key.lower():
            # some lines hold several settings; the values of these keys have no spaces
            words = text.strip().strip('"').split()
            found = words[0].strip('"') if words else ""
    return found


def _lines(path: str, seen: list[str]) -> list[str]:
    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8", "surrogateescape")
    except OSError:
        return []
    lines = []
    for raw in text.split("\n"):
        line = raw.partition("#")[0].strip()
        word, _space, rest = line.partition(" ")
        included = os.path.join(os.path.dirname(path), rest.strip())
        if word.lower() != "include":
            lines.append(line)
        elif included not in seen and len(seen) < _MAX_INCLUDES:
            seen.append(included)
            lines += _lines(included, seen)
    return lines

"""One EDF by name: found, read, checked, merged and expanded."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from container_engine.edf.model import Loaded, Problem


def search_path(env: Mapping[str, str], site_dir: str) -> tuple[str, ...]:
    """The directories in which a plain name is looked for: the user's, then the site's."""
    own = env.get("EDF_PATH")
    if own:
        return (*filter(None, own.split(":")), site_dir)
    home = env.get("HOME")
    return (f"{home}/.edf", site_dir) if home else (site_dir,)


def load(
    name: str,
    *,
    env: Mapping[str, str],
    cwd: str,
    search: tuple[str, ...],
    deferred: Callable[[str], bool],
) -> Loaded:
    """The effective EDF `name`, and every problem of every file that it is made of.

    `env` is only asked for single names, never walked through, so that the caller can record which
    variables mattered. `deferred` tells whether a variable that is undefined here exists on the node.
    Never raises for a bad EDF, whatever its bytes.
    """
    raise NotImplementedError

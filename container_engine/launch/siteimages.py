"""Whether the site wants images from its own stores only, as this node's configuration says.

The submit host has asked already, but what it made of that is a file or a variable of the user's
by the time it arrives. So the launcher reads policy.site_images_only and image_stores again where
it is, in the files of container_engine/site/load.py and by their rules. A site without the rule
pays for reading them and for nothing else.
"""

from __future__ import annotations

import os
import stat

from container_engine.launch.failure import LaunchError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RULE = "site_images_only"
_SYSTEM = "/etc/container-engine"


def check(path: str, libexec: str) -> None:
    """Raises LaunchError for an image that the site of this node does not want."""
    prefix = os.path.dirname(os.path.dirname(libexec))
    texts = _texts((f"{prefix}/etc/container-engine", _SYSTEM))
    if not any(RULE.encode() in text for _file, text in texts):
        return
    source, stores = _wanted(texts)
    if source and not any(_is_in(path, store) for store in stores):
        known = ", ".join(f"'{store}'" for store in stores) or "it has none"
        raise LaunchError(
            f"{source}: policy.{RULE}: '{path}' is no image of the site's stores ({known})"
            " that only the site can change",
            "image-policy",
        )


def _texts(directories: Sequence[str]) -> list[tuple[str, bytes]]:
    """The files of the first directory that has any, with their content."""
    for directory in directories:
        found = [(file, _read(file)) for file in _files(directory)]
        if found:
            return [(file, text) for file, text in found if text is not None]
    return []


def _files(directory: str) -> Iterator[str]:
    main, drop_ins = f"{directory}/config.toml", f"{directory}/conf.d"
    if os.path.lexists(main):
        yield main
    try:
        names = sorted(os.listdir(drop_ins))
    except FileNotFoundError:
        return
    except OSError as error:
        raise LaunchError(f"{drop_ins}: {error.strerror}", "site-configuration") from None
    for name in names:
        if name.endswith(".toml") and not name.startswith("."):
            yield f"{drop_ins}/{name}"


def _read(file: str) -> bytes | None:
    try:
        with open(file, "rb", buffering=0) as opened:
            return opened.readall()
    except FileNotFoundError:
        return None  # removed just now
    except OSError as error:
        raise LaunchError(f"{file}: {error.strerror}", "site-configuration") from None


def _wanted(texts: Sequence[tuple[str, bytes]]) -> tuple[str, tuple[str, ...]]:
    """The file with the rule, "" where it is off, and the stores; the last file's value counts."""
    import tomllib  # 10 ms, for sites with this rule

    source, stores = "", ()
    for file, text in texts:
        try:
            content = tomllib.loads(text.decode())
        except ValueError as error:
            message = f"{file}: not valid TOML: {error}"
            raise LaunchError(message, "site-configuration") from None
        policy = content.get("policy", {})
        if RULE in policy:
            source = file if policy[RULE] is not False else ""
        stores = tuple(content.get("image_stores", stores))
    return source, stores


def _is_in(path: str, store: str) -> bool:
    """Whether `path` lies below `store`, with no link and nothing of the user's on the way."""
    rest = path.removeprefix(f"{store.rstrip('/')}/")
    if rest == path or os.path.normpath(path) != path:
        return False
    root = os.path.realpath(store)
    if os.path.realpath(path) != f"{root}/{rest}":
        return False
    way, uid = [root], os.getuid()
    for part in rest.split("/"):
        way.append(f"{way[-1]}/{part}")
    try:
        return all(uid == 0 or _is_foreign(place, uid) for place in way)
    except OSError:
        return False


def _is_foreign(path: str, uid: int) -> bool:
    found = os.lstat(path)
    is_anybodys = found.st_mode & stat.S_IWOTH
    return found.st_uid != uid and not is_anybodys and not os.access(path, os.W_OK)

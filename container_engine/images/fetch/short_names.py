"""Resolve names without a registry as Podman does: by aliases and search registries.

Both come from this host's registries.conf.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from typing import Annotated, NamedTuple

from pydantic import Field

from container_engine.base.errors import UserError
from container_engine.base.files import names_in
from container_engine.base.model import Array, Excerpt, MisfitError
from container_engine.base.process import reason
from container_engine.images.reference import RegistryImage, parse

_SYSTEM = "/etc/containers"
_HINT = "man containers-registries.conf; or write the registry with the image"
_NAME, _ROOTS_CACHE = "registries.conf", "/var/cache"
# the variable that selects another main file
CHOSEN = "CONTAINERS_REGISTRIES_CONF"


class _Hosts(Excerpt):
    registries: Array[str] = ()


class _First(Excerpt):
    """Version 1 of the format, which has no aliases; only a main file may use it."""

    search: _Hosts = Field(default_factory=_Hosts)


class _File(Excerpt):
    """The settings for short names in one file; what it lacks is left to other files."""

    aliases: dict[str, str] = Field(default_factory=dict)
    search: Annotated[Array[str] | None, Field(alias="unqualified-search-registries")] = None
    mode: Annotated[str, Field(alias="short-name-mode")] = ""
    first: Annotated[_First | None, Field(alias="registries")] = None

    @property
    def searched(self) -> Array[str] | None:
        """Return the search registries, from either version of the format; None if absent."""
        return self.search if self.first is None else self.first.search.registries


class ShortNames(NamedTuple):
    """The settings for short names on this host.

    `aliases` map a name to its meaning and the file that defines it; `searched_by` is the file that
    defines `search`. If `is_enforcing`, the user must choose among several search registries.
    `consulted` are all paths that were looked at, existing or not.
    """

    aliases: Mapping[str, tuple[str, str]]
    search: tuple[str, ...]
    searched_by: str
    is_enforcing: bool
    consulted: tuple[str, ...]

    def meanings(self, image: RegistryImage) -> tuple[RegistryImage, ...]:
        """Return the images that the name may stand for; it means the first that exists.

        There is at least one: without any settings, the image in the default registry. Raise
        UserError for an invalid alias or registry.
        """
        if not image.short:
            return (image,)
        alias = self.aliases.get(image.short)
        if alias is not None:
            return (_meant(image, *alias),)
        names = [f"{registry}/{image.short}" for registry in self.search]
        found = [_meant(image, name, self.searched_by) for name in names]
        return tuple(dict.fromkeys(found)) or (image,)


def read(env: Mapping[str, str], uid: int) -> ShortNames:
    """Read the settings of this host. Raise UserError for an invalid file.

    Variables of `env` are only looked up by name.
    """
    aliases: dict[str, tuple[str, str]] = {}
    search: tuple[str, ...] = ()
    searched_by, mode = "", ""
    consulted: list[str] = []
    for path in _files(env, uid, consulted):
        said = _read(path, is_chosen=path == env.get(CHOSEN))
        for name, meaning in said.aliases.items():
            aliases[name] = (meaning, path)
        if said.searched is not None:
            search, searched_by = said.searched, path
        mode = said.mode or mode
    known = {name: found for name, found in aliases.items() if found[0]}  # "" removes an alias
    return ShortNames(known, search, searched_by, mode == "enforcing", tuple(consulted))


def _files(env: Mapping[str, str], uid: int, consulted: list[str]) -> Iterator[str]:
    """Yield the files to read; later ones override earlier ones.

    All paths that were looked at are added to `consulted`.
    """
    home = env.get("HOME") or "/"
    own = os.path.join(home, ".config/containers")
    chosen = env.get(CHOSEN)
    main = chosen or f"{own}/{_NAME}"
    consulted.append(main)
    # a user's own main file replaces all files of the system; a chosen one replaces the main files
    is_own = not chosen and os.path.lexists(main)
    if not chosen and not is_own:
        main = f"{_SYSTEM}/{_NAME}"
        consulted.append(main)
    yield main
    for directory in (own,) if is_own else (_SYSTEM, own):
        drop_ins = f"{directory}/{_NAME}.d"
        consulted.append(drop_ins)
        for name in names_in(drop_ins):
            if name.endswith(".conf"):
                consulted.append(f"{drop_ins}/{name}")
                yield consulted[-1]
    cache = _ROOTS_CACHE if uid == 0 else env.get("XDG_CACHE_HOME") or f"{home}/.cache"
    # the choices that users made when Podman asked
    consulted.append(f"{cache}/containers/short-name-aliases.conf")
    yield consulted[-1]


def _read(path: str, *, is_chosen: bool) -> _File:
    try:
        with open(path, "rb") as file:
            return _File.of(tomllib.load(file))
    except (FileNotFoundError, NotADirectoryError) as error:
        if is_chosen:
            raise _unclear(path, f"{reason(error)} ({CHOSEN} names it)") from None
        return _File()
    except OSError as error:
        raise _unclear(path, reason(error)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _unclear(path, str(error).lower()) from None
    except MisfitError as error:
        raise _unclear(path, str(error)) from None


def _meant(image: RegistryImage, repository: str, source: str) -> RegistryImage:
    """Return `image` in another repository, and with a name that includes the repository."""
    try:
        found = parse(repository, "/")
    except UserError as error:
        raise _unclear(source, error.message) from None
    is_whole = isinstance(found, RegistryImage) and not found.short and found.digest is None
    if not is_whole or not isinstance(found, RegistryImage):
        raise _unclear(
            source, f"'{image.short}' is an alias of '{repository}', which has no registry"
        )
    meant = image._replace(registry=found.registry, repository=found.repository)
    return image if meant == image else meant._replace(name=meant.canonical)


def _unclear(path: str, why: str) -> UserError:
    return UserError(why, _HINT, "image-reference", where=path)

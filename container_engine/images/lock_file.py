"""The lock file NAME.lock beside an environment NAME.toml, which pins the exact image.

`ce lock` writes this JSON file, which is meant to be kept together with the environment. It records
the digest that the image's name resolved to on each architecture, a hash of the environment that is
the same for all users, and the releases of the hooks that the environment uses.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.files import publish
from container_engine.base.model import Array, MisfitError, Model, about
from container_engine.base.process import reason
from container_engine.edf.names import lock_of
from container_engine.images import free_space, image_files, squashfs
from container_engine.images.reference import FileImage, RegistryImage, parse

_FILE = "file"  # in place of an architecture
_HEAD = 96  # bytes of the superblock, which changes whenever a file is rebuilt
_DIGEST = r"^sha256:[0-9a-f]{64}$"


class Pinned(Model):
    """The image that a name stood for on one architecture, or the content of a file."""

    digest: Annotated[str, about("of the manifest, or of the file", pattern=_DIGEST)]
    size: Annotated[int, about("bytes of the compressed layers, or of the file", ge=0)]
    head: Annotated[str, about("hash of a file's first bytes, by which launches know it")] = ""
    samples: Annotated[str, about("hash of some of a file's bytes, evenly spread over it")] = ""


class Part(Model):
    """One image. `images` has one entry per architecture, or for a file the only one, "file"."""

    image: Annotated[str, about("as the environment names it, variables not expanded")]
    name: Annotated[str, about("registry, repository and tag; empty for a file")]
    images: Annotated[dict[str, Pinned], about("what it resolved to, for each architecture")]

    @property
    def file_digest(self) -> str:
        """The digest of an image that is a file. Raise KeyError for any other."""
        return self.images[_FILE].digest


class Lock(Part):
    """The image of an environment, or the base of several; `above` are stacked on it."""

    version: Annotated[Literal[1], about("of this format")] = 1
    engine: Annotated[str, about("version of the container engine that made it")]
    environment: Annotated[str, about("hash of the effective EDF, variables not expanded")]
    hooks: Annotated[dict[str, str], about("releases of the hooks that the environment uses")]
    above: Annotated[Array[Part], about("images above the base, the highest last")] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        return (self, *self.above)

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


class Declared(NamedTuple):
    """The present state of an environment, in the form that is compared with a lock."""

    environment: str
    images: tuple[str, ...]
    hooks: dict[str, str]

    @property
    def image(self) -> str:
        return " + ".join(self.images)


def read(edf_path: str) -> Lock | None:
    """Return the lock of an environment's file, or None if there is no lock.

    Raise UserError if the lock cannot be read or parsed, or belongs to another user.
    """
    path = lock_of(edf_path)
    text = image_files.read_beside(path, edf_path, "image-lock")
    return None if text is None else parsed(text, path)


def parsed(text: bytes, path: str) -> Lock:
    """Return the lock that a file holds; `path` names it in errors. Raise UserError."""
    try:
        lock = Lock.of_json(text)
    except MisfitError as error:
        raise UserError(str(error), _HINT, "image-lock", where=path) from None
    if any(not part.name and _FILE not in part.images for part in lock.parts):
        why = f"'{_FILE}' is missing, and no name of an image is locked"
        raise UserError(why, _HINT, "image-lock", where=path, key="images")
    return lock


def write(path: str, lock: Lock) -> None:
    """Write the lock to `path`. Raise UserError."""
    try:
        publish(path, lock.to_json().encode("utf-8", "surrogateescape"))
    except OSError as error:
        free_space.refuse_full(path, error)
        raise UserError(reason(error), _elsewhere(path, error), "image-lock", where=path) from None


def _elsewhere(path: str, error: OSError) -> str | None:
    """Return a hint for environments of the site, which users cannot lock where they are."""
    if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
        return None
    name = os.path.basename(path).removesuffix(".lock")
    return f'lock an environment of your own: a file with base_environment = "{name}"'


def digest_of(said: Iterable[tuple[str, str]]) -> str:
    """Return the hash of keys and values as an environment's files have them."""
    import hashlib

    text = json.dumps([list(pair) for pair in said]).encode("utf-8", "surrogateescape")
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


def pin_file(path: str) -> Pinned:
    """Return the pin of a SquashFS file as it is now; read all of it. Raise UserError."""
    squashfs.check(path)
    try:
        size, head = os.path.getsize(path), _head(path)
        samples = image_files.samples(path, size)
        digest = image_files.computed_digest(path)  # the last: it tells of a change
        return Pinned(digest=digest, size=size, head=head, samples=samples)
    except OSError as error:
        raise UserError(reason(error), see="image-lock", name=path) from None


def differences(lock: Lock, now: Declared) -> list[str]:
    """Return, in words, how an environment has changed since it was locked."""
    found = []
    before_all = " + ".join(part.image for part in lock.parts)
    if before_all != now.image:
        found.append(f"its image was '{before_all}' and is '{now.image}'")
    elif lock.environment != now.environment:
        found.append("the environment asks for something else")
    for name in sorted(lock.hooks.keys() | now.hooks.keys()):
        before, after = lock.hooks.get(name), now.hooks.get(name)
        if before != after:
            found.append(f"hook {name} was {_release(before)} and is {_release(after)}")
    return found


def other_stack(path: str, locked: int, named: int) -> UserError:
    """Return the error for an environment that has more or fewer images than its lock."""
    why = f"locks {locked} image{'s'[: locked - 1]}, and the environment names {named}"
    return UserError(why, _HINT, "image-lock", where=path)


def locked_image(lock: Part, path: str, declared: str, arch: str, cwd: str) -> str:
    """Return the locked image, which a launch uses in place of `declared`. Raise UserError.

    `declared` is what the environment names, with its variables expanded. An image in a registry
    is returned by its digest, a file as declared if it is still the locked one.
    """
    if not lock.name:
        image = parse(declared, cwd)
        if not isinstance(image, FileImage):
            raise UserError(
                f"the lock is for a file, but '{declared}' is not a file",
                _HINT,
                "image-lock",
                where=path,
            )
        _check_file(image.path, lock.images[_FILE], path)
        return declared
    pinned = lock.images.get(arch)
    if pinned is None:
        known = ", ".join(sorted(lock.images))
        raise UserError(
            f"no image is locked for {arch}, only for {known}", _HINT, "image-lock", where=path
        )
    return f"{lock.name}@{pinned.digest}"


def check_name(lock: Part, path: str, said: str, meanings: Sequence[RegistryImage]) -> None:
    """Raise UserError if the lock leads to a repository other than that of the image `said`.

    `meanings` are all the images that `said` may stand for.
    """
    locked = parse(lock.name, "/")
    known = [f"{one.registry}/{one.repository}" for one in meanings]
    where = "" if isinstance(locked, FileImage) else f"{locked.registry}/{locked.repository}"
    if where not in known:
        raise UserError(
            f"leads to '{lock.name}', and the image '{said}' means {_either(known)}",
            f"{_HINT}, if you know who made it",
            "image-lock",
            where=path,
        )


def _either(known: Sequence[str]) -> str:
    return " or ".join(f"'{one}'" for one in known) or "not an image of a registry"


_HINT = "ce lock writes a new one"


def _check_file(path: str, pinned: Pinned, lock_path: str) -> None:
    squashfs.check(path)
    try:
        is_it = _is_pinned(path, pinned)
    except OSError as error:
        raise UserError(reason(error), see="image-lock", name=path) from None
    if not is_it:
        raise UserError(
            f"'{path}' is not the file that was locked", _HINT, "image-lock", where=lock_path
        )


def _is_pinned(path: str, pinned: Pinned) -> bool:
    """Check the file without reading all of it, which a launch must not wait for."""
    if os.path.getsize(path) != pinned.size:
        return False
    known = image_files.known_digest(path)
    if known and known != pinned.digest:
        return False
    # a record counts by the size and time of the file, which other content may have as well
    is_head = _head(path) == pinned.head
    return is_head and image_files.samples(path, pinned.size) == pinned.samples


def _head(path: str) -> str:
    import hashlib

    with open(path, "rb") as file:
        return hashlib.sha256(file.read(_HEAD)).hexdigest()


def _release(number: str | None) -> str:
    return "not used" if number is None else f"release {number}"

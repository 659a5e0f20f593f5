"""From a reference into a registry to a SquashFS file, streamed: no layer is unpacked to disk."""

from __future__ import annotations

import os
import tempfile
import time
from typing import TYPE_CHECKING, NamedTuple

from container_engine import process
from container_engine.errors import UserError
from container_engine.images import config, squashfs
from container_engine.images.fetch import fetch
from container_engine.images.files import fresh_directory, locked, publish
from container_engine.images.layers import write_merged
from container_engine.process import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from container_engine.images.fetch import Fetched
    from container_engine.images.reference import RegistryImage
    from container_engine.images.store import Store

_MIB = 1 << 20
# Level 3 made 477 MB of a Debian system with 1.3 GB in 8 s; level 15, the default, 421 MB in 90 s.
# mksquashfs, because sqfstar 4.5 fails to parse a compression level.
_SETTINGS = ["-tar", "-quiet", "-no-progress", "-no-xattrs", "-comp", "zstd"]
_LEVEL = ["-Xcompression-level", "3"]
# all files are root's, which in a container is the user
_OWNER = ["-all-root", "-root-mode", "0755"]


class Importer(NamedTuple):
    """`env` is the user's environment for skopeo; `say` prints a line of progress."""

    env: Mapping[str, str]
    timeout_s: float
    say: Callable[[str], None]

    def obtain(self, image: RegistryImage, store: Store, *, again: bool = False) -> str:
        """The digest of `image`, which is in `store` now.

        Imported if it is not there, or `again`. Raises CeError; then the store is as it was.
        """
        digest = None if again else store.digest(image)
        if digest is not None:
            return digest
        waiting = f"{image.canonical}: being imported by "
        try:
            with locked(
                store.lock(image), self.timeout_s, lambda who: self.say(f"{waiting}{who}, waiting")
            ):
                return self._obtain_alone(image, store, again=again)
        except OSError as error:
            raise _unusable(store.root, error) from None

    def to_file(self, image: RegistryImage, path: str) -> str:
        """Makes `path` and the configuration beside it; returns the digest. Raises CeError."""
        directory = os.path.dirname(path)
        try:
            with tempfile.TemporaryDirectory(prefix=".ce-import-", dir=directory) as work:
                fetched = self._build(image, work)
                _install(work, path, fetched)
        except OSError as error:
            raise _unusable(directory, error) from None
        return fetched.digest

    def _obtain_alone(self, image: RegistryImage, store: Store, *, again: bool) -> str:
        digest = None if again else store.digest(image)  # somebody else's import may have ended
        if digest is not None:
            return digest
        with fresh_directory(store.work(image)) as work:
            fetched = self._build(image, work)
            if fetched.architecture != store.arch:
                raise UserError(
                    f"'{image.name}': made for {fetched.architecture}, this machine is {store.arch}"
                )
            _install(work, store.image(fetched.digest), fetched)
        store.remember(image, fetched.digest)
        return fetched.digest

    def _build(self, image: RegistryImage, work: str) -> Fetched:
        """Leaves `work`/image, complete and checked."""
        started, name = time.monotonic(), image.canonical
        self.say(f"{name}: importing")
        fetched = fetch(image, os.path.join(work, "blobs"), self.env, self.timeout_s)
        self.say(f"{name}: {len(fetched.layers)} layers, {_size(fetched.size)}; packing")
        target = os.path.join(work, "image")
        process.feed(
            ["mksquashfs", "-", target, *_SETTINGS, *_LEVEL, *_OWNER],
            self.env,
            self.timeout_s,
            lambda stream: write_merged(fetched.layers, stream, self.env),
        )
        size = squashfs.check(target).bytes_used
        self.say(f"{name}: imported, {_size(size)}, {time.monotonic() - started:.0f} s")
        return fetched


def _install(work: str, path: str, fetched: Fetched) -> None:
    """The configuration first: an image is never there without it."""
    publish(config.beside(path), fetched.config)
    made = os.path.join(work, "image")
    with open(made, "rb") as file:
        os.fsync(file.fileno())
    os.replace(made, path)


def _size(size: int) -> str:
    return f"{size / _MIB:.0f} MiB" if size >= _MIB else f"{size / 1024:.0f} KiB"


def _unusable(directory: str, error: OSError) -> UserError:
    where = os.fspath(error.filename) if error.filename else directory
    return UserError(f"'{where}': {reason(error)}")

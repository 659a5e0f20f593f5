"""Add a SquashFS file, a directory or a root file system's archive to a store as an image."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.files import FreshDirectory, sha256
from container_engine.base.text_layout import size_text
from container_engine.images import free_space, squashfs
from container_engine.images.fetch.registry import check_platform, doubt
from container_engine.images.image_files import (
    CHANGED,
    config_path,
    install,
    install_stored,
    note_name,
    read_beside,
    refuse_changed,
    version,
)
from container_engine.images.importing import file_system
from container_engine.images.importing.archives import is_tar
from container_engine.images.importing.importer import Waiting
from container_engine.images.pack.form import USUAL, Form
from container_engine.images.pack.layers import LayerFile
from container_engine.images.pack.pack import Packer, pack_with_progress
from container_engine.images.policy import Rules
from container_engine.images.reference import LocalImage, plain_name
from container_engine.images.store.lease import held

if TYPE_CHECKING:
    from container_engine.images.listener import Listener
    from container_engine.images.store.store import Store

_OF_ROOTS = {"bin", "usr", "lib", "etc", "sbin"}
_CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
_SQUASHFS_TYPE = "application/vnd.container-engine.image.v1.squashfs"


class Adopter(NamedTuple):
    """An importer of files and directories. `env` is for its tools, `user` is shown to waiters.

    `rules` are the site's, also for what archives unpack to; `form` is that of the files.
    """

    env: Mapping[str, str]
    user: str
    timeout_s: float
    listener: Listener
    rules: Rules
    form: Form = USUAL

    @property
    def _packer(self) -> Packer:
        return Packer(self.env, self.timeout_s, self.rules.budget(), self.form)

    def adopt(self, path: str, called: str, store: Store) -> str:
        """Add a file, archive or directory as the image `called`; return its file in the store.

        Raise CeError; then nothing has changed.
        """
        began, wait = time.monotonic(), Waiting(called, self.listener)
        image = LocalImage(path, "dir" if os.path.isdir(path) else "file", path, called=called)
        try:
            with (
                held(store.lock(image), self.user, self.timeout_s, wait.tell, what=called) as lease,
                FreshDirectory(store.work(lease.holder.token)) as work,
            ):
                store.explain()
                made = os.path.join(work, "image")
                configuration = self.make(path, made, store.arch)
                manifest = _manifest(made, configuration)
                digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
                size = os.path.getsize(made)
                if not install_stored(made, configuration, store.image(digest), manifest):
                    refuse_changed(called, store.image(digest))
                store.write_ref(image, digest)
                note_name(store.image(digest), plain_name(image))
                took = time.monotonic() - began
                self.listener.say(f"{called}: imported, {size_text(size)} in {took:.1f} s")
        except OSError as error:
            raise free_space.unusable(store.root, error) from None
        return store.image(digest)

    def make(self, path: str, made: str, arch: str) -> bytes:
        """Write the image to `made` and return its configuration. Raise CeError or OSError."""
        if os.path.isdir(path):
            pack_with_progress(path, made, self._packer, self.listener)
            self._doubt_top(path, made)
            return file_system.document(squashfs.config_from_files(made, self.env), arch)
        before = version(path)
        configuration = self._of_file(path, made, arch)
        if version(path) != before:
            raise UserError(CHANGED, "import it once it is complete", "image-damaged", name=path)
        return configuration

    def _of_file(self, path: str, made: str, arch: str) -> bytes:
        if is_tar(path):
            self._pack_archive(path, made)
            self._doubt_top(path, made)
            return file_system.document(squashfs.config_from_files(made, self.env), arch)
        file_system.check(path, arch, self.env)
        if key := self.rules.signer(path, path, self.env):
            self.listener.say(f"{path}: signed by {key}")
        file_system.copy(
            path,
            made,
            self._packer,
            lambda done, size: self.listener.far(path, "copying", done, size),
        )
        beside = config_path(path)
        text = read_beside(beside, path)
        if text is None:
            facts = squashfs.config_from_files(path, self.env)
            if facts.other:
                self.listener.say(f"{path}: {squashfs.left_to_a_shell(facts.other)}")
            return file_system.document(facts, arch)
        squashfs.config_from_document(text, beside)
        image = LocalImage(path, "file", path)
        unsaid = doubt(image, text, arch)
        if unsaid:  # a configuration written by hand may lack it
            self.listener.say(unsaid)
        else:
            check_platform(image, text, arch)
        return text

    def _doubt_top(self, path: str, made: str) -> None:
        """Warn if a root file system has been packed with the directory that it was in."""
        listed = squashfs.unsquashfs(["-ls", "-max-depth", "2", "-d", ""], made, (), self.env, 60)
        names = [name.lstrip("/") for name in os.fsdecode(listed).splitlines() if name]
        top = [name for name in names if "/" not in name]
        has = {name: {each for each in _OF_ROOTS if f"{name}/{each}" in names} for name in top}
        # beside it LXD, LXC and OCI's runtimes keep what describes it
        needed = 1 if len(top) == 1 else 2
        roots = [name for name in top if len(has[name]) >= needed]
        if len(roots) == 1 and not _OF_ROOTS & set(top):
            inner = roots[0]
            self.listener.say(
                f"{path}: its programs are below '{inner}', where no container looks for them:"
                f" pack what is in '{inner}' (tar -C {inner} -cf FILE.tar .)"
            )

    def _pack_archive(self, path: str, made: str) -> None:
        total, done = os.path.getsize(path), 0

        def on_read(size: int) -> None:
            nonlocal done
            done += size
            self.listener.far(path, "packing", done, total)

        self._packer.pack_files(LayerFile(path), total, made, on_read)


def to_file(source: str, path: str, arch: str, adopter: Adopter, *, replaces: bool) -> None:
    """Write `path`, and the configuration beside it, from a directory or a tar archive.

    Raise CeError.
    """
    is_other = os.path.isdir(source) or is_tar(source)
    if not is_other and squashfs.place(source).start == 0:
        raise UserError(
            "a SquashFS file already",
            "environments can use its path",
            "image-format",
            name=source,
        )
    directory = os.path.dirname(path)
    try:
        with tempfile.TemporaryDirectory(prefix=".ce-import-", dir=directory) as work:
            made = os.path.join(work, "image")
            install(made, adopter.make(source, made, arch), path, replaces=replaces)
    except OSError as error:
        raise free_space.unusable(directory, error) from None


def _manifest(made: str, configuration: bytes) -> bytes:
    """Return a manifest in OCI's form, so that its digest vouches for both files."""
    layer = {
        "mediaType": _SQUASHFS_TYPE,
        "digest": f"sha256:{sha256(made)}",
        "size": os.path.getsize(made),
    }
    described = {
        "mediaType": _CONFIG_TYPE,
        "digest": f"sha256:{hashlib.sha256(configuration).hexdigest()}",
        "size": len(configuration),
    }
    return file_system.as_json({"schemaVersion": 2, "config": described, "layers": [layer]})

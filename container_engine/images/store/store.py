"""The store of imported images: a directory on a file system that the nodes share.

    images/<digest>-<arch>.sqsh       an image
    images/<digest>-<arch>.sqsh.json  its OCI configuration; beside it its manifest and checksum
    refs/<name>-<arch>.json           what a name stood for, and when that was last looked up
    blobs/sha256/<digest>             layers as registries have them, for other images
    uses/<job>-<digest>.<uid>@<cluster>  links to images in use (node/start/image_in_use.py)
    locks/ work/                      running imports
    README

A file that has its final name is complete.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Mapping
from typing import NamedTuple

from container_engine.base import records
from container_engine.base.errors import UserError
from container_engine.base.files import publish, read_regular, user_directory
from container_engine.images import image_files
from container_engine.images.reference import DIGEST, Imported, RegistryImage
from container_engine.oci.architecture import ARCHITECTURES, architecture_named

VOID = "void"
CLOCKS_S = 60  # the clocks of hosts may differ by this much; a later time is from a wrong clock
_MAX_NAME = 180  # bytes, of the 255 that file systems allow
_README = """\
This directory holds container images of the Container Engine (ce).

images/  one SquashFS file per image, named by the digest of its manifest and its architecture, and
         beside it the image's configuration, manifest, checksum and the time of its last use;
         jobs that run have these files mounted
refs/    the digest of a name like docker.io/library/ubuntu:24.04, and when it was last looked up
blobs/   compressed layers, kept so that images that share them need no second download
uses/    which jobs use which image; ce gc and ce rmi leave those alone
locks/   who imports what at the moment
work/    what imports that run have done so far

`ce images` lists what is here, `ce rmi IMAGE` and `ce gc` make room, `ce store check` looks for
damage. All of it can be imported again.
"""


class Ref(NamedTuple):
    """The digest that a name resolved to at the time `checked`, in seconds since 1970.

    `tried` is the time of a later look-up that failed. Both are by the clock of the host that wrote
    them. `origin` is the local source imported under this name, "" for a registry; if it is set, no
    registry is asked. `judged` is the hash of the site's signature policy that has accepted this
    name, "" for none. `index_text` is the text of the index that led to the image, "" for none.
    """

    name: str
    digest: str
    checked: float
    tried: float = 0
    origin: str = ""
    judged: str = ""
    index_text: str = ""

    def is_of(self, image: Imported) -> bool:
        """Check whether the ref says this name, whatever its file is called.

        The digest in the name, if any, must be the image's or that of its index.
        """
        if self.name != image.canonical:
            return False
        return image.digest in {None, self.digest} or _leads_to(
            self.index_text, image.digest, self.digest
        )


def _leads_to(index: str, named: str | None, digest: str) -> bool:
    """Check whether `index` has the digest `named` and lists `digest`, or one after it does."""
    import hashlib

    text, _nul, behind = index.partition("\0")
    if not text or f"sha256:{hashlib.sha256(text.encode()).hexdigest()}" != named:
        return False
    try:
        listed = {one["digest"] for one in json.loads(text)["manifests"]}
    except (ValueError, LookupError, TypeError):
        return False
    return digest in listed or any(_leads_to(behind, one, digest) for one in listed)


class Store(NamedTuple):
    """The store below `root` for images of one architecture, by its name in OCI images."""

    root: str
    arch: str

    def image(self, digest: str) -> str:
        return f"{self.root}/images/{digest.replace(':', '-')}-{self.arch}.sqsh"

    def ref(self, image: Imported) -> str:
        return f"{self.root}/refs/{self._name(image)}.json"

    def lock(self, image: Imported) -> str:
        """Return the path of the lock for the look-up of a name."""
        return f"{self.root}/locks/{self._name(image)}"

    def build_lock(self, digest: str) -> str:
        """Return the path of the lock for making an image, which may have several names.

        It is taken after the lock of a name.
        """
        return f"{self.root}/locks/{digest.replace(':', '-')}-{self.arch}"

    def work(self, token: str) -> str:
        """Return the working directory of a lock's holder. It is never shared, even by takeover."""
        return f"{self.root}/work/{token}"

    @property
    def blobs(self) -> str:
        return f"{self.root}/blobs"

    def has(self, digest: str) -> bool:
        """Check whether the image is there. Raise UserError if another user has put it there."""
        path = self.image(digest)
        try:
            status = os.stat(path)
        except OSError:
            return False
        image_files.check_stored(path, status)
        return stat.S_ISREG(status.st_mode)

    def write_ref(
        self,
        image: Imported,
        digest: str,
        checked: float | None = None,
        tried: float = 0,
        judged: str = "",
        index: str = "",
    ) -> None:
        """Record that a name resolved to `digest` at `checked`, by default now. Raise OSError."""
        ref = Ref(
            name=image.canonical,
            digest=digest,
            checked=time.time() if checked is None else checked,
            tried=tried,
            origin=image.origin,
            judged=judged,
            index_text=index,
        )
        publish(self.ref(image), records.to_json(ref) + b"\n")

    def explain(self) -> None:
        """Write the README for users who find the directory, unless it exists. Raise OSError."""
        path = f"{self.root}/README"
        if not os.path.exists(path):
            publish(path, _README.encode())

    def _name(self, image: Imported) -> str:
        return ref_name(image.canonical, self.arch)


def ref_name(canonical: str, arch: str) -> str:
    """Return the stem of the file names for an image's name."""
    from urllib.parse import quote

    name = quote(canonical, safe=":@")
    if len(name) > _MAX_NAME:
        import hashlib

        name = name[:100] + hashlib.sha256(name.encode()).hexdigest()
    return f"{name}-{arch}"


def read_ref(path: str) -> Ref | None:
    """Read a ref; return None if it is missing or invalid, so that the name is looked up again.

    A time in the future, from a wrong clock, counts as 0. Raise UserError for a file that another
    user has put there.
    """
    try:
        text = read_regular(
            path, image_files.MOST_BESIDE, lambda found: image_files.check_stored(path, found)
        )
        ref = records.from_json(Ref, text)
    except (OSError, ValueError):
        return None
    if not DIGEST.fullmatch(ref.digest):
        return None
    latest = time.time() + CLOCKS_S
    checked, tried = (0 if when > latest else when for when in (ref.checked, ref.tried))
    return ref._replace(checked=checked, tried=tried)


class Known(NamedTuple):
    """A name's `ref`, from the file `ref_path`, and its image's `path` in any of the stores."""

    ref: Ref
    ref_path: str
    path: str
    is_own: bool


class Stores(NamedTuple):
    """The user's own store, None if nothing is to be kept, and the site's read-only stores."""

    own: Store | None
    site: tuple[Store, ...]

    def find(self, image: Imported) -> Known | None:
        """Find an image by its name, in the user's store before the site's, else by its digest."""
        for store in self.all():
            path = store.ref(image)
            ref = read_ref(path)
            if ref is None or not ref.is_of(image):
                continue
            place = self.holding(ref.digest)
            if place is not None:
                return Known(ref, path, place.image(ref.digest), store is self.own)
        return self._by_digest(image)

    def refuse_other(self, image: RegistryImage) -> None:
        """Raise UserError if the name is that of an image made here for another processor only.

        What a registry has under the name would be a stranger's image.
        """
        for store in self.all():
            for arch in sorted({*ARCHITECTURES.values()} - {store.arch}):
                ref = read_ref(Store(store.root, arch).ref(image))
                if ref is not None and ref.is_of(image) and ref.origin:
                    why = f"made on this host for {arch}, {store.arch} is needed"
                    hint = (
                        f"make it with --platform {store.arch}, too; for one of a registry write"
                        f" the registry: {image.canonical}"
                    )
                    raise UserError(why, hint, "image-architecture", name=image.name)

    def _by_digest(self, image: Imported) -> Known | None:
        """Find an image by its digest, which may have been imported under another name."""
        place = None if image.digest is None else self.holding(image.digest)
        if image.digest is None or place is None:
            return None
        ref = Ref(name=image.canonical, digest=image.digest, checked=0)
        return Known(ref, place.ref(image), place.image(ref.digest), place is self.own)

    def holding(self, digest: str) -> Store | None:
        return next((store for store in self.all() if store.has(digest)), None)

    def all(self) -> tuple[Store, ...]:
        return self.site if self.own is None else (self.own, *self.site)


def locate(env: Mapping[str, str], cwd: str, site_path: str | None) -> str:
    """Return the path of the user's store. Raise UserError if there is none.

    Variables of `env` are only looked up by name.
    """
    named = env.get("EDF_IMAGESTORE")
    if named == VOID:
        raise UserError(
            "EDF_IMAGESTORE=void: there is no store of your own",
            "ce import -o FILE.sqsh IMAGE makes a file that an environment can name",
            "store-none",
        )
    if named:
        return os.path.join(cwd, named)
    scratch = env.get("SCRATCH")
    if scratch:
        return os.path.join(cwd, scratch, ".edf_imagestore")
    if site_path:
        return site_path
    data = user_directory("XDG_DATA_HOME", ".local/share", env)
    if not data:
        message = "no place for images: none of EDF_IMAGESTORE, SCRATCH and HOME is set"
        raise UserError(message, see="store-none")
    return f"{data}/container-engine/images"


def architecture(wanted: str = "") -> str:
    """Return an architecture as OCI images name it, by default that of this machine."""
    return architecture_named(wanted) or architecture_named(os.uname().machine)

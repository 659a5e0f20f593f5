"""Where imported images lie: a directory on a file system that the nodes share.

    images/<digest>-<arch>.sqsh       an image
    images/<digest>-<arch>.sqsh.json  its OCI configuration; beside it its manifest and checksum
    refs/<name>-<arch>.json           what a name stood for, and when that was last looked up
    blobs/sha256/<digest>             layers as registries have them, for other images
    uses/<job>-<digest>.<uid>@<cluster>  links to images in use (node/start/image_in_use.py)
    locks/ work/                      imports that run
    README

Whatever has its name is complete.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from container_engine.errors import UserError
from container_engine.images.store import beside
from container_engine.images.store.files import publish

if TYPE_CHECKING:
    from collections.abc import Mapping

    from container_engine.images.reference import Imported

VOID = "void"
CLOCKS_S = 60  # those of hosts may differ so much; what is later was made by a wrong one
_MAX_NAME = 180  # bytes, of the 255 that file systems allow
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_README = """\
This directory holds container images of the Container Engine (ce).

images/  one SquashFS file per image, named by the digest of its manifest and its architecture, and
         beside it the image's configuration, manifest, checksum and the time of its last use;
         jobs that run have these files mounted
refs/    which digest a name like docker.io/library/ubuntu:24.04 stands for, and when that was
         last looked up
blobs/   compressed layers, kept so that images that share them need no second download
uses/    which jobs use which image; ce gc and ce rmi leave those alone
locks/   who imports what at the moment
work/    what imports that run have done so far

`ce images` lists what is here, `ce rmi IMAGE` and `ce gc` make room, `ce store check` looks for
damage. All of it can be imported again.
"""


class Ref(BaseModel):
    """What a name stood for when it was last looked up, in seconds since 1970 by our clock.

    `tried` is the time of a later look-up that failed. `origin` is what was imported under this
    name; where there is one, no registry is asked for it. `judged` is the hash of the site's
    signature policy that has let this name be imported, "" for none.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    name: str
    digest: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    checked: float
    tried: float = 0
    origin: str = ""
    judged: str = ""


class Store(NamedTuple):
    """The store below `root` for images of one architecture, by its name in OCI images."""

    root: str
    arch: str

    def image(self, digest: str) -> str:
        return f"{self.root}/images/{digest.replace(':', '-')}-{self.arch}.sqsh"

    def ref(self, image: Imported) -> str:
        return f"{self.root}/refs/{self._name(image)}.json"

    def lock(self, image: Imported) -> str:
        """For a name: who looks it up."""
        return f"{self.root}/locks/{self._name(image)}"

    def build_lock(self, digest: str) -> str:
        """For an image, which may have several names: who makes it. Taken after that of a name."""
        return f"{self.root}/locks/{digest.replace(':', '-')}-{self.arch}"

    def work(self, token: str) -> str:
        """Of the holder of a lock: no two work in one place, whatever becomes of the lock."""
        return f"{self.root}/work/{token}"

    @property
    def blobs(self) -> str:
        return f"{self.root}/blobs"

    def has(self, digest: str) -> bool:
        """Raises UserError for an image that another user has put there."""
        path = self.image(digest)
        try:
            status = os.stat(path)
        except OSError:
            return False
        beside.check_stored(path, status)
        return stat.S_ISREG(status.st_mode)

    def find(self, image: Imported) -> Ref | None:
        """What is known of the name, if the image's file is still there."""
        ref = read_ref(self.ref(image))
        return ref if ref is not None and self.has(ref.digest) else None

    def digest(self, image: Imported) -> str | None:
        found = self.find(image)
        return None if found is None else found.digest

    def remember(
        self,
        image: Imported,
        digest: str,
        checked: float | None = None,
        tried: float = 0,
        judged: str = "",
    ) -> None:
        """Looked up now, if not `checked`. Raises OSError."""
        ref = Ref(
            name=image.canonical,
            digest=digest,
            checked=time.time() if checked is None else checked,
            tried=tried,
            origin=image.origin,
            judged=judged,
        )
        publish(self.ref(image), ref.model_dump_json().encode() + b"\n")

    def explain(self) -> None:
        """Puts the README there for whoever finds the directory. Raises OSError."""
        path = f"{self.root}/README"
        if not os.path.exists(path):
            publish(path, _README.encode())

    def _name(self, image: Imported) -> str:
        return ref_name(image.canonical, self.arch)


def ref_name(canonical: str, arch: str) -> str:
    """What the files of a name are called."""
    name = quote(canonical, safe=":@")
    if len(name) > _MAX_NAME:
        name = name[:100] + hashlib.sha256(name.encode()).hexdigest()
    return f"{name}-{arch}"


def read_ref(path: str) -> Ref | None:
    """None for a file that is missing or makes no sense: the name is looked up again.

    A time that a wrong clock has made counts as 0. Raises UserError for a file that another user
    has put there.
    """
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        with open(os.open(path, flags), "rb", buffering=0) as file:
            beside.check_stored(path, os.fstat(file.fileno()))
            ref = Ref.model_validate_json(beside.content(file))
    except (OSError, ValidationError):
        return None
    latest = time.time() + CLOCKS_S
    return ref.model_copy(
        update={name: 0 for name in ("checked", "tried") if getattr(ref, name) > latest}
    )


class Known(NamedTuple):
    """What `ref`, the file `ref_path`, says of a name; the image's file is in any of the stores."""

    ref: Ref
    ref_path: str
    path: str
    is_own: bool


class Stores(NamedTuple):
    """The user's own store, None where nothing shall be kept, and those of the site, only read."""

    own: Store | None
    site: tuple[Store, ...]

    def find(self, image: Imported) -> Known | None:
        """The name as the user's store knows it, else as one of the site's does."""
        for store in self.all():
            path = store.ref(image)
            ref = read_ref(path)
            place = None if ref is None else self.holding(ref.digest)
            if ref is not None and place is not None:
                return Known(ref, path, place.image(ref.digest), store is self.own)
        return self._by_digest(image)

    def _by_digest(self, image: Imported) -> Known | None:
        """What is asked for by its digest may have been imported under another name."""
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
    """The user's store. `env` is only asked for single names. Raises UserError for no place."""
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
    data, home = env.get("XDG_DATA_HOME", ""), env.get("HOME", "")
    if not data.startswith("/"):
        if not home.startswith("/"):
            message = "no place for images: none of EDF_IMAGESTORE, SCRATCH and HOME is set"
            raise UserError(message, see="store-none")
        data = f"{home}/.local/share"
    return f"{data}/container-engine/images"


def architecture() -> str:
    """Of this machine, as OCI images name it."""
    machine = os.uname().machine
    return _ARCHITECTURES.get(machine, machine)

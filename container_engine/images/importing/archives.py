"""Find out what archives and layouts of other tools hold, and make it ready for skopeo.

skopeo knows neither archives of Docker that are compressed, nor names with a colon, nor the
images of a layout that have no tag, and of an index it takes the image for this host.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Annotated, NamedTuple, cast

from pydantic import Field

from container_engine.base.errors import UserError
from container_engine.base.model import Array, Excerpt, MisfitError
from container_engine.base.process import reason
from container_engine.images import digests
from container_engine.images.fetch.registry import choose, unlike, valid
from container_engine.images.image_files import MOST_BESIDE, read_small
from container_engine.images.pack import layers
from container_engine.images.pack.tar_header import EXTENSIONS
from container_engine.images.reference import FileImage, LocalImage, same_name
from container_engine.oci.image import Descriptor, Index, Outline

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from container_engine.images.listener import Listener
    from container_engine.images.pack.tar_stream import Stream
    from container_engine.images.policy import Budget

DOCKERS, OCIS = "docker-archive", "oci-archive"
_LAYOUT, _COPY = "oci", "dir"
_VERSION = b"Directory Transport Version:"  # how skopeo begins the file `version` of a copy
_MOST_LOOKED_AT = 10_000  # members; an archive of images has some for each layer
_LISTS = ("manifest.json", "index.json")
_SMALL, _MOST_SMALL = 1 << 16, 400  # bytes of files that are kept, and of how many
_NUMBER = re.compile(r"@([0-9]+)")
_OF_IMAGES = re.compile(
    r"[0-9a-f]{64}(?:\.json|\.tar|/.*)|blobs/\w+/[0-9a-f]{32,}|repositories", re.DOTALL
)
_OF_LAYOUT = re.compile(r"oci-layout|index\.json|blobs/[a-z0-9]+/[0-9a-f]+")
_PIECE = 1 << 20
_MOST_EXTENDED = 1 << 20


class _Saved(Excerpt):
    """An image in manifest.json, as `docker save` writes it."""

    config: Annotated[str, Field(alias="Config")]
    names: Annotated[Array[str] | None, Field(alias="RepoTags")] = None


class Contents(NamedTuple):
    """The contents of an archive: the names of each image of Docker's, a layout, or neither.

    `made_for` are the architectures of Docker's images, "" for those not found by then. `listed` is
    the index.json of a layout. `is_unlisted` says that a blob came before the entry of its
    directory: skopeo can unpack that for root only. `is_copy` is for a directory by skopeo.
    """

    saved: tuple[tuple[str, ...], ...] = ()
    made_for: tuple[str, ...] = ()
    is_layout: bool = False
    listed: bytes = b""
    is_copy: bool = False
    is_broken: bool = False
    is_unlisted: bool = False

    @property
    def kind(self) -> str:
        """Return the transport of skopeo for it, "" for a root file system."""
        return DOCKERS if self.saved else OCIS if self.is_layout else ""


class _FoundError(Exception):
    """The end of a look into a stream, whose rest need not be read. It has no message."""


def located(image: LocalImage) -> LocalImage:
    """Return a source whose place is an existing file or directory, and what is chosen of it.

    Both may have colons: the place is the longest beginning that exists. Raise UserError.
    """
    ends = [len(image.place), *(m.start() for m in re.finditer(":", image.place))]
    for end in sorted(ends, reverse=True):
        if os.path.lexists(image.place[:end]):
            return image._replace(place=image.place[:end], chosen=image.place[end + 1 :])
    raise UserError("no such file or directory", see="image-file-not-found", name=image.name)


class Archives(NamedTuple):
    """Makes sources ready in the directory `work`, for `arch`. `env` is for zstd.

    `budget` limits what they unpack to, `listener` is told how far that is. All methods raise
    UserError or OSError.
    """

    work: str
    arch: str
    env: Mapping[str, str]
    budget: Budget
    listener: Listener

    def ready(self, image: FileImage | LocalImage) -> FileImage | LocalImage:
        """Return what is to be imported: the image itself if nothing needs to be done for it.

        A path is taken for what it has: an archive, a layout, or a root file system, which stays
        one.
        """
        if isinstance(image, FileImage):
            kind = self._kind(image)
            if not kind:
                return image
            image = LocalImage(image.name, kind, image.path)
        if image.transport == _LAYOUT:
            return self._of_layout(image, image.place)
        if image.transport not in {DOCKERS, OCIS}:
            return image
        found = self._contents(image.place, image.name, image.transport)
        _check_kind(image, found)
        if image.transport == DOCKERS:
            return self._saved(image, found)
        return self._archived(image, found)

    def _kind(self, image: FileImage) -> str:
        """Return the transport of skopeo for what a path has, "" for a root file system."""
        if os.path.isdir(image.path):
            return _kind_of_directory(image)
        if not is_tar(image.path):
            return ""
        found = self._contents(image.path, image.name)
        if found.is_copy and not found.kind:
            hint = "unpack it into a directory, and import that"
            raise UserError(
                "a directory that skopeo made, in an archive", hint, _NO_IMAGE, name=image.name
            )
        if found.is_broken and not found.kind:
            raise _incomplete(image.name)
        return OCIS if _has_another(found, self.arch) else found.kind

    def _contents(self, path: str, name: str, wanted: str = DOCKERS) -> Contents:
        if os.path.isdir(path):
            raise UserError("a directory, not an archive", _DIRECTORY, _NO_IMAGE, name=name)
        found: list[Contents] = []

        def look(archive: tarfile.TarFile) -> None:
            found.append(_looked_at(archive, wanted))
            raise _FoundError

        try:
            self._opened(path, name, look)
        except _FoundError:
            return found[0]
        raise AssertionError

    def _opened(self, path: str, name: str, use: Callable[[tarfile.TarFile], None]) -> None:
        try:
            if not _is_compressed(path):
                with tarfile.open(path, "r:", tarinfo=_Header) as archive:
                    use(archive)
                return
            with self._plain(path) as made:
                file = cast("IO[bytes]", _Readable(made))
                with tarfile.open(fileobj=file, mode="r|", tarinfo=_Header) as archive:
                    use(archive)
        except tarfile.TarError as error:
            message = f"not a complete tar archive: {error}"
            hint = "if it should be one, write or copy it again"
            raise UserError(message, hint, _NO_IMAGE, name=name) from None

    def _plain(self, path: str) -> AbstractContextManager[Stream]:
        total, done = os.path.getsize(path), 0

        def on_read(size: int) -> None:
            nonlocal done
            done += size
            self.listener.far(path, "unpacking", done, total)

        account = self.budget.account(total)
        return layers.plain(layers.LayerFile(path), self.env, on_read, account.take)

    def _saved(self, image: LocalImage, found: Contents) -> LocalImage:
        number = _number_of(image, found.saved)
        plain = os.path.join(self.work, "archive")  # a name without colons
        if _is_compressed(image.place):
            with open(plain, "wb") as out, self._plain(image.place) as stream:
                while piece := stream.some(_PIECE):
                    out.write(piece)
        elif image.chosen or ":" in image.place:
            os.symlink(image.place, plain)
        else:
            return image
        return image._replace(ready=f"{DOCKERS}:{plain}:@{number}")

    def _archived(self, image: LocalImage, found: Contents) -> LocalImage:
        # what skopeo can read is left to it: a site's policy may admit this transport alone
        is_readable = ":" not in image.place and not found.is_unlisted
        index = _parsed(image, found.listed)
        if is_readable and _is_plain(image, index):
            return image._replace(stated=_of_tag(image, index.manifests)[0].digest)
        layout = os.path.join(self.work, "archived")
        self._opened(image.place, image.name, lambda archive: _unpack(archive, layout))
        return self._of_layout(image, layout)

    def _of_layout(self, image: LocalImage, layout: str) -> LocalImage:
        """Return the image for the architecture, in a layout of its own if it must be chosen."""
        text = _index(image, layout)
        index = _parsed(image, text)
        listed = _of_tag(image, index.manifests)
        one = choose(image, listed, self.arch) if len(listed) > 1 else listed[0]
        if layout == image.place and ":" not in layout and _is_plain(image, index):
            _blob(image, layout, one)  # skopeo does not compare
            return image
        described = json.loads(text)["manifests"][index.manifests.index(one)]
        while one.is_index:
            text = _blob(image, layout, one)
            inner = _parsed(image, text)
            one = choose(image, inner.manifests, self.arch)
            described = json.loads(text)["manifests"][inner.manifests.index(one)]
        _blob(image, layout, one)
        described.pop("annotations", None)
        own = os.path.join(self.work, "layout")
        os.mkdir(own)
        os.symlink(os.path.join(layout, "blobs"), os.path.join(own, "blobs"))
        for name, document in (
            ("oci-layout", {"imageLayoutVersion": "1.0.0"}),
            ("index.json", {"schemaVersion": 2, "manifests": [described]}),
        ):
            with open(os.path.join(own, name), "w", encoding="utf-8") as file:
                json.dump(document, file)
        return image._replace(ready=f"{_LAYOUT}:{own}")


_NO_IMAGE = "image-format"
_DIRECTORY = "ce import ./DIR takes a layout, or makes an image of a root file system"


class _Header(tarfile.TarInfo):
    """A header of an archive. Python would read an extended one of any size into memory."""

    # The entry point for subclasses, which types do not have. Newer releases do not call `frombuf`.
    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in EXTENSIONS and self.size > _MOST_EXTENDED:
            raise tarfile.ReadError("an extended header is too long")
        return cast("tarfile.TarInfo", super()._proc_member(archive))  # type: ignore[misc]


class _Readable:
    """A stream as a file for tarfile."""

    def __init__(self, stream: Stream) -> None:
        self.read = stream.take


def _kind_of_directory(image: FileImage) -> str:
    """Return the transport of skopeo for what a directory has, "" for a root file system.

    Raise UserError for what `docker save` writes once it is unpacked, or OSError.
    """

    def beginning(name: str, size: int) -> bytes:
        path = os.path.join(image.path, name)
        if not os.path.isfile(path):
            return b""
        with open(path, "rb") as file:
            return file.read(size)

    has_blobs = os.path.isdir(os.path.join(image.path, "blobs"))
    if has_blobs and all(beginning(name, 1) for name in ("oci-layout", "index.json")):
        return _LAYOUT
    if beginning("version", len(_VERSION)) == _VERSION and beginning("manifest.json", 1):
        return _COPY
    if _saved(beginning("manifest.json", MOST_BESIDE)):
        hint = f"tar -C {shlex.quote(image.path)} -cf FILE.tar . ; then ce import ./FILE.tar"
        raise UserError("what docker save writes, unpacked", hint, _NO_IMAGE, name=image.name)
    return ""


def is_tar(path: str) -> bool:
    """Check whether a file is a tar archive or could be a compressed one. Raise OSError."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        head = file.read(tarfile.BLOCKSIZE)
    if layers.compressor(head):
        return True
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _is_compressed(path: str) -> bool:
    with open(path, "rb") as file:
        return layers.compressor(file.read(16)) != ""


def _looked_at(archive: tarfile.TarFile, wanted: str) -> Contents:
    """Return what an archive holds, which may be both; no more is read once `wanted` is found."""
    found, directories, has_blobs = Contents(), set[str](), False
    small: dict[str, bytes] = {}
    for number, member in enumerate(archive):
        name = os.path.normpath(member.name).lstrip("/")
        most = MOST_BESIDE if name in _LISTS else _SMALL if len(small) < _MOST_SMALL else -1
        if member.isreg() and member.size <= most:
            file = archive.extractfile(member)
            small[name] = file.read() if file else b""
        if name == "manifest.json":
            saved = _saved(small.get(name, b""))
            made_for = [_architecture(small.get(os.path.normpath(one.config))) for one in saved]
            found = found._replace(
                saved=tuple(one.names or () for one in saved), made_for=tuple(made_for)
            )
        if member.isdir():
            directories.add(name)
        elif _OF_LAYOUT.fullmatch(name):
            has_blobs = has_blobs or "/" in name
            is_unlisted = not directories.issuperset(_above(name))
            found = found._replace(is_unlisted=found.is_unlisted or is_unlisted)
        found = found._replace(
            listed=small.get("index.json", b""),
            is_copy=found.is_copy
            or (name == "version" and small.get(name, b"").startswith(_VERSION)),
            is_layout=found.is_layout or (name == "oci-layout" and member.isreg()),
            is_broken=found.is_broken or (member.isreg() and bool(_OF_IMAGES.fullmatch(name))),
        )
        is_layout = found.is_layout and found.listed and has_blobs
        if (found.saved if wanted == DOCKERS else is_layout) or number > _MOST_LOOKED_AT:
            break
    return found


def _above(name: str) -> Iterator[str]:
    """Yield the directories on the way to a member."""
    while name := os.path.dirname(name):
        yield name


def _saved(text: bytes) -> tuple[_Saved, ...]:
    """Return the images in the manifest.json of Docker, () for other JSON."""
    try:
        listed = json.loads(text)
    except ValueError:
        return ()
    if not isinstance(listed, list) or not all(
        isinstance(one, dict) and {"Config", "Layers"} <= one.keys() for one in listed
    ):
        return ()
    try:
        return tuple(map(_Saved.of, listed))
    except MisfitError:
        return ()


def _architecture(configuration: bytes | None) -> str:
    try:
        return Outline.of_json(configuration or b"{}").named
    except MisfitError:
        return ""


def _has_another(found: Contents, arch: str) -> bool:
    """Check whether an archive has Docker's image for another architecture, and a layout of more.

    Docker lists the image for its own host there, and all platforms in index.json.
    """
    if len(found.made_for) != 1 or found.made_for[0] in {"", arch}:
        return False
    try:
        listed = Index.of_json(found.listed).manifests
    except MisfitError:
        return False
    return len(listed) > 1 or any(one.is_index for one in listed)


def _check_kind(image: LocalImage, found: Contents) -> None:
    """Raise UserError if an archive is not of the kind that its user has named."""
    path = image.place
    if (found.saved and image.transport == DOCKERS) or (
        found.is_layout and image.transport == OCIS
    ):
        return
    if found.kind:
        what = "an archive of docker save" if found.saved else "an archive in OCI's format"
        raise UserError(what, f"ce import {found.kind}:{path}", _NO_IMAGE, name=image.name)
    if found.is_broken:
        raise _incomplete(image.name)
    raise UserError(
        "no archive of images: it has neither manifest.json nor oci-layout",
        f"ce import {path} makes an image of a root file system, as docker export writes it",
        _NO_IMAGE,
        name=image.name,
    )


def _incomplete(name: str) -> UserError:
    message = "an incomplete archive of images: it has neither manifest.json nor oci-layout"
    return UserError(message, "write or copy it again", "image-damaged", name=name)


def _number_of(image: LocalImage, saved: Sequence[Sequence[str]]) -> int:
    """Return which image of Docker's archive is meant. Raise UserError with those there are."""
    given = [name for names in saved for name in names]
    names = [
        [name for name in names if given.count(name) == 1] or [f"@{number}"]
        for number, names in enumerate(saved)
    ]
    if not image.chosen:
        if len(saved) == 1:
            return 0
        raise _which(image, f"it has {len(saved)} images:", names)
    number = _NUMBER.fullmatch(image.chosen)
    if number and int(number[1]) < len(saved):
        return int(number[1])
    for is_it in (same_name, lambda name, wanted: name.endswith(f"/{wanted}")):
        fitting = [n for n, one in enumerate(saved) if any(is_it(x, image.chosen) for x in one)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            what = f"it has {len(fitting)} images '{image.chosen}':"
            raise _which(image, what, [names[number] for number in fitting])
    raise _which(image, f"it has no image '{image.chosen}', but", names)


def _of_tag(image: LocalImage, listed: tuple[Descriptor, ...]) -> tuple[Descriptor, ...]:
    """Return the entries of an index for the chosen tag. Raise UserError with those there are."""
    number = _NUMBER.fullmatch(image.chosen)
    if number and int(number[1]) < len(listed):
        return (listed[int(number[1])],)
    images = [one for one in listed if one.is_image]
    tags = list(dict.fromkeys(one.tag for one in images))
    fitting = tuple(one for one in images if image.chosen in {"", one.tag})
    is_platform_said = any(one.place.named for one in images)
    if len({one.digest for one in fitting}) == 1:
        return fitting[:1]  # one image with several tags
    if (len(tags) > 1 and not image.chosen) or (len(fitting) > 1 and not is_platform_said):
        which = f" '{image.chosen}'" if image.chosen else ""
        raise _which(image, f"it has {len(fitting)} images{which}:", _shown(listed))
    if not fitting:
        what = f"it has no image '{image.chosen}', but" if image.chosen else "it has no image"
        raise _which(image, what, _shown(listed))
    return fitting


def _is_plain(image: LocalImage, index: Index) -> bool:
    """Check whether skopeo finds the image: by a tag of its own, or as the only one."""
    same = [one for one in index.manifests if image.chosen in {"", one.tag}]
    return len(same) == 1 and not same[0].is_index


def _shown(listed: Sequence[Descriptor]) -> list[list[str]]:
    """Return how each image of an index is chosen: by its number where no tag is its alone."""
    tags = [one.tag for one in listed]
    return [
        [one.tag if one.tag and tags.count(one.tag) == 1 else f"@{number}"]
        for number, one in enumerate(listed)
        if one.is_image
    ]


def _which(image: LocalImage, what: str, names: Sequence[Sequence[str]]) -> UserError:
    shown = ", ".join(dict.fromkeys(name for one in names for name in one))
    if not shown:
        return UserError("it has no image", see=_NO_IMAGE, name=image.name)
    hint = f"choose one: ce import {image.transport}:{image.place}:{names[-1][0]}"
    return UserError(f"{what} {shown}", hint, _NO_IMAGE, name=image.name)


def _index(image: LocalImage, layout: str) -> bytes:
    path = os.path.join(layout, "index.json")
    try:
        return read_small(path)
    except (FileNotFoundError, NotADirectoryError):
        hint = _DIRECTORY if os.path.isdir(layout) else f"ce import {layout} looks into the file"
        message = "no layout of OCI's: it has no index.json"
        raise UserError(message, hint, _NO_IMAGE, name=image.name) from None


def _blob(image: LocalImage, layout: str, one: Descriptor) -> bytes:
    what = "index" if one.is_index else "manifest"
    path = os.path.join(layout, "blobs", digests.place(valid(one.digest)))
    try:
        text = read_small(path)
    except OSError as error:
        message = f"its {what} is not there: {path}: {reason(error)}"
        raise UserError(message, see="image-damaged", name=image.name) from None
    if not digests.is_of(one.digest, text):
        raise unlike(what, one.digest, image)
    return text


def _parsed(image: LocalImage, text: bytes) -> Index:
    try:
        return Index.of_json(text)
    except MisfitError as error:
        raise UserError(f"its index: {error}", see=_NO_IMAGE, name=image.name) from None


def _unpack(archive: tarfile.TarFile, layout: str) -> None:
    """Write the files of a layout; whatever else an archive has is left out."""
    for member in archive:
        name = os.path.normpath(member.name).lstrip("/")
        is_stored = member.isreg() and not member.issparse()
        file = archive.extractfile(member) if is_stored else None
        if file is None or not _OF_LAYOUT.fullmatch(name):
            continue
        path = os.path.join(layout, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            shutil.copyfileobj(file, out, _PIECE)

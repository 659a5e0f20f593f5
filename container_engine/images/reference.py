"""Parse image names: paths of SquashFS files and references into a registry. Pure."""

from __future__ import annotations

import enum
import os.path
import re
from typing import NamedTuple, TypeAlias

from container_engine.base.errors import UserError
from container_engine.edf.names import SQUASHFS_SUFFIXES

DEFAULT_REGISTRY = "docker.io"
DEFAULT_TAG = "latest"

PODMAN = "podman"
LOCAL_TRANSPORTS = ("oci", "oci-archive", "docker-archive", "dir")
LOCAL_REGISTRY = "localhost"

_FILE_SUFFIXES = (
    *SQUASHFS_SUFFIXES,
    *(f".tar{end}" for end in ("", ".gz", ".zst", ".xz", ".bz2")),
    *(".tgz", ".txz", ".tbz2"),
)
# prefixes that users commonly omit
_UNSAID = ("docker.io/library/", "docker.io/")
_SCHEME = "docker://"
# as Apptainer calls a SIF file in a registry; what is there decides, whatever the name says
_OF_FILES = "oras://"
_PODMAN = "podman://"
# skopeo's names of transports
_PODMANS_STORAGE, _DOCKERS_DAEMON = "containers-storage", "docker-daemon"
_COMPONENT = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*"
    r"|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?"
)


class FileImage(NamedTuple):
    """A SquashFS file, by absolute path. `name` is the text that the user wrote."""

    name: str
    path: str


class RegistryImage(NamedTuple):
    """An image in a registry, identified by `digest` if there is one, else by `tag`.

    `short` is the name without tag and digest if it was written without a registry.
    """

    name: str
    registry: str
    repository: str
    tag: str | None
    digest: str | None
    user: str | None = None
    short: str = ""

    @property
    def origin(self) -> str:
        """Return the source of the image on this host: "", as it comes from a registry."""
        return ""

    @property
    def is_ours(self) -> bool:
        return False

    @property
    def canonical(self) -> str:
        """Return the name that all spellings share: docker.io/library/ubuntu:24.04."""
        version = f"@{self.digest}" if self.digest else f":{self.tag}"
        return f"{self.registry}/{self.repository}{version}"

    @property
    def is_file(self) -> bool:
        """Check whether the name says that it is a SIF file."""
        return self.name.startswith(_OF_FILES)

    @property
    def tagged(self) -> str:
        """Return the name without its digest."""
        return f"{self.registry}/{self.repository}{f':{self.tag}' if self.tag else ''}"

    @property
    def source(self) -> str:
        """Return the name of the image for skopeo."""
        return f"{_SCHEME}{self.canonical}"

    def at(self, digest: str) -> str:
        """Return the name for skopeo of a manifest in the same repository."""
        return f"{_SCHEME}{self.registry}/{self.repository}@{digest}"


class LocalImage(NamedTuple):
    """An image on this host that is not a SquashFS file yet: an archive, a directory, Podman's.

    `place` is an absolute path, or a name in Podman's storage, and `chosen` the tag or name of one
    of several images there. `called` is the name in a store, in the form of
    RegistryImage.canonical. `made_of` is the source of the image if `place` is temporary. `ready`
    is the name for skopeo of what has been made of it, "" if nothing had to be. `stated` is the
    digest that an index says of its manifest, "" for none.
    """

    name: str
    transport: str
    place: str
    digest: str | None = None
    called: str = ""
    made_of: str = ""
    chosen: str = ""
    ready: str = ""
    stated: str = ""

    @property
    def origin(self) -> str:
        """Return the source as valid text, although a path may have any bytes."""
        return os.fsencode(self.made_of or self._place).decode("utf-8", "backslashreplace")

    @property
    def is_ours(self) -> bool:
        """Whether the container engine has just made this image."""
        return self.made_of != ""

    @property
    def _place(self) -> str:
        return f"{self.transport}:{self.place}{f':{self.chosen}' if self.chosen else ''}"

    @property
    def canonical(self) -> str:
        return self.called or self.origin

    @property
    def source(self) -> str:
        """Return the name of the image for skopeo."""
        return self.ready or self._place


def plain_name(image: Imported) -> str:
    """Return the name that the site's rules apply to; from this host it is `localhost/NAME`."""
    if isinstance(image, LocalImage):
        return f"{LOCAL_REGISTRY}/{image.canonical.rpartition('/')[2]}"
    return image.canonical


Imported: TypeAlias = RegistryImage | LocalImage
Reference: TypeAlias = FileImage | RegistryImage


def parse_source(text: str, cwd: str) -> FileImage | Imported:
    """Parse an argument of `ce import` as `parse` does, or as an image that another tool made.

    The latter are oci:DIR[:TAG], oci-archive:FILE[:TAG], docker-archive:FILE[:NAME:TAG], dir:DIR
    and podman://NAME, which skopeo calls containers-storage:NAME. Which part is a file is not
    known here: all of it is the place. Raise UserError.
    """
    if text.startswith(_PODMAN):
        return LocalImage(text, PODMAN, text.removeprefix(_PODMAN))
    transport, colon, place = text.partition(":")
    if colon and transport in LOCAL_TRANSPORTS and place:
        return LocalImage(text, transport, os.path.join(cwd, place))
    if colon and transport == _PODMANS_STORAGE and place:
        return LocalImage(text, PODMAN, place)
    if colon and transport == _DOCKERS_DAEMON and place:
        raise UserError("Docker's daemon is not asked", _saved(place), "image-reference", name=text)
    return parse(text, cwd)


def canonical_name(text: str) -> str:
    """Return the canonical form of a name for an image that does not come from a registry.

    Raise UserError, also for a path or a name with a digest.
    """
    image = parse(text, "/")
    if isinstance(image, FileImage):
        raise _bad(text, "a path, not the name of an image")
    if image.digest is not None:
        raise _bad(text, "a digest follows from the content, it cannot be chosen")
    return image.canonical


def local_name(image: FileImage | LocalImage) -> str:
    """Return the default name of an image from this host: localhost/ and its file's name.

    An image in Podman's storage keeps its name, one that is chosen from an archive of Docker its
    last part. Raise UserError if no name can be derived.
    """
    if isinstance(image, LocalImage) and image.transport == PODMAN:
        is_full = "." in image.place.partition("/")[0] or image.place.startswith(LOCAL_REGISTRY)
        return canonical_name(image.place if is_full else f"{LOCAL_REGISTRY}/{image.place}")
    if isinstance(image, LocalImage) and _has_name(image):
        return canonical_name(f"{LOCAL_REGISTRY}/{image.chosen.rpartition('/')[2]}")
    place = image.path if isinstance(image, FileImage) else image.place
    base = place.rstrip("/").rpartition("/")[2].lower()
    stem = next((base.removesuffix(end) for end in _FILE_SUFFIXES if base.endswith(end)), base)
    try:
        return canonical_name(f"{LOCAL_REGISTRY}/{re.sub('[^a-z0-9._-]+', '-', stem)}")
    except UserError:
        raise UserError(
            "needs a name by which environments can ask for it",
            "for example ce import SOURCE tools:1.0",
            "image-reference",
            name=image.name,
        ) from None


def _has_name(image: LocalImage) -> bool:
    return image.transport == "docker-archive" and image.chosen[:1] not in {"", "@"}


def same_name(one: str, other: str) -> bool:
    """Check whether two names mean the same image, as ubuntu and docker.io/ubuntu:latest."""
    try:
        return canonical_name(one) == canonical_name(other)
    except UserError:
        return one == other


def parse(text: str, cwd: str) -> Reference:
    """Parse `text`, with its variables expanded. Relative paths start at `cwd`.

    Raise UserError for text that is neither a path nor a reference. Nothing is looked up.
    """
    if text.startswith(("/", ".")):
        return FileImage(text, os.path.join(cwd, text.removeprefix("./")))
    return _parse_registry(text)


def _unsupported(text: str, scheme: str) -> UserError:
    error = _bad(text, f"'{scheme}://' is not supported, only '{_SCHEME}' and '{_OF_FILES}'")
    name = text.partition("://")[2]
    if scheme == "dockerd":
        return UserError(error.message, _saved(name), error.see)
    if scheme == "podman":
        hint = f"'ce import podman://{name}' imports it from Podman's storage"
        return UserError(error.message, hint, error.see)
    return error


def _saved(name: str) -> str:
    return f"docker save {name} -o x.tar; then 'ce import docker-archive:x.tar' imports it"


def _parse_registry(text: str) -> RegistryImage:
    rest = text.removeprefix(_SCHEME).removeprefix(_OF_FILES)
    if "://" in rest:
        raise _unsupported(text, rest.partition("://")[0])
    rest, at_digest, digest = rest.partition("@sha256:")
    user, rest = _split_user(text, rest)
    registry, path = _split_registry(text, rest)
    is_short = user is None and path == rest and not text.startswith((_SCHEME, _OF_FILES))
    path, tag = _split_tag(path)
    short = path if is_short else ""
    if registry == "docker.io" and "/" not in path:
        path = f"library/{path}"
    _check(text, registry, path, tag)
    if not at_digest:
        return RegistryImage(text, registry, path, tag or DEFAULT_TAG, None, user, short)
    digest = f"sha256:{digest}"
    if not DIGEST.fullmatch(digest):
        raise _bad(text, f"the digest '{digest}' is not 'sha256:' and 64 hexadecimal digits")
    return RegistryImage(text, registry, path, tag, digest, user, short)


def _split_user(text: str, rest: str) -> tuple[str | None, str]:
    user, at, after = rest.partition("@")
    if not at:
        return None, rest
    if "#" not in after and "/" not in after:
        raise _bad(text, f"'{after}' after the '@' is neither a digest sha256:… nor a registry")
    if not user:
        raise _bad(text, "nothing precedes the '@'")
    return user, after


def _split_registry(text: str, rest: str) -> tuple[str, str]:
    """Return the registry and the remainder of a reference.

    The registry precedes a '#', or is a first component that can only be a host.
    """
    if "#" in rest:
        registry, _hash, path = rest.partition("#")
        path = path.removeprefix("/")  # enroot leaves it out, too
        if not registry:
            raise _bad(text, "nothing precedes the '#'")
    else:
        first, slash, others = rest.partition("/")
        is_host = bool(slash) and ("." in first or ":" in first or first == "localhost")
        registry, path = (first, others) if is_host else (DEFAULT_REGISTRY, rest)
    if not _HOST.fullmatch(registry):
        raise _bad(text, f"'{registry}' is not the name of a registry")
    return plain_host(registry), path


def plain_host(host: str) -> str:
    """Return a registry's host as references have it: in lower case, without the default port.

    The names of Docker Hub's servers, which some users write, become docker.io.
    """
    host = host.lower().removesuffix(":443")
    same = {"index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"}
    return DEFAULT_REGISTRY if host in same else host


def _split_tag(path: str) -> tuple[str, str | None]:
    repository, colon, tag = path.rpartition(":")
    return (repository, tag) if colon and "/" not in tag else (path, None)


def _check(text: str, registry: str, path: str, tag: str | None) -> None:
    if not path:
        raise _bad(text, f"the name of the image is missing after the registry '{registry}'")
    for component in path.split("/"):
        if not _COMPONENT.fullmatch(component):
            raise _bad(text, _why_not_component(component))
    if tag is not None and not _TAG.fullmatch(tag):
        raise _bad(text, f"'{tag}' is not a tag" if tag else "nothing follows the ':'")


def _why_not_component(component: str) -> str:
    if not component:
        return "an empty name between two '/'"
    if component != component.lower() and _COMPONENT.fullmatch(component.lower()):
        return f"'{component}' has upper-case letters, which names in a registry never have"
    return f"'{component}' is not a valid name in a registry"


def _bad(text: str, why: str) -> UserError:
    hint = None
    if text.startswith("~"):
        hint = "'~' is not expanded in an EDF, write ${HOME}"
    elif text.endswith(SQUASHFS_SUFFIXES):
        hint = f"did you mean './{text}'? a path begins with '/' or '.'"
    elif "/" in text and text.partition("/")[0].isupper():
        hint = "a path begins with '/' or '.'"
    whole = why.startswith(f"'{text}' ")
    return UserError(why if whole else f"'{text}': {why}", hint, "image-reference")


def familiar(name: str) -> str:
    """Return the name of a registry's image without the part that users commonly omit."""
    return next((name.removeprefix(text) for text in _UNSAID if name.startswith(text)), name)


class Pull(enum.StrEnum):
    """The rule for looking a name up in its registry although a store has its image."""

    AGE = "age"
    ALWAYS = "always"
    MISSING = "missing"
    NEVER = "never"

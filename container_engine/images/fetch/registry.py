"""Look up images in registries, fetch their blobs, and push, with skopeo, which knows the logins.

skopeo verifies the digests of blobs and of what it copies, but not of a manifest that it only
shows: those are compared here.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from container_engine.base import process
from container_engine.base.errors import CeError, SiteError, UserError
from container_engine.base.model import MisfitError
from container_engine.images import digests
from container_engine.images.fetch import short_names
from container_engine.images.fetch.enroot_logins import has_login
from container_engine.images.fetch.refusal import (
    LIMIT,
    LIMITED,
    TELL_REGISTRY,
    UNCOMPARED,
    limited,
    proxy_of,
    refusal,
)
from container_engine.images.image_files import MOST_BESIDE, read_small
from container_engine.images.reference import Imported, LocalImage, RegistryImage
from container_engine.oci.image import Descriptor, Manifest, Outline

# Errors that a retry does not remove. skopeo has one exit code for all errors, so its messages
# decide; one that is missing here only costs the pauses.
_FINAL = re.compile(
    r"unauthorized|authentication required|denied|forbidden|unknown|not found|\b40[0134]\b|x509"
    r"|no such host|network is unreachable|HTTP response to HTTPS|no space left|quota|policy"
    rf"|unsupported|image rejected|is blocked in|{LIMIT}|{UNCOMPARED}|proxy authentication|\b407\b",
    re.IGNORECASE,
)
# what an expired token leads to; skopeo renews none that is younger than a minute
_EXPIRED = re.compile(r"unauthorized|authentication required|\b401\b", re.IGNORECASE)
_PAUSES = (1.0, 4.0)
_LISTEN_S = 3
_MOST_INDEXES = 8  # in one another, which the specification allows
# what BuildKit pushes for a base of Docker's: no such type is specified, and skopeo copies none
_ZSTD_OF_DOCKER = "application/vnd.docker.image.rootfs.diff.tar.zstd"
# a SIF file, now and as the first releases of ORAS called it
_SIFS = ("application/vnd.sylabs.sif.layer.v1.sif", "appliance/vnd.sylabs.sif.layer.tar")
_SILENT_S = 5.0  # of silence, after which a line names the registry
_SPARE = 8 << 20  # bytes for configuration and manifest
_POLICY = "/etc/containers/policy.json"  # of the distribution's packages of skopeo and Podman
_Result = TypeVar("_Result")


class Wanted(NamedTuple):
    """A blob to fetch."""

    digest: str
    size: int

    @property
    def place(self) -> str:
        """Return its path below a directory of blobs."""
        return digests.place(self.digest)


class Remote(NamedTuple):
    """An image in its registry. `source` is its name for skopeo; `size` is that of the layers.

    `digest` is the digest of `manifest`. `blobs` are the layers, the lowest first. `index_text` is
    the index that led to the manifest, b"" for none; of several each is behind the one above it,
    and a NUL. `is_sif` says that the only layer is a SIF file.
    """

    digest: str
    source: str
    size: int
    blobs: tuple[Wanted, ...]
    manifest: bytes
    config: Wanted | None = None
    index_text: bytes = b""
    is_sif: bool = False


class Fetched(NamedTuple):
    """A fetched image: its configuration, and the paths of its layers, the lowest first."""

    config: bytes
    layers: tuple[str, ...]
    size: int


class Skopeo(NamedTuple):
    """The program skopeo. `env` leads to the user's logins, registries.conf and policy.json.

    `policy` is a file of the site that replaces the user's policy.json; "" for none. `say` prints a
    line when a registry has been silent for a while.
    """

    env: Mapping[str, str]
    look_up_s: float
    copy_s: float
    policy: str = ""
    say: Callable[[str], None] = lambda _message: None

    def look_up(self, image: Imported, arch: str) -> Remote:
        """Return the image of this architecture that the name stands for now. Raise CeError."""
        digest = image.stated if isinstance(image, LocalImage) else image.digest
        text = self._shown(image, image.source, digest)
        document = _parse(image, text)
        source, indexes = image.source, list[bytes]()
        for _level in range(_MOST_INDEXES):
            if document.manifests is None or not isinstance(image, RegistryImage):
                break
            chosen = choose(image, document.manifests, arch).digest
            source = image.at(chosen)
            indexes.append(text)
            text = self._shown(image, source, chosen)
            document = _parse(image, text)
        _check_is_image(image, document)
        digest = _digest(text)
        if isinstance(image, RegistryImage) and source == image.source:
            source = image.at(digest)
        layers = tuple(Wanted(valid(layer.digest), layer.size) for layer in document.layers)
        described = document.config
        config = None if described is None else Wanted(valid(described.digest), described.size)
        if config is not None and config.size > MOST_BESIDE:
            message = f"its configuration is larger than {MOST_BESIDE >> 20} MiB"
            raise UserError(message, see="image-format", name=image.name)
        size = sum(one.size for one in layers)
        is_sif = [layer.media_type in _SIFS for layer in document.layers] == [True]
        return Remote(digest, source, size, layers, text, config, b"\0".join(indexes), is_sif)

    def platforms(self, image: RegistryImage, archs: Sequence[str]) -> dict[str, Remote]:
        """Return what the name stands for now on each of `archs` for which there is an image.

        An image without an index is returned under its own architecture, or under the first of
        `archs` if it states none. Raise CeError.
        """
        text = self._shown(image, image.source, image.digest)
        listed = _parse(image, text).manifests
        # whatever happens to a tag meanwhile, all are of what it stood for now
        image = image._replace(digest=_digest(text))
        if listed is None:
            config = self._shown(image, image.source, None, "--config")
            arch = _platform(image, config).named or archs[0]
            return {arch: self.look_up(image, arch)}
        is_said = all(one.place.named or not one.is_image for one in listed)
        found = {}
        for arch in archs:
            try:
                remote = self.look_up(image, arch)
                if not is_said:
                    check_platform(image, self.configuration(image, remote), arch)
            except UserError as error:
                if error.see != "image-architecture":
                    raise
                continue
            found[arch] = remote
        return found

    def configuration(self, image: Imported, remote: Remote) -> bytes:
        """Return the OCI configuration of an image that was looked up. Raise CeError."""
        digest = None if remote.config is None else remote.config.digest
        return self._shown(image, remote.source, digest, "--config")

    def copy(
        self,
        image: Imported,
        remote: Remote,
        work: str,
        blobs: str,
        on_bytes: Callable[[int], None],
    ) -> Fetched:
        """Fetch an image: the blobs that are missing go to `blobs`, all else to `work`.

        skopeo verifies the digests of fetched blobs. `on_bytes` is called with the number of bytes
        that have arrived. Raise CeError.
        """
        check_place(work)
        layout = os.path.join(work, "oci")
        argv = [*self._skopeo(image), "copy", "--quiet", "--remove-signatures"]
        if isinstance(image, RegistryImage):
            # else skopeo compresses such layers, which then are not what the manifest says
            argv += ["--dest-oci-accept-uncompressed-layers"]
        argv += ["--dest-shared-blob-dir", blobs, remote.source, f"oci:{layout}:image"]
        watch = _Arrival(layout, blobs, remote, on_bytes, self._silence(image))
        ends = time.monotonic() + self.copy_s  # the limit of all tries together

        def attempt() -> None:
            process.watched(argv, self.env, max(ends - time.monotonic(), 1), watch.look)

        try:
            self._run(image, attempt, watch.has_gained)
        except SiteError as error:
            if error.see == "registry-unreachable" and isinstance(image, RegistryImage):
                raise self._unanswered(image, argv, error.reason, error.details) from None
            raise
        fetched = _read(image, layout, blobs)
        if isinstance(image, RegistryImage):
            _check_sizes(image, remote, fetched)
        return fetched

    def refuse_early(self, image: RegistryImage) -> None:
        """Raise CeError if the registry cannot be reached, or wants a login and none is known.

        It need not have the image, and may answer a user whom it knows that it has none.
        """
        try:
            self._ask(image, [*self._skopeo(image), "inspect", "--raw", image.source])
        except CeError as error:
            is_stranger = error.see == "registry-login" and not has_login(image, self.env)
            if error.see == "registry-unreachable" or is_stranger:
                raise

    def push(self, layout: str, image: RegistryImage, on_read: Callable[[int], None]) -> None:
        """Send the image of an OCI layout to its registry, with the digests that it has.

        `on_read` is called with the number of bytes that skopeo has read. Raise CeError.
        """
        # no policy is about a layout that was just written
        argv = ["skopeo", *self._registries, "--insecure-policy", "copy", "--quiet"]
        argv += ["--preserve-digests", f"oci:{layout}", image.source]
        ends = time.monotonic() + self.copy_s  # the limit of all tries together

        def attempt() -> None:
            process.measured(argv, self.env, max(ends - time.monotonic(), 1), on_read)

        try:
            self._run(image, attempt)
        except UserError as error:
            if error.see == "registry-login":
                error.hint = f"ce login {image.registry}, as a user who may push there"
            raise

    def _skopeo(self, image: Imported) -> list[str]:
        if image.is_ours:
            return ["skopeo", "--insecure-policy"]  # just built; its base has been checked
        policy = self.policy or _brought_policy(self.env)
        return ["skopeo", *self._registries, *(["--policy", policy] if policy else [])]

    @property
    def _registries(self) -> list[str]:
        # unlike Podman, skopeo ignores the variable
        chosen = self.env.get(short_names.CHOSEN)
        return ["--registries-conf", chosen] if chosen else []

    def _shown(self, image: Imported, source: str, digest: str | None, *options: str) -> bytes:
        """Return what skopeo shows of `source`: by default its manifest or index.

        Raise UserError if it has another digest than `digest`, if any.
        """
        text = self._ask(image, [*self._skopeo(image), "inspect", "--raw", *options, source])
        if digest and not digests.is_of(valid(digest), text):
            if isinstance(image, LocalImage):
                raise unlike("manifest", digest, image)
            raise UserError(
                f"the registry answers with {_digest(text)} where {digest} was asked for",
                TELL_REGISTRY,
                "image-damaged",
                name=image.name,
            )
        return text

    def _ask(self, image: Imported, argv: Sequence[str]) -> bytes:
        silence = self._silence(image)

        def attempt() -> bytes:
            with silence.told():
                return process.output(argv, self.env, silence.limit_s)

        try:
            return self._run(image, attempt)
        except SiteError as error:
            if error.see != "program-slow" or not isinstance(image, RegistryImage):
                raise
            message = f"{image.registry} did not answer within {self.look_up_s:g} s"
            raise self._unanswered(image, argv, message, error.details) from None

    def _silence(self, image: Imported) -> _Silence:
        registry = image.registry if isinstance(image, RegistryImage) else ""
        return _Silence(image.name, registry, self.look_up_s, self.say)

    def _unanswered(
        self, image: RegistryImage, argv: Sequence[str], message: str, details: str
    ) -> CeError:
        """Return the error for a registry that was silent: its limit, or the way to it."""
        if self._is_limited(argv):
            return limited(image)
        proxy, see = proxy_of("https", image.registry, self.env), "registry-unreachable"
        way = proxy.words if proxy else ""
        return SiteError(f"{message}{way}", see=see, details=details, name=image.name)

    def _is_limited(self, argv: Sequence[str]) -> bool:
        """Return whether skopeo waits because the registry allows no more requests for now.

        It does so for as long as the registry says, up to minutes, and tells it only where it tells
        everything it does.
        """
        try:
            process.output([argv[0], "--debug", *argv[1:]], self.env, _LISTEN_S)
        except CeError as error:
            return LIMITED.search(error.details) is not None
        return False

    def _run(
        self,
        image: Imported,
        program: Callable[[], _Result],
        has_gained: Callable[[], bool] = lambda: False,
    ) -> _Result:
        """Run a program, again if that may help: skopeo 1.9 gives up at an HTTP error 500.

        `has_gained` says whether blobs were completed since it was asked last: then the next try
        begins where this one ended, with a new token, and is as good as the first.
        """
        pauses = list(_PAUSES)
        while True:
            try:
                return program()
            except process.CommandError as error:
                if has_gained():
                    pauses = list(_PAUSES)
                    if _EXPIRED.search(error.stderr):
                        continue
                if not pauses or _FINAL.search(error.stderr):
                    raise refusal(image, error, self.policy, self.env) from None
            time.sleep(pauses.pop(0))


class _Silence(NamedTuple):
    """The silence of a registry, "" for none: how long it may last, and what prints it.

    skopeo waits without a word, also for as long as the registry asks it to.
    """

    name: str
    registry: str
    limit_s: float
    say: Callable[[str], None]

    def tell(self, left_s: float) -> None:
        if self.registry:
            until = time.strftime("%H:%M:%S", time.localtime(time.time() + left_s))
            limit = f"{until} at the latest (the site's registry_timeout_s, {self.limit_s:g} s)"
            self.say(f"{self.name}: waiting for {self.registry}, until {limit}")

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Tell of it while the body lasts."""
        timer = threading.Timer(_SILENT_S, self.tell, [self.limit_s - _SILENT_S])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


class _Arrival:
    """A watch over growing blobs, which gives up if the registry sends nothing, or too much."""

    def __init__(
        self,
        layout: str,
        blobs: str,
        remote: Remote,
        on_bytes: Callable[[int], None],
        silence: _Silence,
    ) -> None:
        self._layout, self._on_bytes, self._silence = layout, on_bytes, silence
        self._is_told = False
        self._paths = [os.path.join(blobs, blob.place) for blob in remote.blobs]
        # the sizes are as announced, unless skopeo compresses an image from this host again
        self._most = remote.size + _SPARE if remote.source.startswith("docker://") else None
        self._last, self._since = -1, time.monotonic()
        self._whole = self._count()

    def has_gained(self) -> bool:
        """Return whether blobs were completed since the last call."""
        before, self._whole = self._whole, self._count()
        return self._whole > before

    def _count(self) -> int:
        return sum(map(os.path.exists, self._paths))

    def look(self) -> None:
        size = sum(map(_size_of, self._paths)) + self._drafts()
        if self._most is not None and size > self._most:
            raise UserError("the registry sends more than it announced", see="image-damaged")
        if size != self._last:
            self._last, self._since, self._is_told = size, time.monotonic(), False
            self._on_bytes(size)
            return
        silent_s, limit_s = time.monotonic() - self._since, self._silence.limit_s
        if silent_s > limit_s:
            message = f"the registry has sent nothing for {limit_s:g} s"
            raise SiteError(message, see="registry-unreachable")
        if silent_s > _SILENT_S and not self._is_told:
            self._is_told = True
            self._silence.tell(limit_s - silent_s)

    def _drafts(self) -> int:
        try:
            with os.scandir(self._layout) as entries:
                return sum(_size_of(e.path) for e in entries if e.name.startswith("oci-put-blob"))
        except OSError:
            return 0


def check_place(work: str) -> None:
    """Raise UserError for a directory in whose place skopeo would write into another one."""
    if ":" in work:
        hint = "choose another place: EDF_IMAGESTORE=DIRECTORY, or ce import -o FILE"
        message = "skopeo cannot write below a path with a colon"
        raise UserError(message, hint, "store-unusable", name=work)


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def choose(image: Imported, listed: tuple[Descriptor, ...], arch: str) -> Descriptor:
    """Return the entry of an index for Linux on this architecture. Raise UserError for none."""
    linux = [one for one in listed if one.is_image and one.place.system == "linux"]
    fitting = [one for one in linux if one.place.named == arch]
    if not fitting:
        unsaid = [one for one in linux if not one.place.named]
        images = [one for one in listed if one.is_image]
        if images != unsaid or len(unsaid) != 1:
            known = ", ".join(sorted({one.place.shown for one in images} - {""}))
            message = f"not available for {arch}"
            message += f", only for {known}" if known else ", its index names no architecture"
            raise UserError(message, see="image-architecture", name=image.name)
        fitting = unsaid
    # the lowest variant runs on most machines of the architecture: v1 of amd64, v8 of arm64
    return min(fitting, key=lambda one: one.place.variant or "")


def _check_is_image(image: Imported, document: Manifest) -> None:
    """Raise UserError for what cannot be copied, before anything of it is downloaded."""
    if document.manifests is not None and isinstance(image, RegistryImage):
        message = f"more than {_MOST_INDEXES} indexes that lead to one another"
        raise UserError(message, see="image-format", name=image.name)
    if any(layer.media_type == _ZSTD_OF_DOCKER for layer in document.layers):
        raise UserError(
            "its layers are compressed with zstd in a Docker manifest, which knows only gzip",
            "have it pushed as OCI: docker buildx build --output type=image,oci-mediatypes=true",
            "image-format",
            name=image.name,
        )


def _check_sizes(image: Imported, remote: Remote, fetched: Fetched) -> None:
    """Raise UserError for a layer that is not as large as its manifest says.

    Its digest is right, but limits were compared with a false size.
    """
    for blob, path in zip(remote.blobs, fetched.layers, strict=True):
        size = _size_of(path)
        if size != blob.size:
            message = f"layer {blob.digest} has {size} bytes, its manifest says {blob.size}"
            raise UserError(message, see="image-damaged", name=image.name)


def _read(image: Imported, layout: str, blobs: str) -> Fetched:
    index = _parse(image, read_small(os.path.join(layout, "index.json")))
    listed = index.manifests or ()
    manifest = _parse(image, _blob(blobs, listed[0]))
    if manifest.config is None:
        raise _artifact(image)
    config = _blob(blobs, manifest.config)
    layers = tuple(os.path.join(blobs, digests.place(valid(one.digest))) for one in manifest.layers)
    return Fetched(config, layers, sum(one.size for one in manifest.layers))


def check_platform(image: Imported, config: bytes, arch: str) -> None:
    """Raise UserError if a configuration is for another operating system or architecture.

    One that names none, or one that nobody knows, is accepted: builders forget it or write
    `noarch`, and what is inside says it in the end.
    """
    found = _platform(image, config)
    if not any((found.architecture, found.os, found.rootfs, found.config)):
        raise _artifact(image)
    if found.system == "linux" and found.named in {"", arch}:
        return
    if found.system == "linux":
        message = f"made for {found.named}, {arch} is needed"
    else:
        message = f"made for {found.shown}, linux/{arch} is needed"
    raise UserError(message, see="image-architecture", name=image.name)


def doubt(image: Imported, config: bytes, arch: str) -> str:
    """Return a warning if a configuration names no known architecture, else "".

    Raise UserError.
    """
    found = _platform(image, config)
    if found.named:
        return ""
    names = f"an unknown architecture, {found.word!r}" if found.is_told else "no architecture"
    return f"{image.name}: its configuration names {names}, taken for {arch}"


def _platform(image: Imported, config: bytes) -> Outline:
    try:
        return Outline.of_json(config)
    except MisfitError:
        raise _artifact(image) from None


def unlike(what: str, digest: str, image: LocalImage) -> UserError:
    """Return the error for a document of a layout that does not have the digest of its index."""
    message = f"its {what} does not match its digest {digest}"
    return UserError(message, "copy or make it again", "image-damaged", name=image.name)


def _artifact(image: Imported) -> UserError:
    hint = f"if ce push --environment sent it: ce init NAME --from {image.name}"
    return UserError("an artifact, not an image", hint, "image-format", name=image.name)


def _brought_policy(env: Mapping[str, str]) -> str:
    """Return the policy.json of a bundle, which accepts all, if the host and the user have none."""
    brought = f"{sys.prefix}/lib/bundle/policy.json"
    own = os.path.join(env.get("HOME") or "/", ".config/containers/policy.json")
    if not os.path.exists(brought) or any(map(os.path.exists, (own, _POLICY))):
        return ""
    return brought


def _blob(blobs: str, blob: Descriptor) -> bytes:
    return small_blob(os.path.join(blobs, digests.place(valid(blob.digest))))


def small_blob(path: str) -> bytes:
    """Return the content of a manifest or configuration file, whose name is its digest.

    Raise OSError, or UserError for a file with another digest, which is removed.
    """
    text = read_small(path)
    if not digests.is_of(digests.of_place(path), text):
        os.unlink(path)
        message = "does not match its digest"
        raise UserError(message, "it was removed; try again", "image-damaged", where=path)
    return text


def _parse(image: Imported, text: bytes) -> Manifest:
    try:
        return Manifest.of_json(text)
    except MisfitError as error:
        raise UserError(
            f"neither an OCI image nor a Docker image of schema 2: {error}",
            see="image-format",
            name=image.name,
        ) from None


def _digest(text: bytes) -> str:
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


def valid(digest: str) -> str:
    """Return an untrusted digest. Raise UserError unless it is one that can be compared."""
    if not digests.is_digest(digest):
        raise UserError(f"'{digest}' is neither a SHA-256 nor a SHA-512 digest", see="image-format")
    return digest

"""What a registry has under a name, and its blobs: skopeo does the work and knows the logins."""

from __future__ import annotations

import hashlib
import os
import re
import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from container_engine import process
from container_engine.errors import CeError, SiteError, UserError
from container_engine.images.fetch import short_names
from container_engine.images.reference import RegistryImage
from container_engine.images.store.beside import MOST, small
from container_engine.validation_text import first_misfit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from container_engine.images.reference import Imported

_FATAL = re.compile(r'level=fatal msg="(.*)"')
# skopeo's exit code is the same for everything, so its words decide; one that is missing here only
# costs the pauses
_FINAL = re.compile(
    r"unauthorized|authentication required|denied|forbidden|unknown|not found|\b40[0134]\b|x509"
    r"|no such host|no space left|quota|policy|unsupported",
    re.IGNORECASE,
)
_REJECTED = re.compile(r"source image rejected|rejected by policy", re.IGNORECASE)
_CODES = tuple(
    (re.compile(words, re.IGNORECASE), code)
    for words, code in (
        (_REJECTED.pattern, "image-policy"),
        (r"unauthorized|authentication required|\b40[13]\b|denied|forbidden", "registry-login"),
        (r"unknown|not found|\b404\b", "image-unknown"),
        (r"no space left|quota", "store-full"),
        (r"unsupported", "image-format"),
    )
)
# the name is neither parsed then nor at fault
_PREAMBLE = re.compile(r'^Error (?:parsing image name|initializing source) "?[^" ]*"?: ')
_PAUSES = (1.0, 4.0)
_SPARE = 8 << 20  # configuration and manifest
_Result = TypeVar("_Result")


class Wanted(NamedTuple):
    """A blob, by its digest in hexadecimal."""

    name: str
    size: int


class Remote(NamedTuple):
    """One image as its registry has it. `source` names it for skopeo; `size` is of the layers.

    `manifest` is what `digest` is the digest of. `blobs` are the layers, the lowest first.
    """

    digest: str
    source: str
    size: int
    blobs: tuple[Wanted, ...]
    manifest: bytes
    config: Wanted | None = None


class Fetched(NamedTuple):
    """An image as blobs in files, the lowest layer first."""

    config: bytes
    layers: tuple[str, ...]
    size: int


class _Blob(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    digest: str
    size: int = Field(ge=0)


class _Platform(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    architecture: str = ""
    os: str = "linux"
    variant: str = ""


class _Listed(_Blob):
    platform: _Platform = _Platform()


class _Document(BaseModel):
    """What manifests and indexes of OCI and Docker (schema 2) have in common."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    config: _Blob | None = None
    layers: tuple[_Blob, ...] = ()
    manifests: tuple[_Listed, ...] | None = None


class Skopeo(NamedTuple):
    """`env` is the user's: login state, registries.conf and policy.json all count.

    `policy` is a file of the site's in place of the user's policy.json; "" for none.
    """

    env: Mapping[str, str]
    look_up_s: float
    copy_s: float
    policy: str = ""

    def look_up(self, image: Imported, arch: str) -> Remote:
        """The image of this architecture that the name stands for now. Raises CeError."""
        text = self._manifest(image, image.source)
        document = _parse(image, text)
        source = image.source
        if document.manifests is not None and isinstance(image, RegistryImage):
            source = image.at(_choose(image, document.manifests, arch))
            text = self._manifest(image, source)
            document = _parse(image, text)
        digest = f"sha256:{hashlib.sha256(text).hexdigest()}"
        if isinstance(image, RegistryImage):
            source = image.at(digest)
        layers = tuple(Wanted(_hex(layer.digest), layer.size) for layer in document.layers)
        described = document.config
        config = None if described is None else Wanted(_hex(described.digest), described.size)
        if config is not None and config.size > MOST:
            message = f"'{image.name}': its configuration is larger than {MOST >> 20} MiB"
            raise UserError(message, see="image-format")
        return Remote(digest, source, sum(one.size for one in layers), layers, text, config)

    def platforms(self, image: RegistryImage, archs: Sequence[str]) -> dict[str, Remote]:
        """What the name stands for now on those of the architectures that it is made for.

        Raises CeError.
        """
        document = _parse(image, self._manifest(image, image.source))
        if document.manifests is None:
            argv = [*self._skopeo(image), "inspect", "--raw", "--config", image.source]
            arch = _platform(image, self._ask(image, argv)).architecture
            return {arch: self.look_up(image, arch)}
        made = {one.platform.architecture for one in document.manifests}
        return {arch: self.look_up(image, arch) for arch in archs if arch in made}

    def configuration(self, image: Imported, remote: Remote) -> bytes:
        """The OCI configuration of what was looked up. Raises CeError."""
        return self._ask(
            image, [*self._skopeo(image), "inspect", "--raw", "--config", remote.source]
        )

    def copy(
        self,
        image: Imported,
        remote: Remote,
        work: str,
        blobs: str,
        on_bytes: Callable[[int], None],
    ) -> Fetched:
        """The blobs of an image in `blobs`, without those that were there; the rest in `work`.

        skopeo verifies their digests. `on_bytes` hears how much has arrived. Raises CeError.
        """
        layout = os.path.join(work, "oci")
        os.makedirs(os.path.join(blobs, "sha256"), exist_ok=True)
        argv = [*self._skopeo(image), "copy", "--quiet", "--remove-signatures"]
        argv += ["--dest-shared-blob-dir", blobs, remote.source, f"oci:{layout}:image"]
        watch = _Arrival(layout, os.path.join(blobs, "sha256"), remote, on_bytes, self.look_up_s)
        ends = time.monotonic() + self.copy_s  # of all tries together

        def attempt() -> None:
            process.watched(argv, self.env, max(ends - time.monotonic(), 1), watch.look)

        self._run(image, attempt)
        return _read(image, layout, blobs)

    def _skopeo(self, image: Imported) -> list[str]:
        if image.is_ours:
            return ["skopeo", "--insecure-policy"]  # just built; its base has been judged
        chosen = self.env.get(short_names.CHOSEN)
        return [
            "skopeo",
            # unlike Podman it does not know the variable
            *(["--registries-conf", chosen] if chosen else []),
            *(["--policy", self.policy] if self.policy else []),
        ]

    def _manifest(self, image: Imported, source: str) -> bytes:
        return self._ask(image, [*self._skopeo(image), "inspect", "--raw", source])

    def _ask(self, image: Imported, argv: Sequence[str]) -> bytes:
        try:
            return self._run(image, lambda: process.output(argv, self.env, self.look_up_s))
        except SiteError as error:
            if error.see != "program-slow" or not isinstance(image, RegistryImage):
                raise
            message = f"'{image.name}': {image.registry} did not answer within {self.look_up_s:g} s"
            raise SiteError(message, see="registry-unreachable", details=error.hint or "") from None

    def _run(self, image: Imported, program: Callable[[], _Result]) -> _Result:
        """Again, if that may help: skopeo 1.9 itself gives up at the first 500."""
        for pause in (*_PAUSES, None):
            try:
                return program()
            except process.CommandError as error:
                if pause is None or _FINAL.search(error.stderr):
                    raise _refusal(image, error, self.policy) from None
            time.sleep(pause)
        raise AssertionError


class _Arrival:
    """Sees blobs grow; gives up on a registry that sends nothing any more."""

    def __init__(
        self,
        layout: str,
        blobs: str,
        remote: Remote,
        on_bytes: Callable[[int], None],
        silence_s: float,
    ) -> None:
        self._layout, self._on_bytes, self._silence_s = layout, on_bytes, silence_s
        self._paths = [os.path.join(blobs, blob.name) for blob in remote.blobs]
        # as they were announced; from this host, skopeo compresses what was not, or not so well
        self._most = remote.size + _SPARE if remote.source.startswith("docker://") else None
        self._last, self._since = -1, time.monotonic()

    def look(self) -> None:
        size = sum(map(_size_of, self._paths)) + self._drafts()
        if self._most is not None and size > self._most:
            raise UserError("the registry sends more than it announced", see="image-damaged")
        if size != self._last:
            self._last, self._since = size, time.monotonic()
            self._on_bytes(size)
        elif time.monotonic() - self._since > self._silence_s:
            message = f"the registry has sent nothing for {self._silence_s:g} s"
            raise SiteError(message, see="registry-unreachable")

    def _drafts(self) -> int:
        try:
            with os.scandir(self._layout) as entries:
                return sum(_size_of(e.path) for e in entries if e.name.startswith("oci-put-blob"))
        except OSError:
            return 0


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _choose(image: RegistryImage, listed: tuple[_Listed, ...], arch: str) -> str:
    fitting = [
        one for one in listed if (one.platform.architecture, one.platform.os) == (arch, "linux")
    ]
    if not fitting:
        known = sorted({one.platform.architecture for one in listed} - {"", "unknown"})
        message = f"'{image.name}': not made for {arch}, only for {', '.join(known)}"
        raise UserError(message, see="image-architecture")
    # the plain one runs on every machine of the kind
    return min(fitting, key=lambda one: one.platform.variant not in {"", "v8"}).digest


def _read(image: Imported, layout: str, blobs: str) -> Fetched:
    index = _parse(image, small(os.path.join(layout, "index.json")))
    listed = index.manifests or ()
    manifest = _parse(image, _blob(blobs, listed[0]))
    if manifest.config is None:
        raise UserError(f"'{image.name}': an artifact, not an image", see="image-format")
    config = _blob(blobs, manifest.config)
    layers = tuple(os.path.join(blobs, "sha256", _hex(one.digest)) for one in manifest.layers)
    return Fetched(config, layers, sum(one.size for one in manifest.layers))


def check_platform(image: Imported, config: bytes, arch: str) -> None:
    """Raises UserError for a configuration of another system or kind of processor."""
    found = _platform(image, config)
    if (found.os, found.architecture) == ("linux", arch):
        return
    system = "" if found.os == "linux" else f"{found.os}/"
    raise UserError(
        f"'{image.name}': made for {system}{found.architecture}, wanted is {arch}",
        see="image-architecture",
    )


def _platform(image: Imported, config: bytes) -> _Platform:
    try:
        return _Platform.model_validate_json(config)
    except ValidationError:
        raise UserError(f"'{image.name}': an artifact, not an image", see="image-format") from None


def _blob(blobs: str, blob: _Blob) -> bytes:
    return small_blob(os.path.join(blobs, "sha256", _hex(blob.digest)))


def small_blob(path: str) -> bytes:
    """A manifest or configuration, whose name is its digest. Raises UserError or OSError."""
    text = small(path)
    if hashlib.sha256(text).hexdigest() != os.path.basename(path):
        os.unlink(path)
        message = f"{path}: not what its digest says"
        raise UserError(message, "it was removed, try again", "image-damaged")
    return text


def _parse(image: Imported, text: bytes) -> _Document:
    try:
        return _Document.model_validate_json(text)
    except ValidationError as error:
        raise UserError(
            f"'{image.name}': neither an OCI image nor a Docker image of schema 2: "
            f"{first_misfit(_Document, error)}",
            see="image-format",
        ) from None


def _hex(digest: str) -> str:
    """The digest came from outside: it must be no path."""
    name = digest.partition(":")[2]
    if not name.isalnum():
        raise UserError(f"'{digest}' is not a digest", see="image-format")
    return name


def _refusal(image: Imported, error: process.CommandError, policy: str) -> CeError:
    """skopeo's last message without the form of its log and what it has only to say first."""
    found = _FATAL.findall(error.stderr)
    text = found[-1] if found else error.message
    text = _PREAMBLE.sub("", text.replace('\\"', '"').replace("\\n", "; "))
    see = next((code for pattern, code in _CODES if pattern.search(text)), "registry-unreachable")
    hint = None if isinstance(image, RegistryImage) else error.hint
    if isinstance(image, RegistryImage) and see == "registry-login":
        hint = f"ce login {image.registry}"
    if policy and _REJECTED.search(text):
        hint = f"the site's policy.signature_policy is {policy}"
    details = f"{error.hint}\n{error.stderr}"
    return UserError(f"'{image.name}': {text}", hint, see, details=details)

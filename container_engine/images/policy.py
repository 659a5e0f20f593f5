"""The site's rules on the names and sizes of images, and on what they unpack to.

A small archive can hold terabytes of zeros or endless names.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.toml_positions import place_of
from container_engine.images.reference import (
    FileImage,
    Imported,
    LocalImage,
    Reference,
    plain_host,
    plain_name,
)

if TYPE_CHECKING:
    from container_engine.site.model import Policy

_TIMES = 20  # text is compressed by this factor; programs and data are compressed less
_BYTES_PER_ENTRY, _ENTRIES = 4096, 1_000_000  # the names are in memory while an image is packed
# what a site allows at the least that says nothing
_UNSAID, _UNSAID_ENTRIES = 5 << 30, 10_000_000
_LARGER = "a site that wants larger images sets max_image_size"


class Budget(NamedTuple):
    """The size that the site allows for an image, None for any; `refusal` makes the error."""

    most: int | None
    refusal: Callable[[str], UserError]

    def account(self, size: int = 0) -> Account:
        """Return an account for layers of `size` bytes."""
        if self.most is not None:
            return Account(self.most, _ENTRIES, self.refusal, "that")
        packed = max(size, _UNSAID)
        return Account(packed, _UNSAID_ENTRIES, _too_much, f"{packed >> 20} MiB")


def _too_much(why: str) -> UserError:
    return UserError(why, _LARGER, "image-policy")


UNLIMITED = Budget(None, UserError)


class Account:
    """The amount unpacked of one image. Both methods raise UserError beyond the budget.

    Layers of `packed` bytes, which messages call `called`, and `entries` files are allowed.
    """

    def __init__(
        self, packed: int, entries: int, refusal: Callable[[str], UserError], called: str
    ) -> None:
        self._most = _TIMES * packed
        self._most_entries = max(packed // _BYTES_PER_ENTRY, entries)
        self._refusal, self._called = refusal, called
        self._bytes = self._entries = 0

    def take(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._most:
            raise self._refusal(f"its layers unpack to more than {_TIMES} times {self._called}")

    def enter(self, holes: int = 0) -> None:
        """Count an entry, which has `holes` bytes more than the archive."""
        self.take(holes)
        self._entries += 1
        if self._entries > self._most_entries:
            raise self._refusal(f"its layers have more than {self._most_entries} files")


_SIZE = re.compile(r"(\d+)([KMGT]?)", re.IGNORECASE)
_HINT = "the site decides which images may be used; ask its support"


class Rules(NamedTuple):
    """The site's policy from the file `source`, or for single keys from the files in `origins`."""

    policy: Policy
    source: str
    origins: Mapping[str, str] = MappingProxyType({})

    def admit(self, image: Reference | LocalImage) -> None:
        """Raise UserError, with the rule, for a name that the site does not allow."""
        shown = image.name
        names = _names(image)
        denied = first_match(self.policy.denied_images, names)
        if denied is not None:
            counts = _counts_as(image)
            for_what = f"; it {counts}" if counts else ""
            raise self.refusal("denied_images", f"'{denied}' forbids '{shown}'{for_what}")
        is_file = isinstance(image, FileImage)
        allowed = [p for p in self.policy.allowed_images if p.startswith("/") == is_file]
        if allowed and first_match(allowed, names) is None:
            patterns = ", ".join(f"'{pattern}'" for pattern in allowed)
            counts = _counts_as(image)
            which = f"{counts}, which " if counts else ""
            raise self.refusal("allowed_images", f"'{shown}' {which}matches none of {patterns}")

    def admit_local(self, image: Imported) -> None:
        """Raise UserError as `admit` does, for an image from this host."""
        self.admit(LocalImage(image.name, "local", image.canonical))

    def admit_place(self, name: str, path: str | None, stores: Sequence[str]) -> None:
        """Raise UserError if the image must be in the site's stores or lists, but is not."""
        digests = self.policy.image_digests
        if not self.restricts_images:
            return
        # the node refuses a path with `..` as well (node/start/site_rules.py)
        place = path if path is not None and posixpath.normpath(path) == path else ""
        if not any(place.startswith(f"{store.rstrip('/')}/") for store in stores):
            known = ", ".join(f"'{store}'" for store in stores)
            where = f"no store of the site's: {known}" if known else "no store: the site has none"
            rule = "site_images_only" if self.policy.site_images_only else "image_digests"
            raise self.refusal(rule, f"'{name}' is in {where}")
        if digests and not any(f"/{digest.replace(':', '-')}-" in place for digest in digests):
            raise self.refusal("image_digests", f"'{name}' is not one of the listed images")

    @property
    def restricts_images(self) -> bool:
        """Whether images must come from the site's stores."""
        return self.policy.site_images_only or bool(self.policy.image_digests)

    def admit_size(self, name: str, size: int) -> None:
        """Raise UserError if an image has more bytes than the site allows."""
        limit = bytes_of(self.policy.max_image_size)
        if limit is not None and size > limit:
            shown = f"'{name}' has {size / (1 << 20):.0f} MiB"
            raise self.refusal("max_image_size", f"{self.policy.max_image_size}: {shown}")

    def signer(self, name: str, path: str, env: Mapping[str, str]) -> str:
        """Return the key that has signed a SIF file; "" for another file, or without a rule.

        Raise UserError if the site has keys, and none of them has; SiteError or OSError.
        """
        keys = self.policy.sif_keys
        if not keys:
            return ""
        from container_engine.images.sif_signature import signer  # its models are for this alone

        try:
            return signer(path, keys, env)
        except UserError as error:
            if error.see != "image-policy":
                raise
            raise self.refusal("sif_keys", f"'{name}': {error.reason}") from None

    def budget(self) -> Budget:
        """Return the limit on what an image may unpack to."""
        text = self.policy.max_image_size
        return Budget(bytes_of(text), lambda why: self.refusal("max_image_size", f"{text}: {why}"))

    def refusal(self, key: str, why: str) -> UserError:
        where = place_of(self.origins.get(f"policy.{key}", self.source), ("policy", key))
        see = "image-scan" if key == "scanner" else "image-policy"
        return UserError(why, _HINT, see, where=where, key=f"policy.{key}")


def bytes_of(text: str) -> int | None:
    """Return the number of bytes in "500M" or "50G", or None if `text` is not a size."""
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    return int(match[1]) << (10 * " KMGT".index(match[2].upper() or " "))


def _names(image: Reference | LocalImage) -> tuple[str, ...]:
    """Return the names that a pattern may match: a file, or a repository and an image in it."""
    if isinstance(image, FileImage):
        return (image.path,)
    if isinstance(image, LocalImage):
        name = plain_name(image)
        return (name.partition(":")[0], name)
    return (f"{image.registry}/{image.repository}", image.canonical)


def _counts_as(image: Reference | LocalImage) -> str:
    """Return, in words, the name by which an image from this host is judged; "" if it is its own.

    What it is called says nothing: anybody can give an image the name of another registry.
    """
    if not isinstance(image, LocalImage):
        return ""
    name = plain_name(image)
    if name in {image.name, f"{image.name}:latest"}:
        return ""
    return f"is from this host and counts as '{name}'"


def first_match(patterns: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the first pattern that matches one of the names or a directory above it."""
    for pattern in patterns:
        for form in {pattern, _with_plain_host(pattern)}:
            below = f"{form.rstrip('/')}/*"
            if any(fnmatchcase(name, form) or fnmatchcase(name, below) for name in names):
                return pattern
    return None


def _with_plain_host(pattern: str) -> str:
    """Return the pattern with its host in the form that references have (`plain_host`)."""
    host, slash, rest = pattern.partition("/")
    port = host.rpartition(":")[2]
    if not slash and port != host and not port.isdigit():
        return pattern  # a tag
    return f"{plain_host(host)}{slash}{rest}"

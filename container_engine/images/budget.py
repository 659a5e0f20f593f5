"""Limit what an image unpacks to: a small archive can hold terabytes of zeros or endless names."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from container_engine.base.errors import UserError

_TIMES = 20  # text is compressed by this factor; programs and data are compressed less
_BYTES_PER_ENTRY, _ENTRIES = 4096, 1_000_000  # the names are in memory while an image is packed
# what a site allows at the least that says nothing
_UNSAID, _UNSAID_ENTRIES = 5 << 30, 10_000_000
_HINT = "a site that wants larger images sets max_image_size"


class Budget(NamedTuple):
    """The size that the site allows for an image, None for any; `refusal` makes the error."""

    most: int | None
    refusal: Callable[[str], UserError]

    def account(self, size: int = 0) -> Account:
        """Return an account for layers of `size` bytes."""
        if self.most is not None:
            return Account(self.most, _ENTRIES, self.refusal, "that")
        packed = max(size, _UNSAID)
        return Account(packed, _UNSAID_ENTRIES, _refusal, f"{packed >> 20} MiB")


def _refusal(why: str) -> UserError:
    return UserError(why, _HINT, "image-policy")


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

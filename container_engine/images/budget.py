"""Limit what an image unpacks to: a small archive can hold terabytes of zeros or endless names."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from container_engine.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

_TIMES = 20  # text is compressed by this factor; programs and data are compressed less
_BYTES_PER_ENTRY, _ENTRIES = 4096, 1_000_000  # the names are in memory while an image is packed


class Budget(NamedTuple):
    """The size that the site allows for an image, None for any; `refusal` makes the error."""

    most: int | None
    refusal: Callable[[str], UserError]

    def account(self) -> Account:
        return Account(self)


UNLIMITED = Budget(None, UserError)


class Account:
    """The amount unpacked of one image. Both methods raise UserError beyond the budget."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._bytes = self._entries = 0

    def take(self, size: int) -> None:
        self._bytes += size
        most = self._budget.most
        if most is not None and self._bytes > _TIMES * most:
            raise self._budget.refusal(f"its layers unpack to more than {_TIMES} times that")

    def enter(self) -> None:
        self._entries += 1
        most = self._budget.most
        if most is None:
            return
        allowed = max(most // _BYTES_PER_ENTRY, _ENTRIES)
        if self._entries > allowed:
            raise self._budget.refusal(f"its layers have more than {allowed} files")

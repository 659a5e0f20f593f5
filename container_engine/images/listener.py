"""The interface by which an import reports its progress. Pure."""

from __future__ import annotations

from typing import Protocol


class Listener(Protocol):
    """Shows the progress of an import to the user."""

    def say(self, message: str) -> None: ...

    def far(self, name: str, doing: str, done: int, total: int) -> None:
        """Show that `done` of `total` bytes are done."""


class Quiet:
    """A listener that shows nothing."""

    def say(self, message: str) -> None:
        pass

    def far(self, name: str, doing: str, done: int, total: int) -> None:
        pass

    def clear(self) -> None:
        """Clear the line of progress, if one is shown, before something else is printed."""

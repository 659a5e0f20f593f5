"""The known name that somebody probably meant."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, whatever its case; None if none is near."""
    import difflib  # only a person who made a mistake waits for this import

    names = list(known)
    folded = {other.lower(): other for other in reversed(names)}
    close = difflib.get_close_matches(name.lower()[:200], list(folded), n=1, cutoff=0.65)
    return folded[close[0]] if close else None

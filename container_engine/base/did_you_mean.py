"""Suggest a known name for a misspelt one."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to `name`, ignoring case, or None if none is close."""
    import difflib  # a slow import, needed only after a mistake

    names = list(known)
    folded = {other.lower(): other for other in reversed(names)}
    close = difflib.get_close_matches(name.lower()[:200], list(folded), n=1, cutoff=0.65)
    return folded[close[0]] if close else None


def did_you_mean(name: str | None, before: str = "") -> str:
    """Return ", did you mean 'NAME'?" with `before` in front of the name; "" without a name."""
    return f", did you mean '{before}{name}'?" if name else ""

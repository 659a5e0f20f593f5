"""Formats the lines below an error: the remedy, the path of the details, the page to read.

Imported only after a failure. Pure.
"""

from __future__ import annotations

from container_engine.faults.catalogue import FAULTS

# the usual error for a key of an environment file
_KEYS = {
    "": "edf-syntax",
    "image": "image-reference",
    "mounts": "edf-mount",
    "base_environment": "edf-inheritance",
    "annotations": "edf-annotation",
    "com": "hook-refused",
}


def code_for(see: str, key: str) -> str:
    """Return `see`, or if empty the code for a key such as `mounts[1]` or `env.HOME`."""
    return see or _KEYS.get(key.partition(".")[0].partition("[")[0], "edf-value")


def remedy(see: str, hint: str | None) -> str:
    """Return the hint given with the error, else the remedy in the catalogue, else ""."""
    if hint:
        return hint
    return FAULTS[see].remedy if see in FAULTS else ""


def remedy_of_site(see: str, hint: str | None) -> str:
    """Return what an administrator can do, for a hint that may be the one for users."""
    fault = FAULTS.get(see)
    if fault is not None and fault.own and hint in {None, "", fault.remedy}:
        return fault.own
    return remedy(see, hint)


def below(see: str, hint: str | None, details: str = "") -> str:
    """Return the lines below an error, each of which begins with "ce: ", without a final newline.

    `details` is the path of a log, or "".
    """
    lines = [
        ("hint", remedy(see, hint)),
        ("details", details),
        ("see", f"ce help {see}" if see in FAULTS else ""),
    ]
    return "\n".join(f"ce: {kind}: {text}" for kind, text in lines if text)

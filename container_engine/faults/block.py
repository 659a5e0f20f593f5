"""What stands below the line of an error: the remedy, where the details are, which page to read.

Imported only where something has failed. Pure.
"""

from __future__ import annotations

from container_engine.faults.catalogue import FAULTS

# what is usually wrong with a key of an environment file
_KEYS = {
    "": "edf-syntax",
    "image": "image-reference",
    "mounts": "edf-mount",
    "base_environment": "edf-inheritance",
    "annotations": "edf-annotation",
    "com": "hook-refused",
}


def code_for(see: str, key: str) -> str:
    """The code of what is wrong with a key, such as `mounts[1]` or `env.HOME`."""
    return see or _KEYS.get(key.partition(".")[0].partition("[")[0], "edf-value")


def remedy(see: str, hint: str | None) -> str:
    """What to do: the words of who has found the error, else those of the catalogue."""
    if hint:
        return hint
    return FAULTS[see].remedy if see in FAULTS else ""


def below(see: str, hint: str | None, details: str = "") -> str:
    """Lines that begin with "ce: ", without a last line end; `details` is the path of a log."""
    lines = [
        ("hint", remedy(see, hint)),
        ("details", details),
        ("see", f"ce help {see}" if see in FAULTS else ""),
    ]
    return "\n".join(f"ce: {kind}: {text}" for kind, text in lines if text)

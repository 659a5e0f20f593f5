"""Decides what kind of image a name means, by its text alone. Pure."""

from __future__ import annotations

SQUASHFS_SUFFIXES = (".sqsh", ".squashfs", ".sqfs")


def looks_like_file(text: str) -> bool:
    """Check whether `text` may be meant as a file, though it does not begin as a path does."""
    return text.endswith(SQUASHFS_SUFFIXES) and not text.startswith(("docker://", "/", "."))

"""Decides what kind of image a name means, by its text alone. Pure."""

from __future__ import annotations

SQUASHFS_SUFFIXES = (".sqsh", ".squashfs", ".sqfs")


def looks_like_file(text: str) -> bool:
    """Check whether `text` may be meant as a file, though it does not begin as a path does."""
    return text.endswith(SQUASHFS_SUFFIXES) and not text.startswith(("docker://", "/", "."))


def of_docker_hub(text: str) -> str:
    """Return an image's name as pyxis means it: one without a registry is always Docker Hub's.

    A name that looks like a file stays as it is: a later message says so.
    """
    if not text or text.startswith(("/", ".")) or "://" in text or "#" in text:
        return text
    first, slash, _rest = text.partition("/")
    has_host = slash and ("." in first or ":" in first or first == "localhost")
    if has_host or looks_like_file(text):
        return text
    return f"docker.io/{text}" if slash else f"docker.io/library/{text}"

"""Parse the names of libraries: parts of the C library, and versions. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

Version = tuple[int, ...]

# Parts of glibc. They fit only their own loader: a part of another version ends the process, so
# they never come from the node.
_C_LIBRARY = frozenset(
    [
        *("libc", "libm", "libpthread", "libdl", "librt", "libresolv", "libutil", "libanl"),
        *("libmvec", "libthread_db", "libBrokenLocale", "libpcprofile", "libmemusage", "libcidn"),
    ]
)
# Images have these in the versions that their programs were built for.
_RUNTIME = frozenset(["libgcc_s", "libstdc++", "libz"])
_LOADERS = ("ld-linux", "ld64.so", "ld.so", "ld-musl-", "libc.musl-", "linux-vdso", "libnss_")
_ABI = "GLIBC_"
_MOST_DIGITS = 18


def is_c_library(name: str) -> bool:
    """Check whether a dependency of this name is part of the C library or its loader."""
    stem, dot_so, _version = name.partition(".so")
    return (
        (bool(dot_so) and stem in _C_LIBRARY)
        or name.startswith(_LOADERS)
        # the newer libnsl is a library of its own
        or name == "libnsl.so.1"
    )


def is_runtime(name: str) -> bool:
    """Check whether a library of this name in a node's directory must not hide the image's."""
    return is_c_library(name) or name.partition(".so")[0] in _RUNTIME


def c_version(versions: Iterable[str]) -> Version:
    """Return the newest GLIBC_x.y among symbol versions, or () if there is none."""
    found = [
        numbers(version[len(_ABI) :])
        for version in versions
        if version.startswith(_ABI) and _is_number(version[len(_ABI) :][:1])
    ]
    return max(found, default=())


def numbers(text: str) -> Version:
    """Parse `2.3.4` into a tuple, which ends before the first part that is not a number."""
    found = []
    for part in text.split("."):
        if not _is_number(part):
            break
        found.append(int(part))
    return tuple(found)


def _is_number(text: str) -> bool:
    """Check that int() accepts the text: str.isdigit also accepts a superscript two."""
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def file_version(file_name: str) -> Version:
    """Return the numbers after `.so`: (200, 26, 0) for libnl-3.so.200.26.0."""
    return numbers(file_name.partition(".so.")[2])


def dotted(version: Version) -> str:
    return ".".join(map(str, version))

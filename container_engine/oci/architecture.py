"""The names of processors in images. Pure."""

from __future__ import annotations

import re

# by those of the kernel (uname -m); others are the same
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_ALSO = {"x64": "amd64", "i386": "386", "i686": "386", "armhf": "arm", "": "", "unknown": ""}
# the architectures of images; any other word says nothing of what is inside
KNOWN = frozenset(
    (
        *("386", "amd64", "arm", "arm64", "loong64", "mips", "mips64", "mips64le", "mipsle"),
        *("ppc64", "ppc64le", "riscv64", "s390x", "sparc64", "wasm"),
    )
)
# amd64/v3, x86_64_v3 and x86-64-v3 name a variant as well
_VARIANT = re.compile(r"(?<=.)[/_-]v[0-9.]+\Z")


def architecture_named(text: str) -> str:
    """Return an architecture as OCI images name it: amd64 for x86_64, "" if it is not known."""
    name = _VARIANT.sub("", text.strip().lower()).replace("x86-64", "x86_64")
    return {**ARCHITECTURES, **_ALSO}.get(name, name)

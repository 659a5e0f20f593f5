"""A writer of SIF files, by the format that github.com/apptainer/sif publishes.

Debian 12 and 13 have no package of Apptainer. This shares no code with the engine's readers.
"""

import hashlib
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

DEFINITION, PARTITION, SIGNATURE, JSON, OCI_INDEX = 0x4001, 0x4004, 0x4005, 0x4006, 0x400A
SQUASHFS, EXT3, ENCRYPTED = 1, 2, 5
SYSTEM, PRIMARY = 1, 2
ARCHITECTURES = {"x86_64": b"02", "aarch64": b"04"}


class Object(NamedTuple):
    """An object; a partition has a file system, a kind and an architecture."""

    content: bytes
    type: int = PARTITION
    file_system: int = SQUASHFS
    kind: int = PRIMARY
    architecture: bytes = b"02"
    group: int = 0xF0000001
    link: int = 0
    name: bytes = b""


def descriptor(one: Object, number: int, offset: int) -> bytes:
    words = struct.pack(
        "<iBIIIqqq", one.type, 1, number, one.group, one.link, offset, *[len(one.content)] * 2
    )
    times = struct.pack("<qqqq", 1700000000, 1700000000, 1000, 1000)
    extra = b""
    if one.type == PARTITION:
        extra = struct.pack("<ii3s", one.file_system, one.kind, one.architecture + b"\0")
    return words + times + one.name.ljust(128, b"\0") + extra.ljust(384, b"\0")


def header(descriptors: int, *, table: int = 4096, size: int = 0, version: bytes = b"01") -> bytes:
    launch = b"#!/usr/bin/env run-singularity\n".ljust(32, b"\0")
    names = b"SIF_MAGIC\0" + version + b"\0" + b"02\0" + bytes(range(16))
    numbers = (1700000000, 1700000000, 48 - descriptors, descriptors, table, 585 * 48, 32768, size)
    return launch + names + struct.pack("<8q", *numbers)


def text(objects: Sequence[Object]) -> bytes:
    """Return a SIF file with these objects, at offsets that need not be aligned."""
    data, table = b"", b""
    for number, one in enumerate(objects, 1):
        table += descriptor(one, number, 32768 + len(data))
        data += one.content
    head = header(len(objects), size=len(data)).ljust(4096, b"\0") + table
    return head.ljust(32768, b"\0") + data


def message(objects: Sequence[Object], *, first: int = 1, algorithm: str = "sha256") -> str:
    """Return what `apptainer sign` signs of these objects, which have the numbers from `first`."""

    def digest(content: bytes) -> str:
        return f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"

    listed = []
    for relative, one in enumerate(objects):
        text = descriptor(one, first + relative, 0)
        number = struct.pack("<I", relative)
        covered = text[:5] + number + text[13:17] + text[25:33] + text[41:49] + text[57:]
        listed.append(
            {
                "relativeId": relative,
                "descriptorDigest": digest(covered),
                "objectDigest": digest(one.content),
            }
        )
    head = header(0)
    signed = {"digest": digest(head[:45] + head[48:64])}
    return json.dumps({"version": 1, "header": signed, "objects": listed})


def signature(text: bytes, group: int = 0xF0000001) -> Object:
    return Object(text, SIGNATURE, group=0xF0000000, link=group)


def make(path: Path, image: Path, architecture: bytes = b"02") -> Path:
    """Write a SIF file with a definition and the SquashFS file `image`."""
    path.write_bytes(
        text(
            [
                Object(b"Bootstrap: docker\nFrom: debian\n", DEFINITION),
                Object(image.read_bytes(), architecture=architecture),
            ]
        )
    )
    return path

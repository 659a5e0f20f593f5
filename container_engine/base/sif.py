"""Find the file system in an Apptainer image (SIF), or write one around a file system.

Such a file has a header, descriptors, and the objects that they describe. A node's ce-image finds
it again by itself (spank_plugin/image/sif.c). Signatures are verified by images/sif_signature.py.
"""

from __future__ import annotations

import os
import struct
import time

from container_engine.base.errors import UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_MAGIC = b"SIF_MAGIC\0"
# launch script, magic, version, architecture, UUID, two times, how many descriptors are unused and
# used, where their table begins and its size, where the objects begin and their size
_HEADER = struct.Struct("<32s 10s 3s 3s 16x 8Q")
# type, is it used, its number, group and link, the object's place, size and size with padding, two
# times, owners, name; of a partition its file system, kind and architecture
DESCRIPTOR = struct.Struct("<I B 3I 3Q 2Q 16x 128s 2I 3s 373x")
_MOST_DESCRIPTORS = 1024  # Apptainer makes room for 48
_PARTITION, _JSON, _OCI_INDEX = 0x4004, 0x4006, 0x400A
# where Apptainer keeps `config` of the OCI configuration of a registry's image
_OCI_CONFIG = b"oci-config.json"
_SQUASHFS, _PRIMARY_SYSTEM = 1, 2
_FROM_REGISTRY = "take the image from its registry: image = 'docker://…'"
# the kinds of file systems that are not read, each with what makes a usable image
_WITH_KEY = "with Apptainer and its key: apptainer build --sandbox DIR FILE; then ce import ./DIR"
_OTHERS = {
    2: ("an ext3 file system, which only root can mount", "apptainer build NEW.sif FILE"),
    5: ("an encrypted file system", _WITH_KEY),
    6: ("an encrypted file system", _WITH_KEY),
}
_ARCHITECTURES = (
    *("", "386", "amd64", "arm", "arm64", "ppc64", "ppc64le", "mips", "mipsle", "mips64"),
    *("mips64le", "s390x", "riscv64", "loong64"),
)


class Place:
    """The bytes of a file that are a SquashFS file, and its architecture, "" if it says none.

    `config` is the place and size of `config` of its OCI configuration, the latter 0 without one.
    """

    def __init__(
        self, start: int, size: int, architecture: str = "", config: tuple[int, int] = (0, 0)
    ) -> None:
        self.start, self.size, self.architecture = start, size, architecture
        self.config = config


def place(file: int, name: str) -> Place:
    """Return the place of the file system in the open file, which is all of it unless it is a SIF.

    Nothing is read there. Raise UserError about the image `name`, or OSError.
    """
    end = os.lseek(file, 0, os.SEEK_END)
    found = table(file, name)
    if found is None:
        return Place(0, end)
    used = [one for one in DESCRIPTOR.iter_unpack(found[1]) if one[1]]
    primary = [one for one in used if one[0] == _PARTITION and one[12] == _PRIMARY_SYSTEM]
    if not primary and any(one[0] == _OCI_INDEX for one in used):
        hint = f"{_FROM_REGISTRY}; or singularity pull without --oci"
        _refuse("an OCI-SIF, which keeps an image's layers", hint, name)
    if len(primary) != 1:
        count_text = "no root file system" if not primary else "more than one root file system"
        _refuse(f"a SIF file with {count_text}", _FROM_REGISTRY, name)
    start, size = primary[0][5:7]
    kind, _part, code = primary[0][11:]
    if kind != _SQUASHFS:
        what, hint = _OTHERS.get(kind, (f"a file system of kind {kind}", _FROM_REGISTRY))
        _refuse(f"a SIF file with {what}", hint, name)
    if start + size > end:
        _damaged(f"cut short, it has {end} bytes of {start + size}", name)
    config = next((one[5:7] for one in used if _is_config(one)), (0, 0))
    if sum(config) > end:
        _damaged(f"its configuration is not within its {end} bytes", name)
    number = int(code[:2]) if code[:2].isdigit() else 0
    architecture = _ARCHITECTURES[number] if number < len(_ARCHITECTURES) else ""
    return Place(start, size, architecture, config)


def _is_config(one: tuple[Any, ...]) -> bool:
    return bool(one[0] == _JSON and one[10].rstrip(b"\0") == _OCI_CONFIG)


def is_used(descriptor: bytes, start: int) -> bool:
    """Check whether the engine uses the object: the file system at `start`, a configuration."""
    one = DESCRIPTOR.unpack(descriptor)
    return _is_config(one) or (one[0], one[5], one[12]) == (_PARTITION, start, _PRIMARY_SYSTEM)


def table(file: int, name: str) -> tuple[bytes, bytes] | None:
    """Return the header and the descriptors of the open file, None if it is no SIF.

    Raise UserError about the image `name`, or OSError.
    """
    head = os.pread(file, _HEADER.size, 0)
    if len(head) < _HEADER.size or _HEADER.unpack(head)[1] != _MAGIC:
        return None
    version, count, begin = (_HEADER.unpack(head)[one] for one in (2, 7, 8))
    if version != b"01\0":
        _refuse(f"a SIF file of version {version!r}, only 01 is known", _FROM_REGISTRY, name)
    if count > _MOST_DESCRIPTORS:
        _damaged(f"{count} descriptors, more than {_MOST_DESCRIPTORS}", name)
    end = os.lseek(file, 0, os.SEEK_END)
    found = os.pread(file, count * DESCRIPTOR.size, begin) if begin <= end else b""
    if len(found) < count * DESCRIPTOR.size:
        _damaged(f"its descriptors are not within its {end} bytes", name)
    return head, found


def write(path: str, image: str, config: bytes, architecture: str) -> None:
    """Write a SIF file of the SquashFS file `image`, and of `config` of its OCI configuration.

    Raise OSError.
    """
    import shutil  # 3 ms that no start of a container needs

    is_known = architecture in _ARCHITECTURES
    code = b"%02d\0" % (_ARCHITECTURES.index(architecture) if is_known else 0)
    now, table, first = int(time.time()), 4096, 8192
    start = first + -(-len(config) // 4096) * 4096
    size = os.path.getsize(image)
    # both are of group 1, as Apptainer's
    group = (0xF0000001, 0)
    partition = (_SQUASHFS, _PRIMARY_SYSTEM, code)
    objects = (
        (_JSON, 1, 1, *group, first, len(config), len(config), now, now, _OCI_CONFIG, 0, 0, b""),
        (_PARTITION, 1, 2, *group, start, size, size, now, now, b"", *partition),
    )
    numbers = (now, now, 0, len(objects), table, len(objects) * DESCRIPTOR.size, first)
    with open(path, "wb") as file, open(image, "rb") as source:
        launch = b"#!/usr/bin/env run-singularity\n"
        file.write(_HEADER.pack(launch, _MAGIC, b"01\0", code, *numbers, start + size - first))
        file.seek(table)
        file.writelines(DESCRIPTOR.pack(*one) for one in objects)
        file.seek(first)
        file.write(config)
        file.seek(start)
        shutil.copyfileobj(source, file)


def _refuse(what: str, hint: str, name: str) -> NoReturn:
    raise UserError(f"not a SquashFS file but {what}", hint, "image-not-squashfs", name=name)


def _damaged(why: str, name: str) -> NoReturn:
    raise UserError(why, "copy or download it again", "image-damaged", name=name)

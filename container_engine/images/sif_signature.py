"""Verify who has signed an Apptainer image (SIF), with gpgv and the site's keys.

`apptainer sign` adds a message in clear-sign format. Its JSON has the digests of the file's header,
and of each object of a group with its descriptor. Only what gpgv prints of it is believed.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic import Field

from container_engine.base import process, sif
from container_engine.base.errors import UserError
from container_engine.base.model import Array, Excerpt, MisfitError

_SIGNATURE = 0x4005
_MOST_SIGNATURES, _MOST_BYTES = 32, 1 << 20
_PIECE = 1 << 22
_LIMIT_S = 60
_BEGIN = b"-----BEGIN PGP SIGNED MESSAGE-----"
_LEGACY = b"\nSIFHASH:\n"
_ALGORITHMS = ("sha256", "sha384", "sha512")
_NO_GROUP = 0xF0000000


class _Header(Excerpt):
    digest: str


class _Object(Excerpt):
    number: Annotated[int, Field(alias="relativeId")]
    descriptor: Annotated[str, Field(alias="descriptorDigest")]
    content: Annotated[str, Field(alias="objectDigest")]


class _Signed(Excerpt):
    version: int
    header: _Header
    objects: Array[_Object]


class _Descriptor(NamedTuple):
    text: bytes
    type: int
    number: int
    group: int
    link: int
    start: int
    size: int

    def signed(self, number: int) -> bytes:
        """Return what a signature covers: with its number in the group, without its place."""
        text = self.text
        parts = (text[:5], struct.pack("<I", number), text[13:17], text[25:33], text[41:49])
        return b"".join((*parts, text[57:]))


class _Open(NamedTuple):
    """An open SIF file with its header and the descriptors that are used."""

    file: int
    header: bytes
    found: tuple[_Descriptor, ...]

    def within(self, one: _Descriptor) -> bool:
        return one.start + one.size <= os.lseek(self.file, 0, os.SEEK_END)


class _DoubtError(Exception):
    """The reason why a signature does not count."""


def is_signed(path: str) -> bool | None:
    """Check whether a SIF file has anything that claims to be a signature; None for another file.

    Raise OSError, or UserError for a damaged file.
    """
    with open(path, "rb") as file:
        opened = _opened(file.fileno(), path)
    return opened and any(one.type == _SIGNATURE for one in opened.found)


def signer(path: str, keys: str, env: Mapping[str, str]) -> str:
    """Return the key, one of the file `keys`, that has signed what the engine uses of a SIF file.

    That is the group of the root file system: each of its objects must be signed. It is "" for a
    file that is no SIF. Raise UserError with the reason if nobody has, SiteError, or OSError.
    """
    with open(path, "rb") as file:
        opened = _opened(file.fileno(), path)
        if opened is None:
            return ""
        start = sif.place(opened.file, path).start  # there is only one
        try:
            return _signer_of(opened, _group(opened, start), keys, env)
        except _DoubtError as why:
            hint = "apptainer sign FILE signs it, with a key that the site knows"
            raise UserError(str(why), hint, "image-policy", name=path) from None


def _opened(file: int, path: str) -> _Open | None:
    table = sif.table(file, path)
    if table is None:
        return None
    header, text = table
    size = sif.DESCRIPTOR.size
    texts = [text[at : at + size] for at in range(0, len(text), size)]
    fields = [sif.DESCRIPTOR.unpack(one) for one in texts]
    return _Open(
        file,
        header,
        tuple(
            _Descriptor(one, known[0], *known[2:7])
            for one, known in zip(texts, fields, strict=True)
            if known[1]
        ),
    )


def _group(opened: _Open, start: int) -> int:
    """Return the group of the root file system, which begins at `start`. Raise _DoubtError."""
    found = opened.found
    if len({one.number for one in found}) != len(found):
        raise _DoubtError("two of its objects have the same number")
    groups = {one.group for one in found if sif.is_used(one.text, start)}
    if len(groups) != 1 or _NO_GROUP in groups:
        raise _DoubtError("its file system and its configuration are not in one group of objects")
    return groups.pop()


def _signer_of(opened: _Open, group: int, keys: str, env: Mapping[str, str]) -> str:
    claims = [one for one in opened.found if one.type == _SIGNATURE and one.link == group]
    why = _DoubtError("not signed" if not claims else "it has too many signatures")
    objects = [one for one in opened.found if one.group == group]
    for claim in claims[:_MOST_SIGNATURES]:
        try:
            key, signed = _verified(opened, claim, keys, env)
            _compare(opened, objects, signed)
        except _DoubtError as error:
            why = error
        else:
            return key
    raise why


def _verified(
    opened: _Open, claim: _Descriptor, keys: str, env: Mapping[str, str]
) -> tuple[str, _Signed]:
    """Return the key of a signature, and what it says. Raise _DoubtError or SiteError."""
    if claim.size > _MOST_BYTES or not opened.within(claim):
        raise _DoubtError("a signature is cut short, or larger than any")
    text = os.pread(opened.file, claim.size, claim.start)
    if _LEGACY in text.replace(b"\r", b""):
        raise _DoubtError("a signature by Singularity before 3.6, which does not cover all objects")
    if not text.startswith(_BEGIN):
        raise _DoubtError("a signature that is none of PGP")
    with tempfile.TemporaryDirectory(prefix="ce-signature-") as work:
        with open(f"{work}/signed", "wb") as file:
            file.write(text)
        argv = ["gpgv", "--status-fd", "1", "--weak-digest", "SHA1", "--keyring", keys]
        argv += ["--output", f"{work}/text", f"{work}/signed"]
        try:
            said = process.output(argv, {**env, "GNUPGHOME": work}, _LIMIT_S, _MOST_BYTES)
            with open(f"{work}/text", "rb") as file:
                plain = file.read(_MOST_BYTES)
        except (process.CommandError, OSError) as error:
            raise _DoubtError(_complaint(error)) from None
    lines = [line.split()[1:] for line in said.decode("utf-8", "replace").splitlines() if line]
    words = [line[0] for line in lines if line]
    valid = [line[1] for line in lines if line[:1] == ["VALIDSIG"]]
    if not valid or words.count("PLAINTEXT") != 1:
        raise _DoubtError("a signature of another form")
    try:
        return valid[0], _Signed.of_json(plain)
    except MisfitError as error:
        raise _DoubtError(f"a signature of another form: {error}") from None


def _complaint(error: process.CommandError | OSError) -> str:
    if isinstance(error, OSError):
        return f"gpgv has printed nothing: {process.reason(error)}"
    return error.complaint


def _compare(opened: _Open, objects: Sequence[_Descriptor], signed: _Signed) -> None:
    """Raise _DoubtError unless a signature is about exactly these objects, as they are."""
    if signed.version != 1:
        raise _DoubtError(f"a signature of version {signed.version}, only 1 is known")
    header = opened.header
    if not _is_of(signed.header.digest, header[:45] + header[48:64]):
        raise _DoubtError("its header is not the one that was signed")
    first = min(one.number for one in objects)
    known = {one.number: one for one in signed.objects}
    if len(known) != len(signed.objects) or {one.number - first for one in objects} != set(known):
        raise _DoubtError("its signature is not about all objects of the group, or about others")
    for one in objects:
        said = known[one.number - first]
        if not _is_of(said.descriptor, one.signed(said.number)):
            raise _DoubtError(
                f"the descriptor of object {one.number} has changed since it was signed"
            )
        if not opened.within(one):
            raise _DoubtError(f"object {one.number} is not within the file")
        if not _is_of(said.content, opened.file, one):
            raise _DoubtError(f"object {one.number} has changed since it was signed")


def _is_of(digest: str, content: bytes | int, one: _Descriptor | None = None) -> bool:
    """Check a digest as `sha256:…` of bytes, or of an object of an open file."""
    name, _colon, value = digest.partition(":")
    if name not in _ALGORITHMS:
        return False
    made = hashlib.new(name)
    if isinstance(content, bytes):
        made.update(content)
    elif one is not None:
        for at in range(one.start, one.start + one.size, _PIECE):
            made.update(os.pread(content, min(_PIECE, one.start + one.size - at), at))
    return made.hexdigest() == value.lower()

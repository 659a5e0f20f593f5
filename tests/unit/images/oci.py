"""Handmade images: layers as lists of members, in an OCI layout that skopeo reads."""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Member(NamedTuple):
    """One entry of a layer; `kind` is one of tarfile's types."""

    path: str
    content: bytes = b""
    kind: bytes = tarfile.REGTYPE
    target: str = ""
    mode: int = 0o644
    xattrs: tuple[tuple[str, str], ...] = ()


def directory(path: str, mode: int = 0o755) -> Member:
    return Member(path, kind=tarfile.DIRTYPE, mode=mode)


def link(path: str, target: str) -> Member:
    return Member(path, kind=tarfile.SYMTYPE, target=target, mode=0o777)


def hard_link(path: str, target: str) -> Member:
    return Member(path, kind=tarfile.LNKTYPE, target=target)


def whiteout(path: str) -> Member:
    parent, _slash, name = path.rpartition("/")
    return Member(f"{parent}/.wh.{name}".lstrip("/"))


def opaque(path: str) -> Member:
    return Member(f"{path}/.wh..wh..opq")


def layer(members: Sequence[Member]) -> bytes:
    """Return a tar archive."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member in members:
            info = tarfile.TarInfo(member.path)
            info.type, info.mode, info.linkname = member.kind, member.mode, member.target
            info.pax_headers = {f"SCHILY.xattr.{name}": value for name, value in member.xattrs}
            info.size, info.mtime, info.uid, info.gid = len(member.content), 1_600_000_000, 7, 8
            archive.addfile(info, io.BytesIO(member.content))
    return stream.getvalue()


def zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-qc"], input=data, capture_output=True, check=True).stdout


COMPRESSORS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("+gzip", gzip.compress),
    "zstd": ("+zstd", zstd),
    "none": ("", lambda data: data),
}
# those of archives, and of layers that nobody pushes
MORE_COMPRESSORS = {**COMPRESSORS, "xz": ("", lzma.compress), "bzip2": ("", bz2.compress)}


def layout(
    where: Path,
    layers: Sequence[Sequence[Member]],
    run: dict[str, Any] | None = None,
    compressor: str = "gzip",
    arch: str = "",
    stated: Callable[[list[str]], list[str]] = lambda diff_ids: diff_ids,
    algorithm: str = "sha256",
) -> Path:
    """Write an OCI layout with one image, tagged `latest`; "" is this machine's architecture.

    `stated` changes what the configuration says of the layers' contents. Its manifest is named by
    `algorithm`.
    """
    arch = arch or _architecture()
    return _tagged(where, _image(where, layers, run, compressor, arch, stated, algorithm))


def layout_of_several(
    where: Path,
    layers: Mapping[str, Sequence[Sequence[Member]]],
    algorithm: str = "sha256",
) -> Path:
    """Write an OCI layout with an index of images by architecture; "" is this machine's."""
    images = []
    for name, stack in layers.items():
        arch = name or _architecture()
        described = _image(where, stack, None, "gzip", arch, algorithm=algorithm)
        images.append({**described, "platform": {"architecture": arch, "os": "linux"}})
    kind = "application/vnd.oci.image.index.v1+json"
    index = {"schemaVersion": 2, "mediaType": kind, "manifests": images}
    return _tagged(where, _blob(where, _json(index), kind, algorithm))


def docker_save(where: Path, images: Sequence[tuple[Sequence[str], Sequence[Member]]]) -> Path:
    """Write an archive as `docker save` does, of images with their names and one layer each."""
    listed = []
    with tarfile.open(where, "w") as archive:
        for names, members in images:
            tar = layer(members)
            rootfs = {"type": "layers", "diff_ids": [f"sha256:{_digest(tar)}"]}
            config = _json({"architecture": _architecture(), "os": "linux", "rootfs": rootfs})
            described: dict[str, Any] = {
                "Config": f"{_digest(config)}.json",
                "RepoTags": list(names) or None,
                "Layers": [f"{_digest(tar)}/layer.tar"],
            }
            _add(archive, described["Config"], config)
            _add(archive, described["Layers"][0], tar)
            listed.append(described)
        _add(archive, "manifest.json", _json(listed))
    return where


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


def _architecture() -> str:
    machine = os.uname().machine
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def _image(
    where: Path,
    layers: Sequence[Sequence[Member]],
    run: dict[str, Any] | None,
    compressor: str,
    arch: str,
    stated: Callable[[list[str]], list[str]] = lambda diff_ids: diff_ids,
    algorithm: str = "sha256",
) -> dict[str, Any]:
    suffix, compress = MORE_COMPRESSORS[compressor]
    plain = [layer(members) for members in layers]
    config = {
        "architecture": arch,
        "os": "linux",
        "config": run or {},
        "rootfs": {
            "type": "layers",
            "diff_ids": stated([f"sha256:{_digest(tar)}" for tar in plain]),
        },
        # without it, Podman 4.3 cannot build upon the image
        "history": [{"created_by": "tests"} for _layer in layers],
    }
    media = "application/vnd.oci.image"
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{media}.manifest.v1+json",
        "config": _blob(where, _json(config), f"{media}.config.v1+json"),
        "layers": [_blob(where, compress(tar), f"{media}.layer.v1.tar{suffix}") for tar in plain],
    }
    return _blob(where, _json(manifest), f"{media}.manifest.v1+json", algorithm)


def _tagged(where: Path, described: dict[str, Any]) -> Path:
    tag = {"org.opencontainers.image.ref.name": "latest"}
    index = {"schemaVersion": 2, "manifests": [{**described, "annotations": tag}]}
    (where / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (where / "index.json").write_bytes(_json(index))
    return where


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _blob(where: Path, data: bytes, media_type: str, algorithm: str = "sha256") -> dict[str, Any]:
    digest = hashlib.new(algorithm, data).hexdigest()
    path = where / "blobs" / algorithm / digest
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return {"mediaType": media_type, "digest": f"{algorithm}:{digest}", "size": len(data)}

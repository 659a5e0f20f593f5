"""Images made by chance from what the OCI image specification allows, in one layout.

Where Podman is known to do other than the specification says, or where its drivers differ among
themselves, nothing is made; each such case is a comment that begins with "Podman".
"""

import gzip
import hashlib
import io
import json
import random
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

_NAMES = ("a", "b", "c", "d e", "é", "n" * 101, "\udcff\n", ".wh", ".", "..")
_NAMES_OFTEN = ("a", "b", "c")
_TARGETS = ("a", "b/c", "../a", "../../c", "/a/b", "/none", "l" * 101, "./a//b/", "é", "..")
_CONTENTS = (b"", b"x", b"text\n" * 100, b"\0" * 70_000, bytes(range(256)) * 3)
_MODES = (0o644, 0o600, 0o755, 0o4755, 0o2711, 0o000, 0o100644)
_DIRECTORY_MODES = (0o755, 0o700, 0o1777, 0o2770, 0o000)
_TIMES = (1_600_000_000, 0, 1, -1, -(1 << 31), 1 << 31, (1 << 32) - 1, 1_600_000_000.75, 0.5)
_IDS = (0, 7, 1000, 65534, (1 << 21) + 1)
_FORMATS: tuple[Literal[0, 1, 2], ...] = (
    tarfile.USTAR_FORMAT,
    tarfile.GNU_FORMAT,
    tarfile.PAX_FORMAT,
)
_DEVICES = (tarfile.CHRTYPE, tarfile.BLKTYPE)
# AUFS's whiteouts are hard links; some builders know other types
_MARKERS = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE)
_AUFS = ".wh..wh.plnk"
_AUFS_FILE = f"{_AUFS}/12.34"
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_END = bytes(1024)


@dataclass
class Image:
    """An image: its configuration, and its layers as archives, the lowest first."""

    config: dict[str, Any]
    layers: list[bytes]
    story: list[str]  # what is in the layers, for a reader of a difference

    @property
    def run(self) -> dict[str, Any]:
        return self.config.get("config") or {}


class _Node(NamedTuple):
    kind: bytes
    mode: int
    mtime: float
    xattrs: dict[str, str]


def image(seed: int, base: bytes, arch: str) -> Image:
    """Return a random image with `base` as its highest layer; each seed gives one image."""
    chance = random.Random(seed)
    tree: dict[str, _Node] = {}
    story: list[str] = []
    made = [_Layer(chance, tree, story) for _ in range(chance.randint(1, 4))]
    layers = [layer.archive() for layer in made]
    # Podman does not find what it has left out of a layer when it wants the layer once more; what
    # a hard link means may be gone by then, as the layer itself has hidden it; and it writes the
    # headers of sparse files again, which it may then call invalid.
    if chance.random() < 0.1 and _AUFS_FILE.encode() not in layers[-1] and not made[-1].is_for_once:
        layers.append(layers[-1])  # the same content twice is one blob
        story.append("the last layer once more")
    layers.append(base)
    return Image(_config(chance, layers, arch), layers, story)


class _Layer:
    """A layer that changes `tree`, which is what the layers so far have made."""

    def __init__(self, chance: random.Random, tree: dict[str, _Node], story: list[str]) -> None:
        self._chance, self._tree, self._story = chance, tree, story
        self._made: set[str] = set()
        self._closed: set[str] = set()  # what markers of this layer hide, and their parents
        self._emptied: set[str] = set()
        self._parts: list[bytes] = []
        self.is_for_once = False
        story.append("a layer:")
        changes: tuple[Callable[[str], None], ...] = (
            *(
                self._file,
                self._file,
                self._sparse_file,
                self._directory,
                self._directory,
                self._link,
            ),
            *(self._hard_link, self._pipe, self._device, self._hide, self._hide, self._hide_all),
        )
        if chance.random() < 0.2:
            self._parts.append(_records(tarfile.XGLTYPE, {"comment": "made by chance"}))
        if chance.random() < 0.2:
            self._aufs()
        if chance.random() < 0.3:
            self._entry("./", tarfile.DIRTYPE, mode=0o755)
        for _ in range(chance.choice((0, 3, 6, 12, 20))):
            path = self._path()
            if path:
                chance.choice(changes)(path)

    def archive(self) -> bytes:
        padding = self._chance.choice((b"", bytes(10240)))
        return b"".join(self._parts) + _END + padding

    def _path(self) -> str:
        """Return a path whose parents are directories, which are made if need be; "" for none."""
        chance = self._chance
        names = [
            chance.choice(chance.choice((_NAMES, _NAMES_OFTEN)))
            for _ in range(chance.choice((1, 1, 2, 2, 3)))
        ]
        if names[-1] in {".", ".."} or any(name == ".." for name in names):
            return ""
        path = "/".join(name for name in names if name != ".")
        for parent in reversed(list(_parents(path))):
            found = self._tree.get(parent)
            # Podman follows links of lower layers with one driver and replaces them with another.
            # Where a file is in the way, it fails.
            if found is not None and found.kind != tarfile.DIRTYPE:
                return ""
            # Podman removes what a marker hides when it reads the marker, even if the same layer
            # has made it. A directory that it must make for an entry has one mode with one driver
            # and another mode with another.
            if parent in self._closed and parent not in self._made:
                return ""
            if parent not in self._made and (found is None or chance.random() < 0.7):
                self._directory(parent)
                if parent not in self._made:
                    return ""
        return path

    def _file(self, path: str) -> None:
        chance = self._chance
        content = chance.choice(_CONTENTS)
        kind = chance.choice((tarfile.REGTYPE, tarfile.REGTYPE, tarfile.AREGTYPE))
        if self._put(path, tarfile.REGTYPE, chance.choice(_MODES)):
            self._entry(path, kind, content=content)

    def _sparse_file(self, path: str) -> None:
        chance = self._chance
        if not self._put(path, tarfile.REGTYPE, chance.choice(_MODES)):
            return
        self._tree[path] = node = self._tree[path]._replace(mtime=_TIMES[0], xattrs={})
        form, file = chance.choice(sorted(_SPARSE)), _sparse(chance)
        self._story.append(f"sparse, form {form}, {path!r} {oct(node.mode)} {file.pieces}")
        self.is_for_once = True
        self._parts.append(_SPARSE[form](self._spelled(path), node.mode, file))

    def _directory(self, path: str) -> None:
        if self._put(path, tarfile.DIRTYPE, self._chance.choice(_DIRECTORY_MODES)):
            self._entry(path, tarfile.DIRTYPE)

    def _link(self, path: str) -> None:
        if self._put(path, tarfile.SYMTYPE):
            self._entry(path, tarfile.SYMTYPE, target=self._chance.choice(_TARGETS))

    def _pipe(self, path: str) -> None:
        if self._put(path, tarfile.FIFOTYPE):
            self._entry(path, tarfile.FIFOTYPE)

    def _device(self, path: str) -> None:
        if self._put(path, tarfile.CHRTYPE):
            # 0:0 is overlayfs's own mark of a removed file
            self._entry(path, self._chance.choice(_DEVICES), device=(1, 3))

    def _hard_link(self, path: str) -> None:
        files = [
            name
            for name, node in self._tree.items()
            # Podman takes setuid and setgid from a file when it makes another link to it.
            if node.kind != tarfile.DIRTYPE and not node.mode & 0o6000
            if not _is_within(name, path)
        ]
        if files:
            target = self._chance.choice(files)
            meant = self._tree[target]
            # Podman gives the file what the link's entry says; archivers say the same of both.
            if target not in self._closed and self._put(path, meant.kind):
                self._tree[path] = meant
                self.is_for_once = True
                self._entry(path, tarfile.LNKTYPE, target=self._spelled(target, is_target=True))

    def _hide(self, path: str) -> None:
        # Podman would remove what this layer has made, too.
        if path in self._closed or any(_is_within(made, path) for made in self._made):
            return
        for other in [other for other in self._tree if _is_within(other, path)]:
            del self._tree[other]
        self._closed.add(path)
        parent, _slash, name = path.rpartition("/")
        self._entry(
            f"{parent}/.wh.{name}" if parent else f".wh.{name}",
            self._chance.choice(_MARKERS),
            target=".wh..wh.aufs",
        )

    def _hide_all(self, path: str) -> None:
        chance = self._chance
        if chance.random() < 0.05 and not self._made:
            path = ""
        elif path not in self._made or self._tree[path].kind != tarfile.DIRTYPE:
            return
        if path in self._emptied:
            return
        self._emptied.add(path)
        # Podman removes a directory of this layer that has no entry of its own, with what is in it.
        within = [made for made in self._made if _is_within(made, path)]
        if any(
            _is_within(one, path) and one not in self._made
            for made in within
            for one in _parents(made)
        ):
            return
        for other in [other for other in self._tree if _is_within(other, path)]:
            if other not in self._made:
                del self._tree[other]
        self._entry(f"{path}/.wh..wh..opq".lstrip("/"), self._chance.choice(_MARKERS[:2]))

    def _aufs(self) -> None:
        """Add what Docker's driver of AUFS has left in layers; it means nothing.

        Podman knows it only by one spelling, that of AUFS.
        """
        self._entry(".wh..wh.aufs", tarfile.REGTYPE)
        self._entry(".wh..wh.orph", tarfile.DIRTYPE, mode=0o700)
        self._entry(_AUFS, tarfile.DIRTYPE, mode=0o700)
        # Podman makes a copy for each link, so there is only one
        name = self._chance.choice(_NAMES_OFTEN)
        if self._put(name, tarfile.REGTYPE):
            self._tree[_AUFS_FILE] = self._tree[name]
            self._entry(_AUFS_FILE, tarfile.REGTYPE, content=b"shared")
            del self._tree[_AUFS_FILE]
            self._entry(name, tarfile.LNKTYPE, target=_AUFS_FILE)

    def _put(self, path: str, kind: bytes, mode: int = 0o644) -> bool:
        """Note what the layer makes at a path; return whether it may."""
        found, chance = self._tree.get(path), self._chance
        is_directory = found is not None and found.kind == tarfile.DIRTYPE
        # Podman refuses a path that a layer has twice.
        others = {path} if kind == tarfile.DIRTYPE else self._made
        if path in self._closed or any(_is_within(made, path) for made in self._made & others):
            return False
        if not (is_directory and kind == tarfile.DIRTYPE):
            for other in [other for other in self._tree if _is_within(other, path)]:
                del self._tree[other]
        # Podman fails where a marker lies below a file, as it would when the layer is read again.
        if kind != tarfile.DIRTYPE and any(_is_within(hidden, path) for hidden in self._closed):
            self.is_for_once = True
        xattrs: dict[str, str] = {}
        if kind in {tarfile.REGTYPE, tarfile.DIRTYPE} and chance.random() < 0.2:
            xattrs = _xattrs(chance)
        if found is not None and is_directory and kind == tarfile.DIRTYPE:
            xattrs = found.xattrs  # Podman keeps what a lower layer says of the directory
        self._tree[path] = _Node(kind, mode, chance.choice(_TIMES), xattrs)
        self._made.add(path)
        return True

    def _entry(
        self,
        path: str,
        kind: bytes,
        *,
        content: bytes = b"",
        mode: int = 0o644,
        target: str = "",
        device: tuple[int, int] = (0, 0),
    ) -> None:
        chance = self._chance
        info = tarfile.TarInfo(path if path.startswith(".wh..wh.") else self._spelled(path))
        node = self._tree.get(path) or _Node(kind, mode, chance.choice(_TIMES), {})
        info.type, info.mode, info.linkname, info.size = kind, node.mode, target, len(content)
        info.devmajor, info.devminor = device
        info.mtime = node.mtime
        info.uid, info.gid = chance.choice(_IDS), chance.choice(_IDS)
        info.uname = chance.choice(("", "root", "é"))
        written = tarfile.PAX_FORMAT if info.mtime != int(info.mtime) else chance.choice(_FORMATS)
        if node.xattrs:
            written, info.pax_headers = tarfile.PAX_FORMAT, node.xattrs
        if written == tarfile.USTAR_FORMAT and not _fits(info):
            written = tarfile.GNU_FORMAT
        data = bytearray(info.tobuf(written, errors="surrogateescape"))
        if len(data) == tarfile.BLOCKSIZE and written == tarfile.USTAR_FORMAT:
            data = bytearray(chance.choice((bytes, _of_version_7, _signed))(bytes(data)))
        self._story.append(
            f"{kind.decode()} {info.name!r} {oct(info.mode)} {info.mtime} {target!r}"
        )
        self._parts += [bytes(data), content, bytes(-len(content) % tarfile.BLOCKSIZE)]

    def _spelled(self, path: str, *, is_target: bool = False) -> str:
        """Return another spelling of a path."""
        ways = (
            path,
            path,
            path,
            f"./{path}",
            f"/{path}",
            path.replace("/", "//"),
            path.replace("/", "/./"),
        )
        more = (f"none/../{path}", f"../{path}") if is_target else (f"none/../{path}",)
        return self._chance.choice((*ways, *more[:1]))


class _Sparse(NamedTuple):
    """A file of `size` bytes; of each piece the offset and length are known, the rest is zeros."""

    size: int
    pieces: list[tuple[int, int]]

    @property
    def stored(self) -> bytes:
        return b"".join(bytes(at % 251 + 1 for at in range(length)) for _, length in self.pieces)

    @property
    def numbers(self) -> list[int]:
        return [number for piece in self.pieces for number in piece]


def _sparse(chance: random.Random) -> _Sparse:
    pieces, end = [], 0
    for _ in range(chance.choice((0, 1, 2, 5, 30))):
        begin = end + chance.choice((0, 512, 4096, 70_001))
        pieces.append((begin, chance.choice((1, 512, 700, 4096))))
        end = sum(pieces[-1])
    size = end + chance.choice((0, 1, 512, 1 << 20))
    # As GNU tar marks the end. It must do so without data: Podman finds an empty file else.
    if not pieces or chance.random() < 0.5:
        pieces.append((size, 0))
    return _Sparse(size, pieces)


def _in_records(path: str, mode: int, file: _Sparse, *map_: tuple[str, str]) -> bytes:
    size, count = ("GNU.sparse.size", str(file.size)), str(len(file.pieces))
    more = [("path", path), size, ("GNU.sparse.numblocks", count), *map_]
    return _with_records(more, mode, file.stored)


def _in_form_0_0(path: str, mode: int, file: _Sparse) -> bytes:
    names = ("GNU.sparse.offset", "GNU.sparse.numbytes")
    pairs = [(name, str(n)) for piece in file.pieces for name, n in zip(names, piece, strict=True)]
    return _in_records(path, mode, file, *pairs)


def _in_form_0_1(path: str, mode: int, file: _Sparse) -> bytes:
    listed = ",".join(map(str, file.numbers))
    return _in_records(path, mode, file, ("GNU.sparse.name", path), ("GNU.sparse.map", listed))


def _in_form_1_0(path: str, mode: int, file: _Sparse) -> bytes:
    words = {"major": "1", "minor": "0", "name": path, "realsize": str(file.size)}
    before = "".join(f"{number}\n" for number in (len(file.pieces), *file.numbers)).encode()
    more = [(f"GNU.sparse.{name}", word) for name, word in words.items()]
    return _with_records(more, mode, _padded(before) + file.stored)


# Podman refuses the old form, with entries of the type S.
_SPARSE: dict[str, Callable[[str, int, _Sparse], bytes]] = {
    "0.0": _in_form_0_0,
    "0.1": _in_form_0_1,
    "1.0": _in_form_1_0,
}


def _with_records(more: Sequence[tuple[str, str]], mode: int, content: bytes) -> bytes:
    lines = [f"{name}={value}\n".encode(errors="surrogateescape") for name, value in more]
    text = b"".join(b"%d %b" % (_length(line), line) for line in lines)
    extended = _information("records", 0o644, len(text))
    extended.type = tarfile.XHDTYPE
    info = _information("GNUSparseFile.0/short", mode, len(content))
    heads = [one.tobuf(tarfile.USTAR_FORMAT) for one in (extended, info)]
    return heads[0] + _padded(text) + heads[1] + _padded(content)


def _length(line: bytes) -> int:
    return next(n for n in range(len(line) + 2, len(line) + 9) if len(b"%d " % n + line) == n)


def _information(path: str, mode: int, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path)
    info.mode, info.size, info.mtime = mode, size, int(_TIMES[0])
    return info


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % tarfile.BLOCKSIZE)


def _xattrs(chance: random.Random) -> dict[str, str]:
    known = {
        "SCHILY.xattr.user.x": "ü",
        "SCHILY.xattr.user.long": "v" * 300,
        "SCHILY.xattr.user.empty": "",
        "SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00\x20" + "\x00" * 14,
        "LIBARCHIVE.creationtime": "1600000000.5",
        "atime": "1600000001.25",
        "comment": "of one entry",
    }
    return {name: known[name] for name in chance.sample(sorted(known), 2)}


def _records(kind: bytes, records: dict[str, str]) -> bytes:
    return tarfile.TarInfo._create_pax_generic_header(records, kind, "utf-8")  # type: ignore[attr-defined,no-any-return]


def _fits(info: tarfile.TarInfo) -> bool:
    try:
        info.tobuf(tarfile.USTAR_FORMAT, errors="surrogateescape")
    except ValueError:
        return False
    return True


def _of_version_7(header: bytes) -> bytes:
    """Return a header without what came with ustar, if it says the same."""
    if header[156:157] not in {b"0", b"\0", b"1", b"2", b"5"} or header[345]:
        return header
    return _summed(header[:257] + bytes(255))


def _signed(header: bytes) -> bytes:
    """Return a header with the sum of signed bytes, as some programs of old wrote it."""
    return _summed(header, signed=True)


def _summed(header: bytes, *, signed: bool = False) -> bytes:
    blank = header[:148] + b" " * 8 + header[156:]
    total = sum(byte - 256 if signed and byte > 127 else byte for byte in blank)
    return blank[:148] + b"%06o\0 " % total + blank[156:]


def _config(chance: random.Random, layers: Sequence[bytes], arch: str) -> dict[str, Any]:
    """Return an image's configuration. Only what Podman demands is always there."""
    diff_ids = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    made: dict[str, Any] = {
        "architecture": chance.choice((arch, arch, _MACHINES.get(arch, arch), "")),
        "os": chance.choice(("linux", "linux", "")),
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }
    more: dict[str, Any] = {
        "created": chance.choice(("2020-01-02T03:04:05Z", "0001-01-01T00:00:00Z")),
        "author": "é",
        "history": [{"created_by": f"layer {number}"} for number in range(len(layers))],
        "variant": "",
        "os.version": "1",
        "unknown": {"to": ["everybody"]},
    }
    made |= {name: more[name] for name in more if chance.random() < 0.4}
    if chance.random() < 0.9:
        made["config"] = _run(chance) if chance.random() < 0.9 else None
    return made


def _run(chance: random.Random) -> dict[str, Any]:
    variables = (
        "A=",
        "A=1",
        "B=a b  c",
        "C=x=y=z",
        "D=\"q\" 'r'",
        "E=é",
        "F=\n",
        "a.b-c=1",
        "PATH=/bin",
        "LANG=C",
    )
    values: dict[str, Sequence[Any]] = {
        "Env": (
            None,
            [],
            chance.sample(variables, 3),
            chance.sample(variables, 6),
            ["PATH=/bin", "A=1", "A=2"],
        ),
        "WorkingDir": ("", "/", "/bin", "/bin/", "/bin/../bin", "/none/of", "none", "/bin/../no"),
        "Entrypoint": (None, [], ["/bin/none"], ["/bin/sh", "-c", "exit 3", "é"]),
        "Cmd": (None, [], ["x", "y"]),
        "User": ("", "0", "1000:1000", "root"),
        "Labels": (None, {}, {"l": "é", "": "x"}),
        "Volumes": (None, {}, {"/v": {}}),
        "ExposedPorts": (None, {"80/tcp": {}}),
        "StopSignal": ("", "SIGTERM", "9"),
        "Healthcheck": ({"Test": ["NONE"]},),
        "ArgsEscaped": (True,),
    }
    return {name: chance.choice(values[name]) for name in values if chance.random() < 0.6}


def _zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-qc1"], input=data, capture_output=True, check=True).stdout


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, 1)


def _by_pieces(compress: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Return a compressor that writes two members, as programs with several threads do."""
    return lambda data: compress(data[: len(data) // 2]) + compress(data[len(data) // 2 :])


_COMPRESSORS: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
    ("", bytes),
    ("+gzip", _gzip),
    ("+gzip", _by_pieces(_gzip)),
    ("+zstd", _zstd),
    ("+zstd", _by_pieces(_zstd)),
)


@dataclass
class Layout:
    """An OCI layout in the directory `where`, with an image for each seed, tagged by it."""

    where: Path
    base: bytes
    arch: str
    images: dict[int, Image] = field(default_factory=dict)
    _listed: list[dict[str, Any]] = field(default_factory=list)
    _packed: dict[tuple[bytes, int], dict[str, Any]] = field(default_factory=dict)

    def add(self, seeds: Sequence[int]) -> None:
        (self.where / "blobs/sha256").mkdir(parents=True, exist_ok=True)
        for seed in seeds:
            self.images[seed] = image(seed, self.base, self.arch)
            self._listed.append(self._described(seed))
        (self.where / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        (self.where / "index.json").write_text(
            json.dumps({"schemaVersion": 2, "manifests": self._listed})
        )

    def source(self, seed: int) -> str:
        return f"oci:{self.where}:{seed}"

    def _described(self, seed: int) -> dict[str, Any]:
        chance = random.Random(-seed)
        media = "application/vnd.oci.image"
        made = self.images[seed]
        manifest: dict[str, Any] = {
            "schemaVersion": 2,
            "config": self._blob(json.dumps(made.config).encode(), f"{media}.config.v1+json"),
            "layers": [
                self._layer(layer, chance.randrange(len(_COMPRESSORS))) for layer in made.layers
            ],
        }
        if chance.random() < 0.7:
            manifest["mediaType"] = f"{media}.manifest.v1+json"
        described = self._blob(json.dumps(manifest).encode(), f"{media}.manifest.v1+json")
        return {**described, "annotations": {"org.opencontainers.image.ref.name": str(seed)}}

    def _layer(self, layer: bytes, number: int) -> dict[str, Any]:
        known = (hashlib.sha256(layer).digest(), number if layer != self.base else 0)
        if known not in self._packed:
            suffix, compress = _COMPRESSORS[known[1]]
            kind = f"application/vnd.oci.image.layer.v1.tar{suffix}"
            self._packed[known] = self._blob(compress(layer), kind)
        return self._packed[known]

    def _blob(self, data: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (self.where / "blobs/sha256" / digest).write_bytes(data)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}


def base_layer(busybox: bytes) -> bytes:
    """Return a layer with busybox, as which all images start."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, kind, content, target in (
            ("bin", tarfile.DIRTYPE, b"", ""),
            ("bin/busybox", tarfile.REGTYPE, busybox, ""),
            ("bin/sh", tarfile.SYMTYPE, b"", "busybox"),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.linkname, info.size = kind, 0o755, target, len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def _is_within(path: str, other: str) -> bool:
    return f"{path}/".startswith(f"{other}/" if other else "")


def _parents(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path

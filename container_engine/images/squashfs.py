"""SquashFS images: check that one is complete, and read its configuration.

The sources of the configuration, that is of environment, entrypoint and working directory:

1. IMAGE.json, an OCI image configuration beside the file; imports write it.
2. `etc/environment` and `etc/rc` in the image, where enroot's import leaves the same facts.
3. `config` of an OCI configuration in an Apptainer image (SIF), and what the shell files in its
   `.singularity.d` assign. A runscript is no entrypoint, as it need not execute its arguments.
4. None of them: the default PATH of container engines.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import stat
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from container_engine.base import process, sif
from container_engine.base.errors import SiteError, UserError
from container_engine.base.model import MisfitError
from container_engine.base.text_layout import nearest
from container_engine.base.variables import is_read_outside

if TYPE_CHECKING:
    from container_engine.oci.image import Execution

_SUPERBLOCK = struct.Struct("<4s IIII HHHH HH QQ")
_SUPERBLOCK_SIZE = 96  # including the positions of tables, which are not read here
_MAGIC = b"hsqs"
_VERSION = 4
_COMPRESSORS = {1: "gzip", 2: "lzma", 3: "lzo", 4: "xz", 5: "lz4", 6: "zstd"}
_HEAD = 512
_LIST_TIMEOUT_S = 300
_MAX_LISTED = 10_000  # names among which a similar one is searched

_CONVERTED = (
    "ce import -o IMAGE.sqsh FILE makes one of an archive of images, or of a root file system"
)
# (offset, bytes) -> the kind of a file that is not an image, and a hint
_OTHERS: tuple[tuple[int, bytes, str, str | None], ...] = (
    (0, b"sqsh", "a big-endian SquashFS, made on another kind of machine", "make it again"),
    (0, b"version https://git-lfs", "a git-lfs pointer, not the file itself", "git lfs pull"),
    (257, b"ustar", "a tar archive", _CONVERTED),
    (0, b"\x1f\x8b", "a gzip file", _CONVERTED),
    (0, b"\x28\xb5\x2f\xfd", "a zstd file", _CONVERTED),
    (0, b"\xfd7zXZ", "an xz file", _CONVERTED),
    (0, b"PK\x03\x04", "a zip archive", None),
    (0, b"QFI\xfb", "a disk image of a virtual machine (qcow)", None),
    (0, b"\x7fELF", "a program (ELF)", None),
    (0, b"#!", "a script", None),
    (0, b"<", "a web page or another text in XML", "was the download redirected to a login?"),
    (0, b"{", "a JSON text", None),
)


class Superblock(NamedTuple):
    """The fields of a superblock that are used here.

    `bytes_used` counts from the start of the file, without padding; `files` are directories, too.
    """

    bytes_used: int
    block_size: int
    compressor: str
    files: int = 0


_NOT_SQUASHFS = "image-not-squashfs"


def check(path: str) -> Superblock:
    """Return the superblock of the complete SquashFS file `path`, or of the one in a SIF file.

    Raise UserError with one line that names the problem: no such file, not permitted, a directory,
    another kind of file, cut short.
    """
    return _looked_at(path)[0]


def place(path: str) -> sif.Place:
    """Return the place of the complete SquashFS file in `path`. Raise as `check` does."""
    return _looked_at(path)[1]


def _looked_at(path: str) -> tuple[Superblock, sif.Place]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        close = similar(path) if isinstance(error, FileNotFoundError) else None
        hint = f"did you mean '{close}'?" if close else None
        raise UserError(process.reason(error), hint, _see(error), name=path) from None
    try:
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode):
            raise UserError("a directory, not a SquashFS file", see=_NOT_SQUASHFS, name=path)
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISBLK(status.st_mode)):
            raise UserError("not a regular file", see=_NOT_SQUASHFS, name=path)
        within = sif.place(fd, path)
        head = os.pread(fd, _HEAD, within.start)
    except OSError as error:
        raise UserError(process.reason(error), see=_see(error), name=path) from None
    finally:
        os.close(fd)
    return parse(path, head, within.size), within


def parse(path: str, head: bytes, size: int) -> Superblock:
    """Parse the superblock in the first bytes of a file of `size` bytes. Raise as `check` does."""
    if not head:
        raise UserError("the file is empty", see="image-damaged", name=path)
    if not head.startswith(_MAGIC):
        kind, hint = _recognise(head)
        raise UserError(f"not a SquashFS file but {kind}", hint, _NOT_SQUASHFS, name=path)
    if len(head) < _SUPERBLOCK_SIZE:
        raise _cut_short(path, size, f"at least {_SUPERBLOCK_SIZE}")
    fields = _SUPERBLOCK.unpack_from(head)
    block_size, compression, major, bytes_used = fields[3], fields[5], fields[9], fields[12]
    if major != _VERSION:
        message = f"SquashFS version {major}, only version 4 can be mounted"
        raise UserError(message, see=_NOT_SQUASHFS, name=path)
    if bytes_used > size:
        raise _cut_short(path, size, str(bytes_used))
    name = _COMPRESSORS.get(compression, f"unknown ({compression})")
    return Superblock(bytes_used, block_size, name, fields[1])


def similar(path: str) -> str | None:
    """Return the path of a file beside `path` with a similar name, or None."""
    directory, name = os.path.split(path)
    try:
        found = os.listdir(directory)[:_MAX_LISTED]
    except OSError:
        return None
    close = nearest(name, (other for other in found if other != name))
    return os.path.join(directory, close) if close else None


def unsquashfs(
    words: Sequence[str],
    path: str,
    members: Sequence[str],
    env: Mapping[str, str],
    timeout_s: float,
    most: int | None = None,
) -> bytes:
    """Run `unsquashfs WORDS… path MEMBERS…` and return its stdout.

    Raise the errors of process.output and `check`. It is confined, because the file may be
    anybody's. It runs with one thread: with one for each processor of a large host, it would exceed
    the limit on its memory.
    """
    from container_engine.images.confine.cage import Cage  # only for images without a description

    offset = str(place(path).start)
    argv = ["unsquashfs", "-processors", "1", "-offset", offset, *words, path, *members]
    return process.output(argv, env, timeout_s, most, Cage().close)


def listed(path: str, env: Mapping[str, str]) -> bytes:
    """Return a line for each name: mode, owner, size or device, date, time and path.

    Raise UserError unless all names and attributes can be read. Contents are not read.
    """
    try:
        return unsquashfs(["-lln", "-d", ""], path, (), env, _LIST_TIMEOUT_S)
    except process.CommandError as error:
        raise UserError(
            f"damaged: {error.message}", "copy or download it again", "image-damaged", name=path
        ) from None


def _see(error: OSError) -> str:
    absent = error.errno in {errno.ENOENT, errno.ENOTDIR}
    return "image-file-not-found" if absent else "image-file-unreadable"


def _cut_short(path: str, size: int, wanted: str) -> UserError:
    return UserError(
        f"cut short, it has {size} bytes of {wanted}",
        "copy or download it again",
        "image-damaged",
        name=path,
    )


def _recognise(head: bytes) -> tuple[str, str | None]:
    for offset, magic, kind, hint in _OTHERS:
        if head[offset:].startswith(magic):
            return kind, hint
    if not head.strip(b"\0"):
        return "a file of zeros", "was it copied completely?"
    return "something unknown", None


DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MADE_SO = "the image was made so: another import does not help, its maker has to mend it"
_UNSAFE = "the image is damaged or malicious: do not use it"
_BESIDE = "this file must be the OCI image configuration of the image beside it"
_NO_CONFIG = "image-format"
_READ_TIMEOUT_S = 60
_MOST_BYTES = 1 << 20
# Linux's limits PATH_MAX, NAME_MAX and MAX_ARG_STRLEN; the first and last count the NUL at the end
_PATH_MAX, _NAME_MAX, _WORD_MAX = 4096, 255, 1 << 17
_ENV_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)=(.*)")
# lines of etc/rc, which enroot's import writes for WorkingDir, and for Entrypoint and Cmd
_RC_WORKDIR = re.compile(r'^cd "([^"]*)" && unset OLDPWD', re.MULTILINE)
# where Apptainer keeps what an image says of itself; 10- is that of an image from a registry, and
# 91- that of a definition file whose base is an image of Apptainer's
_APPTAINER, _AROUND = ".singularity.d", ("10-docker2singularity.sh", "91-environment.sh")
_CUSTOM = f"{_APPTAINER}/env/90-environment.sh"
_RC_ENTRYPOINT = re.compile(r'^\s*exec\s+\S.*\S\s+"\$@"', re.MULTILINE)


class ImageConfig(NamedTuple):
    """The configuration of an image. `env` has a PATH. `source` names its files, "" if none.

    `left_out` are the variables that an image must not set (`is_read_outside`). `other` is the
    first line of its shell files that only a shell can run, "" if there is none.
    """

    env: Mapping[str, str]
    entrypoint: tuple[str, ...] = ()
    workdir: str | None = None
    source: str = ""
    left_out: tuple[str, ...] = ()
    other: str = ""

    def planned(self) -> dict[str, Any]:
        """Return what a plan's image has of it, under the same names."""
        return {name: value for name, value in self._asdict().items() if name != "other"}


def judge_config(text: bytes, name: str) -> None:
    """Raise UserError for a configuration with which no container could start.

    Otherwise it would be refused later, for everybody who launches the image `name`.
    """
    try:
        run = _executed(text)
    except MisfitError as error:
        raise UserError(f"its configuration: {error}", MADE_SO, _NO_CONFIG, name=name) from None
    _refuse_nul(name, *(run.env or ()), *(run.entrypoint or ()), run.workdir or "")
    _refuse_long(name, run)
    entrypoint = _entrypoint(run)
    if entrypoint and not entrypoint[0]:
        message = "its configuration: config.Entrypoint[0]: must be a program, not an empty string"
        raise UserError(message, MADE_SO, _NO_CONFIG, name=name)


def _executed(text: bytes) -> Execution:
    """Return what a configuration has containers run. Raise MisfitError."""
    from container_engine.oci.image import Config, Execution

    return Config.of_json(text).config or Execution()


def _refuse_long(name: str, run: Execution) -> None:
    """Raise UserError for what the kernel takes neither as a path nor as a word of a program."""
    workdir = os.fsencode(run.workdir or "")
    longest = max(map(len, workdir.split(b"/")))
    what = ""
    if len(workdir) >= _PATH_MAX:
        what = f"config.WorkingDir: {len(workdir)} bytes, a path has at most {_PATH_MAX - 1}"
    elif longest > _NAME_MAX:
        what = f"config.WorkingDir: a name of {longest} bytes, a name has at most {_NAME_MAX}"
    for field_name, words in (("Env", run.env), ("Entrypoint", run.entrypoint)):
        for number, word in enumerate(words or ()):
            if (size := len(os.fsencode(word))) >= _WORD_MAX:
                most = f"Linux takes at most {_WORD_MAX - 1}"
                what = f"config.{field_name}[{number}]: {size} bytes, {most}"
    if what:
        raise UserError(f"its configuration: {what}", MADE_SO, _NO_CONFIG, name=name)


def _entrypoint(run: Execution) -> tuple[str, ...]:
    """Return the entrypoint; a single empty string means none, as Docker takes it."""
    entrypoint = run.entrypoint or ()
    return () if entrypoint == ("",) else entrypoint


def config_from_document(text: bytes, source: str, hint: str = _BESIDE) -> ImageConfig:
    """Parse an OCI image configuration. Raise UserError that names `source`."""
    try:
        run = _executed(text)
    except MisfitError as error:
        raise UserError(str(error), hint, _NO_CONFIG, where=source) from None
    _refuse_nul(source, *(run.env or ()), *(run.entrypoint or ()), run.workdir or "")
    pairs = (entry.partition("=") for entry in run.env or ())
    env = {name: value for name, _equals, value in pairs if name}
    return _config(env, _entrypoint(run), run.workdir or None, source)


def config_from_files(image_path: str, env: Mapping[str, str]) -> ImageConfig:
    """Read the configuration that enroot's import or Apptainer may have left inside an image.

    `env` is the environment for unsquashfs. Raise SiteError if that program is missing, is killed
    or does not end, and UserError for files that are too large or hold a NUL character.
    """
    is_sif = place(image_path).start > 0
    found = None if is_sif else _of_enroot(image_path, env)
    return found if found and found.source else _of_apptainer(image_path, env)


def _of_apptainer(image_path: str, env: Mapping[str, str]) -> ImageConfig:
    document = config_within(image_path)
    where = f"{image_path} (oci-config.json)"
    known = (
        config_from_document(document, where, MADE_SO) if document else _config({}, (), None, "")
    )
    if (custom := _cat(image_path, _CUSTOM, env)) is None:
        return known
    from container_engine.images.sif_environment import assigned

    texts = [_cat(image_path, f"{_APPTAINER}/env/{name}", env) for name in _AROUND]
    # what a registry's image says is better known from its configuration
    text = "\n".join(("" if document else texts[0] or "", custom, texts[1] or ""))
    _refuse_nul(image_path, text)
    variables, other = assigned(text, known.env)
    source = f"{image_path} (/{_APPTAINER})"
    merged = _config({**known.env, **variables}, known.entrypoint, known.workdir, source)
    return merged._replace(other=other)


def config_within(image_path: str) -> bytes | None:
    """Return the OCI configuration in a SIF file, None if there is none. Raise UserError."""
    start, size = place(image_path).config
    if size > _MOST_BYTES:
        raise UserError("its configuration is too large", _UNSAFE, "image-damaged", name=image_path)
    if not size:
        return None
    with open(image_path, "rb") as file:
        return b'{"config":%b}' % os.pread(file.fileno(), size, start)


def has_shell_files(image_path: str, env: Mapping[str, str]) -> bool:
    """Check whether Apptainer has left shell files in an image. Raise as `config_from_files`."""
    return _cat(image_path, _CUSTOM, env) is not None


def left_to_a_shell(line: str) -> str:
    """Return a warning for `ImageConfig.other`."""
    remedy = f"startup = ['. /{_CUSTOM}'] runs all of it"
    return f"variables of the image's %environment are missing, no shell ran '{line}'; {remedy}"


def _of_enroot(image_path: str, env: Mapping[str, str]) -> ImageConfig:
    environment = _cat(image_path, "etc/environment", env)
    script = _cat(image_path, "etc/rc", env)
    _refuse_nul(image_path, environment or "", script or "")
    variables = parse_environment(environment or "")
    workdir, entrypoint = parse_rc(script or "")
    known = bool(variables or workdir or entrypoint)
    source = f"{image_path} (/etc/environment, /etc/rc)" if known else ""
    return _config(variables, entrypoint, workdir, source)


def parse_environment(text: str) -> dict[str, str]:
    """Parse KEY=VALUE lines. Values may be quoted, as distributions write them."""
    matches = (_ENV_LINE.fullmatch(line.strip()) for line in text.splitlines())
    return {match[1]: _unquoted(match[2]) for match in matches if match}


def parse_rc(text: str) -> tuple[str | None, tuple[str, ...]]:
    """Return the working directory and entrypoint of an image with enroot's start script.

    The script is the entrypoint: it changes the directory and then executes its arguments.
    """
    workdir = _RC_WORKDIR.search(text)
    entrypoint = ("/bin/sh", "/etc/rc") if _RC_ENTRYPOINT.search(text) else ()
    return (workdir[1] if workdir else None), entrypoint


def _refuse_nul(source: str, *texts: str) -> None:
    """Raise UserError if a text has a NUL.

    The kernel's strings cannot hold it, and it separates texts in the engine's own formats.
    """
    if any("\0" in text for text in texts):
        raise UserError(
            "a NUL character in a variable, the entrypoint or the working directory",
            _UNSAFE,
            "image-damaged",
            where=source,
        )


def _cat(image_path: str, member: str, env: Mapping[str, str]) -> str | None:
    try:
        # a file of a few compressed bytes may expand to any number of zeros
        said = unsquashfs(["-cat"], image_path, [member], env, _READ_TIMEOUT_S, _MOST_BYTES)
        return said.decode("utf-8", "replace")
    except process.TooMuchError:
        raise UserError(
            f"'/{member}' in the image is larger than 1 MiB",
            _UNSAFE,
            "image-damaged",
            where=image_path,
        ) from None
    except process.CommandError as error:
        if error.status < 0:
            raise SiteError(error.message, see=error.see, details=error.details) from None
        return None  # the exit code does not distinguish a missing member from other errors


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


def _config(
    env: Mapping[str, str], entrypoint: tuple[str, ...], workdir: str | None, source: str
) -> ImageConfig:
    """Add the default PATH if the image has none, as Docker and Podman do.

    Leave out what would decide where the user's later steps run, or with which images.
    """
    own = {name: value for name, value in env.items() if not is_read_outside(name)}
    if not own.get("PATH"):
        own["PATH"] = DEFAULT_PATH
    left_out = tuple(sorted(name for name in env if name not in own))
    if workdir is not None and not workdir.startswith("/"):
        # as a runtime takes it, which begins at the root
        workdir = posixpath.normpath(f"/{workdir}")
    return ImageConfig(own, entrypoint, workdir, source, left_out)

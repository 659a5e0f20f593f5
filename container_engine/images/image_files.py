"""Install an image's file, and keep and trust what is beside it: digest, names, last use.

In a directory that others may write, such as /tmp or a project's scratch, any user could add a file
to another user's image or environment, and would decide what runs.

IMAGE.sha256 has five lines: the digest of the image, that of its configuration or "-", the size and
modification time (ns) that the image had then, its inode and change time (ns), and a digest of
samples of its content. A launch reads only this file, and the samples if other content may have
been written with the old time. An image that a store keeps under its digest is never replaced, and
has three lines.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterable
from typing import NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.files import owner_name, publish, read_regular, sha256
from container_engine.base.process import reason

MOST_BESIDE = 4 << 20
_SEE = "untrusted-file"


def config_path(image_path: str) -> str:
    """Return the path of an image file's configuration."""
    return f"{image_path}.json"


def read_beside(path: str, main: str, see: str = "image-file-unreadable") -> bytes | None:
    """Return the content of `path`, or None if there is no such file.

    Raise UserError if it is not a regular file of at most 4 MiB, if everybody may write it, or if
    its owner is neither the owner of `main` nor this user nor root; beside an image of a store, as
    `check_stored` does. `see` is the error's code if the file cannot be read.
    """
    try:
        link = os.lstat(path)
        is_link = stat.S_ISLNK(link.st_mode)
        if is_link:
            # only its owner can replace a symlink, and chose its target
            _check_beside(path, link, main)
        return read_regular(
            path, MOST_BESIDE, lambda found: _check_beside(path, found, main), follow=is_link
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(reason(error), see=see, where=path) from None


def read_small(path: str) -> bytes:
    """Return the content of a file of at most 4 MiB, regardless of its owner. Raise OSError."""
    return read_regular(path, MOST_BESIDE, follow=True)


def check_stored(path: str, status: os.stat_result) -> None:
    """Raise UserError if a user whom nobody has to trust may have put the file into its store.

    That is so if all users may write it; if they may exchange it, or the directory that it is in;
    and if they may add files, and its owner is one of them. A group that shares a store trusts its
    members: each of them may write all of it.
    """
    if status.st_mode & stat.S_IWOTH:
        raise UserError("everybody may write it", f"chmod o-w {path}", _SEE, where=path)
    place = os.path.dirname(path)
    for one in (place, os.path.dirname(place)):
        found = os.stat(one)
        if not found.st_mode & stat.S_IWOTH:
            continue
        remedy = f"chmod -R o-w {os.path.dirname(place)}, after a look at what is in it"
        if not found.st_mode & stat.S_ISVTX:
            raise UserError(f"everybody may exchange what is in {one}", remedy, _SEE, where=path)
        if status.st_uid not in {found.st_uid, os.geteuid(), 0}:
            raise UserError(
                f"owned by {owner_name(status.st_uid)}, in a store that everybody may write",
                f"remove it, and chmod o-w {one}",
                _SEE,
                where=path,
            )


def _check_beside(path: str, status: os.stat_result, main: str) -> None:
    if _is_stored(main):
        check_stored(path, status)
        return
    of_main = os.stat(main).st_uid
    if status.st_uid not in {of_main, os.geteuid(), 0}:
        raise UserError(
            f"owned by {owner_name(status.st_uid)}, and {main} by {owner_name(of_main)}",
            "it would decide what runs: remove it, or let both have one owner",
            _SEE,
            where=path,
        )
    if stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IWOTH:
        message = "everybody may write it, and it decides what runs"
        raise UserError(message, f"chmod o-w {path}", _SEE, where=path)


def _is_stored(main: str) -> bool:
    directory, name = os.path.split(main)
    return name.startswith("sha256-") and os.path.basename(directory) == "images"


SUMS_SUFFIX = ".sha256"
_NONE = "-"
_SAMPLES, _SAMPLE = 16, 4096  # number of samples, and bytes in each


class Sums(NamedTuple):
    """The SHA-256 sums of an image and its configuration in hexadecimal; `config` may be "".

    `stamp` is the size and time that the image had, `change` its inode and change time, and
    `samples` are of its content; both are "" for an image that has yet to get its name in a store.
    """

    image: str
    config: str
    stamp: str = ""
    change: str = ""
    samples: str = ""

    def to_bytes(self) -> bytes:
        lines = [self.image, self.config or _NONE, self.stamp, self.change, self.samples]
        return "".join(f"{line}\n" for line in lines).encode()

    def fit(self, path: str) -> bool:
        """Check that these are the sums of the file as it is now. Raise OSError."""
        status = os.stat(path)
        if self.stamp != _stamp(status):
            return False
        # a file that was renamed or linked has the same content
        is_same = not self.change or self.change == _change(status)
        return is_same or self.samples == samples(path, status.st_size)


def known_digest(path: str) -> str:
    """Return the recorded digest of `path`, sha256:…; "" if there is none or the file changed."""
    try:
        found = sums(path)
        return f"sha256:{found.image}" if found is not None and found.fit(path) else ""
    except OSError:
        return ""


def has_changed(path: str) -> bool:
    """Check whether the content of `path` differs from the recorded digest. Raise OSError.

    The file is read only if it does not fit its record. Without a record the answer is no.
    """
    found = sums(path)
    if found is None or found.fit(path):
        return False
    digest = computed_digest(path)
    if digest != f"sha256:{found.image}":
        return True
    note_digest(path, digest)
    return False


def computed_digest(path: str) -> str:
    """Return the digest of `path`, sha256:…, computed by reading the file. Raise OSError.

    A file that is replaced or written meanwhile is an error: it would be known by that digest.
    """
    before, digest = version(path), f"sha256:{sha256(path)}"
    if version(path) != before:
        raise OSError(errno.EBUSY, CHANGED, path)
    return digest


def record_digest(path: str, digest: str, config: bytes | None = None, made: str = "") -> None:
    """Record `digest` for `path`; `made` is where a store's file is that has not that name yet.

    Without `config`, the recorded digest of the configuration stays. Raise OSError.
    """
    if config is None:
        before = sums(path)
        of_config = before.config if before is not None else ""
    else:
        import hashlib

        of_config = hashlib.sha256(config).hexdigest()
    status = os.stat(made or path)
    found = Sums(digest.removeprefix("sha256:"), of_config, _stamp(status))
    if not made:
        found = found._replace(change=_change(status), samples=samples(path, status.st_size))
    publish(path + SUMS_SUFFIX, found.to_bytes())


def note_digest(path: str, digest: str) -> None:
    """Record `digest` if this user owns `path`. Errors are ignored: it only saves reading."""
    with contextlib.suppress(OSError):
        if os.stat(path).st_uid == os.geteuid():
            record_digest(path, digest)


def sums(path: str) -> Sums | None:
    """Return the sums recorded for the image `path`, None if they cannot be read or trusted."""
    try:
        text = read_beside(path + SUMS_SUFFIX, path)
        lines = text.decode("ascii").splitlines() if text else []
    except (UserError, UnicodeDecodeError):
        return None
    if not lines or not lines[0]:
        return None
    image, config, *rest = (*lines, *[""] * 4)[:5]
    return Sums(image, "" if config == _NONE else config, *rest)


def samples(path: str, size: int) -> str:
    """Return a digest of parts of the content, from its beginning to its end. Raise OSError."""
    import hashlib

    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        for number in range(_SAMPLES):
            place = max(size - _SAMPLE, 0) * number // (_SAMPLES - 1)
            digest.update(os.pread(file.fileno(), _SAMPLE, place))
    return digest.hexdigest()


CHANGED = "changed while it was read"


def version(path: str) -> str:
    """Return what changes if a file is replaced or written. Raise OSError."""
    status = os.stat(path)
    return f"{status.st_ino} {_stamp(status)}"


def _stamp(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_mtime_ns}"


def _change(status: os.stat_result) -> str:
    return f"{status.st_ino} {status.st_ctime_ns}"


MANIFEST_SUFFIX = ".manifest"  # as in the registry: the image's name is its digest
USED_SUFFIX = ".used"  # the time of the import, and of the last launch that used the image
# the names under which it was fetched; nodes read it (node/start/site_rules)
NAMES_SUFFIX = ".names"
SUFFIXES = (".json", SUMS_SUFFIX, MANIFEST_SUFFIX, USED_SUFFIX, NAMES_SUFFIX)
_MOST_NAMES = 64
_STAMP_S = 6 * 3600  # launches record the use of an image no more often
_REPAIR = "ce store repair removes it (--force: even while jobs use it); then import it again"


class Use(NamedTuple):
    """The times of an image's import and last use, in seconds since 1970."""

    imported: float
    used: float


def existing(path: str) -> UserError:
    """Return the error for a file that must not be replaced, which no launch makes."""
    return UserError("exists", "--force replaces it", see="", name=path)


def settle(made: str, path: str, *, replaces: bool) -> None:
    """Rename `made` to `path`. Raise UserError if that exists and must not change, and OSError."""
    if replaces:
        os.replace(made, path)
    elif not appear(made, path):
        raise existing(path)


def install(made: str, configuration: bytes, path: str, *, replaces: bool) -> None:
    """Rename the file `made` to the image `path`. Raise UserError if it exists and must not change.

    The configuration is written first, so that no image is ever without one. Raise OSError.
    """
    digest = _finished(made)
    if not replaces and os.path.lexists(path):
        raise existing(path)
    publish(config_path(path), configuration)
    settle(made, path, replaces=replaces)
    with contextlib.suppress(OSError):  # the record only saves reading the file again
        record_digest(path, digest, configuration)


def install_stored(made: str, configuration: bytes, path: str, manifest: bytes) -> bool:
    """Install the file `made` as the image `path` of a store; return False if that exists.

    An image is never replaced, because jobs may have it mounted. The files beside it then stay,
    too, so that the checksum is the image's own. Raise OSError.
    """
    if os.path.lexists(path):
        return False
    digest = _finished(made)
    publish(config_path(path), configuration)
    publish(path + MANIFEST_SUFFIX, manifest)
    record_digest(path, digest, configuration, made)
    note_use(path, Use(time.time(), time.time()))
    if appear(made, path):
        return True
    # another process was quicker: the checksum beside is ours, but the image is not
    record_digest(path, computed_digest(path), configuration)
    return False


def refuse_changed(name: str, path: str) -> None:
    """Raise UserError if the image `path`, which is not replaced, has changed since its import."""
    if has_changed(path):
        why = f"the store has it, but the content of {path} has changed since its import"
        raise UserError(why, _REPAIR, "image-damaged", name=name)


def _finished(made: str) -> str:
    """Flush the file to disk and return its digest."""
    from concurrent.futures import ThreadPoolExecutor  # 10 ms that a plan need not wait for

    with open(made, "rb") as file, ThreadPoolExecutor(1) as aside:
        digest = aside.submit(computed_digest, made)
        os.fsync(file.fileno())
        return digest.result()


_HERE, _NO_REPLACE = -100, 1  # AT_FDCWD, RENAME_NOREPLACE
# errors of file systems without hard links
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


def appear(made: str, path: str) -> bool:
    """Rename the file `made` to `path` and return True, or return False if `path` exists.

    The file server decides. Without hard links renameat2(2) does the same. Where a file system has
    neither, `path` is looked for first; a process that makes it at that moment goes unnoticed.
    """
    try:
        os.link(made, path)
    except FileExistsError:
        # the file server may have made the link although its reply was lost
        return os.path.samefile(made, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _renamed(made, path)
    with contextlib.suppress(OSError):
        os.unlink(made)
    return True


def _renamed(made: str, path: str) -> bool:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    try:
        failed = libc.renameat2(_HERE, os.fsencode(made), _HERE, os.fsencode(path), _NO_REPLACE)
        number = ctypes.get_errno()
    except AttributeError:  # an old C library
        failed, number = -1, errno.ENOSYS
    if not failed:
        return True
    if number == errno.EEXIST or os.path.lexists(path):
        return False
    if number not in {errno.EINVAL, errno.ENOSYS}:
        raise OSError(number, os.strerror(number), made)
    os.replace(made, path)
    return True


def note_use(path: str, use: Use) -> None:
    """Record the times in `use` beside the image `path`. Raise OSError."""
    publish(path + USED_SUFFIX, f"{use.imported:.0f}\n{use.used:.0f}\n".encode())


def note_name(path: str, name: str, judge: str = "") -> None:
    """Record beside the image `path` that it was fetched as `name`.

    `judge` is the hash of the signature policy that has accepted it, "" for none. Raise OSError.
    """
    known = recorded_names(path)
    if known.get(name) == judge:
        return
    lines = [f"{one} {by or '-'}\n" for one, by in {**known, name: judge}.items()]
    publish(path + NAMES_SUFFIX, "".join(lines[-_MOST_NAMES:]).encode())


def recorded_names(path: str) -> dict[str, str]:
    """Return the recorded names of the image `path`, each with its `judge` (see `note_name`).

    As on nodes, they are trusted only if the image's owner or root wrote them. Otherwise adding a
    name would rewrite somebody else's names as this user's.
    """
    try:
        if os.lstat(path + NAMES_SUFFIX).st_uid not in {0, os.stat(path).st_uid}:
            return {}
        lines = read_small(path + NAMES_SUFFIX).decode("utf-8", "replace").splitlines()
    except OSError:
        return {}
    pairs = (line.split(" ") for line in lines)
    return {pair[0]: pair[1].replace("-", "") for pair in pairs if len(pair) == 2}


def recorded_use(path: str) -> Use | None:
    """Return the recorded times of the image `path`, or None if they cannot be read."""
    try:
        imported, used = map(float, read_small(path + USED_SUFFIX).split())
    except (OSError, ValueError):
        return None
    return Use(imported, used)


def mark_used(path: str, now: float) -> None:
    """Record that a launch uses an image. Errors are ignored: the store may be another user's.

    The times of the image's files are renewed, too, so that a purge of old files spares them.
    """
    noted = recorded_use(path)
    if noted is not None and now - noted.used > _STAMP_S:
        with contextlib.suppress(OSError):
            note_use(path, noted._replace(used=now))
        renew(path, now)


def renew(path: str, now: float) -> None:
    """Renew the times of an image and of the files beside it."""
    digest = known_digest(path)
    renew_files((path, *belongings(path)), now)
    if digest:
        note_digest(path, digest)  # the content has not changed, only its time


def renew_files(paths: Iterable[str], now: float) -> None:
    """Renew the times of files, except those that this user may not change."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.utime(path, (now, now))


def belongings(path: str) -> tuple[str, ...]:
    """Return the paths of the files beside an image of a store, existing or not."""
    return tuple(path + suffix for suffix in SUFFIXES)

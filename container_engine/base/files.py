"""Write files atomically, and tell whose they are: this user's alone, or of somebody trusted.

Nodes import this, so it imports only what Python itself has loaded.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from errno import EFBIG, EINVAL, EPERM

TYPE_CHECKING = False
if TYPE_CHECKING:
    import hashlib
    from collections.abc import Callable, Collection, Iterator, Mapping
    from typing import BinaryIO

    # a path, the reason for refusing it, and the command that repairs it
    Distrust = tuple[str, str, str]

_PIECE = 1 << 20
# the caller's umask, as long as another one is in force
_given: list[int] = []


def keep_others_out() -> None:
    """Let nothing that this process makes be writable for everybody, whatever the umask is."""
    given = os.umask(stat.S_IWOTH)
    os.umask(given | stat.S_IWOTH)
    _given[:] = [given]


def with_given_umask() -> None:
    """Return to the caller's umask, for programs of the user's that this process becomes."""
    if _given:
        os.umask(_given.pop())


def publish(path: str, content: bytes) -> None:
    """Replace the file `path` atomically; its directory is created. Raise OSError."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    replace(path, content)


def replace(path: str, content: bytes, mode: int | None = None) -> None:
    """Replace the file `path` atomically; it gets `mode`, if any, whatever the umask is.

    Raise OSError.
    """
    # an unpredictable name, because others may write where a group shares its images
    draft = f"{path}.{os.urandom(8).hex()}"
    try:
        with created(draft) as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        _remove(draft)
        raise


def created(path: str, mode: int = 0o666) -> BinaryIO:
    """Create and open the file `path`. Raise OSError if anything is there, even a symlink."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(path, flags, mode), "wb")


class FreshDirectory:
    """An empty directory for the body of a with statement, which is removed afterwards.

    Anything that a killed process left there is removed first.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> str:
        self.__exit__()
        os.makedirs(self._path, mode=0o700)
        return self._path

    def __exit__(self, *_: object) -> None:
        import shutil

        shutil.rmtree(self._path, ignore_errors=True)


def sha256(path: str) -> str:
    """Return the digest of a file in hexadecimal."""
    import hashlib

    digest = hashlib.sha256()
    sum_of(path, digest)
    return digest.hexdigest()


def sum_of(
    path: str, digest: hashlib._Hash, is_stopped: Callable[[], bool] = lambda: False
) -> bool:
    """Add the content of a file to a sum; return whether that ended before `is_stopped` is true."""
    with open(path, "rb", buffering=0) as file:
        while data := file.read(_PIECE):
            if is_stopped():
                return False
            digest.update(data)
    return True


def names_in(directory: str) -> list[str]:
    """Return the sorted names in a directory; [] if it cannot be read."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def files_of(directory: str) -> list[str]:
    """Return the sorted paths of the regular files in a directory, which may be missing."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.path for entry in entries if entry.is_file(follow_symlinks=False))
    except FileNotFoundError:
        return []


def now_at(directory: str) -> float:
    """Return the time by the clock of the file server of `directory`, else by the local clock."""
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            os.write(file.fileno(), b"\n")
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return time.time()


def is_older(path: str, seconds: float, now: float) -> bool:
    """Check whether a file was last written more than `seconds` ago; False if it is gone.

    `now` comes from `now_at`.
    """
    try:
        return now - os.stat(path).st_mtime > seconds
    except OSError:
        return False


# ---- files of this user's alone ---------------------------------------------------------------

# A file that changes twice within one tick of a file system's clock looks unchanged. The coarsest
# clocks count whole seconds, and a file server's may differ a little from ours.
SETTLED_NS = 2_000_000_000
_OTHERS, OTHERS_WRITE = 0o077, stat.S_IWGRP | stat.S_IWOTH
_MOST = 16 << 20


def user_directory(variable: str, usual: str, environment: Mapping[str, str]) -> str:
    """Return the directory of an XDG variable, else `usual` below HOME; "" if that is no path."""
    place, home = environment.get(variable, ""), environment.get("HOME", "")
    if place.startswith("/"):
        return place
    return f"{home}/{usual}" if home.startswith("/") else ""


def make_own(path: str, mode: int = 0o700) -> None:
    """Make a directory that is this user's alone, unless it is there. Raise OSError.

    Those above it that are missing can be read by all and written by nobody else, as os.makedirs
    would not see to: it makes them with all rights that the umask leaves.
    """
    above = os.path.dirname(path)
    if above and not os.path.isdir(above):
        make_own(above, 0o755)
    try:  # noqa: SIM105  # importing contextlib costs more
        os.mkdir(path, mode)
    except FileExistsError:
        pass


def own_directory(path: str, at: int | None = None) -> int:
    """Return a descriptor of a directory that is this user's alone, made if it is missing.

    `at` is the descriptor of the directory that a relative `path` starts from. Raise OSError.
    """
    try:  # noqa: SIM105  # importing contextlib costs more
        os.mkdir(path, 0o700, dir_fd=at)
    except FileExistsError:
        pass
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, dir_fd=at)
    if not is_own(os.fstat(fd)):
        os.close(fd)
        raise PermissionError(f"{path} is not this user's alone")
    return fd


def is_own_directory(path: str, others: int = _OTHERS) -> bool:
    """Check that a path is a directory for which `is_own` holds, and no link to one."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and is_own(found, others)


def is_own(found: os.stat_result, others: int = _OTHERS) -> bool:
    """Check that a file is this user's, and that nobody else has any of the rights `others`."""
    return found.st_uid == os.geteuid() and not found.st_mode & others


def judge_own(found: os.stat_result) -> None:
    """Raise ValueError for a file that is not this user's alone."""
    if not is_own(found):
        raise ValueError("not this user's alone")


def fingerprint(content: bytes) -> str:
    """Return the FNV-1a hash, as programs in C compute it; importing hashlib takes 5 ms."""
    value = 0xCBF29CE484222325
    for byte in content:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def open_place(directory: str) -> int:
    """Return a descriptor of a directory that, like its parent, is this user's alone.

    Both are made if they are missing. Raise OSError.
    """
    above, _slash, last = directory.rpartition("/")
    make_own(os.path.dirname(above))
    first = own_directory(above)
    try:
        return own_directory(last, first)
    finally:
        os.close(first)


def publish_private(directory: str, name: str, content: bytes, most: int) -> None:
    """Write a file where `open_place` leads; keep the newest `most` there. Raise OSError."""
    _publish_at(open_place(directory), name, content, most)


def publish_own(directory: str, name: str, content: bytes, most: int) -> None:
    """Do what `publish_private` does in a directory whose parent others may read."""
    make_own(os.path.dirname(directory))
    _publish_at(own_directory(directory), name, content, most)


def _publish_at(here: int, name: str, content: bytes, most: int) -> None:
    try:
        # by the descriptor: the path may lead elsewhere by now
        at = f"/proc/self/fd/{here}"
        write_private(at, name, content)
        forget_oldest(at, most)
    finally:
        os.close(here)


def read_regular(
    path: str,
    most: int = _MOST,
    judge: Callable[[os.stat_result], object] | None = None,
    *,
    follow: bool = False,
) -> bytes:
    """Return the content of a regular file of at most `most` bytes, through no link by default.

    `judge` gets the file's status first, and raises what it has against it. Nothing is waited for,
    as a pipe would make its reader do. Raise OSError.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    with open(os.open(path, flags), "rb", buffering=0) as file:
        found = os.fstat(file.fileno())
        if judge is not None:
            judge(found)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(EINVAL, "not a regular file", path)
        content, left = b"", most + 1
        while found.st_size <= most and left and (more := file.read(left)):
            content, left = content + more, left - len(more)
        if found.st_size > most or not left:
            limit = f"{most >> 20} MiB" if most >> 20 else f"{most >> 10} KiB"
            raise OSError(EFBIG, f"larger than {limit}", path)
        return content


_DRAFT = "."  # how its name begins, from which it is renamed to one that does not


def write_private(directory: str, name: str, content: bytes) -> None:
    """Write a draft beside the file, and rename it. Raise OSError."""
    draft = f"{directory}/{_DRAFT}{name}.{os.urandom(3).hex()}"
    file = created(draft, 0o600)
    try:
        with file:
            file.write(content)
        os.rename(draft, f"{directory}/{name}")
    except BaseException:
        _remove(draft)
        raise


def forget_oldest(directory: str, most: int) -> None:
    """Remove all files that are older than the youngest `most`; drafts do not count.

    Of many that write at once, each sees the others' drafts. Raise OSError if the directory cannot
    be read.
    """
    with os.scandir(directory) as entries:
        found = list(entries)
    ages = sorted(_age(one) for one in found if not one.name.startswith(_DRAFT))
    for one in found if len(ages) > most else ():
        if _age(one) < ages[-most]:
            _remove(one.path)


def _age(entry: os.DirEntry[str]) -> int:
    """Return when a file was last changed; 0 if another process has removed it meanwhile."""
    try:
        return entry.stat(follow_symlinks=False).st_mtime_ns
    except FileNotFoundError:
        return 0


def is_young(path: str, now_ns: int) -> bool:
    """Check whether a file has changed so recently that another change might go unnoticed."""
    try:
        found = os.stat(path) if os.path.exists(path) else os.lstat(path)
    except (OSError, ValueError):
        return False
    return found.st_ctime_ns > now_ns - SETTLED_NS


def _remove(path: str) -> None:
    try:  # noqa: SIM105  # importing contextlib costs more
        os.unlink(path)
    except OSError:
        pass


# ---- files that decide what is run ------------------------------------------------------------
# The only place in Python that checks who can change one, with one exception: report/trace.py of
# the nodes compares inline, because every launch would pay for the import. The plugin has its own
# check, `append` in spank_plugin/plugin/audit.c.


def owner_name(uid: int) -> str:
    """Return the name of a user, or "user UID" for one without a name."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def owner_fault(
    path: str,
    status: os.stat_result,
    owners: Collection[int],
    *,
    owner: str = "root",
    sticky_is_safe: bool = False,
) -> Distrust | None:
    """Return the fault if others than `owners` can change what `status` describes, or None.

    `owner` is shown as the one it should have. In a sticky directory (/tmp) other users cannot
    replace its owner's files, but they can add their own.
    """
    if status.st_uid not in owners:
        return path, f"owned by user {status.st_uid}, not by {owner}", f"chown {owner} {path}"
    sticky = sticky_is_safe and status.st_mode & stat.S_ISVTX
    if status.st_mode & OTHERS_WRITE and not sticky:
        return path, "others than its owner may write it", f"chmod go-w {path}"
    return None


def owner_fault_above(path: str, owners: Collection[int]) -> Distrust | None:
    """Return the first fault in the directories above `path`, a real path. Raise OSError."""
    while path != "/":
        path = os.path.dirname(path)
        found = owner_fault(path, os.lstat(path), owners, sticky_is_safe=True)
        if found:
            return found
    return None


# once: a process that becomes another user may not reach the code any more
_OF_ENGINE = frozenset((0, os.stat(__file__).st_uid))


def of_engine() -> frozenset[int]:
    """Return the uids that decide what is run anyway: root and the owner of the engine's code."""
    return _OF_ENGINE


def code_in_use() -> list[str]:
    """Return the files of the engine's code that this process has loaded."""
    own = __name__.partition(".")[0]
    loaded = [module for name, module in sys.modules.items() if name.partition(".")[0] == own]
    return sorted(file for module in loaded if (file := getattr(module, "__file__", None)))


def looked_at(path: str) -> dict[str, None]:
    """Return the questions (answers.py) about files on which `distrust` depends."""
    real = os.path.realpath(path)
    above = [f"o{real[:at] or '/'}" for at, letter in enumerate(real) if letter == "/"]
    return dict.fromkeys((f"f{path}", f"r{path}", f"o{__file__}", *above))


def distrust(path: str, status: os.stat_result | None = None) -> Distrust | None:
    """Return the fault of a file, which may be a symlink, and of the directories above it.

    Only root and the owner of the engine's code are trusted. Raise OSError.
    """
    owners, real = of_engine(), os.path.realpath(path)
    return owner_fault(path, status or os.stat(real), owners) or owner_fault_above(real, owners)


class DistrustError(OSError):
    """Others than those trusted can change the file or directory `filename`."""


def read_trusted(path: str, most: int, *, is_users: bool = False) -> bytes:
    """Return the content of a regular file that only trusted users can change.

    If it `is_users` own, it may be the user's, and it does not matter who owns the directories
    above it. Raise OSError.
    """
    return read_regular(
        path, most, lambda found: _judge_trusted(path, found, is_users=is_users), follow=True
    )


def trusted_files(
    directory: str,
    endings: tuple[str, ...],
    most: int,
    asked: dict[str, None] | None = None,
    *,
    is_users: bool = False,
) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of files as `read_trusted`, in order; none if there is no directory.

    It must be trusted, too. `asked` gets the questions on which the result depends. Raise OSError.
    """
    asked = {} if asked is None else asked
    asked |= looked_at(directory)
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return
    _judge_trusted(directory, os.stat(directory), is_users=is_users)
    for name in names:
        if name.endswith(endings):
            path = f"{directory}/{name}"
            asked |= looked_at(path)
            yield path, read_trusted(path, most, is_users=is_users)


def _judge_trusted(path: str, status: os.stat_result, *, is_users: bool) -> None:
    if is_users:
        found = owner_fault(path, status, (0, os.getuid()), owner="you")
    else:
        found = distrust(path, status)
    if found:
        raise DistrustError(EPERM, found[1], found[0])

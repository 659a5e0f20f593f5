"""Write a user's own files atomically: other processes read a whole file or none.

Reading is for any file that somebody else may have put in the place of one.
"""

from __future__ import annotations

import os
import stat
from errno import EFBIG, EINVAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# A file that changes twice within one tick of a file system's clock looks unchanged. The coarsest
# clocks count whole seconds, and a file server's may differ a little from ours.
SETTLED_NS = 2_000_000_000
_OTHERS, OTHERS_WRITE = 0o077, 0o022
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
    here = open_place(directory)
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


def write_private(directory: str, name: str, content: bytes) -> None:
    """Write a draft beside the file, and rename it. Raise OSError."""
    draft = f"{directory}/.{name}.{os.urandom(3).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(draft, flags, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(content)
        os.rename(draft, f"{directory}/{name}")
    except BaseException:
        _remove(draft)
        raise


def forget_oldest(directory: str, most: int) -> None:
    """Remove all but the youngest `most` files. Raise OSError if the directory cannot be read."""
    with os.scandir(directory) as entries:
        found = list(entries)
    if len(found) <= most:
        return
    ages = sorted((one.stat(follow_symlinks=False).st_mtime_ns, one.path) for one in found)
    for _age, path in ages[:-most]:
        _remove(path)


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

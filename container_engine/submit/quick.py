"""The fast path of `ce run` and `ce plan`: returns a remembered plan if no input has changed.

For srun, salloc and sbatch a program does the same without Python (spank_plugin/start/memo.c); the
tests of memos ask both (tests/unit/plan/conftest.py). This module imports only `os` and the like:
even `json` would take 8 ms, and the models 100 ms. `memo.py` writes the memos that are read here;
both sides use the functions below for the path of a memo, its fields and the signature of a file.

A memo is a line that names the format, then fields that end with NUL: version of the engine, uid,
key (name, directory, prefix, options), expiry in seconds since 1970 (0: never), number of files,
path and signature of each, number of variables, name and value of each, notices, the beginning of
the planner's output, number of parts of the plan and each of them, and an end mark, which shows
that nothing is missing.
"""

import os
import stat
import time

from container_engine import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MAGIC = b"container-engine plan memo 7\n"
END = b"end"
# keywords in a planner's output: a plan follows, or no container (spank_plugin/common/carried.h)
PLAN, HOST = "plan\n", "host\n"
# Lines before the keyword, for the plugin, which does not parse the plan: the site runs batch
# scripts inside; the image store of this step alone; the image, for the audit; the key of a
# container that lives with its job, and the directory below which it is kept.
# spank_plugin/plugin/planner.c has the same.
INSIDE = "batch_script=inside\n"
VOID_STORE, IMAGE, KEPT = "void_store=", "image=", "kept="
UNSET = b"-"
_MAX_DIGITS = 18
_OTHERS = 0o077
_OTHERS_WRITE = 0o022
_FNV_OFFSET, _FNV_PRIME, _64_BITS = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1


def directory(environment: "Mapping[bytes, bytes]") -> bytes | None:
    """Return the directory of this user's memos, or None if the environment names no place."""
    cache = environment.get(b"XDG_CACHE_HOME", b"")
    if not cache.startswith(b"/"):
        home = environment.get(b"HOME", b"")
        if not home.startswith(b"/"):
            return None
        cache = home + b"/.cache"
    return cache + b"/container-engine/plans"


def key(
    name: bytes | None, cwd: bytes, prefix: bytes, words: "Sequence[bytes]"
) -> tuple[bytes, ...]:
    """Return the key of a request; no two requests have the same."""
    options = b"".join(b"%d:%s" % (len(word), word) for word in words)
    return variable(name), cwd, prefix, options


def file_name(key: "Sequence[bytes]") -> str:
    """Return the file name for a key. A collision only costs time: the memo holds the whole key."""
    value = _FNV_OFFSET
    for byte in b"\0".join(key):
        value = ((value ^ byte) * _FNV_PRIME) & _64_BITS
    return f"{value:016x}"


def signature(path: bytes) -> bytes:
    """Return bytes that change with the state of a file, even if it is absent or inaccessible.

    They leave out the device number: a network file system has a different one on each host.
    """
    try:
        found = os.stat(path)
    except OSError as error:
        return b"errno %d" % (error.errno or 0)
    except ValueError:
        return b"impossible"
    return b"%d %d %d %d" % (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def variable(value: bytes | None) -> bytes:
    return UNSET if value is None else b"=" + value


def is_private_directory(path: bytes, uid: int) -> bool:
    """Check whether `path` is a directory of `uid` that no other user can write to."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    safe_mode = not found.st_mode & _OTHERS_WRITE
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and safe_mode


def recall(
    key: "Sequence[bytes]", environment: "Mapping[bytes, bytes]", uid: int
) -> "list[bytes] | None":
    """Return what was printed the last time, or None if it is no longer valid.

    These are the notices, the planner's output before the plan, and the parts of the plan.
    """
    place = directory(environment)
    if place is None or not is_private_directory(place, uid):
        return None
    text = _read(os.path.join(place, file_name(key).encode()), uid)
    if text is None or not text.startswith(MAGIC):
        return None
    try:
        return _verified(text[len(MAGIC) :].split(b"\0"), key, environment, uid)
    except (IndexError, ValueError):
        return None


def _read(path: bytes, uid: int) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    with open(fd, "rb", buffering=0) as file:
        found = os.fstat(fd)
        own = stat.S_ISREG(found.st_mode) and found.st_uid == uid
        return file.readall() if own and not found.st_mode & _OTHERS else None


def _verified(
    fields: "list[bytes]",
    key: "Sequence[bytes]",
    environment: "Mapping[bytes, bytes]",
    uid: int,
) -> "list[bytes] | None":
    head = [__version__.encode(), b"%d" % uid, *key]
    files_at = len(head) + 2
    if fields[: len(head)] != head or _is_over(_number(fields[len(head)])):
        return None
    env_at = files_at + 2 * _number(fields[files_at - 1]) + 1
    notices_at = env_at + 2 * _number(fields[env_at - 1])
    notices, said, number, *parts = fields[notices_at:-2]
    if fields[-2:] != [END, b""] or len(parts) != _number(number):
        return None
    if not _same(fields[files_at : env_at - 1], signature):
        return None
    if not _same(fields[env_at:notices_at], lambda name: variable(environment.get(name))):
        return None
    # empty output does not mean that no container is wanted: a keyword does
    if not (said.endswith(PLAN.encode()) if parts else said == HOST.encode()):
        return None
    return [notices, said, *parts]


def _number(field: bytes) -> int:
    """Return the number of a field of digits alone. Raise ValueError for others."""
    if not field.isdigit() or len(field) > _MAX_DIGITS:
        raise ValueError("not a number")
    return int(field)


def _is_over(end: int) -> bool:
    return end != 0 and time.time() >= end


def _same(pairs: "Sequence[bytes]", now: "Callable[[bytes], bytes]") -> bool:
    return all(now(pairs[i]) == pairs[i + 1] for i in range(0, len(pairs), 2))


def with_secret(parts: "Sequence[str]") -> str:
    """Return the plan of one launch, "" for no container: its parts with a new secret between them.

    All nodes of a step know the secret from the plan, and no other process does. It is never
    written to a memo.
    """
    return os.urandom(32).hex().join(parts)

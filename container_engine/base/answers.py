"""Record what a function asked and what it came to, so that the same question is answered again.

An answer is a file of the user's alone: a header, the request, witnesses and a result. A witness is
a question and the state that was found. The question is a letter and what was asked about:

    f  PATH   which file or directory it is, and its last change
    s  PATH   as "f", without the device: hosts that share a file system number it differently
    i  PATH   as "s", without the time at which its owner or links changed
    p  PATH   which file it is and how it is mounted, for sources of mounts
    e  PATH   its type and how it is mounted
    d  PATH   which device it is, and whether this user may open it
    o  PATH   who owns it and who may change it
    r  PATH   where it leads through symlinks
    c  PATH   the content of a regular file
    v  NAME   a variable: "=" and its value, "+" if it only mattered that it is set, "-" if unset
    u         the names of the user and the group, as ce-user prints them
    t         the time until which the answer is right, in seconds since 1970

An answer counts while all its witnesses are true. spank_plugin/common/answers.c reads the same
files. Nodes run this module, so that it imports only what Python itself has loaded.
"""

from __future__ import annotations

import os
import stat
import time

# loaded by Python itself; collections.abc would cost another import
from _collections_abc import Mapping
from binascii import crc32

from container_engine import __version__
from container_engine.base.files import (
    code_in_use,
    forget_oldest,
    is_young,
    judge_own,
    open_place,
    read_regular,
    write_private,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Witnesses = Mapping[str, str]
    RealPath = Callable[[str], str]

MAGIC = b"container-engine answer 1\n"
# answers to one request with other witnesses; they and the limit must match answers.h
SLOTS, LONGEST = 4, 4 << 20
_END = b"end\0"
_BOOT = "/proc/sys/kernel/random/boot_id"
_MOUNT_FLAGS = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC
# The kernel does not update the times of these directories when their content changes, or each
# process has one of its own.
_OF_KERNEL = ("/proc/", "/sys/", "/dev/pts/", "/dev/fd/")
_LONGEST_CONTENT = 64 << 10


# ---- asking -----------------------------------------------------------------------------------


class Variables(Mapping[str, str]):
    """Variables that record in `asked` which of them a function looks up.

    `aside` are what `without_record` returns. `are_all` becomes True once somebody has gone through
    all of them: no answer can be repeated that depends on that.
    """

    def __init__(
        self, variables: Mapping[str, str], aside: Mapping[str, str] | None = None
    ) -> None:
        self._variables = variables
        self.aside = variables if aside is None else aside
        self.asked: dict[str, str] = {}
        self.are_all = False

    def __getitem__(self, name: str) -> str:
        known = name in self._variables
        self.asked[f"v{name}"] = f"={self._variables[name]}" if known else "-"
        return self._variables[name]

    def __contains__(self, name: object) -> bool:
        is_set = name in self._variables
        self.asked.setdefault(f"v{name}", "+" if is_set else "-")
        return is_set

    def __iter__(self) -> Iterator[str]:
        self.are_all = True
        return iter(self._variables)

    def __len__(self) -> int:
        self.are_all = True
        return len(self._variables)


def without_record(variables: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables for what ce-guard computes itself: looking them up leaves no record."""
    return variables.aside if isinstance(variables, Variables) else variables


def state(question: str, real: RealPath = os.path.realpath) -> str:
    """Return what is found at a path, which changes when the answer to the question does.

    Nothing at the path has a state, too. Raise ValueError unless the path is absolute and without a
    NUL.
    """
    kind, path = question[:1], question[1:]
    if not path.startswith("/") or "\0" in path:
        raise ValueError("not an absolute path")
    try:
        found = os.stat(path)
        if kind == "r":
            return real(path)
        if kind == "c":
            return f"={os.fsdecode(read_regular(path, _LONGEST_CONTENT))}"
        if kind in _STATES:
            return " ".join(_STATES[kind](found, path))
        flags = os.statvfs(path).f_flag & _MOUNT_FLAGS
    except OSError as error:
        return f"errno {error.errno}{_of_link(path)}"
    what = f"{stat.S_IFMT(found.st_mode):o} {flags}"
    return f"{found.st_dev} {found.st_ino} {what}" if kind == "p" else what


def _shared(found: os.stat_result, _path: str) -> list[str]:
    times = (found.st_mtime_ns, found.st_ctime_ns)
    return [f"{found.st_ino} {found.st_mode:o} {found.st_size}", *map(str, times)]


def _device(found: os.stat_result, path: str) -> list[str]:
    may = [f"{os.access(path, right):d}" for right in (os.R_OK, os.W_OK)]
    return [f"{found.st_dev} {found.st_ino} {found.st_mode:o} {found.st_rdev}", *may]


_STATES: Mapping[str, Callable[[os.stat_result, str], list[str]]] = {
    "f": lambda found, path: [str(found.st_dev), *_shared(found, path)],
    "s": _shared,
    "i": lambda found, _path: [f"{found.st_ino} {found.st_size} {found.st_mtime_ns}"],
    "o": lambda found, _path: [f"{found.st_uid} {found.st_mode:o}"],
    "d": _device,
}


def _of_link(path: str) -> str:
    """Return the identity of a dangling symlink, "" if there is nothing at the path."""
    try:
        found = os.lstat(path)
    except OSError:
        return ""
    return f" {found.st_ino} {found.st_ctime_ns}"


def is_of_kernel(path: str, *more: str) -> bool:
    """Check whether files at the path come and go unseen, or differ between processes.

    `more` are further directories where they do, each with a final slash.
    """
    ends = (os.path.normpath(path), os.path.realpath(path))
    return any(f"{end}/".startswith((*_OF_KERNEL, *more)) for end in ends)


def installation(kind: str = "f") -> dict[str, str]:
    """Return witnesses for each of the engine's files that this process has loaded."""
    return {question: state(question) for question in map(kind.__add__, code_in_use())}


# ---- the file ---------------------------------------------------------------------------------


def own_ids() -> list[int]:
    """Return the ids of the user, the group and the other groups, which decide what can be read."""
    return [os.geteuid(), os.getegid(), *os.getgroups()]


def request_of(
    prefix: str, words: bytes, *, everywhere: bool = False, ids: Sequence[int] | None = None
) -> bytes:
    """Return a request with the header of its answers.

    The answer counts for this release of the engine, installed at `prefix`, for this user, or the
    one with these `ids`, and for this node until it is rebooted, or `everywhere`. Raise OSError.
    """
    node = "" if everywhere else f"{_boot()} {os.uname().nodename}"
    header = (__version__, prefix, node, " ".join(map(str, ids or own_ids())))
    return b"".join(os.fsencode(field) + b"\0" for field in header) + words


def _boot() -> str:
    with open(_BOOT, encoding="ascii") as file:
        return file.read().strip()


def can_be_checked(witnesses: Iterable[str], began_ns: int | None = None) -> bool:
    """Check that no change would go unnoticed.

    It would at a path of the kernel's, and of a file that has changed since shortly before
    `began_ns`, or now.
    """
    began = time.time_ns() if began_ns is None else began_ns
    return all(_can_be_checked(question, began) for question in witnesses)


def write(here: int, request: bytes, witnesses: Witnesses, result: bytes, most: int) -> bool:
    """Write an answer into the directory `here`, which is the user's alone, and close it.

    Of the answers there only the newest `most` are kept. Return False for one that is too long.
    Raise OSError, and ValueError for a NUL in a witness.
    """
    try:
        ordered = {question: witnesses[question] for question in sorted(witnesses, key=_cost)}
        content = _encoded(request, ordered, result)
        if len(content) > LONGEST:
            return False
        # by the descriptor: the path may lead elsewhere by now
        at, name = f"/proc/self/fd/{here}", _name(request)
        write_private(at, f"{name}.{_slot(f'{at}/{name}', request, ordered)}", content)
        forget_oldest(at, most)
        return True
    finally:
        os.close(here)


def forget(directory: str, request: bytes | None = None) -> bool:
    """Remove all answers to a request, or to any, from where `open_place` leads.

    Return whether there was one. Raise OSError.
    """
    here = open_place(directory)
    try:
        begins = "" if request is None else f"{_name(request)}."
        names = [name for name in os.listdir(here) if name.startswith(begins)]
        for name in names:
            try:  # noqa: SIM105  # importing contextlib costs more
                os.unlink(name, dir_fd=here)
            except FileNotFoundError:
                pass  # another step has removed it
    finally:
        os.close(here)
    return bool(names)


def _cost(question: str) -> int:
    """Return a number by which witnesses are ordered: ce-user takes the longest."""
    return {"v": 0, "u": 2}.get(question[:1], 1)


def _can_be_checked(question: str, began_ns: int) -> bool:
    kind, path = question[:1], question[1:]
    if kind in "vut":
        return True
    if kind in "fs" and is_young(path, began_ns):
        return False
    return kind in "sic" or question == "e/dev/pts" or not is_of_kernel(path)


def _slot(path: str, request: bytes, witnesses: Witnesses) -> int:
    """Return the place for an answer: of those that it replaces the first, else the oldest.

    It replaces what is wrong now, and what is for the same variables. An answer for others stays:
    somebody who has these may ask again.
    """
    ages = []
    for slot in range(SLOTS):
        try:
            earlier, _result = _decoded(_read(f"{path}.{slot}"), request)
            if _variables(earlier) == _variables(witnesses) or not are_true(earlier):
                return slot
            ages.append(os.stat(f"{path}.{slot}").st_mtime_ns)
        except (OSError, ValueError):
            return slot
    return ages.index(min(ages))


def _variables(witnesses: Witnesses) -> Witnesses:
    return {question: found for question, found in witnesses.items() if question[:1] == "v"}


def read(
    at: str, request: bytes, real: RealPath = os.path.realpath
) -> tuple[Witnesses, bytes] | None:
    """Return the witnesses and the result of an answer about files that is right; None if none is.

    `at` is a directory of the user's alone.
    """
    name = _name(request)
    for slot in range(SLOTS):
        try:
            witnesses, result = _decoded(_read(f"{at}/{name}.{slot}"), request)
            if are_true(witnesses, real):
                return witnesses, result
        except (OSError, ValueError):
            continue
    return None


def are_true(witnesses: Witnesses, real: RealPath = os.path.realpath) -> bool:
    """Check all witnesses about files and the clock. Raise ValueError as `state` does."""
    return all(
        time.time() < float(found) if question == "t" else state(question, real) == found
        for question, found in witnesses.items()
        if question[:1] not in "vu"
    )


def _name(request: bytes) -> str:
    """Return the file name of a request's answers.

    Two requests with the same name only cost time: an answer has its request, which is compared.
    """
    return f"{crc32(request):08x}.{len(request)}"


def _read(path: str) -> bytes:
    return read_regular(path, LONGEST, judge_own)


def field(text: str) -> bytes:
    """Return a text for a program in C. Raise ValueError for a NUL in it."""
    if "\0" in text:
        raise ValueError("a field cannot have NUL")
    return text.encode("utf-8", "surrogateescape") + b"\0"


def data(content: bytes) -> bytes:
    """Return two fields: the number of bytes, and the bytes, which may include NULs."""
    return b"%d\0%b\0" % (len(content), content)


def table(words: Sequence[str], width: int = 1) -> bytes:
    """Return the number of entries, each of `width` words, and the words. Raise ValueError."""
    return b"".join(map(field, (str(len(words) // width), *words)))


def _encoded(request: bytes, witnesses: Witnesses, result: bytes) -> bytes:
    # as the names of files are, and the values of variables
    words = [os.fsencode(word) for pair in witnesses.items() for word in pair]
    if any(b"\0" in word for word in words):
        raise ValueError("a witness cannot have NUL")
    asked = b"%d\0" % len(witnesses) + b"".join(word + b"\0" for word in words)
    fields = b"".join((data(request), asked, data(result), _END))
    return b"%b%08x\0%b" % (MAGIC, crc32(fields), fields)


def _decoded(content: bytes, request: bytes) -> tuple[Witnesses, bytes]:
    """Return witnesses and result of an answer to the request. Raise ValueError for all else."""
    start = len(MAGIC) + 8 + 1 + len(data(request))
    count, _nul, rest = content[start:].partition(b"\0")
    *words, rest = rest.split(b"\0", 2 * int(count))
    size, _nul, rest = rest.partition(b"\0")
    texts = [os.fsdecode(word) for word in words]
    witnesses, result = dict(zip(texts[::2], texts[1::2], strict=True)), rest[: int(size)]
    if _encoded(request, witnesses, result) != content:
        raise ValueError("not an answer to this request in this format, or damaged")
    return witnesses, result

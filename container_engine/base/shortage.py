"""Distinguish a limit that is reached, or a full device, from a mistake of the engine.

Imported only after a failure. Pure.
"""

from __future__ import annotations

from errno import EAGAIN, EDQUOT, EFBIG, EMFILE, ENFILE, ENOMEM, ENOSPC, EROFS, ETOOMANYREFS

CODE = "limit-reached"
_RETRY_ELSEWHERE = "report the host; until it is repaired, use another (srun --exclude=NODE)"
_HINTS = {
    EMFILE: "raise your limit of open files in the shell or script: ulimit -n 1024",
    # descriptors that are on their way through sockets, of all programs of the user on this host
    ETOOMANYREFS: "raise your limit of open files in the shell or script: ulimit -n 1024",
    ENFILE: f"no program on the host can open files (sysctl fs.file-max): {_RETRY_ELSEWHERE}",
    EFBIG: "raise your limit of the size of files in the shell or script: ulimit -f unlimited",
    EAGAIN: "you may have no more processes (ulimit -u): end some, or start fewer at once",
    ENOMEM: "ask for more memory (--mem), or raise your limit of it: ulimit -v unlimited",
    ENOSPC: "make room there, or report the host if the place is not yours",
    EDQUOT: "your quota is used up: make room there",
    EROFS: f"nothing can be written there: {_RETRY_ELSEWHERE}",
}
# crun's and Podman's words for them
_WORDS = {
    "too many open files": EMFILE,
    "too many references": ETOOMANYREFS,
    "resource temporarily unavailable": EAGAIN,
    "cannot allocate memory": ENOMEM,
}


def hint(number: int) -> str:
    """Return what to do about the errno of a limit, "" for any other."""
    return _HINTS.get(number, "")


def hint_in(text: str) -> str:
    """Return what to do about a limit that crun or Podman reports in `text`, "" for none."""
    lower = text.lower()
    return next((_HINTS[number] for words, number in _WORDS.items() if words in lower), "")


def of_error(error: BaseException) -> tuple[str, str]:
    """Return message and hint if `error` is about a limit, two empty strings if it is not."""
    if isinstance(error, MemoryError):
        return "out of memory", _HINTS[ENOMEM]
    if not isinstance(error, OSError) or error.errno not in _HINTS:
        return "", ""
    place = "" if error.filename is None else f"{error.filename}: "
    reason = error.strerror or ""
    return f"{place}{reason[:1].lower()}{reason[1:]}", _HINTS[error.errno]

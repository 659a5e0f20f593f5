"""Turn the output of a failed build into one error: the line, the instruction, reason and remedy.

The messages depend on the version of Podman. For one that is not known here only the remedy is
missing.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping

from container_engine.base.errors import UserError
from container_engine.base.process import CommandError
from container_engine.build import layout
from container_engine.build.containerfile_lines import (
    INSTRUCTIONS,
    line_of,
    line_of_complaint,
    shortened,
)
from container_engine.images.fetch.refusal import explained
from container_engine.images.reference import parse

_CODE = "image-build"
# "STEP 2/3: RUN make", after "[1/2] " if there are several stages
_STEP = re.compile(r"(?:\[\d+/\d+\] )?STEP (\d+)(?:/\d+)?: (.*)")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PODMANS_OWN = 125  # Podman's exit code unless the command of a step has failed
_ERROR = "Error: "
_AT_STEP = 'building at STEP "'
# parts of messages that tell a user nothing
_NOISE = re.compile(
    r'parsing main Dockerfile: \S+: |resolving mountpoints for container "\w+": | &imagebuilder.*'
)
# what Podman prints after the output of a step that has failed
_AFTERWARDS = re.compile(r"subprocess exited |process exited |exit status \d|time=\"|Error: ")
_NOT_STARTED = re.compile(r"process failed to start with error: (?:fork/exec )?(.*?)(?:process |$)")
_KILLED = re.compile(r"subprocess exited on killed|exit status 137")
_KILL_STATUS = 137  # the exit code of a shell whose program was killed
# lines in which compilers, package managers, shells and Python give the reason
_REASON = re.compile(
    r"E:|ERROR\b|fatal\b|\w+Error:|make(\[\d+\])?: \*\*\*"
    r"|.*: (command not found|not found|No such file or directory|Permission denied|syntax error)",
    re.IGNORECASE,
)
_KEPT, _LONGEST, _MOST_SHOWN = 40, 4096, 160
_UPDATE = re.compile(r"\bapt(-get)?\s.*\bupdate\b")
_UNKNOWN_PACKAGE = "is its name right, and does the same RUN line begin with apt-get update?"
_UNKNOWN_AFTER_UPDATE = "is its name right, and does the image's release have this package?"
_NO_HERE_DOCUMENTS = (
    "this Podman knows no here-documents (<<EOF): COPY a file with these lines instead"
)
_REMEDIES = tuple(
    (re.compile(words, re.IGNORECASE), hint)
    for words, hint in (
        (
            r"^killed",
            "memory has probably run out: build where there is more (srun --mem=…), or with fewer"
            " processes at once (make -j2)",
        ),
        (
            r"no space left|quota exceeded",
            "builds work in TMPDIR (default: /var/tmp): make room there, or set TMPDIR to another"
            " local directory",
        ),
        (r'copier: stat: "/<<', _NO_HERE_DOCUMENTS),
        (
            r"copier: stat: |filtered out using ",
            "COPY and ADD read below the directory that ce build is given, less what .dockerignore"
            " lists",
        ),
        (
            r": (command )?not found$",
            "the image has no such program at this line: install it in a RUN line above, or begin"
            " FROM an image that has it",
        ),
        (
            r"history lists \d+ non-empty layers",
            "this Podman builds on no image without a history: ce import -o base.sqsh IMAGE, then"
            " FROM ./base.sqsh",
        ),
        (
            r"^[A-Z]+ only supports the ",
            "this Podman does not know the option: remove it (--link changes no file), or do the"
            " same in a RUN line",
        ),
        (
            r"/\.wh\.[^/]*: no such file",
            "no layer can hold a file whose name begins with .wh.: rename it, or list it in"
            " .dockerignore",
        ),
        (r"max depth exceeded", "Podman makes 128 layers at most: join RUN lines, or COPY lines"),
        (
            r"no stage or image found with that name",
            "no stage above has this name, and its image was not pulled: ce pull IMAGE says why",
        ),
        (r"unable to locate package", _UNKNOWN_PACKAGE),
        (
            r"exec format error",
            "the step is for another processor: build on a host that has it, or where"
            " qemu-user-static starts its programs (binfmt_misc)",
        ),
        (
            r"/bin/(ba)?sh: no such file",
            "RUN needs a shell, which this image lacks: begin FROM one that has it, or only COPY",
        ),
        (r"unknown user", "make the user in a RUN line above, or remove the USER line"),
        (r"no secret with id", "ce build --secret id=NAME,src=FILE gives it, also env=VARIABLE"),
        (
            r"failure resolving|name resolution|could not resolve|network is unreachable|dial tcp",
            "build where the network can be reached, or name the proxy: --build-arg"
            " HTTPS_PROXY=http://…",
        ),
    )
)


class Output:
    """A listener to Podman's output: the instruction that it began last, and the lines after it."""

    def __init__(self) -> None:
        self.step = ""
        self.number = 0  # as in the user's file, without lines that layout.py adds
        self._added = 0
        self._lines: deque[str] = deque(maxlen=_KEPT)
        self._rest = b""

    def feed(self, piece: bytes) -> None:
        *lines, rest = (self._rest + piece).split(b"\n")
        self._rest = rest[-_LONGEST:]
        for line in lines:
            self._add(line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace"))

    def _add(self, line: str) -> None:
        text = _COLOURS.sub("", line).strip()
        if found := _STEP.match(text):
            self.step = found[2].strip()
            begun = self.step.startswith("FROM ")
            self._added = 0 if begun else self._added + layout.is_added(self.step)
            self.number = int(found[1]) - self._added
            self._lines.clear()
        elif text:
            self._lines.append(text)

    @property
    def complaint(self) -> str:
        """Return Podman's last error without its preamble, "" if it printed none."""
        text = next((line for line in reversed(self._lines) if line.startswith(_ERROR)), "")
        text = text.removeprefix(_ERROR)
        if text.startswith(_AT_STEP):
            text, end = text.removeprefix(_AT_STEP), f'{self.step}": '
            text = text.removeprefix(end) if text.startswith(end) else text.partition('": ')[2]
        return _NOISE.sub("", text)

    @property
    def reason(self) -> str:
        """Return the end of a message: why the step failed, else its last line, else ""."""
        for line in self._lines:
            if found := _NOT_STARTED.match(line):
                return f": {found[1]}"
        own = [line for line in self._lines if not _AFTERWARDS.match(line)]
        clear = [line for line in own if _REASON.match(line)]
        last = (clear or own or [""])[-1]
        last = last if len(last) <= _MOST_SHOWN else f"{last[:_MOST_SHOWN]}…"
        return f": {last}" if clear else f" after '{last}'" if own else ""

    @property
    def was_killed(self) -> bool:
        return any(_KILLED.search(line) for line in self._lines)


def failure(
    name: str, containerfile: str, output: Output, error: CommandError, env: Mapping[str, str]
) -> UserError:
    """Return the error of a build. `name` is the Containerfile's in messages, `env` is Podman's."""
    complaint = output.complaint or error.complaint
    number = (
        line_of(output.step, output.number, containerfile)
        if output.step
        else line_of_complaint(complaint, containerfile)
    )
    where = f"{name}:{number}" if number else name
    if not output.step:
        hint = _remedy(complaint)
        return UserError(complaint, hint, _CODE, where=where, details=error.details)
    if output.step.startswith("FROM "):
        reason, see, hint = _of_base(output.step, complaint, env)
    else:
        reason, see = _of_step(output, complaint, error.status), _CODE
        hint = _remedy(reason)
        if hint == _UNKNOWN_PACKAGE and _UPDATE.search(output.step):
            hint = _UNKNOWN_AFTER_UPDATE
    if output.step.partition(" ")[0].upper() not in INSTRUCTIONS:
        hint = _NO_HERE_DOCUMENTS
    return UserError(
        reason,
        hint,
        see,
        where=where,
        key=shortened(output.step),
        details=error.details,
    )


def _of_step(output: Output, complaint: str, status: int) -> str:
    """Return why an instruction failed. Podman's exit code is that of a RUN line, else 125."""
    if output.was_killed or status == _KILL_STATUS:
        return "killed (SIGKILL)"
    if status in {0, _PODMANS_OWN} or status < 0:
        return complaint
    return f"exit code {status}{output.reason}"


def _of_base(step: str, complaint: str, env: Mapping[str, str]) -> tuple[str, str, str | None]:
    """Return why a base image is not available, the error's code, and a hint."""
    try:
        image = parse(next(word for word in step.split()[1:] if not word.startswith("--")), "/")
    except (StopIteration, UserError):
        return complaint, _CODE, _remedy(complaint)
    reason, see, hint = explained(complaint, image, env)
    if see == "store-full":  # the store is not at fault
        return reason, _CODE, _remedy(reason)
    return reason, see, hint


def _remedy(reason: str) -> str | None:
    return next((hint for words, hint in _REMEDIES if words.search(reason)), None)

"""Read as much of a Containerfile as errors and images of this host need. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# "STEP 2/3: RUN make", after "[1/2] " if there are several stages
_STEP = re.compile(rb"(?:\[\d+/\d+\] )?STEP \d+(?:/\d+)?: (.*)")
_ESCAPE = re.compile(r"#\s*escape\s*=\s*`\s*", re.IGNORECASE)
_FROM = re.compile(r"FROM (?:--\S+ )*(\S+)(?: AS (\S+))?", re.IGNORECASE)
_ARG = re.compile(r"ARG (.*)", re.IGNORECASE)
_ARGUMENT = re.compile(r"""([A-Za-z_]\w*)(?:=("[^"]*"|'[^']*'|\S*))?""")
# $NAME, ${NAME}, ${NAME:-DEFAULT}, ${NAME:+OTHER}
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::([-+])([^}]*))?\})")
_HERE_DOCUMENT = re.compile(r"""(?:^|\s)\d*<<-?(["']?)([A-Za-z_]\w*)\1(?=\s|$)""")
_WITH_HERE_DOCUMENT = ("RUN", "COPY", "ADD")
# of which builders know the values
_PREDEFINED = re.compile(r"(?:TARGET|BUILD)(?:PLATFORM|OS|ARCH|VARIANT)")
INSTRUCTIONS = (
    *("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL"),
    *("MAINTAINER", "ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
)
# what builders record in an image and no launch reads
WITHOUT_EFFECT = ("CMD", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "USER", "VOLUME")
_MOST_SHOWN = 72


class Steps:
    """A listener to Podman's output that remembers which instruction it began last."""

    def __init__(self) -> None:
        self.last = ""
        self._rest = b""

    def hear(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            found = _STEP.match(line)
            if found:
                self.last = found[1].decode(errors="replace").strip()


def line_of(step: str, containerfile: str) -> int:
    """Return the number of the line at which an instruction begins; 0 unless it is certain."""
    wanted = " ".join(step.split())
    found = [number for number, text in _instructions(containerfile) if text == wanted]
    return found[0] if len(found) == 1 else 0


class From(NamedTuple):
    """An image that a stage begins with; `lacks` is a variable of its name without a value."""

    line: int
    written: str
    name: str
    lacks: str


def bases_of(containerfile: str, arguments: Mapping[str, str]) -> list[From]:
    """Return the images that stages begin with, but not stages.

    `arguments` are the values of ARG lines that the command line of the build gives.
    """
    found: list[From] = []
    values: dict[str, str] = {}
    stages, is_before = {"scratch"}, True
    for number, text in _instructions(containerfile):
        declared, begun = _ARG.fullmatch(text), _FROM.match(text)
        if declared and is_before:  # later ones belong to a stage
            _declare(declared[1], arguments, values)
        if begun is None:
            continue
        is_before = False
        written, stage = begun.groups()
        base, lacks = _expanded(written, values)
        if base.lower() not in stages:
            found.append(From(number, written, base, lacks))
        stages.add((stage or "").lower())
    return found


def with_names(containerfile: str, froms: Sequence[From]) -> str:
    """Return the text with the names of images in place of variables in FROM lines."""
    lines = containerfile.splitlines(keepends=True)
    for one in froms:
        at = next(n for n in range(one.line - 1, len(lines)) if one.written in lines[n])
        lines[at] = lines[at].replace(one.written, one.name, 1)
    return "".join(lines)


def _declare(line: str, arguments: Mapping[str, str], values: dict[str, str]) -> None:
    """Add the variables of an ARG line, with the values of the command line or their defaults."""
    for found in _ARGUMENT.finditer(line):
        name, default = found.groups()
        value, _lacks = _expanded((default or "").strip("\"'"), values)
        if name in arguments or default is not None:
            values[name] = arguments.get(name, value)


def _expanded(text: str, values: Mapping[str, str]) -> tuple[str, str]:
    """Return the text with the values of variables, and the name of one that has none, or ""."""
    missing: list[str] = []

    def value(match: re.Match[str]) -> str:
        plain, braced, how, other = match.groups()
        name = plain or braced
        if how == "+":
            return str(other) if values.get(name) else ""
        if values.get(name) or how == "-":
            return values.get(name) or str(other)
        missing.append(name)
        return ""

    result = _VARIABLE.sub(value, text)
    return result, next((name for name in missing if not _PREDEFINED.fullmatch(name)), "")


def unknown_instruction(containerfile: str) -> tuple[int, str] | None:
    """Return the line and the name of the first instruction that no builder knows."""
    for number, text in _instructions(containerfile):
        name = text.partition(" ")[0]
        if name.upper() not in INSTRUCTIONS:
            return number, name
    return None


def without_effect(containerfile: str) -> list[str]:
    """Return the instructions, each one once, that have no effect in a container of a launch."""
    used = {text.partition(" ")[0].upper() for _number, text in _instructions(containerfile)}
    return [name for name in WITHOUT_EFFECT if name in used]


def shortened(step: str) -> str:
    """Return an instruction in one line that is not too long for a message."""
    text = " ".join(step.split())
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _instructions(containerfile: str) -> Iterator[tuple[int, str]]:
    """Yield line number and text of each instruction, with single spaces; no here-documents."""
    lines = containerfile.splitlines()
    escape = "`" if lines and _ESCAPE.fullmatch(lines[0].strip()) else "\\"
    begun, parts, until = 0, [], ""
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if until:
            until = "" if text == until else until
            continue
        if not text or text.startswith("#"):
            continue
        begun = begun or number
        parts.append(text.removesuffix(escape))
        if not text.endswith(escape):
            whole = " ".join(" ".join(parts).split())
            yield begun, whole
            begun, parts, until = 0, [], _here_document(whole)
    if parts:
        yield begun, " ".join(" ".join(parts).split())


def _here_document(instruction: str) -> str:
    """Return the line that ends the here-document of an instruction, "" if it has none."""
    if instruction.partition(" ")[0].upper() not in _WITH_HERE_DOCUMENT:
        return ""
    found = _HERE_DOCUMENT.findall(instruction)
    return found[-1][1] if found else ""

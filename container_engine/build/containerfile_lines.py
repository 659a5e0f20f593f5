"""Read as much of a Containerfile as errors and images of this host need. Pure."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

_ESCAPE = re.compile(r"#\s*escape\s*=\s*`\s*", re.IGNORECASE)
_DIRECTIVE = re.compile(r"\s*#\s*\w+\s*=")
_FROM = re.compile(r"FROM (?:--platform=(\S+) |--\S+ )*(\S+)(?: AS (\S+))?", re.IGNORECASE)
_PLATFORM = re.compile(r"--platform=\S+ ")
# the options of a line that may take files from images, and the images in them
_TAKES = re.compile(r"(COPY|RUN) (?:--\S+ )+", re.IGNORECASE)
_TAKEN = re.compile(r"(?<=[-,=]from=)[^\s,$]+(?=[\s,])")
_ARG = re.compile(r"ARG (.*)", re.IGNORECASE)
_ARGUMENT = re.compile(r"""([A-Za-z_]\w*)(?:=("[^"]*"|'[^']*'|\S*))?""")
# $NAME, ${NAME}, ${NAME:-DEFAULT}, ${NAME:+OTHER}
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::([-+])([^}]*))?\})")
_HERE_DOCUMENT = re.compile(r"""(?:^|\s)\d*<<-?(["']?)([A-Za-z_]\w*)\1(?=\s|$)""")
_WITH_HERE_DOCUMENT = ("RUN", "COPY", "ADD")
# variables that builders set
_PREDEFINED = re.compile(r"(?:TARGET|BUILD)(?:PLATFORM|OS|ARCH|VARIANT)")
INSTRUCTIONS = (
    *("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL"),
    *("MAINTAINER", "ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
)
# what builders record in an image and no launch reads
WITHOUT_EFFECT = ("CMD", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "USER", "VOLUME")
_MOST_SHOWN = 72


def line_of(step: str, number: int, containerfile: str) -> int:
    """Return the number of the line at which a step begins; 0 unless it is certain.

    `number` is the step's place in its stage, from 1: it tells instructions with the same text
    apart. Podman 4 takes the lines of a here-document for steps, and 5 adds them to its instruction
    in brackets.
    """
    wanted = _without_platform(" ".join(step.split()))
    found, place = [], 0
    for line, text in _instructions(containerfile):
        place = 1 if _FROM.match(text) else place + (_name(text) != "VOLUME")  # which comes last
        is_with_lines = _here_document(text) and wanted.startswith(f"{text} (")
        if is_with_lines or _without_platform(text) == wanted:
            found.append((line, place))
    found = found if len(found) <= 1 else [one for one in found if one[1] == number]
    if not found:
        plain = enumerate(_lines(containerfile), start=1)
        found = [(line, number) for line, text in plain if " ".join(text.split()) == wanted]
    return found[0][0] if len(found) == 1 else 0


def line_of_complaint(complaint: str, containerfile: str) -> int:
    """Return the line of the instruction that a message begins with; 0 unless it is certain."""
    name = complaint.partition(" ")[0]
    found = [line for line, text in _instructions(containerfile) if _name(text) == name]
    return found[0] if len(found) == 1 else 0


class From(NamedTuple):
    """An image that a stage begins with, or that a line takes files from.

    `lacks` is a variable of its name without a value, `platform` that of its --platform, "" for
    none, `before` the text before it.
    """

    line: int
    written: str
    name: str
    lacks: str
    platform: str = ""
    before: str = "FROM "


def bases_of(
    containerfile: str, arguments: Mapping[str, str], predefined: Mapping[str, str]
) -> list[From]:
    """Return the images that stages begin with, leaving out names of earlier stages.

    `arguments` are the values of ARG lines that the command line of the build gives, `predefined`
    those of variables that need no such line.
    """
    found: list[From] = []
    values = dict(predefined)
    stages, is_before = {"scratch"}, True
    for number, text in _instructions(containerfile):
        declared, begun = _ARG.fullmatch(text), _FROM.match(text)
        if declared and is_before:  # later ones belong to a stage
            _declare(declared[1], arguments, values)
        if begun is None:
            continue
        is_before = False
        platform, written, stage = begun.groups(default="")
        base, lacks = _expanded(written, values)
        if base.lower() not in stages:
            found.append(From(number, written, base, lacks, _expanded(platform, values)[0]))
        stages.add(stage.lower())
    return found


def sources_of(containerfile: str) -> list[From]:
    """Return the images that COPY and RUN lines take files from, leaving out stages."""
    found: list[From] = []
    stages: set[str] = set()
    for number, text in _instructions(containerfile):
        begun, options = _FROM.match(text), _TAKES.match(text)
        stages.add((begun[3] or "").lower() if begun else "")
        if options:
            before = "COPY --from=" if options[1].upper() == "COPY" else "RUN --mount=from="
            names = _TAKEN.findall(options[0])
            images = (one for one in names if one.lower() not in stages and not one.isdecimal())
            found += [From(number, name, name, "", before=before) for name in images]
    return found


def with_names(containerfile: str, froms: Sequence[From], platform: str = "") -> str:
    """Return the text with the names and platforms of these images in place of the written ones.

    FROM lines without a platform get this one. Each of them becomes one line, with empty ones below
    it in place of those that it went on on.
    """
    lines = _lines(containerfile)
    for begin, end, text in _spans(containerfile):
        found = _FROM.match(text)
        for one in (one for one in froms if one.line == begin):
            if found is None:
                name = re.compile(rf"(?<=[-,=\s]from=){re.escape(one.written)}(?=[\s,])")
                whole = name.sub(one.name, "".join(lines[begin - 1 : end]), count=1)
                lines[begin - 1 : end] = _lines(whole)
                continue
            own = f"--platform={one.platform or platform} " if one.platform or platform else ""
            before = _PLATFORM.sub("", text[: found.start(2)])
            written = f"{before}{own}{one.name}{text[found.end(2) :]}\n"
            lines[begin - 1 : end] = [written, *["\n"] * (end - begin)]
    return "".join(lines)


def with_lines(
    containerfile: str, below_from: str, before: Mapping[int, str], target: str = ""
) -> str:
    """Return the text with one line below each FROM instruction, and others before their lines.

    VOLUME comes last in the stage that is built, for the stages that it begins with, too: Podman
    before 5.2 discards what later RUN lines write there.
    """
    lines = _lines(containerfile if containerfile.endswith("\n") else f"{containerfile}\n")
    made: list[str] = []
    volumes: list[str] = []
    of_stages: dict[str, list[str]] = {}
    names, number, done = {""}, 0, 0  # the last stage is built if no other one is wanted
    for begin, end, text in _spans(containerfile):
        made += lines[done : begin - 1]
        done = end
        begun = _FROM.match(text)
        if _name(text) == "VOLUME":
            volumes.append(f"{text}\n")
        elif begun:
            made += volumes if target and target.lower() in names else []
            made += [*lines[begin - 1 : end], f"{below_from}\n"]
            volumes = [*of_stages.get(begun[2].lower(), ())]
            names = {"", str(number), (begun[3] or "").lower()}
            of_stages |= dict.fromkeys(names, volumes)
            number += 1
        else:
            made += [f"{before[begin]}\n"] if begin in before else []
            made += lines[begin - 1 : end]
    return "".join([*made, *lines[done:], *(volumes if target.lower() in names else [])])


def arguments_of(containerfile: str) -> Iterator[tuple[int, list[str], str]]:
    """Yield the ARG lines of stages: the line, its names, and the ARG lines before all stages."""
    common: list[str] = []
    is_before = True
    for number, text in _instructions(containerfile):
        is_before = is_before and not _FROM.match(text)
        declared = _ARG.fullmatch(text)
        if declared and is_before:
            common.append(text)
        elif declared:
            yield number, [one[1] for one in _ARGUMENT.finditer(declared[1])], "\n".join(common)


class Mount(NamedTuple):
    """A mount of a RUN line: `source` is a path in the context, or in `image` unless that is ""."""

    line: int
    source: str
    image: str


def mounts_of(containerfile: str) -> Iterator[Mount]:
    """Yield the bind mounts of RUN lines."""
    for number, text in _instructions(containerfile):
        options = _TAKES.match(text)
        for word in options[0].split(" ") if options else ():
            option, _equals, value = word.partition("=")
            fields = dict(field.partition("=")[::2] for field in value.split(","))
            if option == "--mount" and fields.get("type", "bind") == "bind":
                source = fields.get("source") or fields.get("src") or "."
                yield Mount(number, source, fields.get("from", ""))


def _without_platform(text: str) -> str:
    """Return an instruction without the option, which Podman leaves out when it names a FROM."""
    return _PLATFORM.sub("", text) if _FROM.match(text) else text


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


class Mistake(NamedTuple):
    """An instruction that no builder accepts; line 0 and no name for the whole file."""

    line: int
    name: str
    why: str


UNKNOWN = "unknown instruction"


def first_mistake(containerfile: str) -> Mistake | None:
    """Return the first mistake for which Podman would not name the line."""
    is_before = True
    for number, text in _instructions(containerfile):
        written, _space, rest = text.partition(" ")
        name = written.upper()
        if name not in INSTRUCTIONS:
            return Mistake(number, written, UNKNOWN)
        if not rest:
            return Mistake(number, written, "nothing follows the instruction")
        if name in {"ENV", "LABEL"} and not ("=" in rest or " " in rest):
            return Mistake(number, written, f"'{rest}' has no value: {name} {rest}=VALUE")
        if is_before and name not in {"ARG", "FROM"}:
            return Mistake(number, written, "comes before the first FROM")
        is_before = is_before and name != "FROM"
    return Mistake(0, "", "has no FROM line") if is_before else None


def stages_of(containerfile: str) -> list[str]:
    """Return the names of the stages, in lower case."""
    begun = [_FROM.match(text) for _number, text in _instructions(containerfile)]
    return [found[3].lower() for found in begun if found and found[3]]


def without_effect(containerfile: str) -> list[str]:
    """Return the instructions, each one once, that have no effect in a container of a launch."""
    return [name for name in WITHOUT_EFFECT if has(containerfile, name)]


def has(containerfile: str, name: str) -> bool:
    """Check whether there is an instruction of this name, in capitals."""
    return any(_name(text) == name for _line, text in _instructions(containerfile))


def stage_of(containerfile: str, target: str) -> list[str]:
    """Return the instructions of the stage with this name or number, for "" of the last one."""
    stage: list[str] = []
    names: tuple[str, ...] = ()
    number = 0
    for _line, text in _instructions(containerfile):
        begun = _FROM.match(text)
        if begun:
            if target and target.lower() in names:
                break
            stage, names = [], (str(number), (begun[3] or "").lower())
            number += 1
        stage.append(text)
    return stage


def volumes_of(containerfile: str) -> set[str]:
    """Return the paths that VOLUME lines name, as they are written."""
    found: set[str] = set()
    for _line, text in _instructions(containerfile):
        if _name(text) == "VOLUME":
            written = text.partition(" ")[2]
            found.update(_words(written) or written.split(" "))
    return found


def entrypoint_of(containerfile: str) -> str | None:
    """Return the last stage's ENTRYPOINT as a command line, or None if it sets none.

    It is "" for one that is emptied, or given as a line for a shell.
    """
    lines = [text for text in stage_of(containerfile, "") if _name(text) == "ENTRYPOINT"]
    return shlex.join(_words(lines[-1].partition(" ")[2])) if lines else None


def _words(written: str) -> list[str]:
    """Return the words of an instruction in the form of JSON, [] for another form."""
    try:
        words = json.loads(written)
    except ValueError:
        return []
    is_list = isinstance(words, list) and all(isinstance(word, str) for word in words)
    return words if is_list else []


def shortened(step: str) -> str:
    """Return an instruction in one line that is not too long for a message."""
    text = " ".join(step.split())
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _instructions(containerfile: str) -> Iterator[tuple[int, str]]:
    """Yield line number and text of each instruction, with single spaces; no here-documents."""
    return ((begin, text) for begin, _end, text in _spans(containerfile))


def _spans(containerfile: str) -> Iterator[tuple[int, int, str]]:
    """Yield first and last line and text of each instruction, as `_instructions` does."""
    lines = _lines(containerfile)
    escape = _escape(lines)
    begun, ended, parts, until = 0, 0, "", ""
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if until:
            until = "" if text == until else until
            continue
        if not text or text.startswith("#"):
            continue
        begun, ended = begun or number, number
        parts += line.rstrip().removesuffix(escape)
        if not text.endswith(escape):
            whole = " ".join(parts.split())
            yield begun, number, whole
            begun, parts, until = 0, "", _here_document(whole)
    if begun:
        yield begun, ended, " ".join(parts.split())


def _lines(containerfile: str) -> list[str]:
    """Return the lines with their ends; only a line feed ends one."""
    return re.findall(r"[^\n]*\n|[^\n]+", containerfile)


def _escape(lines: Sequence[str]) -> str:
    directives = itertools.takewhile(_DIRECTIVE.match, lines)
    return "`" if any(_ESCAPE.fullmatch(line.strip()) for line in directives) else "\\"


def _name(instruction: str) -> str:
    return instruction.partition(" ")[0].upper()


def _here_document(instruction: str) -> str:
    """Return the line that ends the here-document of an instruction, "" if it has none."""
    if _name(instruction) not in _WITH_HERE_DOCUMENT:
        return ""
    found = _HERE_DOCUMENT.findall(instruction)
    return found[-1][1] if found else ""

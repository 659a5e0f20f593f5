"""Parses one entry of `mounts` or `devices`, renders a mount, and says what entries lead to."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence

from container_engine.base.errors import UserError
from container_engine.base.mounts import excess, is_in, is_reserved
from container_engine.base.text_layout import did_you_mean, nearest
from container_engine.edf.expand import Piece
from container_engine.edf.model import (
    Device,
    Mount,
    Origin,
    Text,
    Variable,
    escape,
    join,
    shown,
    spell,
)
from container_engine.edf.names import (
    FOREIGN_FLAGS,
    SQUASHFS_SUFFIXES,
    TILDE_HINT,
    WINDOWS,
    WINDOWS_HINT,
)

_ACCESS = ("ro", "rw")
_BINDS = ("bind", "rbind")
_PROPAGATION = (
    "private", "rprivate", "slave", "rslave", "shared", "rshared", "unbindable",
)  # fmt: skip
_PLAIN = ("nosuid", "nodev", "noexec")
FLAGS = (*_ACCESS, *_PLAIN, *_BINDS, *_PROPAGATION, "sqsh", "nofail")
_TMPFS_FLAGS = (*_ACCESS, *_PLAIN)
# settings of a tmpfs: the form of each one's value, and an example
_TMPFS_SETTINGS = {
    "size": (r"[0-9]+[kKmMgGtT%]?", "size=512m or size=50%"),
    "mode": (r"[0-7]{3,4}", "mode=1777"),
    "huge": (r"never|always|within_size|advise", "huge=within_size"),
}
_EXCLUSIVE = (_ACCESS, _BINDS, _PROPAGATION)
_OPTION = re.compile(r"(-v|-B|--volume|--bind|--mount)[ =]")
_COLON_HINT = r"a colon inside a path is written '\:'"


def parse_mount(pieces: Sequence[Piece], cwd: str, origin: Origin) -> Mount:
    """Return the mount that an expanded entry describes. Access no file. Raise UserError."""
    fields = _split(pieces)
    _refuse_words_of_others(fields)
    if len(fields) > 3:
        raise UserError(
            f"expected SOURCE:DESTINATION:FLAGS, found {len(fields)} parts", _COLON_HINT
        )
    flags = _flags(fields[2]) if len(fields) == 3 else []
    if fields[0] == "tmpfs" and len(fields) > 1:
        return Mount("tmpfs", "tmpfs", _target(fields[1]), _tmpfs_options(flags), origin)
    if len(fields) == 2 and isinstance(fields[1], str) and fields[1] in FLAGS:
        path = shown(fields[0])
        raise UserError(
            f"the destination '{fields[1]}' is a flag", f"write '{path}:{path}:{fields[1]}'"
        )
    source = _each_path(fields[0], cwd, "source", _tidy)
    # a path that is both source and destination may be relative, as a source may
    target = _target(fields[1]) if len(fields) > 1 else _target(fields[0], cwd)
    if "sqsh" in flags:
        return Mount("squashfs", source, target, _squashfs_options(flags), origin)
    return Mount("bind", source, target, _options(flags, FLAGS), origin)


def _refuse_words_of_others(fields: Sequence[Text]) -> None:
    """Refuse a path of Windows, and what command lines of other tools have.

    That is an option before a mount, and a list of mounts in one string.
    """
    drive, rest = fields[0], fields[1] if len(fields) > 1 else ""
    if isinstance(drive, str) and re.fullmatch("[A-Za-z]", drive) and str(rest)[:1] == "\\":
        raise UserError(f"'{drive}:{escape(rest)}' is {WINDOWS}", WINDOWS_HINT)
    first = drive if isinstance(drive, str) else drive[0]
    if isinstance(first, str) and (found := _OPTION.match(first)):
        raise UserError(f"'{found[1]}' is an option of another tool", f"leave out '{found[1]}'")
    texts = [field for field in fields if isinstance(field, str)]
    if any(text.startswith("/") for text in texts[2:]) and any(",/" in text for text in texts):
        raise UserError("several mounts in one string", 'each is a string of its own: ["…", "…"]')


def is_packed(mount: Mount) -> bool:
    """Check whether a file with the name of a SquashFS image is mounted under another name."""
    source, target = shown(mount.source), shown(mount.target)
    is_plain = source.endswith(SQUASHFS_SUFFIXES) and not target.endswith(SQUASHFS_SUFFIXES)
    return mount.kind == "bind" and is_plain


def packed_as_file(mount: Mount) -> tuple[str, str]:
    """Return the message and hint for a SquashFS file that is mounted as a plain file."""
    hint = f"to see what is in it: {escape(mount.source)}:{escape(mount.target)}:sqsh"
    return f"'{escape(mount.source)}' is a SquashFS file, mounted as a plain file", hint


def on_host(path: str, mounts: Sequence[Mount]) -> str:
    """Return the path on the host of a path in the container; "" for what is not mounted."""
    having = [one for one in mounts if is_in(path, str(one.target))]
    if not having:
        return ""
    mount = max(having, key=lambda one: len(str(one.target)))
    if mount.kind != "bind" or not isinstance(mount.source, str):
        return ""
    return mount.source + path[len(str(mount.target).rstrip("/")) :]


_ACTIVATED = re.compile(r"(?:^|[\s;&|\"'])(/[^\s;&|\"']*)/bin/activate\b")


def activated(startup: Sequence[tuple[Text, Origin]]) -> Iterator[tuple[str, Origin]]:
    """Yield the virtual and conda environments that start-up lines activate."""
    for text, origin in startup:
        for match in _ACTIVATED.finditer(text if isinstance(text, str) else ""):
            yield match[1], origin


def mount_text(mount: Mount, literal: Callable[[str], str]) -> str:
    """Return an entry that `parse_mount` turns into this mount; `literal` spells known text."""
    # a variable is never split at a colon, so only the text around it needs the backslash
    fields = [
        spell(text, lambda part: literal(part.replace("\\", "\\\\").replace(":", "\\:")))
        for text in (mount.source, mount.target)
    ]
    flags = [*mount.options, *(["sqsh"] if mount.kind == "squashfs" else [])]
    if flags:
        fields.append("+".join(flags))
    return ":".join(fields)


def _split(pieces: Sequence[Piece]) -> list[Text]:
    """Split at the colons in the text as written; the value of a variable is never split."""
    fields: list[list[str | Variable]] = [[]]
    for part, protected in pieces:
        if protected or isinstance(part, Variable):
            fields[-1].append(part)
            continue
        first, *others = _split_literal(part)
        fields[-1].append(first)
        fields.extend([other] for other in others)
    return [join(field) for field in fields]


def _split_literal(text: str) -> list[str]:
    r"""Split at each `:`; `\:` and `\\` stand for a colon and a backslash."""
    if "\\" not in text:
        return text.split(":")
    fields: list[list[str]] = [[]]
    chars = iter(text)
    for char in chars:
        if char == ":":
            fields.append([])
        elif char == "\\":
            escaped = next(chars, "")
            fields[-1].append(escaped if escaped in (":", "\\") and escaped else char + escaped)
        else:
            fields[-1].append(char)
    return ["".join(field) for field in fields]


def _target(text: Text, cwd: str = "") -> Text:
    """Return the destination. Without `cwd`, raise UserError for a relative one.

    It might mean a path below the directory of the launch or below the container's root.
    """
    target = _each_path(text, cwd, "destination", posixpath.normpath)
    if isinstance(target, str):
        target = "/" + target.lstrip("/")  # normpath keeps two leading slashes, as in POSIX
        place, _comma, flags = target.partition(",")
        if set(flags.split(",")) <= {*FLAGS}:
            hint = f"flags are the third part: write 'SOURCE:{place}:{flags}'"
            raise UserError(f"the destination '{target}' ends in a flag", hint)
        if is_reserved(target):
            raise UserError(f"'{target}' cannot be the destination of a mount")
        if why := excess(target):
            raise UserError(f"the destination {why}")
    return target


def _each_path(text: Text, cwd: str, what: str, clean: Callable[[str], str]) -> Text:
    """Return an absolute, clean path; of a deferred text only the known start is checked."""
    if isinstance(text, str):
        return clean(_absolute(text, cwd, what))
    first, *others = text
    if isinstance(first, Variable):
        return text
    return (_absolute(first, cwd, what), *others)


def _absolute(path: str, cwd: str, what: str) -> str:
    if path.startswith("/"):
        return path
    is_relative = path in (".", "..") or path.startswith(("./", "../"))
    if is_relative and cwd:
        return posixpath.join(cwd, path.removeprefix("./"))
    if not path:
        raise UserError(f"the {what} is empty", "is a variable set to nothing? or write the path")
    hint = "a relative path begins with './'"
    if not cwd:
        inside = posixpath.normpath(f"/{path}")
        hint = (
            f"it is a place in the container: write '{inside}', or '${{PWD}}/…' for where you are"
        )
    if path == "tmpfs":
        hint = "write 'tmpfs:/DESTINATION'"
    if path.startswith("~"):
        hint = TILDE_HINT
    if path.startswith(("type=", "src=", "source=")):
        hint = "write 'SOURCE:DESTINATION:FLAGS', for example '/scratch/x:/data:ro'"
    raise UserError(f"the {what} '{path}' is not an absolute path", hint)


def _tidy(path: str) -> str:
    """Remove doubled and trailing slashes and "."; keep "..", which may follow a symlink."""
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def _flags(text: Text) -> list[str]:
    if not isinstance(text, str):
        raise UserError(f"the flags '{escape(text)}' depend on a variable that only the node knows")
    return [flag for flag in text.replace(",", "+").split("+") if flag]


def _options(
    flags: list[str], allowed: Sequence[str], settings: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the flags once each, in the order of writing. `settings` are for messages only.

    `x-create` is accepted and dropped: destinations are created in any case.
    """
    chosen: dict[str, None] = {}
    for flag in flags:
        if flag in allowed:
            chosen.setdefault(flag)
        elif flag != "x-create" and not flag.startswith("x-create="):
            raise _unknown_flag(flag, (*allowed, *settings))
    for group in _EXCLUSIVE:
        together = [flag for flag in chosen if flag in group]
        if len(together) > 1:
            raise UserError(f"the flags '{together[0]}' and '{together[1]}' exclude each other")
    return tuple(chosen)


def _unknown_flag(flag: str, allowed: Sequence[str]) -> UserError:
    if flag.startswith(("/", ".")):
        return UserError(f"'{flag}' is not a flag", _COLON_HINT)
    if flag in ("z", "Z"):
        return UserError(f"unknown flag '{flag}'", "it is for SELinux, in Docker: leave it out")
    meant = FOREIGN_FLAGS.get(flag.lower()) or nearest(flag, allowed)
    suggestion = did_you_mean(meant)
    return UserError(f"unknown flag '{flag}'{suggestion}", f"choose from {', '.join(allowed)}")


def _squashfs_options(flags: list[str]) -> tuple[str, ...]:
    others = [flag for flag in flags if flag != "sqsh"]
    for flag in others:
        if flag != "ro":
            raise UserError(f"'sqsh' goes with 'ro' only, not with '{flag}'")
    return tuple(dict.fromkeys(others))


def _tmpfs_options(flags: list[str]) -> tuple[str, ...]:
    plain: list[str] = []
    chosen: dict[str, str] = {}
    for flag in flags:
        name, _, value = flag.partition("=")
        form, example = _TMPFS_SETTINGS.get(name, ("", ""))
        if not form:
            plain.append(flag)
        elif not re.fullmatch(form, value):
            raise UserError(f"bad value in '{flag}'", f"write for example {example}")
        else:
            chosen[name] = flag
    names = [f"{name}=" for name in _TMPFS_SETTINGS]
    return (*_options(plain, _TMPFS_FLAGS, names), *chosen.values())


def parse_device(text: Text, origin: Origin) -> Device:
    """Return the device that an expanded entry names. Raise UserError."""
    first = text if isinstance(text, str) else text[0]
    if isinstance(first, Variable):
        # A CDI name normally has a literal "=", the path of a device has none.
        return Device(text, is_cdi="=" in _literal(text), origin=origin)
    if first.startswith("/"):
        if ":" in _literal(text):
            hint = "use a symbolic link without a colon; only a path is allowed here"
            raise UserError(
                f"'{text}': Podman does not accept a device with a colon in its path", hint
            )
        return Device(text, is_cdi=False, origin=origin)
    literal = _literal(text)
    vendor, slash, rest = literal.partition("/")
    kind, equals, name = rest.partition("=")
    if isinstance(text, str) and not (vendor and slash and kind and equals and name):
        hint = f"did you mean '/{text}'?" if text.startswith("dev/") else _hint(literal)
        raise UserError(f"'{text}' is neither the path of a device nor a CDI name", hint)
    return Device(text, is_cdi=True, origin=origin)


def _hint(text: str) -> str:
    if "/" in text and "=" not in text:
        return f"a CDI name ends in '=' and a device, for example '{text}=all'"
    return "write for example '/dev/fuse' or 'nvidia.com/gpu=all'"


def _literal(text: Text) -> str:
    parts = (text,) if isinstance(text, str) else text
    return "".join(part for part in parts if isinstance(part, str))

"""Turns pyxis's options into a layer that overrides an environment, or is one by itself.

Their values are literal: the shell has expanded them. Reads no file.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from container_engine.base.errors import UserError
from container_engine.base.text_layout import did_you_mean, nearest
from container_engine.compat.pyxis_names import (
    ENTRYPOINT_LOG,
    LISTS,
    OPTIONS,
    PREFIX,
    PYTORCH,
    VARIABLES,
    VARIABLES_COUNT,
)
from container_engine.edf.entries import FLAGS, parse_mount
from container_engine.edf.expand import Piece
from container_engine.edf.layer import SEE, Home, Layer, Overlay, Unmount, WithOrigin, add_mount
from container_engine.edf.model import Annotation, Edf, EnvEntry, Mount, Origin, Problem, Text
from container_engine.edf.names import (
    CONTAINER_NAME,
    CONTAINER_SAVE,
    ROOT_REMAP,
    UNSHARE,
    looks_like_file,
)

# the annotation with the same effect as a switch
SWITCHES = {"container-remap-root": ROOT_REMAP, "container-entrypoint-log": ENTRYPOINT_LOG}
_NAMESPACES = ("net", "ipc", "uts", "pid")
_YES, _NO = ("1", "true", "yes", "y"), ("0", "false", "no", "n")
_INSTEAD = " CE_INHERIT=no srun COMMAND runs on the host"
_OF_DOCKER = re.compile(r"(type|source|src|target|dst|destination)=")
_TORN = r"a colon inside a path is written '\:', a comma '\,'"
# what selects a container, so that a variable for it that is set to nothing is a mistake, too
_SELECT = ("container-image", "container-name")


class Given(NamedTuple):
    """An option as it was given: `name` without dashes, and `origin` for messages."""

    name: str
    value: str
    origin: Origin


def read(words: Sequence[str], env: Mapping[str, str], cwd: str) -> Overlay:
    """Return what the words `--NAME[=VALUE]` add to an environment.

    Of an option given twice the last takes effect, but the values of lists add up. If
    VARIABLES_COUNT is one of the words, variables take effect where no option is given. `env` is
    only asked for single names.
    """
    reader = _Reader(env, cwd)
    options = [word for word in words if word != VARIABLES_COUNT]
    given = [one for word in options if (one := reader.word(word)) is not None]
    if VARIABLES_COUNT in words:
        given = list(_with_variables(given, env, reader))
    return reader.overlay(given)


def with_pytorch(edf: Edf, image_env: Mapping[str, str]) -> Edf:
    """Return the environment with the annotation for RANK and LOCAL_RANK if its image has PyTorch.

    Pyxis sets these variables. This is for the image of an option: for a file's, the file decides.
    """
    origin = edf.image_origin
    given = {entry.key: entry for entry in edf.annotations}
    if origin is None or "PYTORCH_VERSION" not in image_env or PYTORCH in given:
        return edf
    given[PYTORCH] = Annotation(PYTORCH, "true", Origin(f"{origin}: PYTORCH_VERSION", 0))
    return replace(edf, annotations=tuple(entry for _, entry in sorted(given.items())))


def _with_variables(given: list[Given], env: Mapping[str, str], reader: _Reader) -> Iterator[Given]:
    """Yield what variables set and no option does, then the options.

    An option with the same value as its variable is replaced by that, so that messages name the
    variable: the plugin passes an image that a variable names as an option.
    """
    variables: dict[str, Given] = {}
    for name in VARIABLES:
        value = env.get(PREFIX + name)
        if value is not None and (one := reader.variable(name, value)) is not None:
            variables[_subject(one.name)] = one
    options: list[Given] = []
    for one in given:
        same = variables.get(_subject(one.name))
        options.append(same if same is not None and same[:2] == one[:2] else one)
    taken = {_subject(one.name) for one in options}
    yield from (one for subject, one in variables.items() if subject not in taken)
    yield from options


def _subject(name: str) -> str:
    """Return the name under which an option and its opposite replace each other."""
    plain = name.removeprefix("no-")
    return "container-writable" if plain == "container-readonly" else plain


class _Reader:
    """A reader of options, which collects their faults."""

    def __init__(self, env: Mapping[str, str], cwd: str) -> None:
        self._env = env
        self._cwd = cwd
        self.problems: list[Problem] = []

    def word(self, word: str) -> Given | None:
        name, equals, value = word.removeprefix("--").partition("=")
        origin = Origin(f"--{name}", 0)
        if name not in OPTIONS or not word.startswith("--"):
            suggestion = did_you_mean(nearest(name, OPTIONS), "--")
            self._error(Origin(word, 0), f"unknown option{suggestion}")
        elif bool(OPTIONS[name]) != bool(equals):
            self._error(origin, "needs a value" if OPTIONS[name] else "takes no value")
        else:
            return Given(name, value, origin)
        return None

    def variable(self, name: str, value: str) -> Given | None:
        origin = Origin(PREFIX + name, 0)
        option = "container-" + name.lower().replace("_", "-")
        if OPTIONS[option]:
            return Given(option, value, origin) if value or option in _SELECT else None
        if value.lower() in _YES:
            return Given(option, "", origin)
        if value.lower() not in _NO:
            hint = f"choose from {', '.join((*_YES, *_NO))}"
            self.problems.append(origin.warning("", f"'{value}' is ignored", hint, SEE))
            return None
        if name == "ENTRYPOINT_LOG":
            return None
        opposite = {"WRITABLE": "container-readonly", "READONLY": "container-writable"}
        return Given(opposite.get(name, f"no-{option}"), "", origin)

    def overlay(self, given: list[Given]) -> Overlay:
        last = {_subject(one.name): one for one in given}
        lists = {name: [one for one in given if one.name == name] for name in LISTS}
        for one in given:
            if OPTIONS[one.name] and not one.value and (one.name in LISTS or one in last.values()):
                hint = f"is a variable set to nothing?{_INSTEAD if one.name in _SELECT else ''}"
                self._error(one.origin, "its value is empty", hint)
        mounts, unmounted = self._mounts(lists["container-mounts"])
        layer = Layer(
            image=_image(last.get("container-image")),
            workdir=_workdir(last.get("container-workdir")),
            writable=_switch(last.get("container-writable")),
            entrypoint=_switch(last.get("container-entrypoint")),
            mounts=mounts,
            env=self._variables(lists["container-env"]),
            annotations={
                **_annotations(last),
                **self._unshared(lists["container-unshare"]),
                **self._saved(last.get("container-save")),
            },
        )
        return Overlay(
            layer,
            tuple(unmounted),
            _home(last.get("container-mount-home")),
            tuple(self.problems),
            given[0].origin if given else None,
            self._env,
            layer.image is not None and layer.image.origin.file.startswith(PREFIX),
        )

    def _unshared(self, given: Iterable[Given]) -> dict[str, Annotation]:
        wanted: dict[str, Origin] = {}
        for one in given:
            for name in one.value.split(","):
                if name not in _NAMESPACES:
                    hint = f"choose from {', '.join(_NAMESPACES)}"
                    self._error(one.origin, f"unknown namespace '{name}'", hint)
                wanted[name] = one.origin
        if not wanted:
            return {}
        return {UNSHARE: Annotation(UNSHARE, ",".join(wanted), next(iter(wanted.values())))}

    def _saved(self, one: Given | None) -> dict[str, Annotation]:
        if one is None or not one.value:
            return {}
        if one.value.endswith("/"):
            self._error(one.origin, f"'{one.value}' is a directory", "write the path of a file")
        path = posixpath.normpath(posixpath.join(self._cwd, one.value))
        return {CONTAINER_SAVE: Annotation(CONTAINER_SAVE, path, one.origin)}

    def _variables(self, given: Iterable[Given]) -> dict[str, EnvEntry]:
        found: dict[str, EnvEntry] = {}
        for one, name in [(each, name) for each in given for name in each.value.split(",")]:
            if not name:
                self._error(one.origin, f"'{one.value}': the name of a variable is empty")
            elif "=" in name:
                hint = f"export {name}, and write {name.partition('=')[0]}"
                self._error(one.origin, f"'{name}': expected the name of a variable", hint)
            elif (value := self._env.get(name)) is not None:
                found[name] = EnvEntry(name, value, one.origin)
        return found

    def _mounts(self, given: Iterable[Given]) -> tuple[dict[Text, Mount], list[Unmount]]:
        mounts: dict[Text, Mount] = {}
        unmounted: list[Unmount] = []
        for one in given:
            texts = [text for text in _split(one.value, ",") if text]
            for text in texts:
                first, *rest = map(_unescaped, _split(text, ":"))
                try:
                    _check_form(text)
                    if first == "umount" and any(rest):
                        flags = ":".join(rest[1:])
                        unmounted.append(_unmount(rest[0], flags, one.origin))
                        continue
                    _check_target("".join(rest[:1]) or (first if first.startswith(".") else ""))
                    mount = parse_mount(_pieces(first, rest), self._cwd, one.origin)
                except UserError as error:
                    is_torn = len(rest) > 1 and "/" in rest[1]
                    # no path but the first begins like this unless a comma was inside one
                    is_torn = is_torn or (text is not texts[0] and first[:1] not in {"/", "."})
                    is_torn = is_torn and not isinstance(error, _FormError)
                    hint = _TORN if is_torn or len(rest) > 2 else error.hint
                    self._error(one.origin, f"'{text}': {error.message}", hint)
                else:
                    add_mount(mounts, mount, self.problems)
        return mounts, unmounted

    def _error(self, where: Origin, message: str, hint: str | None = None) -> None:
        self.problems.append(where.error("", message, hint, SEE))


class _FormError(UserError):
    """A mount in the form of another tool."""


def _check_form(text: str) -> None:
    """Refuse what is meant for a shell, or for another tool, with what to write instead."""
    if text in FLAGS:
        hint = f"several flags are joined by '+', as SOURCE:DESTINATION:FLAG+{text}"
        raise _FormError("a flag, not a mount", hint)
    if _OF_DOCKER.match(text):
        raise _FormError("a part of Docker's --mount", "write SOURCE:DESTINATION:FLAGS")
    if text.startswith(("~", "$")):
        hint = "on a line #SBATCH nothing is expanded: write the path, or one that begins with ./"
        raise _FormError("no shell has expanded it", hint)


def _unmount(target: str, flags: str, origin: Origin) -> Unmount:
    """Return `umount:TARGET[:FLAGS]`. Raise UserError."""
    for flag in filter(None, flags.split("+")):
        if flag not in ("nofail", "x-detach"):
            raise UserError(f"unknown flag '{flag}'", "umount knows nofail")
    return Unmount(_inside(target), origin, "nofail" in flags.split("+"))


def _home(one: Given | None) -> Home | None:
    return None if one is None else Home(not one.name.startswith("no-"), one.origin)


def _image(one: Given | None) -> WithOrigin[str] | None:
    return None if one is None else WithOrigin(of_docker_hub(one.value), one.origin)


def of_docker_hub(text: str) -> str:
    """Return an image's name as pyxis means it: one without a registry is always Docker Hub's.

    A name that looks like a file stays as it is: a later message says so.
    """
    if not text or text.startswith(("/", ".")) or "://" in text or "#" in text:
        return text
    first, slash, _rest = text.partition("/")
    has_host = slash and ("." in first or ":" in first or first == "localhost")
    if has_host or looks_like_file(text):
        return text
    return f"docker.io/{text}" if slash else f"docker.io/library/{text}"


def _workdir(one: Given | None) -> WithOrigin[Text] | None:
    return WithOrigin(_inside(one.value), one.origin) if one is not None and one.value else None


def _switch(one: Given | None) -> WithOrigin[bool] | None:
    if one is None:
        return None
    value = not one.name.startswith("no-") and one.name != "container-readonly"
    return WithOrigin(value, one.origin)


def _annotations(last: Mapping[str, Given]) -> dict[str, Annotation]:
    found: dict[str, Annotation] = {}
    for name, key in SWITCHES.items():
        if name in last:
            value = "false" if last[name].name.startswith("no-") else "true"
            found[key] = Annotation(key, value, last[name].origin)
    if "container-name" in last and last["container-name"].value:
        one = last["container-name"]
        found[CONTAINER_NAME] = Annotation(CONTAINER_NAME, one.value, one.origin)
    return found


def _check_target(target: str) -> None:
    """Refuse a destination as pyxis does: relative without a leading dot, or out of the root."""
    if target and not target.startswith(("/", ".")):
        raise UserError(f"the destination '{target}' is not an absolute path", f"write '/{target}'")
    if posixpath.normpath(target.lstrip("/") or ".").partition("/")[0] == "..":
        raise UserError(
            f"the destination '{target}' leads out of the container: Invalid cross-device link"
        )


def _split(text: str, at: str) -> list[str]:
    r"""Split at each `at` without a backslash before it. Escapes stay: `\:`, `\,` and `\\`."""
    return re.findall(rf"(?:\A|{at})((?:\\.|[^{at}\\]|\\\Z)*)", text, re.DOTALL)


def _unescaped(text: str) -> str:
    return re.sub(r"\\([:,\\])", r"\1", text)


def _pieces(source: str, others: list[str]) -> list[Piece]:
    """Return SRC[:DST[:FLAGS]] with relative paths as pyxis reads them, from its fields.

    A relative path alone is a source in the user's directory and a destination below the root.
    """
    if source not in ("", "tmpfs") and not source.startswith(("/", ".")):
        source = f"./{source}"
    if not others and source.startswith("."):
        others = [source]
    fields = [source, *others]
    if others and others[0]:
        fields[1] = _inside(others[0])
    pieces: list[Piece] = []
    for index, part in enumerate(fields):
        pieces += [(":", False)] if index else []
        pieces.append((part, True))
    return pieces


def _inside(path: str) -> str:
    """Return a path in the container; a relative one begins at its root."""
    return posixpath.normpath("/" + path.lstrip("/"))

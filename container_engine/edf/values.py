"""Expands the values of one checked document, key by key, and parses them."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from container_engine.base.errors import UserError
from container_engine.base.run_check import ListedCheck, faults
from container_engine.base.toml_positions import Path
from container_engine.base.variables import MAX_VARIABLE
from container_engine.edf.checks import (
    Report,
    advice,
    find_path_placeholder,
    find_placeholder,
    key_text,
)
from container_engine.edf.document import PLAIN, Document
from container_engine.edf.entries import is_packed, packed_as_file, parse_device, parse_mount
from container_engine.edf.expand import ExpandError, Scope, expand, names, pieces, scan
from container_engine.edf.layer import Base, Item, WithOrigin, add_mount, image_item
from container_engine.edf.model import (
    Annotation,
    Device,
    EnvEntry,
    Mount,
    Origin,
    Text,
    deferred_names,
)
from container_engine.edf.names import TILDE_HINT

if TYPE_CHECKING:
    from container_engine.edf.annotations import HookRules

T = TypeVar("T")
# For these, the value of the host is hardly ever what the container needs.
_HOST_PATHS = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
_IMAGE = "image:"
_FOR_THE_SHELL = "write '$$' for a '$' that the container's shell must see"
MAX_BASES = 100
# each has a server on the node, and the kernel limits the options of a mount to one page
MAX_IMAGES = 16


class Reader:
    """A reader with a method per key, which reports invalid values and leaves them out.

    `written` collects the strings as written in the file.
    """

    def __init__(
        self,
        document: Document,
        indexes: Mapping[str, list[int]],
        report: Report,
        scope: Scope,
        cwd: str,
        hooks: Callable[[], HookRules],
    ) -> None:
        self._document = document
        self._indexes = indexes
        self._report = report
        self._scope = scope
        self._cwd = cwd
        self._hooks = hooks
        self.written: dict[Item, str] = {}

    def images(self) -> tuple[WithOrigin[str] | None, tuple[WithOrigin[str], ...]]:
        """Return the base, and the images above it; None and () if any is invalid or none given."""
        texts = self._document.images
        if texts is None:
            return None, ()
        if not texts:
            self._report.error(("image",), "an empty array has no image", see="image-empty")
            return None, ()
        if len(texts) == 1:
            return self._image(("image",), "", texts[0]), ()
        if len(texts) > MAX_IMAGES:
            self._report.error(("image",), f"more than {MAX_IMAGES} images")
            return None, ()
        items = self._items("image", texts)
        found = [self._image(path, image_item(path[1]), text) for path, text in items]
        parts = tuple(part for part in found if part is not None)
        return (parts[0], parts[1:]) if len(parts) == len(items) else (None, ())

    def _image(self, path: Path, item: str, text: str) -> WithOrigin[str] | None:
        value = None if self._is_placeholder(path, text) else self._known(path, text)
        self.written["image", item] = text
        if not text and len(path) > 1:
            self._report.error(path, "empty: a stack has an image in each place", see="image-empty")
            return None
        if value == "" != text:
            # a variable that is empty by mistake must not make the command run on the host
            self._report.error(path, f"'{text}' expands to nothing", see="image-empty")
            return None
        return None if value is None else WithOrigin(value, self._report.origin(path))

    def plain(self) -> dict[str, Any]:
        """Return each key with one value; None for one that is invalid or not given."""
        readers = {"switch": self._switch, "directory": self._directory, "text": self._text}
        return {key: readers[kind](key) for key, kind in PLAIN.items()}

    def _switch(self, key: str) -> WithOrigin[bool] | None:
        value = getattr(self._document, key)
        return None if value is None else WithOrigin(value, self._report.origin((key,)))

    def _text(self, key: str) -> WithOrigin[Text] | None:
        path, written = (key,), getattr(self._document, key)
        value = None if written is None else self._known(path, written)
        if value is None:
            return None
        self.written[key, ""] = written
        return WithOrigin(value, self._report.origin(path))

    def _directory(self, key: str) -> WithOrigin[Text] | None:
        path: Path = (key,)
        written = getattr(self._document, key)
        if written is None or self._is_placeholder(path, written):
            return None
        value = self._expand(path, written)
        if value is None:
            return None
        try:
            value = _working_directory(value, self._cwd)
        except UserError as error:
            self._report.failure(path, error)
            return None
        self.written[key, ""] = written
        return WithOrigin(value, self._report.origin(path))

    def mounts(self) -> dict[Text, Mount]:
        result: dict[Text, Mount] = {}
        for path, written in self._items("mounts", self._document.mounts):
            if self._is_placeholder(path, written) or not self._is_clean(path, written):
                continue
            try:
                parts = pieces(written, self._scope)
                mount = parse_mount(parts, self._cwd, self._report.origin(path))
            except ExpandError as error:
                self._report_faults(path, error)
            except UserError as error:
                self._report.failure(path, error)
            else:
                self._refuse_image_variables(path, mount.source)
                self._refuse_image_variables(path, mount.target)
                if is_packed(mount):
                    self._report.warning(path, *packed_as_file(mount))
                add_mount(result, mount, self._report.problems)
                if result[mount.target] is mount:
                    self.written["mounts", mount.target] = written
        return result

    def devices(self) -> dict[Text, Device]:
        result: dict[Text, Device] = {}
        for path, written in self._items("devices", self._document.devices):
            text = self._expand(path, written)
            if text is None:
                continue
            try:
                device = parse_device(text, self._report.origin(path))
            except UserError as error:
                self._report.failure(path, error)
            else:
                self._refuse_image_variables(path, text)
                result.setdefault(device.name, device)
                self.written.setdefault(("devices", device.name), written)
        return result

    def startup(self) -> dict[Text, Origin]:
        result: dict[Text, Origin] = {}
        for path, written in self._items("startup", self._document.startup):
            text = self._expand(path, written)
            if text is not None:
                if text in result:
                    hint = "write ' # again' behind it if it has to"
                    self._report.warning(
                        path, "a line that is there twice does not run again", hint
                    )
                result.setdefault(text, self._report.origin(path))
                self.written.setdefault(("startup", text), written)
        return result

    def checks(self) -> dict[str, WithOrigin[ListedCheck]]:
        result: dict[str, WithOrigin[ListedCheck]] = {}
        for path, check in self._items("checks", self._document.checks):
            for key, message in faults(check):
                self._report.error((*path, key), message)
            if check.name in result:
                self._report.error((*path, "name"), f"there is another check '{check.name}'")
            known: dict[str, Any] = {}
            for key in ("command", "words", "forbid"):
                texts = [self._known((*path, key), text) for text in getattr(check, key)]
                known[key] = tuple(text for text in texts if text is not None)
            for key in ("message", "hint"):
                known[key] = self._known((*path, key), getattr(check, key)) or ""
            value = check.model_copy(update=known)
            result[check.name] = WithOrigin(value, self._report.origin(path))
            self.written["checks", check.name] = check.text
        return result

    def env(self) -> dict[str, EnvEntry]:
        result: dict[str, EnvEntry] = {}
        for name, written in self._document.env.items():
            path: Path = ("env", name)
            if not name or "=" in name or "\0" in name:
                self._report.error(path, "not a valid name of a variable")
                continue
            found = find_path_placeholder(written)
            if found is not None:
                self._warn_of_placeholder(path, found)
            text = self._expand(path, written)
            if text is not None:
                self._warn_of_host_path(name, written)
                if excess := variable_excess(name, text):
                    self._report.error(path, excess, see="variable-too-large")
                result[name] = EnvEntry(name, text, self._report.origin(path))
                self.written["env", name] = written
        return result

    def annotations(self) -> dict[str, Annotation]:
        if not self._document.annotations:
            return {}
        from container_engine.edf.annotations import check_names, check_value, flatten

        rules = self._hooks()
        flat = flatten(self._document.annotations, self._report)
        check_names(flat, rules, self._report)
        result: dict[str, Annotation] = {}
        for key, (written, path) in flat.items():
            value = None if self._is_placeholder(path, written) else self._known(path, written)
            if value is not None:
                check_value(key, value, path, rules, self._report)
                result[key] = Annotation(key, value, self._report.origin(path))
                self.written["annotations", key] = written
        return result

    def bases(self) -> tuple[Base, ...]:
        result: list[Base] = []
        entries = self._document.bases
        if len(entries) > MAX_BASES:
            self._report.error(("base_environment",), f"more than {MAX_BASES} entries")
            return ()
        for path, written in self._items("base_environment", entries):
            name = None if self._is_placeholder(path, written) else self._known(path, written)
            if name is not None:
                result.append(Base(name, self._report.origin(path), key_text(path)))
        return tuple(result)

    def _items(self, key: str, values: list[T]) -> list[tuple[Path, T]]:
        places = self._indexes.get(key, range(len(values)))
        return [((key, place), value) for place, value in zip(places, values, strict=True)]

    def _known(self, path: Path, written: str) -> str | None:
        """Return the expanded value of a key that must be complete before the launch.

        Return None if it is not, after reporting an error.
        """
        text = self._expand(path, written)
        if text is None or isinstance(text, str):
            return text
        self._refuse_image_variables(path, text)
        for name in deferred_names(text):
            if not name.startswith(_IMAGE):
                message = (
                    f"variable '{name}' exists only on the compute node, too late for this key"
                )
                self._report.error(path, message)
        return None

    def _expand(self, path: Path, written: str) -> Text | None:
        if not self._is_clean(path, written):
            return None
        try:
            return expand(written, self._scope, str(path[-1]) if path[0] == "env" else "")
        except ExpandError as error:
            self._report_faults(path, error)
            return None

    def _is_clean(self, path: Path, written: str) -> bool:
        if "\0" in written:
            self._report.error(path, "contains a NUL character")
            return False
        return True

    def _report_faults(self, path: Path, error: ExpandError) -> None:
        for message, hint in error.faults:
            # these may be shell lines, and most likely the dollar sign is meant for the shell
            own = _FOR_THE_SHELL if path[0] in ("startup", "checks") else hint
            self._report.error(path, message, own, error.see)

    def _refuse_image_variables(self, path: Path, text: Text) -> None:
        for name in deferred_names(text):
            if name.startswith(_IMAGE):
                self._report.error(path, f"'${{{name}}}' cannot be used in this key")

    def _is_placeholder(self, path: Path, written: str) -> bool:
        """Report a placeholder, and return whether it is the whole value.

        If it is, it is an error; inside a longer value it is a warning.
        """
        found = find_placeholder(written)
        if found is None:
            return False
        if found == written:
            self._report.error(path, f"'{found}' is a placeholder", advice(found))
            return True
        self._warn_of_placeholder(path, found)
        return False

    def _warn_of_placeholder(self, path: Path, found: str) -> None:
        self._report.warning(path, f"'{found}' looks like a placeholder", advice(found))

    def _warn_of_host_path(self, name: str, written: str) -> None:
        if name in _HOST_PATHS and name in names(scan(written)):
            self._report.warning(
                ("env", name),
                f"'${{{name}}}' is the value of the host, not that of the image",
                f"write {of_image(name)} for the value of the image",
            )


def variable_excess(name: str, value: Text | None) -> str:
    """Return why a variable is too large, "" if not; a deferred text is measured on the node."""
    if not isinstance(value, str):
        return ""
    size = len(f"{name}={value}".encode("utf-8", "surrogateescape"))
    if size <= MAX_VARIABLE:
        return ""
    return f"has {size} bytes with its name; Linux allows {MAX_VARIABLE}"


def of_image(name: str) -> str:
    """Return how an EDF writes the image's value of a variable; only PATH needs no default."""
    return "${image:PATH}" if name == "PATH" else f"${{image:{name}:-}}"


def _working_directory(text: Text, cwd: str) -> Text:
    first = text if isinstance(text, str) else text[0]
    if not isinstance(first, str) or first.startswith("/") or not text:
        return text
    if first in (".", "..") or first.startswith(("./", "../")):
        joined = posixpath.join(cwd, first.removeprefix("./"))
        if not isinstance(text, str):
            return (joined, *text[1:])
        return posixpath.normpath(joined)
    hint = TILDE_HINT if first.startswith("~") else "a relative path begins with './'"
    raise UserError(f"'{first}' is not an absolute path", hint)

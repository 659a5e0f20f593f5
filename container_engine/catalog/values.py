"""Looks up the names in a hook's strings. Pure.

`{name}` is a parameter or setting of the hook, `{hook.name}` one of another hook, `{arch}` the
machine, `{here}` the directory of the hook.toml; `{node.name}` is left to the node.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from container_engine.catalog.load import Hook
    from container_engine.catalog.model import When

PLACE = re.compile(r"\{([a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)?)\}")
NODE = "node."
# settings may refer to each other; the limit keeps a cycle of them from hanging a launch
_DEPTH = 4


class Values:
    """The values of the names in hooks' strings, for given annotations and a machine."""

    def __init__(
        self, hooks: Mapping[str, Hook], annotations: Mapping[str, str], machine: str
    ) -> None:
        self._hooks = hooks
        self._annotations = annotations
        self._machine = machine
        self._chosen: dict[str, str] = {}

    def choose(self, hook: Hook, name: str, value: str) -> None:
        """Replace a symbolic value, such as `latest`, with a real one."""
        self._chosen[f"{hook.annotation}.{name}"] = value

    def parameters(self, hook: Hook) -> dict[str, str]:
        return {name: self._parameter(hook, name) for name in sorted(hook.data.parameters)}

    def look_up(self, hook: Hook, name: str) -> str | None:
        """Return the value of `name` or `hook.name` as seen by `hook`, or None if it is unknown."""
        other, dot, own = name.partition(".")
        if dot:
            owner = self._hooks.get(other)
            return None if owner is None else self.look_up(owner, own)
        if name in hook.data.parameters:
            return self._parameter(hook, name)
        if name in hook.data.settings:
            return self._setting(hook, name)
        if name == "here":
            return posixpath.dirname(hook.file)
        return self._machine if name == "arch" else None

    def annotation(self, hook: Hook, name: str) -> str | None:
        """Return the annotation that sets `name` or `hook.name`; None if users cannot set it."""
        other, dot, own = name.partition(".")
        if dot:
            owner = self._hooks.get(other)
            return None if owner is None else self.annotation(owner, own)
        is_users = name in hook.data.parameters or name in hook.data.allow
        return f"{hook.annotation}.{name}" if is_users else None

    def text(self, hook: Hook, text: str, depth: int = _DEPTH) -> str:
        """Return `text` with its known names replaced; a user's value is never expanded again."""

        def replaced(found: re.Match[str]) -> str:
            name = found[1]
            if name.startswith(NODE):
                return found[0]
            value = self.look_up(hook, name)
            if value is None:
                return found[0]
            own = name.rpartition(".")[2]
            owner = self._hooks[name.partition(".")[0]] if "." in name else hook
            is_sites = own in owner.data.settings and depth > 0
            return self.text(owner, value, depth - 1) if is_sites else value

        return PLACE.sub(replaced, text)

    def setting(self, hook: Hook, name: str) -> str:
        return self.text(hook, self._setting(hook, name))

    def holds(self, hook: Hook, when: When) -> bool:
        for name, wanted in when.items():
            values = (wanted,) if isinstance(wanted, str) else wanted
            if self.look_up(hook, name) not in values:
                return False
        return True

    def _parameter(self, hook: Hook, name: str) -> str:
        key = f"{hook.annotation}.{name}"
        value = self._chosen.get(key, self._annotations.get(key))
        return hook.data.parameters[name].default if value is None else value

    def _setting(self, hook: Hook, name: str) -> str:
        value = self._annotations.get(f"{hook.annotation}.{name}")
        allowed = value is not None and name in hook.data.allow
        return value if allowed and value is not None else hook.data.settings[name]


def in_words(when: When) -> str:
    """Return a condition as users read it: "a is x or y and b is z"."""
    return " and ".join(
        f"{name} is {value if isinstance(value, str) else ' or '.join(value)}"
        for name, value in when.items()
    )

"""OCI hooks (oci-hooks(5)) of the site on this node: whether they may run, and which one failed.

Podman decides by `when` which of them apply, and runs them with crun at their stages; what is said
here of a failure names hook, stage, exit code and last lines of stderr, which crun alone does not.
"""

from __future__ import annotations

import os
import stat

from container_engine.launch import failure
from container_engine.launch.failure import LaunchError
from container_engine.launch.text import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

_LAST_LINES = 3
_CRUN = "error executing hook `"
_PODMAN = "executing ["
_PRECREATE = "setting up OCI Hooks"


class Hook:
    """One program; `name` is the file or the hook that asks for it."""

    __slots__ = ("name", "path", "stages")

    def __init__(self, name: str, path: str, stages: Sequence[str]) -> None:
        self.name = name
        self.path = path
        self.stages = stages


class OciHooks:
    """All hooks that Podman may run for a container.

    Raises LaunchError for a file or program that is missing, not an administrator's, or unreadable:
    with crun, a program that does not exist ends the container after Podman said all was well.
    """

    def __init__(self, directories: Sequence[str], others: Sequence[Mapping[str, Any]]) -> None:
        self._hooks = [hook for directory in directories for hook in _read(directory)]
        for other in others:
            self._hooks.append(Hook("a hook or CDI device", other["path"], [other["hookName"]]))
        for hook in self._hooks:
            if "startContainer" not in hook.stages:
                _check_program(hook)

    def explain(self, report: str) -> str:
        """One line from the guard's report, as failure.explain, with more about hooks."""
        told, _mark, said = report.partition("\f")
        lines = [line.strip() for line in said.split("\n") if line.strip()]
        words = f": {'; '.join(lines[-_LAST_LINES:])}" if lines else ""
        stage, _newline, rest = told.partition("\n")
        if stage == "podman" and _CRUN in rest:
            path, _quote, after = rest.rpartition(_CRUN)[2].partition("`")
            code = after.partition("exit code: ")[2].partition(")")[0]
            how = f"exit code {code}" if code else "no exit code"
            return f"{self._named(path)} failed with {how}{words}"
        if stage == "podman" and _PRECREATE in rest:
            return f"{self._precreate(rest)}{words}"
        if stage == "container":
            inside = [hook for hook in self._hooks if "startContainer" in hook.stages]
            if inside:
                names = " or ".join(_title(hook, ["startContainer"]) for hook in inside)
                return f"{names} failed, or the container's first process did{words}"
        return failure.explain(told)

    def _named(self, path: str) -> str:
        """The hook as people know it; the stage is that of crun's if there is only one."""
        for hook in self._hooks:
            if hook.path == path:
                early = ("createRuntime", "createContainer", "startContainer", "prestart")
                possible = [stage for stage in hook.stages if stage in early]
                return _title(hook, possible or hook.stages)
        return f"OCI hook '{path}'"

    def _precreate(self, rest: str) -> str:
        line = next(line for line in rest.split("\n") if _PRECREATE in line)
        reason = line.partition(f"{_PRECREATE}: ")[2]
        hooks = [hook for hook in self._hooks if "precreate" in hook.stages]
        names = " or ".join(_title(hook, ["precreate"]) for hook in hooks) or "an OCI hook"
        return f"{names} failed: {reason}"


def _title(hook: Hook, stages: Sequence[str]) -> str:
    return f"OCI hook '{hook.path}' ({hook.name}, {' or '.join(stages)})"


def _read(directory: str) -> Iterator[Hook]:
    """What stands in the files of a directory; one that does not exist has none."""
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return
    except OSError as error:
        raise LaunchError(f"OCI hook directory '{directory}': {error.strerror}") from None
    _check_owner(directory)
    for name in names:
        if not name.endswith(".json"):
            continue
        file = f"{directory}/{name}"
        _check_owner(file)
        try:
            with open(file, "rb") as stream:
                yield _hook(name, parse_json(stream.read().decode()))
        except OSError as error:
            raise LaunchError(f"OCI hook file '{file}': {error.strerror}") from None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise LaunchError(f"OCI hook file '{file}': not as in oci-hooks(5): {error}") from None


def _hook(name: str, content: Any) -> Hook:  # noqa: ANN401  # that is what such a file is
    """Of version 1.0.0, or of the one before, in which the hook is only a path."""
    program = content["hook"]
    path = program if isinstance(program, str) else program["path"]
    stages = content.get("stages") or content["stage"]
    if not isinstance(path, str) or not all(isinstance(stage, str) for stage in stages):
        raise ValueError("hook.path and stages are strings")
    return Hook(name, path, list(stages))


def _check_program(hook: Hook) -> None:
    title = _title(hook, hook.stages)
    if not hook.path.startswith("/"):
        raise LaunchError(f"{title}: not an absolute path")
    try:
        mode = os.stat(hook.path).st_mode
    except OSError as error:
        raise LaunchError(f"{title}: {error.strerror}") from None
    if not (stat.S_ISREG(mode) and os.access(hook.path, os.X_OK)):
        raise LaunchError(f"{title}: is not a program that you can run")
    _check_owner(hook.path)


def _check_owner(path: str) -> None:
    status = os.stat(path)
    if status.st_uid not in (0, os.stat(__file__).st_uid):
        raise LaunchError(f"OCI hooks: '{path}' is owned by user {status.st_uid}, not by root")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise LaunchError(f"OCI hooks: others than its owner may write '{path}'")

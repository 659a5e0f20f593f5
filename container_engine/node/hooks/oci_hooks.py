"""The site's OCI hooks (oci-hooks(5)) on this node: check them, and report which one failed.

crun runs those that apply at their stages, but each in a shell of ours: crun fails when a hook ends
before it has read the state ("writing to pipe: Broken pipe", crun 1.8), and reports neither which
hook failed nor its output.
"""

from __future__ import annotations

import os
import stat

from container_engine.base.errors import LaunchError
from container_engine.base.files import DistrustError, distrust, trusted_files
from container_engine.node.container.description import HOOKS_STDERR, INIT_PATH
from container_engine.node.plan_json import parse_json, to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from container_engine.node.container.description import Operation, Parts, Paths
    from container_engine.node.node_plan import NodePlan
    from container_engine.node.plan_types import OciHook
    from container_engine.oci import cdi, runtime
    from container_engine.oci.runtime import HookFile, State, When

_STATE_FILE = "oci-state.json"
_MAX_SIZE = 4 * 1024 * 1024
_LAST_LINES = 3
_PRECREATE = "setting up OCI Hooks"
# what a wrapper prints on failure: this mark, the number of the hook, its exit code
_MARK = "container engine: failed: "
# Reads the whole state before the hook runs. A pipeline has the exit code of its last command.
_WRAPPER = (
    'state=$(/bin/cat); number=$1; shift; printf %s "$state" 2>/dev/null | "$@"; code=$?; '
    f'[ $code = 0 ] || echo "{_MARK}$number $code" >&2; exit $code'
)
# Podman runs the precreate hooks itself and drops their stderr.
_TO_FILE = 'exec 2>>"$1"; shift; '
_KEYS = ("path", "args", "env", "timeout")
_ALWAYS: When = {"always": True}
# crun never reaches this stage, because the kernel ends a session all at once
_AFTER = "poststop"
# Hooks of that stage get the container's state, too: a hook of ours saves what crun passes to it.
_KEEP_STATE = '/bin/cat > "$1"'
_SEND_STATE = "printf 'note\\0001\\000'; /bin/cat \"$1\"; printf '\\000'"
_POSTSTOP = 'state=$1; shift; printf %s "$state" 2>/dev/null | "$@"'
# hooks of this stage are programs of the image, which may lack a shell
_UNWRAPPED = "startContainer"
# the stages of oci-hooks(5); the first is Podman's own
_STAGES = (
    *("precreate", "prestart", "createRuntime", "createContainer"),
    *("startContainer", "poststart", "poststop"),
)
_CONDITIONS = ("always", "hasBindMounts", "annotations", "commands")


class Hook:
    """One program at one stage; `name` is the file or the hook that requests it."""

    def __init__(self, name: str, content: HookFile, stage: str) -> None:
        self.name = name
        self.content = content
        self.path: str = content["hook"]["path"]
        self.stage = stage

    def __str__(self) -> str:
        return f"OCI hook '{self.path}' ({self.name}, {self.stage})"

    def definition(self, number: int, stderr: str, umask: int) -> HookFile:
        """Return the definition of the hook in its shell, where args[0] is the path of the program.

        `stderr` is the file into which crun writes the stderr of hooks, `umask` the user's: crun
        1.14 and later has none when it runs them, and Podman 022.
        """
        hook = self.content["hook"].copy()
        if self.stage != _UNWRAPPED:
            script = f"umask {umask:03o}; {_WRAPPER}"
            words = ["sh", "-c", script, "sh", str(number), self.path]
            if self.stage == "precreate":
                words[2:4] = [_TO_FILE + script, "sh", stderr]
            hook |= {"path": "/bin/sh", "args": [*words, *hook.get("args", [])[1:]]}
        return _definition(hook, self.stage)


class OciHooks:
    """All hooks that may apply to a container.

    Raise LaunchError for a file or program that is missing, not an administrator's, or unreadable:
    with crun, a missing program would end the container after it reported success.
    """

    def __init__(self, directories: Sequence[str], others: Sequence[cdi.Hook | OciHook]) -> None:
        files: dict[str, list[Hook]] = {}
        for directory in directories:
            # a file of a later directory replaces one of the same name
            files.update(_read(directory))
        self.hooks = [hook for name in sorted(files) for hook in files[name]]
        for other in others:
            program: Any = {key: value for key, value in other.items() if key in _KEYS and value}
            content: HookFile = {"hook": program, "when": _ALWAYS}
            self.hooks.append(Hook("of a hook or CDI device", content, other["hookName"]))
        for hook in self.hooks:
            if hook.stage != _UNWRAPPED:
                _check_program(hook)
        self._after = [hook for hook in self.hooks if hook.stage == _AFTER]
        self._state: State = {}

    def definitions(self, container: Parts, paths: Paths) -> list[HookFile]:
        """Return the hooks that apply to the container, in the order in which they run."""
        if not self.hooks:
            return []
        command = [*container.entrypoint, INIT_PATH][0]
        found = [
            hook.definition(number, paths.at(HOOKS_STDERR), container.umask)
            for number, hook in enumerate(self.hooks)
            if hook.stage != _AFTER
            and applies(hook.content.get("when", {}), container.annotations, command)
        ]
        if self._after:
            keep = ["sh", "-c", _KEEP_STATE, "sh", paths.at(_STATE_FILE)]
            ours: runtime.Hook = {"path": "/bin/sh", "args": keep}
            found.append(_definition(ours, "createRuntime"))
        return found

    def last_operations(self, paths: Paths) -> list[Operation]:
        """Return the operations that send the container's state to the launcher, if it needs it."""
        words = ["/bin/sh", "-c", _SEND_STATE, "sh", paths.at(_STATE_FILE)]
        return [("more", words)] if self._after else []

    def take_note(self, note: str) -> bool:
        """Take a note if it is the state of the container; return whether it was."""
        if '"ociVersion"' not in note:
            return False
        self._state = parse_json(note)
        return True

    def at_the_end(
        self, plan: NodePlan, guard: int, mount_ns: int, done: int, libexec: str
    ) -> None:
        """Start the process that runs the hooks of the stage poststop, if any apply.

        The process holds the descriptor `done` until they have run.
        """
        if not self._after:
            return
        from container_engine.node.hooks.services import KILL, at_the_end

        command = [*plan.entrypoint, INIT_PATH][0]
        state = to_json({**self._state, "status": "stopped", "pid": 0})
        steps: list[Operation] = []
        for hook in self._after:
            if applies(hook.content.get("when", {}), plan.annotations, command):
                program = hook.content["hook"]
                words = [hook.path, *program.get("args", [])[1:]]
                clean = ["/usr/bin/env", "-i", *program.get("env", [])]
                shell = ["/bin/sh", "-c", _POSTSTOP, "sh", state]
                steps.append((_AFTER, [*clean, *shell, *words]))
        if steps:
            steps += [] if plan.kept else [KILL]
            at_the_end(steps, guard, mount_ns, done, libexec)

    def explain(self, report: str) -> LaunchError:
        """Return the error for the guard's report, with the OCI hook that failed, if one did."""
        from container_engine.node.report import guard_failure

        marked, _mark, printed = report.partition("\f")
        lines = [line.strip() for line in printed.split("\n") if line.strip()]
        failed = [line for line in lines if line.startswith(_MARK)]
        lines = [line for line in lines if not line.startswith(_MARK)]
        words = f": {'; '.join(lines[-_LAST_LINES:])}" if lines else ""
        stage, _newline, rest = marked.partition("\n")
        if stage in guard_failure.CREATORS and failed:
            number, _space, code = failed[-1].removeprefix(_MARK).partition(" ")
            return _failed(f"{self.hooks[int(number)]} failed with exit code {code}{words}", report)
        if stage == "podman" and _PRECREATE in rest:
            why = rest.partition(f"{_PRECREATE}: ")[2].strip()
            return _failed(f"{self._any('precreate')} failed: {why}", report)
        if stage == "container" and self._any("startContainer"):
            names = self._any("startContainer")
            message = f"{names} failed, or the container's first process did{words}"
            return _failed(message, report)
        return guard_failure.explain(marked)

    def _any(self, stage: str) -> str:
        return " or ".join(str(hook) for hook in self.hooks if hook.stage == stage)


def _definition(hook: runtime.Hook, stage: str) -> HookFile:
    return {"version": "1.0.0", "hook": hook, "when": _ALWAYS, "stages": [stage]}


def _failed(message: str, report: str) -> LaunchError:
    return LaunchError(message, see="oci-hook-failed", details=report.replace("\f", "\n"))


def _read(directory: str) -> Iterator[tuple[str, list[Hook]]]:
    """Yield each file of a directory with its hooks; a missing directory has none.

    Raise LaunchError for an invalid file, or if others than an administrator can change it.
    """
    file = directory
    try:
        for file, content in trusted_files(directory, (".json",), _MAX_SIZE):
            name = os.path.basename(file)
            found: HookFile = parse_json(content.decode())
            yield name, _hooks(name, found)
    except DistrustError as error:
        raise _untrusted(error.filename, f"{error.strerror}") from None
    except OSError as error:
        raise _invalid(error.filename or file, f"{error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _invalid(file, f"not as in oci-hooks(5): {error}") from None


def _invalid(path: str, reason: str) -> LaunchError:
    return LaunchError(reason, see="oci-hook-invalid", kind="OCI hook file", name=path)


def _untrusted(path: str, reason: str) -> LaunchError:
    return LaunchError(reason, see="oci-hook-invalid", where="OCI hooks", name=path)


def _hooks(name: str, content: HookFile) -> list[Hook]:
    version = content["version"]
    if version != "1.0.0":
        raise ValueError(f"version '{version}' is not 1.0.0")
    if not isinstance(content["hook"]["path"], str):
        raise TypeError("hook.path is not a string")
    if not all(isinstance(word, str) for word in content["hook"].get("args", ())):
        raise TypeError("hook.args are not strings")
    _check_runs(content["stages"], content.get("when", {}))
    return [Hook(name, content, stage) for stage in content["stages"]]


def _check_runs(stages: Sequence[str], when: When) -> None:
    """Raise ValueError for a hook that would never run: a mandatory one must not be lost."""
    if not isinstance(stages, list) or not stages:
        raise ValueError("stages must be an array with at least one stage")
    for kind, names, known in (("stage", stages, _STAGES), ("condition", when, _CONDITIONS)):
        for name in names:
            if name not in known:
                raise ValueError(f"unknown {kind} '{name}', it must be one of {', '.join(known)}")
    if not when:
        raise ValueError("when has no condition, so the hook would never run")
    _check_patterns([word for pair in when.get("annotations", {}).items() for word in pair])
    _check_patterns(when.get("commands", []))


def _check_patterns(patterns: Sequence[str]) -> None:
    if patterns:
        import re  # slow to load

        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(
                    f"when: '{pattern}' is not a regular expression: {error}"
                ) from None


def _check_program(hook: Hook) -> None:
    if not hook.path.startswith("/"):
        raise _unusable(hook, "not an absolute path")
    try:
        mode = os.stat(hook.path).st_mode
    except OSError as error:
        raise _unusable(hook, str(error.strerror)) from None
    if not (stat.S_ISREG(mode) and os.access(hook.path, os.X_OK)):
        raise _unusable(hook, "not a program that you may run")
    if found := distrust(hook.path):
        raise _untrusted(*found[:2])


def _unusable(hook: Hook, reason: str) -> LaunchError:
    return LaunchError(reason, see="oci-hook-invalid", where=str(hook))


def applies(when: When, annotations: Mapping[str, str], command: str) -> bool:
    """Decide as Podman does: a hook applies if it has conditions and all of them hold.

    If true, `hasBindMounts` holds, because every container has bind mounts.
    """
    import re

    conditions = []
    if "always" in when:
        conditions.append(bool(when["always"]))
    if "hasBindMounts" in when:
        conditions.append(bool(when["hasBindMounts"]))
    for key, value in when.get("annotations", {}).items():
        pairs = annotations.items()
        conditions.append(any(re.search(key, k) and re.search(value, v) for k, v in pairs))
    if when.get("commands"):
        conditions.append(any(re.search(pattern, command) for pattern in when["commands"]))
    return bool(conditions) and all(conditions)

"""Advises on variables: those below [env], and those of the shell that tasks get. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from container_engine.base.variables import is_of_slurm
from container_engine.edf.history import History
from container_engine.edf.model import Origin, Problem, escape
from container_engine.edf.values import of_image
from container_engine.tools.lint.subject import Subject, is_below, is_in, variables_in

_LISTS = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
_SYSTEM = ("/usr/bin", "/bin")
_GPUS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
# set by modules, Conda and virtual environments
_OF_HOST_FILES = (
    *("CONDA_PREFIX", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"),
)
# the origin in advice that is not about a file
_SHELL = Origin("your shell", 0)
_LOST = "in no mount: the host's files are not there, and what tasks write there is lost"


def search_paths(subject: Subject) -> Iterator[Problem]:
    """Warn of search paths that drop the image's entries, or have unintended ones."""
    for name, history in subject.below("env"):
        if name in _LISTS and history.effective.value != "":
            yield from _list(name, history)


def _list(name: str, history: History) -> Iterator[Problem]:
    origin, key, value = history.effective.origin, history.key, history.effective.value
    used = variables_in(history)
    text = value if isinstance(value, str) else "" if isinstance(value, bool) else escape(value)
    keeps = f'write {name} = "…:{of_image(name)}" to keep what the image has'
    if name in used:
        message = f"'${{{name}}}' is the value where the job is submitted, not the image's"
        yield origin.warning(key, message, keeps)
    elif f"image:{name}" not in used:
        lost = "the programs of the image" if name == "PATH" else "what the image sets"
        if name != "PATH" or not set(_SYSTEM) & set(text.split(":")):
            yield origin.warning(key, f"replaces the image's {name}, {lost} may be missing", keeps)
    if isinstance(value, str) and "" in value.split(":"):
        hint = "an empty entry means the current directory: remove the extra ':'"
        yield origin.warning(key, "has an empty entry", hint)
    if any(entry.startswith("~") for entry in text.split(":")):
        yield origin.warning(key, "'~' is not expanded in a variable", "write ${HOME}")


def quoted_values(subject: Subject) -> Iterator[Problem]:
    """Warn of variables whose value begins and ends with a quote that is nowhere else in it."""
    for name, history in subject.below("env"):
        value = history.effective.value
        if not isinstance(value, str) or not _is_quoted(value):
            continue
        inner = value[1:-1]
        message = f"its value is {value}, with the quotes: no shell takes them away"
        hint = f'write {name} = "{inner}"' + ("" if inner else ", which removes the variable")
        yield history.effective.origin.warning(history.key, message, hint)


def _is_quoted(value: str) -> bool:
    return len(value) > 1 and value[0] == value[-1] in "'\"" and value.count(value[0]) == 2


def slurm_variables(subject: Subject) -> Iterator[Problem]:
    """Warn of values that Slurm will replace, and of GPUs that replace those that Slurm chose."""
    for name, history in subject.below("env"):
        origin, value = history.effective.origin, history.effective.value
        if is_of_slurm(name):
            message = "has no effect: Slurm sets this variable itself"
            hint = f"export {name} before srun, or give srun the option that sets it"
            yield origin.warning(history.key, message, hint)
        elif name in _GPUS and value != "" and name not in variables_in(history):
            message = "replaces the GPUs that Slurm gives to each task"
            hint = "remove the line: srun --gpus-per-task chooses them"
            yield origin.warning(history.key, message, hint)


def shell_variables(subject: Subject) -> Iterator[Problem]:
    """Warn of variables of the shell with which programs of the image would load host files."""
    decided = {entry.name for entry in subject.edf.env}
    if not subject.has_image:
        return
    for name in _OF_HOST_FILES:
        if subject.variables.get(name) and name not in decided:
            message = "is set; tasks get it, unless the image sets its own"
            yield _SHELL.warning(name, message, f'{name} = "" in [env] removes it')


def unmounted(subject: Subject) -> Iterator[Problem]:
    """Warn of values of [env] below HOME or SCRATCH that no mount contains, and of SCRATCH itself.

    Tasks inherit SCRATCH from the shell. A mount of a directory below it is a choice of the author
    and prevents the warning.
    """
    if not subject.has_image:
        return
    scratch = subject.scratch
    every = (*subject.edf.mounts, *subject.offer.wide.mounts)
    targets = [mount.target for mount in every if isinstance(mount.target, str)]
    places = {"SCRATCH": scratch, "HOME": subject.home}
    for _name, history in subject.below("env"):
        value = history.effective.value
        text = value if isinstance(value, str) else ""
        within = next((name for name, place in places.items() if is_below(text, place)), None)
        if within and ":" not in text and not any(is_in(text, target) for target in targets):
            hint = f'add "${{{within}}}", or a directory below it, to mounts'
            yield history.effective.origin.warning(history.key, f"is {_LOST}", hint)
    is_chosen = any(is_in(scratch, one) or is_in(one, scratch) for one in targets)
    if scratch and not is_chosen and not any(entry.name == "SCRATCH" for entry in subject.edf.env):
        yield _SHELL.warning("SCRATCH", f"is {_LOST}", 'add "${SCRATCH}" to mounts')

"""Advise on variables: of [env], of the shell, of hooks, of caches, of GPUs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from container_engine.base.mounts import is_in
from container_engine.base.text_layout import did_you_mean, nearest
from container_engine.base.variables import is_of_slurm
from container_engine.edf.model import EnvEntry, Origin, Problem, Text, escape
from container_engine.edf.show import History
from container_engine.edf.values import of_image
from container_engine.plan.model import HookUse
from container_engine.tools.lint.subject import Subject, is_below, variables_in

_LISTS = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
_SYSTEM = ("/usr/bin", "/bin")
_GPUS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
# set by modules, Conda and virtual environments
_OF_HOST_FILES = (
    *("CONDA_PREFIX", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"),
)
# the origin in advice that is not about a file
_YOUR_SHELL = Origin("your shell", 0)
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
            yield _YOUR_SHELL.warning(name, message, f'{name} = "" in [env] removes it')


def unmounted(subject: Subject) -> Iterator[Problem]:
    """Warn of values of [env] below HOME or SCRATCH that no mount contains, and of SCRATCH itself.

    Tasks inherit SCRATCH from the shell. A mount of a directory below it is a choice of the author
    and prevents the warning.
    """
    if not subject.has_image:
        return
    scratch = subject.scratch
    every = (*subject.edf.mounts, *subject.site_context.wide.mounts)
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
        yield _YOUR_SHELL.warning("SCRATCH", f"is {_LOST}", 'add "${SCRATCH}" to mounts')


_PLUGIN = "NCCL_NET_PLUGIN"
_PLUGINS_HOOK = "aws_ofi_nccl"
_MEASURED = "keep it only if you measured that it helps"


def tuning(subject: Subject) -> Iterator[Problem]:
    """Warn of variables that repeat or contradict a hook's, or keep its plugin from loading."""
    for hook in subject.hooks:
        set_by_both = [entry for entry in subject.edf.env if hook.env.get(entry.name) is not None]
        yield from _repeated(
            [entry for entry in set_by_both if entry.value == hook.env[entry.name]], hook
        )
        for entry in subject.edf.env:
            if hook.name == _PLUGINS_HOOK and entry.name == _PLUGIN and entry.value != "":
                message = f"keeps NCCL from loading the plugin that {_of(hook)} puts in place"
                yield entry.origin.warning(f"env.{entry.name}", message, "remove the line")
            elif entry in set_by_both and entry.value != hook.env[entry.name]:
                yield _contradicting(entry, hook, subject)


def _repeated(entries: list[EnvEntry], hook: HookUse) -> Iterator[Problem]:
    """Yield one piece of advice, however many variables an environment has copied from a hook."""
    why = "the hook follows the network"
    if len(entries) == 1:
        (entry,) = entries
        message = f"repeats '{entry.value}' {_where(hook)}"
        yield entry.origin.warning(f"env.{entry.name}", message, f"remove the line, {why}")
    elif entries:
        as_written = sorted(entries, key=lambda entry: entry.origin.line)
        names = ", ".join(entry.name for entry in as_written)
        message = f"{len(entries)} variables repeat the values {_where(hook)}: {names}"
        yield as_written[0].origin.warning("env", message, f"remove the lines, {why}")


def _where(hook: HookUse) -> str:
    return f"of the profile {hook.profile} of {_of(hook)}" if hook.profile else f"of {_of(hook)}"


def _contradicting(entry: EnvEntry, hook: HookUse, subject: Subject) -> Problem:
    wanted = hook.env[entry.name]
    key = f"env.{entry.name}"
    where = _where(hook)
    if entry.value == "":
        message = f"removes '{wanted}' {where}"
        return entry.origin.warning(key, message, f"remove the line, {_MEASURED}")
    older = next(
        (
            name
            for name, values in subject.profiles(hook.name).items()
            if name != hook.profile and values.get(entry.name) == entry.value
        ),
        None,
    )
    came_from = f", it is that of {older}" if older else ""
    found = f"'{entry.value}'" if isinstance(entry.value, str) else "the value"
    message = f"{found} contradicts '{wanted}' {where}{came_from}"
    return entry.origin.warning(key, message, f"remove the line, {_MEASURED}")


def _of(hook: HookUse) -> str:
    return f"the hook {hook.name}"


_GPU = "nvidia.com/gpu"
_VISIBLE, _CAPABILITIES = "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"
_KNOWN = ("all", "compat32", "compute", "display", "graphics", "ngx", "utility", "video")
# values of NVIDIA_VISIBLE_DEVICES that ask for no GPU
_NOTHING = ("", "void")


def gpus(subject: Subject) -> Iterator[Problem]:
    """Warn of a choice of GPUs that has no effect, and of unknown parts of the driver."""
    own = _any_gpu(device.name for device in subject.edf.devices)
    others = (name for hook in subject.hooks for name in (*hook.cdi, *hook.cdi_if_there))
    site = subject.site_context.site
    of_site = _any_gpu((*site.devices, *site.devices_if_there, *others))
    for name, history in subject.below("env"):
        value = history.effective.value
        if name == _VISIBLE and value not in _NOTHING:
            yield from _choice(history, own=own, of_site=of_site)
        elif name == _CAPABILITIES and (own or of_site):
            yield from _parts(history)


def _any_gpu(names: Iterable[Text]) -> bool:
    return any(str(name).startswith(f"{_GPU}=") for name in names)


def _choice(history: History, *, own: bool, of_site: bool) -> Iterator[Problem]:
    origin, value = history.effective.origin, history.effective.value
    if own and value != "all":
        message = "has no effect: devices lists the GPUs of this environment"
        yield origin.warning(history.key, message, "list those that it needs there")
    elif not (own or of_site):
        message = "has no effect: neither this environment nor the site gives a GPU"
        yield origin.warning(history.key, message, f'devices = ["{_GPU}=all"] gives all')


def _parts(history: History) -> Iterator[Problem]:
    value = history.effective.value
    for word in value.split(",") if isinstance(value, str) and value else ():
        if word.strip() not in _KNOWN:
            meant = did_you_mean(nearest(word.strip(), _KNOWN))
            message = f"'{word}' is no part of the driver{meant}"
            hint = f"there are {', '.join(_KNOWN)}"
            yield history.effective.origin.warning(history.key, message, hint)


# of what programs download or compile
_CACHES = (
    *("CUDA_CACHE_PATH", "CUPY_CACHE_DIR", "HF_DATASETS_CACHE", "HF_HOME", "HF_HUB_CACHE"),
    *("JAX_COMPILATION_CACHE_DIR", "MIOPEN_CUSTOM_CACHE_DIR", "MIOPEN_USER_DB_PATH"),
    *("NUMBA_CACHE_DIR", "PIP_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR"),
    *("TORCH_HOME", "TRITON_CACHE_DIR", "UV_CACHE_DIR", "VLLM_CACHE_ROOT", "XDG_CACHE_HOME"),
)
_COMPILED = "TORCHINDUCTOR_CACHE_DIR"
_HINT = "name a directory that a mount shows: ce help caches"


def caches(subject: Subject) -> Iterator[Problem]:
    """Warn of caches in no mount, and of torch.compile's with the hook pytorch.

    Values of [env] below HOME and SCRATCH are left to `variables.unmounted`.
    """
    if not subject.has_image:
        return
    own = {entry.name: entry for entry in subject.edf.env}
    placed = {
        entry.name: entry.value for entry in (*subject.site_context.wide.env, *subject.edf.env)
    }
    for name in _CACHES:
        value = placed.get(name, subject.variables.get(name))
        if not isinstance(value, str) or not value.startswith("/") or subject.is_mounted(value):
            continue
        if name not in own:
            yield _lost(_YOUR_SHELL, name, f"'{value}'")
        elif not (is_below(value, subject.home) or is_below(value, subject.scratch)):
            yield _lost(own[name].origin, f"env.{name}", f"'{value}'")
    switch = next((one for one in subject.edf.annotations if one.key == _pytorch(subject)), None)
    if (
        switch
        and switch.value == "true"
        and not placed.get(_COMPILED, subject.variables.get(_COMPILED))
    ):
        default = "/tmp/torchinductor_…"
        if not subject.is_mounted(default):
            yield _lost(switch.origin, f"annotations.{switch.key}", f"torch.compile's {default}")


def _lost(origin: Origin, key: str, what: str) -> Problem:
    message = f"{what} is in the container's memory, and gone after the step"
    return origin.warning(key, message, _HINT)


def _pytorch(subject: Subject) -> str:
    known = subject.site_context.hooks.get("pytorch")
    return known.switch if known is not None else ""

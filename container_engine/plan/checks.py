"""Finds all problems of an environment, in one place for all commands. Pure.

`ce validate`, `lint`, `plan` and `run`, and the plugin, which calls `ce plan`, agree because none
of them looks for problems itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from container_engine.base.text_layout import nearest
from container_engine.edf.model import Annotation, Edf, Origin, Problem
from container_engine.edf.names import CONTAINER_NAME, CONTAINER_SAVE
from container_engine.edf.values import variable_excess
from container_engine.plan.build import Built, build
from container_engine.plan.hooks import with_added
from container_engine.plan.model import Image, LaunchPlan
from container_engine.plan.overrides import PREFIX
from container_engine.plan.site_context import SiteContext, add

_HOOKS, _SARUS = "com.hooks.", "com.sarus."
# users expect hooks of these names from other engines
_GPU_HOOKS = ("nvidia", "nvidia_container_toolkit", "nvidia-container-toolkit", "gpu", "cuda")
_GPUS = 'GPUs need no hook: devices = ["nvidia.com/gpu=all"]; ce devices on a node lists them'
_INSTEAD = {
    "parallax_imagestore": "set EDF_IMAGESTORE to a directory for imported images",
    "perfmon": "'ce trace' shows where a launch has spent its time",
    "tracking_enabled": "'ce trace' shows what was launched, where and with which image",
}
_SCOPE = f"{PREFIX}scope"
_WITH_TASKS = f'not with a container for each task ({_SCOPE} = "task")'
_SITES = "remove the line; 'ce config show' says what the site has set"


def check(edf: Edf, image: Image | None, site_context: SiteContext, engine: str) -> Built:
    """Return the plan of a launch, or None, with every problem of the whole environment.

    If `image` is None, nothing is known of it: there is no plan, and problems that depend on the
    image are left out. `engine` is the version of the container engine.
    """
    plan, problems = build(edf, image, site_context, engine)
    plan, of_hooks = with_added(plan, edf, site_context.adding)
    found = (
        *problems,
        *_entrypoint(edf, image),
        *_without_effect(edf, site_context),
        *_devices(edf, site_context),
        *_sizes(edf, site_context, plan),
        *_mounts(edf, site_context, plan),
        *_of_tasks(edf, site_context, plan),
        *of_hooks,
    )
    refused = image is None or any(problem.severity == "error" for problem in found)
    return Built(None if refused else plan, _in_order(found, edf.files))


def _in_order(found: Sequence[Problem], files: Sequence[str]) -> tuple[Problem, ...]:
    """Sort warnings before errors, and each by file and line, bases first."""
    names = dict.fromkeys([*files, *(problem.file for problem in found)])
    order = {file: index for index, file in enumerate(names)}
    return tuple(
        sorted(found, key=lambda one: (one.severity == "error", order[one.file], one.line))
    )


def _entrypoint(edf: Edf, image: Image | None) -> Iterator[Problem]:
    origin = edf.entrypoint_origin
    if image is not None and edf.entrypoint and not image.entrypoint and origin is not None:
        message = f"true, but {image.name} has no entrypoint: nothing is run before the tasks"
        yield origin.warning("entrypoint", message)


def _sizes(edf: Edf, site_context: SiteContext, plan: LaunchPlan) -> Iterator[Problem]:
    """Yield variables that are too large now that the image's are filled in.

    The node checks deferred ones.
    """
    for entry, planned in zip(add(edf, site_context.wide).env, plan.env, strict=True):
        if excess := variable_excess(entry.name, planned.value):
            yield entry.origin.error(f"env.{entry.name}", excess, see="variable-too-large")


def _devices(edf: Edf, site_context: SiteContext) -> Iterator[Problem]:
    """Yield devices that the site does not offer; the node checks those with deferred names."""
    given = {device.name for device in site_context.wide.devices}
    for device in edf.devices:
        name = device.name
        if isinstance(name, str) and name not in given and not site_context.site.offers(name):
            message = f"'{name}': this site does not offer it"
            hint = f"it offers {', '.join(site_context.site.allowed_devices) or 'none'}"
            yield device.origin.error("devices", message, hint, "device-not-offered")


def _mounts(edf: Edf, site_context: SiteContext, plan: LaunchPlan) -> Iterator[Problem]:
    """Yield the mounts, also of the site, that its policy refuses; the node checks them again.

    Also yield those with an option that Podman does not know.
    """
    for mount in (*site_context.wide.mounts, *edf.mounts):
        huge = [option for option in mount.options if option.startswith("huge=")]
        if huge and plan.settings.start == "podman":
            hint = f'it needs crun: {PREFIX}start = "crun"'
            yield mount.origin.warning("mounts", f"{huge[0]} has no effect with Podman", hint)
        if refusal := site_context.refused(mount):
            yield mount.origin.error("mounts", refusal, see="mount-policy")


def _of_tasks(edf: Edf, site_context: SiteContext, plan: LaunchPlan) -> Iterator[Problem]:
    """Yield settings that need one container for all tasks of a node, if each task has its own.

    Automatic hooks are checked on the node.
    """
    given = {entry.key: entry for entry in edf.annotations}
    scope = given.get(_SCOPE)
    named = given.get(CONTAINER_NAME)
    if scope is not None and scope.value == "task" and named is not None:
        message = f"a container with a name belongs to its job: {_WITH_TASKS}"
        yield _once(edf, named.origin, f"annotations.{CONTAINER_NAME}", message)
    if plan.settings.scope != "task":
        return
    if saved := given.get(CONTAINER_SAVE):
        message = f"saves the one container of a step: {_WITH_TASKS}"
        yield _once(edf, saved.origin, f"annotations.{CONTAINER_SAVE}", message)
    if edf.startup:
        message = f"runs once on a node, in one container: {_WITH_TASKS}"
        yield _once(edf, edf.startup[0][1], "startup", message)
    origin = None if scope is None else scope.origin
    if plan.settings.start == "podman":
        message = 'Podman makes one container for a node: "task" needs start = "crun"'
        yield _once(edf, origin, f"annotations.{_SCOPE}", message)
    for hook in plan.hooks:
        serves = hook.services or site_context.hooks[hook.name].data.serves
        if hook.automatic_when is None and serves:
            message = (
                f"hook '{hook.name}' starts a service for one container on a node: {_WITH_TASKS}"
            )
            yield _once(edf, origin, f"annotations.{_SCOPE}", message)


def _once(edf: Edf, origin: Origin | None, key: str, message: str) -> Problem:
    hint = f'remove one of the two, or say {_SCOPE} = "step"'
    return (origin or edf.place).error(key, message, hint, "scope-task")


def _without_effect(edf: Edf, site_context: SiteContext) -> Iterator[Problem]:
    """Yield annotations of other engines, and of hooks that this installation does not have."""
    hooks: dict[str, Annotation] = {}
    for entry in edf.annotations:
        if entry.key.startswith(_SARUS) and not site_context.asked(entry.key):
            hint = _INSTEAD.get(entry.key.removeprefix(_SARUS), _SITES)
            message = "has no effect: it is a setting of another engine"
            yield entry.origin.warning(entry.key, message, hint)
        elif entry.key.startswith(_HOOKS) and not _is_known(entry.key, site_context):
            name = entry.key.removeprefix(_HOOKS).partition(".")[0]
            if name not in hooks or entry.key.endswith(".enabled"):
                hooks[name] = entry
    for name, entry in hooks.items():
        is_off = entry.key.endswith(".enabled") and entry.value != "true"
        # the loader has already warned of a name that is nearly right
        if (
            not is_off
            and not nearest(name, site_context.hooks)
            and not site_context.asked(entry.key)
        ):
            hint = _GPUS if name in _GPU_HOOKS else "ce hooks list shows the hooks of this site"
            message = "has no effect: this installation has no such hook"
            yield entry.origin.warning(entry.key, message, hint)


def _is_known(key: str, site_context: SiteContext) -> bool:
    return any(
        key == hook.switch or key.startswith(f"{hook.annotation}.")
        for hook in site_context.hooks.values()
    )

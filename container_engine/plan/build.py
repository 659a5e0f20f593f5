"""Builds the launch plan from an effective EDF, an image and the site's settings. Pure.

All problems of an environment are found on the way, in one place for all commands: `ce validate`,
`lint`, `plan` and `run`, and the plugin, which calls `ce plan`, agree because none of them looks
for problems itself.

`${image:NAME}` in its strings is replaced by a variable of the image, `${image:digest}` by the
image's digest, in the form in which a store names the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, cast, get_args

from container_engine.base.text_layout import nearest
from container_engine.base.variables import MISSING, VALUE, WORD, replacement_kind
from container_engine.edf.model import (
    Annotation,
    Device,
    Edf,
    Mount,
    Origin,
    Problem,
    Text,
    Variable,
    join,
)
from container_engine.edf.names import CONTAINER_NAME, CONTAINER_SAVE
from container_engine.edf.values import variable_excess
from container_engine.plan.hooks import use, with_added
from container_engine.plan.model import (
    EnvEntry,
    Image,
    KeptContainer,
    LaunchPlan,
    Run,
    Settings,
    StartupLine,
)
from container_engine.plan.site_context import (
    LIMITS,
    PREFIX,
    SETTINGS,
    Chosen,
    SiteContext,
    add,
    choose,
    read_name,
)
from container_engine.site.model import Namespace

_OF_IMAGE = "image:"
_DIGEST = "digest"
_Mode = Literal["auto", "create", "exec", "no_exec"]
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


class Built(NamedTuple):
    """A plan, or None if a problem is an error."""

    plan: LaunchPlan | None
    problems: tuple[Problem, ...]


def build(edf: Edf, image: Image | None, site_context: SiteContext, engine: str) -> Built:
    """Return the plan of a launch, or None, with every problem of the whole environment.

    If `image` is None, nothing is known of it: there is no plan, and problems that depend on the
    image are left out. `engine` is the version of the container engine.
    """
    whole = add(edf, site_context.wide)
    plan, problems = _plan(whole, image, site_context, engine)
    plan, of_hooks = with_added(plan, edf, site_context.adding)
    found = (
        *problems,
        *_without_entrypoint(edf, image),
        *_without_effect(edf, site_context),
        *_not_offered(edf, site_context),
        *_too_large(whole, plan),
        *_refused_mounts(edf, site_context, plan),
        *_not_for_tasks(edf, site_context, plan),
        *_limits(edf, plan),
        *of_hooks,
    )
    refused = image is None or any(problem.severity == "error" for problem in found)
    return Built(None if refused else plan, _in_order(found, edf.files))


def _plan(
    edf: Edf, image: Image | None, site_context: SiteContext, engine: str
) -> tuple[LaunchPlan, tuple[Problem, ...]]:
    """Return the plan of `edf`, which has the site's entries, and the problems of its strings.

    Also return those of its hooks. If a problem is an error, the plan must not be used.
    """
    known = image is not None
    image = image or Image(path="/", name=edf.image or "", env={})
    settings = {name: choose(name, edf, site_context) for name in SETTINGS}
    settings["unshare"] = _unshared(settings)
    texts = Resolver(image if known else None)
    workdir, workdir_from = _workdir(edf, image, texts)
    entrypoint, entrypoint_from = _entrypoint(edf, image, site_context)
    used = use(edf, site_context.hooks, site_context.machine, site_context.entries)
    kept = _kept(edf, image, settings["scope"].value, site_context.site.kept_dir)
    plan = LaunchPlan(
        engine=engine,
        name=edf.name,
        files=edf.files,
        image=_image(edf, image),
        workdir=workdir,
        workdir_from=workdir_from,
        writable=edf.writable,
        writable_from=_where(edf.writable_origin),
        entrypoint=entrypoint,
        entrypoint_from=entrypoint_from,
        mounts=_mounts(edf, texts),
        devices=_devices(edf, texts),
        env=_env(edf, texts),
        annotations={entry.key: entry.value for entry in edf.annotations},
        annotations_from={entry.key: str(entry.origin) for entry in edf.annotations},
        startup=_startup(edf, texts),
        hooks=used.hooks,
        runs=(
            *site_context.wide.checks,
            *(Run(**check.model_dump(), origin=str(origin)) for check, origin in edf.checks),
        ),
        kept=kept,
        settings=_settings(site_context, settings, kept),
        settings_from={name: chosen.origin for name, chosen in settings.items()},
    )
    return plan, (*texts.problems, *used.problems)


def _where(origin: Origin | None) -> str:
    return str(origin) if origin else "default"


def _image(edf: Edf, image: Image) -> Image:
    origins = [str(origin) for _name, origin in edf.above]
    above = tuple(
        part.model_copy(update={"origin": origin})
        for part, origin in zip(image.above, origins, strict=False)
    )
    return image.model_copy(update={"origin": _where(edf.image_origin), "above": above})


def _workdir(edf: Edf, image: Image, texts: Resolver) -> tuple[Text, str]:
    if edf.workdir is not None and edf.workdir != "" and edf.workdir_origin is not None:
        value = texts.text(edf.workdir, edf.workdir_origin, "workdir")
        return value, str(edf.workdir_origin)
    if image.workdir:
        return image.workdir, "the image"
    return "/", "default"


def _entrypoint(edf: Edf, image: Image, site_context: SiteContext) -> tuple[tuple[str, ...], str]:
    if edf.entrypoint is not None:
        wanted, origin = edf.entrypoint, _where(edf.entrypoint_origin)
    else:
        wanted, origin = site_context.site.entrypoint, site_context.config.origin("entrypoint")
    return (image.entrypoint if wanted else ()), origin


def _mounts(edf: Edf, texts: Resolver) -> tuple[Mount, ...]:
    def text(value: Text, origin: Origin) -> Text:
        return texts.text(value, origin, "mounts")

    return tuple(
        replace(one, source=text(one.source, one.origin), target=text(one.target, one.origin))
        for one in edf.mounts
    )


def _devices(edf: Edf, texts: Resolver) -> tuple[Device, ...]:
    return tuple(
        replace(one, name=texts.text(one.name, one.origin, "devices")) for one in edf.devices
    )


def _env(edf: Edf, texts: Resolver) -> tuple[EnvEntry, ...]:
    return tuple(
        EnvEntry(
            name=entry.name,
            # the empty string is how an EDF removes a variable
            value=texts.text(entry.value, entry.origin, f"env.{entry.name}") or None,
            origin=str(entry.origin),
        )
        for entry in edf.env
    )


def _startup(edf: Edf, texts: Resolver) -> tuple[StartupLine, ...]:
    return tuple(
        StartupLine(line=texts.text(line, origin, "startup"), origin=str(origin))
        for line, origin in edf.startup
    )


def _kept(edf: Edf, image: Image, scope: str, directory: str) -> KeptContainer | None:
    """Return the container that the EDF names, or the EDF's own if `scope` is "job"; else None.

    Two environments that name a container alike share it.
    """
    text = next((entry.value for entry in edf.annotations if entry.key == CONTAINER_NAME), "")
    named = read_name(text)
    if named is None and scope != "job":
        return None
    name, mode = named or ("", "auto")
    what = (
        ("name", name)
        if name
        else ("environment", *edf.files, image.path, *(part.path for part in image.above))
    )
    from hashlib import sha256

    key = sha256("\0".join(what).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return KeptContainer(name=name, key=key, mode=cast("_Mode", mode), directory=directory)


def _settings(
    site_context: SiteContext, chosen: Mapping[str, Chosen], kept: KeptContainer | None
) -> Settings:
    site = site_context.site
    # devices that the site adds to every container need no further permission
    given = [device.name for device in site_context.wide.devices if isinstance(device.name, str)]
    return Settings(
        start_timeout_s=chosen["start_timeout_s"].value,
        tmpfs_size=chosen["tmpfs_size"].value,
        devices_if_there=site.devices_if_there,
        hooks_dirs=site.hooks_dirs,
        podman=site.podman,
        runtime=site.runtime,
        trace_dir=site.trace_dir,
        tracking_tool=site.tracking_tool,
        batch_script=site.batch_script,
        secret_variables=site.secret_variables,
        root_remap=chosen["root_remap"].value,
        unshare=chosen["unshare"].value,
        memory_limit=chosen["memory_limit"].value,
        pids_limit=chosen["pids_limit"].value,
        time_limit_s=chosen["time_limit_s"].value,
        scope="task" if chosen["scope"].value == "task" and kept is None else "step",
        start=chosen["start"].value,
        stage=chosen["stage"].value,
        stage_nodes=site.stage_nodes,
        cdi_dirs=site.cdi_dirs,
        user_cdi_dir=site.user_cdi_dir,
        allowed_devices=(*site.allowed_devices, *given),
    )


def _unshared(chosen: Mapping[str, Chosen]) -> Chosen:
    """Return the namespaces of the container's own, with those that its limits need.

    The guard tells its processes, and its shared memory, from those of the node by them.
    """
    wanted, origin = chosen["unshare"]
    limited = [chosen[name].origin for name in LIMITS if chosen[name].value]
    needed = {"pid"} if limited else set()
    needed |= {"ipc"} if chosen["memory_limit"].value else set()
    if needed <= {*wanted}:
        return chosen["unshare"]
    every = tuple(one for one in get_args(Namespace) if one in {*wanted, *needed})
    return Chosen(every, limited[0] if not wanted else origin)


class Resolver:
    """Fills the image's variables into strings of an EDF, and collects their problems."""

    def __init__(self, image: Image | None) -> None:
        """Pass None if nothing is known of the image: its variables are then replaced by ""."""
        self._image = image
        self.problems: list[Problem] = []

    def text(self, text: Text, origin: Origin, key: str) -> Text:
        """Return `text` with the image's variables filled in; those of the node stay."""
        if isinstance(text, str):
            return text
        parts: list[str | Variable] = []
        for part in text:
            parts.extend(self._part(part, origin, key))
        return join(parts)

    def _part(self, part: str | Variable, origin: Origin, key: str) -> Iterable[str | Variable]:
        if isinstance(part, str):
            return [part]
        if part.var.startswith(_OF_IMAGE):
            found = self.text(self._chosen(part, origin, key), origin, key)
            return [found] if isinstance(found, str) else found
        return [replace(part, word=self.text(part.word, origin, key))]

    def _chosen(self, variable: Variable, origin: Origin, key: str) -> Text:
        """Return the value of an image variable, or the word of its operator."""
        if self._image is None:
            return ""
        value = _value(self._image, variable.var.removeprefix(_OF_IMAGE))
        kind = replacement_kind(variable.op, value)
        if kind == WORD:
            return variable.word
        if kind == MISSING:
            self._complain(self._image, variable, origin, key)
        return value or "" if kind == VALUE else ""

    def _complain(self, image: Image, variable: Variable, origin: Origin, key: str) -> None:
        # the word of ${…:?word} is the user's own message
        own = variable.word if variable.op.endswith("?") else ""
        message = own if isinstance(own, str) and own else "the image does not define it"
        found = f"${{{variable.var}}}: {message}"
        hint = _hint(image, variable.var.removeprefix(_OF_IMAGE))
        self.problems.append(origin.error(key, found, hint, "image-variable"))


def _value(image: Image, name: str) -> str | None:
    if name != _DIGEST:
        return image.env.get(name)
    digests = [image.digest or image.content]
    digests += [part.digest or part.content for part in image.above]
    return "+".join(digests).replace(":", "-") if all(digests) else None


def _hint(image: Image, name: str) -> str:
    if name == _DIGEST:
        return f"ce lock notes that of a file; '${{image:{name}:-}}' is empty where none is known"
    if not image.source:
        return f"nothing is known of {image.path} but its files, there is no {image.path}.json"
    return f"'${{image:{name}:-}}' is empty where the image has no {name}"


# ---- problems of the whole environment --------------------------------------------------------


def _in_order(found: Sequence[Problem], files: Sequence[str]) -> tuple[Problem, ...]:
    """Sort warnings before errors, and each by file and line, bases first."""
    names = dict.fromkeys([*files, *(problem.file for problem in found)])
    order = {file: index for index, file in enumerate(names)}
    return tuple(
        sorted(found, key=lambda one: (one.severity == "error", order[one.file], one.line))
    )


def _without_entrypoint(edf: Edf, image: Image | None) -> Iterator[Problem]:
    origin = edf.entrypoint_origin
    if image is not None and edf.entrypoint and not image.entrypoint and origin is not None:
        message = f"true, but {image.name} has no entrypoint: nothing is run before the tasks"
        yield origin.warning("entrypoint", message)


def _too_large(edf: Edf, plan: LaunchPlan) -> Iterator[Problem]:
    """Yield variables that are too large now that the image's are filled in.

    The node checks deferred ones.
    """
    for entry, planned in zip(edf.env, plan.env, strict=True):
        if excess := variable_excess(entry.name, planned.value):
            yield entry.origin.error(f"env.{entry.name}", excess, see="variable-too-large")


def _not_offered(edf: Edf, site_context: SiteContext) -> Iterator[Problem]:
    """Yield devices that the site does not offer; the node checks those with deferred names."""
    given = {device.name for device in site_context.wide.devices}
    for device in edf.devices:
        name = device.name
        if isinstance(name, str) and name not in given and not site_context.site.offers(name):
            message = f"'{name}': this site does not offer it"
            hint = f"it offers {', '.join(site_context.site.allowed_devices) or 'none'}"
            yield device.origin.error("devices", message, hint, "device-not-offered")


def _refused_mounts(edf: Edf, site_context: SiteContext, plan: LaunchPlan) -> Iterator[Problem]:
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


def _not_for_tasks(edf: Edf, site_context: SiteContext, plan: LaunchPlan) -> Iterator[Problem]:
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


def _limits(edf: Edf, plan: LaunchPlan) -> Iterator[Problem]:
    """Yield limits of a container that lives with its job: what limits it ends with one step."""
    if plan.kept is None:
        return
    given = {entry.key: entry.origin for entry in edf.annotations}
    for name in LIMITS:
        if getattr(plan.settings, name):
            message = "no limit can be kept for a container that lives with its job"
            hint = f'remove the line, or the container\'s name and {_SCOPE} = "job"'
            origin = given.get(f"{PREFIX}{name}") or edf.place
            yield origin.error(f"annotations.{PREFIX}{name}", message, hint, "limit-not-kept")


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

"""Describe, check and plan environments from Python: what launchers and test systems import.

Within a VERSION, names, arguments and fields stay; new ones may come. All else in this package is
the engine's own. `Image` and `Mount` are what one writes; those of a plan are `PlanImage` and
`PlanMount`. Verdicts are those of `ce validate`, plans those of `ce plan`: the same code makes
them. Nothing here needs Slurm, Podman or a site's configuration, except where it says so.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pydantic import (
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from container_engine.base.errors import CeError, UserError
from container_engine.base.model import Brief, told
from container_engine.base.run_check import ListedCheck, RunCheck
from container_engine.base.text_layout import did_you_mean, nearest
from container_engine.catalog.load import hook_named
from container_engine.catalog.model import (
    Check,
    DeviceEdit,
    Edit,
    HookCheck,
    HookFile,
    HookRunCheck,
    HookService,
    HookVerb,
    LibraryEdit,
    MountEdit,
    OciHook,
    Parameter,
    Requires,
    Service,
)
from container_engine.compat.pyxis_options import PyxisOptions
from container_engine.edf import entries, model, show
from container_engine.edf.annotations import judge_value
from container_engine.edf.document import Document
from container_engine.edf.locate import is_path
from container_engine.edf.model import Device, Origin, Problem, Variable, escape
from container_engine.edf.model import Mount as PlanMount
from container_engine.plan.hooks import annotation_rule
from container_engine.plan.model import (
    EnvEntry,
    HookUse,
    KeptContainer,
    LaunchPlan,
    Part,
    Run,
    Settings,
    StartupLine,
)
from container_engine.plan.model import Image as PlanImage
from container_engine.submit import environment as environments
from container_engine.submit.context import Context, of_this_process
from container_engine.submit.known_image import judged, missing_files, packed_files
from container_engine.submit.refused import RefusedError, completed
from container_engine.tools.running_steps import Step, running, written_traces
from container_engine.tools.step_traces import Phase, Trace, choose, whole

VERSION = 1

__all__ = [
    "VERSION",
    "CeError",
    "Check",
    "Device",
    "DeviceEdit",
    "Edit",
    "EnvEntry",
    "Environment",
    "HookCheck",
    "HookFile",
    "HookRunCheck",
    "HookService",
    "HookUse",
    "HookVerb",
    "Image",
    "KeptContainer",
    "LaunchPlan",
    "LibraryEdit",
    "ListedCheck",
    "Mount",
    "MountEdit",
    "OciHook",
    "Origin",
    "Parameter",
    "Part",
    "Phase",
    "PlanImage",
    "PlanMount",
    "Problem",
    "RefusedError",
    "Requires",
    "Run",
    "RunCheck",
    "Service",
    "Settings",
    "StartupLine",
    "Step",
    "Trace",
    "UserError",
    "Variable",
    "Verdict",
    "hook",
    "hooks",
    "literal",
    "plan",
    "pyxis_args",
    "srun_args",
    "steps",
    "trace",
    "validate",
]


def literal(text: str) -> str:
    """Return the text as an EDF writes it, so that none of its `$` is a variable."""
    return escape(text)


class Image(str, metaclass=Brief):
    """The name of an image, as the key `image` has it."""

    __slots__ = ()

    @classmethod
    def file(cls, path: str | os.PathLike[str]) -> Self:
        """Return the image in a SquashFS file."""
        return cls(escape(os.path.abspath(path)))

    @classmethod
    def registry(cls, host: str, repository: str, *, tag: str = "", digest: str = "") -> Self:
        """Return an image of a registry; `digest` is `sha256:…`."""
        name = f"{host}/{repository}" + (f":{tag}" if tag else "")
        return cls(escape(f"docker://{name}" + (f"@{digest}" if digest else "")))


class Mount(str, metaclass=Brief):
    """An entry of the key `mounts`, for paths that contain no variables."""

    __slots__ = ()

    @classmethod
    def bind(
        cls,
        source: str | os.PathLike[str],
        target: str | os.PathLike[str] | None = None,
        *flags: str,
    ) -> Self:
        """Return the mount of a path of the host, by default to the same path; flags as `ro`."""
        inside = os.fspath(source if target is None else target)
        return cls._of("bind", os.fspath(source), inside, flags)

    @classmethod
    def squashfs(cls, file: str | os.PathLike[str], target: str | os.PathLike[str]) -> Self:
        """Return the mount of what a SquashFS file contains."""
        return cls._of("squashfs", os.fspath(file), os.fspath(target), ())

    @classmethod
    def tmpfs(cls, target: str | os.PathLike[str], *, size: str = "", mode: str = "") -> Self:
        """Return the mount of an empty directory in memory; a size as `1g`, a mode as `1777`."""
        options = (f"size={size}" if size else "", f"mode={mode}" if mode else "")
        return cls._of("tmpfs", "tmpfs", os.fspath(target), tuple(filter(None, options)))

    @classmethod
    def _of(cls, kind: model.MountKind, source: str, target: str, flags: Sequence[str]) -> Self:
        mount = model.Mount(kind, source, target, tuple(flags), Origin("", 0))
        return cls(entries.mount_text(mount, escape))


class Environment(Document):
    """An environment, as one EDF has it: the keys are those of the file.

    Wrong types and unknown keys raise pydantic's ValidationError. What values mean is checked by
    `validate` once the file is written, since it depends on the site.
    """

    if TYPE_CHECKING:
        mounts: list[str] | list[Mount] = []  # type: ignore[assignment]  # it widens the type

    _origins: Mapping[str, Origin] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _known(cls, value: object, judge: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return judge(value)
        except ValidationError as error:
            raise told(cls, error, value) from None

    @classmethod
    def from_file(cls, name: str | os.PathLike[str]) -> Self:
        """Return the environment NAME or FILE with all that it inherits, its variables expanded.

        This is what `ce render` prints. Raise RefusedError, which has the problems.
        """
        context = of_this_process(None)
        loaded = environments.load_effective(_name_of(name), context)
        if loaded.edf is None:
            raise RefusedError(loaded.problems)
        edf = environments.anywhere(loaded.edf, context.cwd)
        found = cls.of(tomllib.loads(show.to_toml(edf)))
        origins = {key: origin for key, _item, _value, origin in show.values(edf)}
        found._origins = origins  # noqa: SLF001  # one of this class
        return found

    @property
    def origins(self) -> Mapping[str, Origin]:
        """Return the file and line that set each value, by names as `mounts[0]` and `env.PATH`.

        It is empty for an environment that was not read from a file.
        """
        return self._origins

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with the values in `update`, which are checked as those of a new one."""
        if update:
            type(self)(**{**dict(self), **update})
        return super().model_copy(update=update, deep=deep)

    def to_toml(self) -> str:
        """Return the text of an EDF with these values. Raise UserError if none can have them."""
        text = show.document_to_toml(self)
        try:
            tomllib.loads(text)
        except ValueError:  # bytes of a file's name that are not UTF-8, as Python has them
            raise UserError("a value is not valid Unicode, so no EDF can have it") from None
        return text

    def write(self, path: str | os.PathLike[str]) -> str:
        """Write the EDF, and return its absolute path. Raise OSError and UserError."""
        text = self.to_toml()
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return os.path.abspath(path)


class Verdict(NamedTuple):
    """The verdict of `ce validate` on an environment.

    `image` is None for one that only others inherit from, or that is refused; `files` are what it
    was read from. `missing` are files that this host does not have, which may be fine on the nodes.
    """

    name: str
    problems: tuple[Problem, ...]
    image: str | None = None
    files: tuple[str, ...] = ()
    missing: tuple[Problem, ...] = ()

    @property
    def valid(self) -> bool:
        """Check that no problem is an error."""
        return not any(problem.severity == "error" for problem in self.problems)


def _name_of(name: str | os.PathLike[str]) -> str:
    """Return NAME or FILE as `ce` takes it, to which a path is always a file."""
    text = os.fspath(name)
    is_name = isinstance(name, str) or is_path(text) or text.startswith(("~/", "$"))
    return text if is_name else f"./{text}"


def validate(name: str | os.PathLike[str], *, launch: bool = False) -> Verdict:
    """Check the environment NAME or FILE, and all that it inherits.

    With `launch`, one without an image, which can only be a base for others, is an error, as it is
    for srun. Raise CeError if the site's own files have a fault.

    An invalid environment raises no error: the verdict has its problems.
    """
    context = of_this_process(None)
    return validate_in(context, _name_of(name), PyxisOptions(), launch=launch)


def validate_in(
    context: Context, name: str | None, options: PyxisOptions, *, launch: bool = False
) -> Verdict:
    """Check an environment under pyxis's options, for `ce validate`."""
    site_context = environments.site_here(context)
    load = environments.load_to_launch if launch else environments.load_effective
    loaded = load(name, context, site_context, options)
    if loaded.edf is None:
        return Verdict(name or "", completed(loaded.problems))
    edf = loaded.edf
    problems = (*loaded.problems, *judged(edf, context, site_context), *packed_files(edf))
    missing = completed(missing_files(edf, context))
    return Verdict(name or "", completed(problems), edf.image_text, edf.files, missing)


def plan(name: str | os.PathLike[str], *, pull: str | None = None) -> LaunchPlan:
    """Return what a launch of the environment would do here, as `ce plan`.

    The image is imported if it must be: `pull` is `missing`, `never`, `always` or `newer`, by
    default the site's choice. Raise CeError.
    """
    from container_engine.submit.plan_output import new_plan_of

    return LaunchPlan.of_json(new_plan_of(_name_of(name), of_this_process(None), pull)[2])


def srun_args(name: str | os.PathLike[str]) -> list[str]:
    """Return the options that start tasks in the environment: those of the srun that has them.

    Given to sbatch or salloc, they are for each srun inside; what else these run is on the host.
    A path becomes absolute, since a step may start in another directory. One that begins with `~/`
    or a variable is expanded by srun.
    """
    text = _name_of(name)
    is_relative = is_path(text) and not text.startswith(("~/", "$"))
    return [f"--environment={os.path.abspath(text) if is_relative else text}"]


def pyxis_args(environment: Environment) -> list[str]:
    """Return pyxis's options for the environment. Raise UserError for what they cannot express.

    Variables are only named: the job must have them, with the values of `environment.env`.
    """
    from container_engine.compat.pyxis_arguments import arguments

    return arguments(environment)


def hooks() -> Mapping[str, HookFile]:
    """Return the hooks of this site, with their parameters: types, defaults, what is allowed."""
    catalog = environments.site_here(of_this_process(None)).hooks
    return {name: one.data for name, one in catalog.items()}


def hook(name: str, **parameters: str | bool | int) -> dict[str, str]:
    """Return the annotations that enable a hook with these parameters.

    Raise UserError, whose `key` is the parameter at fault.
    """
    catalog = environments.site_here(of_this_process(None)).hooks
    rule = annotation_rule(hook_named(name, catalog))
    found = {rule.switch: "true"}
    for key, value in parameters.items():
        where = f"hook '{name}'"
        if key not in rule.parameters:
            reason = f"unknown parameter{did_you_mean(nearest(key, rule.parameters))}"
            known = ", ".join(sorted(rule.parameters)) or "none"
            raise UserError(reason, f"it has {known}", where=where, key=key)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if doubt := judge_value(text, rule.parameters[key]):
            raise UserError(doubt.message, doubt.hint, where=where, key=key)
        found[f"{rule.prefix}.{key}"] = escape(text)
    return found


def steps() -> list[Step]:
    """Return the user's running steps in containers, as `ce ps` lists them; asks Slurm."""
    return [step for step in running(of_this_process(None)) if step.traced]


def trace(step: str = "last") -> Sequence[Trace]:
    """Return the traces of JOB.STEP, of a job's newest step, or of the last, one for each node.

    Raise UserError if there is none.
    """
    context = of_this_process(None)
    directory = written_traces(context)
    return whole(directory, choose(directory, step, context.uid))

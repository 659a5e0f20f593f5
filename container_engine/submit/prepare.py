"""Makes a plan from the name of an environment, or of an image, for `ce plan` and `ce run`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from container_engine import __version__
from container_engine.base.answers import Variables
from container_engine.base.errors import UserError
from container_engine.base.text_layout import warning_text
from container_engine.edf.model import Edf, Loaded, Problem
from container_engine.plan.build import build
from container_engine.plan.hooks import SECRET
from container_engine.plan.site_context import choose
from container_engine.submit.context import NONE_GIVEN, Options, configuration
from container_engine.submit.environment import (
    image_alone,
    load_to_launch,
    on_host,
    unfit_environments,
)
from container_engine.submit.image import launch_image
from container_engine.submit.read_site import read_site
from container_engine.submit.refused import RefusedError

if TYPE_CHECKING:
    from container_engine.plan.model import LaunchPlan
    from container_engine.plan.site_context import SiteContext
    from container_engine.submit.context import Context

    Load: TypeAlias = Callable[[Context, SiteContext], Loaded]


# The keyword in a planner's output: a plan follows, or the command runs on the host without a
# container (spank_plugin/common/planner_output.h).
PLAN, HOST = "plan\n", "host\n"
# Lines before the keyword, for the plugin, which does not parse the plan: the site runs batch
# scripts inside; the image store of this step alone; the image, for the audit; the key of a
# container that lives with its job, and the directory below which it is kept.
# spank_plugin/common/planner_output.h has the same.
INSIDE = "batch_script=inside\n"
EPHEMERAL_STORE, IMAGE, KEPT = "ephemeral_store=", "image=", "kept="
# The variable with which `ce vet` asks each node again.
AGAIN = "CE_CHECKS_AGAIN"


class Inputs(NamedTuple):
    """The inputs of a plan, recorded while it is made: variables, and all paths examined."""

    environment: Variables
    files: list[str]


class Prepared(NamedTuple):
    """A plan, or None if the EDF asks for no container. `notices` are lines for stderr.

    A planner prints `head`, then the plan's text, which has each launch's secret between its
    `parts`. It may be used until `not_after`, in seconds since 1970; 0 means without limit.
    """

    plan: LaunchPlan | None
    notices: str
    head: str
    parts: list[str]
    inputs: Inputs
    not_after: float = 0


def _head(plan: LaunchPlan) -> str:
    """Return the output of a planner before the plan: facts for the plugin, and a keyword."""
    # the audit has "?" for such a byte
    facts = {IMAGE: (plan.image.digest or plan.image.path).replace("\n", "?")}
    if (plan.image.passing or "").startswith("/"):
        facts[EPHEMERAL_STORE] = plan.image.passing or ""
    if plan.kept is not None:
        facts[KEPT] = f"{plan.kept.key}{plan.kept.directory}"
    inside = INSIDE if plan.settings.batch_script == "inside" else ""
    lines = [f"{name}{value}\n" for name, value in facts.items() if "\n" not in value]
    return "".join([inside, *lines, PLAN])


def in_parts(text: str) -> list[str]:
    """Return the parts of a plan's text before, between and after the places of the secret."""
    before, after = '"secret":"', '"'
    return text.replace(f"{before}{SECRET}{after}", f"{before}\0{after}").split("\0")


def prepare(name: str | None, context: Context, options: Options = NONE_GIVEN) -> Prepared:
    """Plan the environment `name`, importing its image if need be.

    `options` are over it, or over nothing if `name` is None. Raise RefusedError with every problem
    of the EDF, and CeError for all else.
    """
    inputs = Inputs(Variables(context.env), [])

    def environment_to_plan(recording: Context, site_context: SiteContext) -> Loaded:
        if name is not None:
            return load_to_launch(name, recording, site_context, options)
        from container_engine.submit import container_names

        traces = site_context.site.places.traces_of(recording.env.get("HOME", "/"))
        request = container_names.completed(options, recording.env, traces)
        inputs.files.extend(request.consulted)
        return load_to_launch(request.environment, recording, site_context, request.options)

    prepared = _plan(environment_to_plan, context, inputs, options)
    kept = None if prepared.plan is None else prepared.plan.kept
    if kept is not None:
        from container_engine.submit.container_names import record

        # the name may be that of an option or of the environment
        found = record(kept.name, name, options, inputs.environment, context.cwd)
        inputs.files.extend(found)
    return prepared


def _judged_early(
    edf: Edf, loaded: Loaded, context: Context, site_context: SiteContext
) -> tuple[Problem, ...]:
    """Return the warnings that can be given without the image.

    Raise RefusedError if there are errors, so that a user learns of them before a long download.
    """
    found = build(edf, None, site_context, __version__).problems
    if any(problem.severity == "error" for problem in found):
        from container_engine.submit.known_image import judged  # needed only after a mistake

        raise RefusedError((*loaded.problems, *judged(edf, context, site_context)))
    return found


def prepare_image(image: str, context: Context, options: Options) -> Prepared:
    """Plan the environment that has only this image. Raise CeError."""
    alone = Loaded(image_alone(image), (), ())
    inputs = Inputs(Variables(context.env), [])
    return _plan(lambda _asking, _whole: alone, context, inputs, options)


def _plan(load: Load, context: Context, inputs: Inputs, options: Options) -> Prepared:
    config = configuration(context)
    inputs.files.extend(config.probed)
    for variable in config.variables:
        inputs.environment.get(variable)
    recording = context._replace(env=inputs.environment, whole_env=context.env)
    site_context = read_site(recording, config, inputs.files)
    loaded = load(recording, site_context)
    inputs.files.extend(loaded.probed)
    edf = loaded.edf
    if edf is None:
        raise RefusedError(loaded.problems)
    notices = "".join(problem.text for problem in loaded.problems)
    if edf.image == "":
        return Prepared(None, notices + on_host(edf).text, HOST, [], inputs)
    early = _judged_early(edf, loaded, context, site_context)
    try:
        pull = choose("pull", edf, site_context).value
        site = site_context.site.model_copy(update={"pull": pull})
        resolved = launch_image(edf, recording, site_context._replace(site=site))
    except UserError as error:
        late = edf.image_place.error("image", error.message, error.hint, error.see)
        raise RefusedError((*loaded.problems, *early, late), error.details) from None
    inputs.files.extend(resolved.consulted)
    if not edf.has_image_of_file:
        edf = options.completed(edf, resolved.image.env)
    built = build(edf, resolved.image, site_context, __version__)
    if built.plan is None:
        raise RefusedError((*loaded.problems, *built.problems))
    fitting, looked_at = unfit_environments(edf, built.plan, recording)
    inputs.files.extend(looked_at)
    if any(problem.severity == "error" for problem in fitting):
        raise RefusedError((*loaded.problems, *built.problems, *fitting))
    notices += "".join(map(warning_text, resolved.notices))
    notices += "".join(problem.text for problem in (*built.problems, *fitting))
    plan = built.plan
    if recording.env.get(AGAIN) == "1":
        plan = plan.model_copy(update={"checks_again": True})
    if wants_copies(plan.settings.as_dict(), recording.env):
        from container_engine.submit import container_names

        # each job's first step copies, so it must not find the plan of another one
        recording.env.get(container_names.RUN)
        inputs.files.append(container_names.record_of(container_names.COPIES, recording.env))
    parts = in_parts(f"{plan.to_json()}\n")
    return Prepared(plan, notices, _head(plan), parts, inputs, resolved.not_after)


def wants_copies(settings: Mapping[str, Any], env: Mapping[str, str]) -> bool:
    """Check whether the job is one whose first step copies its images into the nodes' memory."""
    if settings["stage"] == "none":
        return False
    nodes = env.get("SLURM_JOB_NUM_NODES", "")
    return nodes.isdecimal() and int(nodes) >= settings["stage_nodes"]

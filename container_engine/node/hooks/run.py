"""Apply the hooks of one launch on this node, from the plan to the tasks' environment.

The next start on this node can repeat without Python what hooks did if they consist of data, or of
code that asks for nothing but variables of the step, and the data depend on files of the node:
ce-guard compares the variables that were asked for and the state of the files (base/answers.py).
"""

from __future__ import annotations

import os

from container_engine.base.answers import is_of_kernel, own_ids, state
from container_engine.base.errors import LaunchError
from container_engine.base.variables import is_of_slurm
from container_engine.node.container.description import HOOKS_REQUEST, answers_place
from container_engine.node.container.edits import Repeatable
from container_engine.node.container.environment import apply
from container_engine.node.devices import cdi
from container_engine.node.hooks.oci_hooks import OciHooks
from container_engine.node.hooks.prepare import prepare
from container_engine.node.node_plan import BEGIN, OF_VARIABLES, may_apply
from container_engine.node.pattern import questions_of
from container_engine.node.plan_json import parse_json, to_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from container_engine.node.container.checks import Resolved
    from container_engine.node.container.description import NodeMount, Operation, Parts, Paths
    from container_engine.node.container.edits import HookEdits
    from container_engine.node.inside.programs import Place
    from container_engine.node.node_plan import NodePlan
    from container_engine.node.plan_types import HookUse


# slurmstepd and the plugin remove these from a task's environment
_FOR_SLURMSTEPD = ("SLURM_RLIMIT_", "SLURM_CE_")


# stages of OCI hooks that are run only for the one container of a node: by Podman, and by ce-reaper
_OF_NODE = ("precreate", "poststop")


class HooksOnNode:
    """The hooks of one launch. The launcher calls the methods in the order of this class.

    `parts` are those of the container with devices, mounts and OCI hooks, `settings` the variables
    of EDF and hooks. `decisions` are those on libraries, as from
    choose.Decision.described, if they are to be explained. `oci` are the OCI hooks. `attended` is a
    descriptor that becomes readable once everything after the guard's end is done, -1 for none.
    """

    def __init__(
        self,
        plan: NodePlan,
        here: Resolved,
        parts: Parts,
        node: Mapping[str, str],
        paths: Paths,
        unmet: Sequence[LaunchError] = (),
        explain: bool = False,
    ) -> None:
        """Join the hooks to the `parts` of a container.

        If an EDF and a hook mount on the same target, the EDF's mount wins. Raise LaunchError if
        two hooks do, and for `unmet` and all else that the node lacks.
        """
        self._explain = explain
        self.decisions: list[dict[str, Any]] = []
        self._plan = plan
        self._paths = paths
        self._edf = here.env
        self._edits = prepare(plan, node, paths)
        places = cdi.directories(plan.cdi_dirs, plan.user_cdi_dir, node.get("HOME", ""))
        registry = cdi.Registry(places)
        cdi.resolve_all(here.devices, registry, self._edits)
        if plan.devices_if_there or self._edits.cdi_if_there:
            from container_engine.node.devices import devices_if_there

            devices_if_there.add(plan, here, registry, node, self._edits)
        if unmet or self._edits.unmet:
            from container_engine.node.report.errors import refuse

            refuse([*(("", error) for error in unmet), *self._edits.unmet], plan.hooks)
        self.oci = OciHooks(plan.hooks_dirs, self._edits.oci_hooks)
        applied = self.oci.definitions(parts, paths)
        self.settings = self._edits.settings(here.env, plan.image_env, node)
        if plan.for_each:
            self._check_each_task()
        self.parts = parts.but(
            devices=list(dict.fromkeys([*parts.devices, *self._edits.devices])),
            mounts=self._joined_mounts(parts.mounts),
            oci_hooks=applied,
        )
        self._noted: dict[str, str | None] = {}
        # the questions about files on which a recorded result depends, None if none is recorded
        self._asked: Sequence[str] | None = ()
        self._node = node
        self._place: Place | None = None
        self._end: socket | None = None
        self.attended = -1

    @property
    def warnings(self) -> Sequence[str]:
        """Lines for the user."""
        return self._edits.warnings

    def _check_each_task(self) -> None:
        """Raise LaunchError for services and OCI hooks that need one container for all tasks."""
        found = [service["hook"] for service in self._edits.services]
        found += [str(hook) for hook in self.oci.hooks if hook.stage in _OF_NODE]
        if found:
            raise LaunchError(
                f"{found[0]} needs one container per node, not one for each task"
                ' (com.ce.scope = "task")',
                see="scope-task",
            )

    def _joined_mounts(self, mounts: Sequence[NodeMount]) -> list[NodeMount]:
        edits = self._edits
        taken = {mount.target: mount for mount in mounts}
        by_target: dict[str, NodeMount] = {}
        for mount in edits.mounts:
            if edits.brought.get(mount.target, mount.source) != mount.source:
                # a device's own file, such as a program of the driver, counts more than a hook's
                continue
            if mount.target in taken:
                if taken[mount.target].source != mount.source:
                    edits.warnings.append(
                        f"hook mount '{mount.source}' is left out: the environment file mounts"
                        f" '{taken[mount.target].source}' on '{mount.target}'"
                    )
            elif by_target.setdefault(mount.target, mount).source != mount.source:
                raise LaunchError(
                    f"two hooks mount on '{mount.target}': '{by_target[mount.target].source}' and"
                    f" '{mount.source}'",
                    see="hook-clash",
                )
        return [*by_target.values(), *mounts]

    def operations(self, *, has_rules: bool = False) -> list[Operation]:
        """Return the guard's operations between mounting the image and creating the container.

        If the site `has_rules` for mounts, no answer is used: the user could have written it.
        """
        edits, request = self._edits, self._paths.at(HOOKS_REQUEST)
        steps = list(edits.operations)
        if edits.tree or edits.links or any(".so" in target for target in edits.brought):
            from container_engine.node.libraries import recorded_look

            asked = self._request("" if has_rules else self._answers())
            text = to_json(asked)
            found = recorded_look.recall(asked, text)
            more = ("more", [f"{edits.libexec}/inject", request])
            steps += found[0] if found else (("file", [request, text]), more)
            # notes need Python, which receives them
            says = found is None or any(name == "note" for name, _arguments in found[0])
            self._asked = None if found is None or says else found[1]
        return steps

    def repeatable(self) -> Repeatable | None:
        """Return what a repetition of these operations depends on, None if it needs Python."""
        if self._asked is None:
            return None
        return repeatable(self._plan.hooks, self._node, self._edits, self._edf, self._asked)

    def _request(self, place: str) -> dict[str, Any]:
        """Return the input of the program that looks into the image (see inject.py)."""
        images = self._plan.image_paths if place else []
        search = self.settings.get("LD_LIBRARY_PATH")
        if search is None and "LD_LIBRARY_PATH" not in self.settings:
            image = self._plan.image_env
            search = (image if "LD_LIBRARY_PATH" in image else self._node).get("LD_LIBRARY_PATH")
        mounts = self.parts.mounts
        return {
            "session": self._paths.own,
            "root": self._paths.at("root"),
            "library_path": search or "",
            "path": self.settings.get("PATH") or self._plan.image_env.get("PATH", ""),
            "binds": [(one.source, one.target) for one in mounts if one.kind == "bind"],
            "mounted": [mount.target for mount in self._edits.mounts],
            "brought": list(self._edits.brought),
            "searched": self._edits.searched,
            "links": self._edits.links,
            "explain": self._explain,
            "images": {f"f{path}": state(f"f{path}") for path in images},
            "answers": place,
            "prefix": os.path.dirname(os.path.dirname(self._edits.libexec)),
            "ids": own_ids(),
            "hooks": self._edits.tree,
        }

    def _answers(self) -> str:
        """Return the directory of recorded looks, "" if none can be used.

        For a container of a job none can: earlier steps may have changed files of the image in it.
        """
        if self._explain or self._plan.kept:
            return ""
        if not all(path.startswith("/") for path in self._plan.image_paths):
            return ""
        return answers_place("libraries")

    def take_note(self, note: str) -> None:
        """Process a note from the operations for hooks. Raise LaunchError if it has an error."""
        if self.oci.take_note(note):
            return
        content = parse_json(note)
        if "error" in content:
            raise LaunchError(content["error"], see="hook-check", also=tuple(content["also"]))
        if "warning" in content:
            self._edits.warnings.append(content["warning"])
        if "decision" in content:
            self.decisions.append(content["decision"])
        self._noted.update(content.get("env", {}))

    def for_tasks(self) -> dict[str, str | None]:
        """Return variables that the image's files require, and Slurm's variables that hooks change.

        Images and EDFs must not change Slurm's variables; hooks may, because they are the site's.
        """
        hooks = self._edits.env.items()
        slurms = {name: v for name, v in hooks if is_of_slurm(name) and name not in self._edf}
        return {**slurms, **self._noted}

    @property
    def per_task(self) -> dict[str, str]:
        """Variables that differ between the tasks of this node, unless EDF or profile set them."""
        per_task, edits = self._edits.per_task.items(), self._edits.env
        return {name: v for name, v in per_task if name not in self._edf and name not in edits}

    @property
    def has_services(self) -> bool:
        """Check whether anything of the hooks runs beside or after the tasks."""
        return bool(self._edits.services or self.oci.hooks)

    def start_services(
        self,
        container: tuple[Sequence[int], int, int],
        workdir: str,
        environment: Mapping[str, str | None],
    ) -> dict[str, str | None]:
        """Start what hooks run beside and after the tasks. Return variables for the tasks.

        Raise LaunchError.
        """
        self.attended, done = os.pipe()
        _entered, mount_ns, guard = container
        try:
            self.oci.at_the_end(self._plan, guard, mount_ns, done, self._edits.libexec)
            if not self._edits.services:
                return {}
            from container_engine.node.hooks import services
            from container_engine.node.inside import programs

            self._place = programs.Place(
                *container,
                workdir=workdir,
                environment=self._of_tasks(environment),
                libexec=self._edits.libexec,
                timeout_s=self._plan.start_timeout_s,
                is_kept=bool(self._plan.kept),
            )
            self._end = services.start(self._edits.services, self._place, done)
            return services.variables(self._edits.services)
        finally:
            os.close(done)

    def abandon(self) -> None:
        """Remove files of services after a failed start, in which ce-reaper may not have run."""
        if self._edits.services:
            from container_engine.node.hooks import services

            services.remove_leftovers(self._edits.services)

    def finish(self, environment: Mapping[str, str | None]) -> socket | None:
        """Publish the tasks' environment, which is final now, to the services.

        Return a socket for the guard if there are services, else None. The guard gets it with the
        message to continue, and closes it at the end.
        """
        if self._place is None:
            return None
        from container_engine.node.hooks import services

        self._place.environment = self._of_tasks(environment)
        services.publish(self._edits.services, self._place)
        self._place.close()
        return self._end

    def _of_tasks(self, changes: Mapping[str, str | None]) -> dict[str, str]:
        """Return the environment of tasks, without variables for slurmstepd and the plugin."""
        whole = apply(self._node, changes)
        return {name: v for name, v in whole.items() if not name.startswith(_FOR_SLURMSTEPD)}


# kinds of checks whose result depends on more of the step or its user than variables
_OF_STEP = frozenset(["group", "mpi"])


def repeatable(
    planned: Sequence[HookUse],
    node: Mapping[str, str],
    edits: HookEdits,
    edf: Mapping[str, str | None],
    of_image: Sequence[str],
) -> Repeatable | None:
    """Return what a repetition depends on, None if it needs Python.

    `of_image` are the questions about files on which the result of looking into the image depends.
    """
    hooks = [hook for hook in planned if may_apply(hook, node)]
    needs_python = edits.services, edits.oci_hooks, edits.operations, edits.warnings
    if any(needs_python) or not all(map(_is_data, hooks)):
        return None
    asked = {**edits.asked}
    for hook in hooks:
        for pattern in _patterns(hook):
            # the content of a file does not matter: that of libraries is in `of_image`
            asked |= questions_of(pattern)
    places = (*(question[1:] for question in asked), *(mount.target for mount in edits.mounts))
    if any(map(is_of_kernel, places)):
        return None
    asked |= dict.fromkeys((*of_image, *_contents(hooks)))
    names = [name for name in (*edits.env, *edits.prepend) if name not in edf]
    return Repeatable(list(asked), list(dict.fromkeys(names)), edits.port)


def _is_data(hook: HookUse) -> bool:
    checks, text = hook.get("checks", ()), to_json(hook)
    return (
        hook.get("code", "") in ("", OF_VARIABLES)
        and not hook.get("automatic_when")
        and not any(check["kind"] in _OF_STEP for check in checks)
        # deferred strings, and fields of the node
        and '"var"' not in text
        and BEGIN not in text
    )


def _contents(hooks: Sequence[HookUse]) -> Iterator[str]:
    """Yield the questions about files whose content decides a check."""
    checks = (check for hook in hooks for check in hook.get("checks", ()))
    yield from (f"c{check['file'].partition('=')[0]}" for check in checks if check.get("file"))


def _patterns(hook: HookUse) -> Iterator[str]:
    yield from (device["path"] for device in hook.get("devices", ()))
    yield from (mount["source"] for mount in hook.get("mounts", ()))
    yield from (file for library in hook.get("libraries", ()) for file in library["files"])
    yield from (c["subject"] for c in hook.get("checks", ()) if c["kind"] == "device")

"""Collect the changes that hooks request for one container, before it exists. Pure."""

from __future__ import annotations

import posixpath

from container_engine.node.node_plan import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from container_engine.base.errors import LaunchError
    from container_engine.node.container.description import NodeMount, Operation, Paths
    from container_engine.node.plan_types import HookUse, OciHook
    from container_engine.oci.cdi import Hook


class HookEdits:
    """The combined changes of all hooks.

    `tree` are the hooks that need to see the image's files. `operations` are for the guard, after
    it has mounted the image at `root` and before it creates the container. `per_task` maps a
    variable to the task's own variable from which it is copied. `cdi` maps each CDI device to the
    hook that requests it, and `cdi_if_there` those that a node may lack. `warnings` are lines for
    the user. `brought` maps each target of a mount of a CDI device to its source, `links` maps
    further names for what such devices bring to the targets of these symlinks, and `searched` are
    directories in which they have libraries. `asked` are the questions (base/answers.py) about the
    node's files on which devices depend. `port` is a port that was made from the numbers of job and
    step (slurm_step.py), "" for none. `unmet` are the reasons why the container cannot
    start, each with the name of the hook, or "" for a CDI device of the environment.
    """

    def __init__(self, paths: Paths) -> None:
        self.libexec = paths.libexec
        self.root = paths.at("root")
        self.operations: list[Operation] = []
        self.devices: list[str] = []
        self.cdi: dict[str, str] = {}
        self.cdi_if_there: dict[str, str] = {}
        self.mounts: list[NodeMount] = []
        self.env: dict[str, str | None] = {}
        self.prepend: dict[str, list[str]] = {}
        self.per_task: dict[str, str] = {}
        self.services: list[dict[str, Any]] = []
        self.oci_hooks: list[Hook | OciHook] = []
        self.brought: dict[str, str] = {}
        self.searched: list[str] = []
        self.links: dict[str, str] = {}
        self.asked: dict[str, None] = {}
        self.port = ""
        self.tree: list[Mapping[str, Any]] = []
        self.warnings: list[str] = []
        self.unmet: list[tuple[str, LaunchError]] = []

    @property
    def prefix(self) -> str:
        """Return the prefix of the installation, whose libexec/container-engine is `libexec`."""
        return posixpath.dirname(posixpath.dirname(self.libexec))

    def warn(self, hook: HookUse, text: str) -> None:
        self.warnings.append(f"hook {hook['name']}: {text}".replace("\n", " "))

    def add_unmet(self, hook: HookUse, error: LaunchError) -> None:
        self.unmet.append((hook["name"], error))

    def settings(
        self,
        edf: Mapping[str, str | None],
        image: Mapping[str, str],
        node: Mapping[str, str],
    ) -> dict[str, str | None]:
        """Return the variables of the hooks, overridden by the EDF's; None removes a variable.

        Prepended directories go before the value that would otherwise apply, but a variable that
        the EDF removes stays removed.
        """
        merged = {**self.env, **edf}
        for name, directories in self.prepend.items():
            if name in edf and edf[name] is None:
                continue
            # the step is asked last: what it says is then a condition of doing the same again
            known = next((some for some in (merged, image) if name in some), node)
            base = known.get(name)
            merged[name] = join_path(directories, base or "")
        return merged


class Repeatable(Frozen):
    """Conditions under which hooks do the same again.

    `asked` are the questions about files of the node (base/answers.py). `names` are the variables
    that the hooks set, None without hooks. `port` is the one among their values that differs in
    each step (slurm_step.py), "" for none.
    """

    asked: Sequence[str]
    names: Sequence[str] | None
    port: str


def join_path(directories: Sequence[str], rest: str) -> str:
    """Return `directories`, then the words of the colon-separated `rest` that are not among them.

    An empty `rest` does not become an empty element, which loaders take for the working directory.
    """
    words = [*directories, *(word for word in rest.split(":") if word not in directories)]
    return ":".join(words if rest else directories)

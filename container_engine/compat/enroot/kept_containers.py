"""The containers of this job that have names, for `enroot list`, `remove`, `export` and `exec`.

pyxis calls them pyxis_NAME, or pyxis_JOB_NAME where they live with a job as they do here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, NoReturn

from container_engine.base.errors import UserError
from container_engine.build.saving import save_named
from container_engine.node.inside import tasks
from container_engine.node.job_containers import directory
from container_engine.node.slurm_step import node_name
from container_engine.submit import container_names
from container_engine.submit import context as contexts
from container_engine.submit.context import Context
from container_engine.submit.site import site_config


class Named(NamedTuple):
    """A container of this job on this node; `pid` is a process in it, 0 if none runs there."""

    name: str
    directory: str
    pid: int


class Here:
    """The job and node of this process, and its named containers there."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.job = context.env.get("SLURM_JOB_ID", "")
        kept_dir = site_config(context).kept_dir
        node = node_name(context.env)
        there = directory.names_here(kept_dir, self.job, node) if self.job else {}
        running = tasks.named(self.job) if there else {}
        self._named = [Named(name, path, running.get(name, 0)) for name, path in there.items()]

    def lines(self, *, fancy: bool) -> Iterator[str]:
        """Yield lines as enroot prints them."""
        for one in self._named:
            name = f"pyxis_{self.job}_{one.name}"
            yield f"{name} {one.pid}" if fancy and one.pid else name

    def remove(self, name: str, *, force: bool) -> bool:
        """Remove the container with this enroot name; False if there is none. Raise UserError."""
        for one in self._named:
            if name != f"pyxis_{self.job}_{one.name}":
                continue
            if not directory.remove(one.directory, force=force):
                raise UserError(f"enroot: container is running: {name}", "end the steps in it")
            with suppress(FileNotFoundError):
                os.unlink(container_names.record_of(one.name, self._context.env))
            return True
        return False

    def export(self, name: str, target: str, *, force: bool) -> bool:
        """Save the container with this enroot name; False if there is none. Raise UserError."""
        for one in self._named:
            if name == f"pyxis_{self.job}_{one.name}":
                if os.path.lexists(target) and not force:
                    raise UserError(f"enroot: file already exists: {target}", "enroot export -f")
                kept_one = save_named.ContainerOfJob(self.job, one.name)
                path = os.path.abspath(target)
                if save_named.save(kept_one, node_name(self._context.env), path, self._context):
                    raise UserError(f"enroot: not exported: {name}")
                return True
        return False

    def enter(self, pid: str, command: Sequence[str]) -> NoReturn:
        """Replace this process with the command, in the container of `pid`. Raise UserError."""
        if not pid.isdigit():
            raise UserError(f"enroot exec: {pid}: not a process id")
        tasks.become(tasks.of_process(int(pid)), command, self._context.libexec)


def here() -> Here:
    return Here(contexts.of_this_process(None))

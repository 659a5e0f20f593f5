"""Advises on variables below [env] that Slurm sets itself, for each step or task. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.lint.subject import advice, variables_in
from container_engine.slurm_variables import is_of_slurm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.edf.model import Problem
    from container_engine.lint.subject import Subject

_GPUS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def slurm_variables(subject: Subject) -> Iterator[Problem]:
    """Warn of values that Slurm will replace, and of GPUs that replace those that Slurm chose."""
    for name, history in subject.below("env"):
        origin, value = history.effective.origin, history.effective.value
        if is_of_slurm(name):
            message = "has no effect: Slurm sets this variable itself"
            hint = f"export {name} before srun, or give srun the option that sets it"
            yield advice(origin, history.key, message, hint)
        elif name in _GPUS and value != "" and name not in variables_in(history):
            message = "replaces the GPUs that Slurm gives to each task"
            hint = "remove the line: srun --gpus-per-task chooses them"
            yield advice(origin, history.key, message, hint)

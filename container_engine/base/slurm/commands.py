"""Ask Slurm, and start processes in its jobs: the commands of Slurm that the submit side runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from container_engine.base.process import output

_TIMEOUT_S = 60
_SETTING = re.compile(r"^(\S+)[ \t]+=[ \t]*(.*)$", re.MULTILINE)
# the job's options of the engine: with CE_INHERIT=no alone srun would report each that it ignores
_OPTIONS = tuple(
    f"{slurms}_SLURM_SPANK_OPTION_container_engine_" for slurms in ("", "SLURM_SPANK_")
)
# the plan and the size of the step that srun is started in, which a new step must not inherit
_OF_STEP = ("SLURM_CE_", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE")


def answer(argv: Sequence[str], env: Mapping[str, str], timeout_s: float = _TIMEOUT_S) -> str:
    """Return what a command of Slurm prints, in its usual format. Raise CeError."""
    plain = {name: text for name, text in env.items() if not name.startswith("SQUEUE_")}
    return output(argv, plain, timeout_s).decode(errors="replace")


def settings(env: Mapping[str, str], timeout_s: float = _TIMEOUT_S) -> dict[str, str]:
    """Return slurm.conf as slurmctld reads it. Raise CeError."""
    return dict(_SETTING.findall(answer(["scontrol", "show", "config"], env, timeout_s)))


def hosts(hostlist: str, env: Mapping[str, str]) -> list[str]:
    """Return the names of the hosts in Slurm's list: n1, n2 and n3 for n[1-3]. Raise CeError."""
    return answer(["scontrol", "show", "hostnames", hostlist], env).split()


def beside(job: str, node: str | None) -> list[str]:
    """Return the srun of one more process in a job, to which the command must be appended.

    It runs on `node`, or on the job's first node if that is None.
    """
    argv = ["srun", "--quiet", f"--jobid={job}", "--overlap", "--nodes=1", "--ntasks=1"]
    argv += ["--mem=0", "--cpu-bind=none", "--mpi=none"]
    return [*argv, *([f"--nodelist={node}"] if node else [])]


def without_step(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for an srun that inherits nothing of the step that it starts in."""
    return on_the_host({k: v for k, v in env.items() if not k.startswith(_OF_STEP)})


def on_the_host(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for an srun that does not inherit the container of its job."""
    own = {k: v for k, v in env.items() if not k.startswith(_OPTIONS)}
    return {**own, "CE_INHERIT": "no"}

"""Ask Slurm, and start processes in its jobs; read values from this host's slurm.conf."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_TIMEOUT_S = 60
# the job's options of the engine: with CE_INHERIT=no alone srun would report each that it ignores
_OPTIONS = tuple(
    f"{slurms}_SLURM_SPANK_OPTION_container_engine_" for slurms in ("", "SLURM_SPANK_")
)
# the plan and the size of the step that srun is started in, which a new step must not inherit
_OF_STEP = ("SLURM_CE_", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE")


def answer(argv: Sequence[str], env: Mapping[str, str], timeout_s: float = _TIMEOUT_S) -> str:
    """Return what a command of Slurm prints, in its usual format. Raise CeError."""
    from container_engine.base.process import output

    plain = {name: text for name, text in env.items() if not name.startswith("SQUEUE_")}
    return output(argv, plain, timeout_s).decode(errors="replace")


def settings(env: Mapping[str, str], timeout_s: float = _TIMEOUT_S) -> dict[str, str]:
    """Return slurm.conf as slurmctld reads it. Raise CeError."""
    import re

    said = answer(["scontrol", "show", "config"], env, timeout_s)
    return dict(re.findall(r"(?m)^(\S+)[ \t]+=[ \t]*(.*)$", said))


def hosts(hostlist: str, env: Mapping[str, str]) -> list[str]:
    """Return the names of the hosts in Slurm's list: n1, n2 and n3 for n[1-3]. Raise CeError."""
    return answer(["scontrol", "show", "hostnames", hostlist], env).split()


def own_nodes(env: Mapping[str, str]) -> dict[tuple[str, ...], list[str]]:
    """Return the nodes of the job of `env`, by srun's options for each of its components.

    The command of a heterogeneous salloc has no SLURM_JOB_NODELIST, the script of sbatch that of
    the first component. Outside of a job there are none. Raise CeError.
    """
    size = int(env.get("SLURM_HET_SIZE") or 0)
    lists: dict[tuple[str, ...], str] = {
        (f"--het-group={n}",): env.get(f"SLURM_JOB_NODELIST_HET_GROUP_{n}", "") for n in range(size)
    }
    lists = lists or {(): env.get("SLURM_JOB_NODELIST", "")}
    return {options: hosts(nodes, env) for options, nodes in lists.items() if nodes}


# without this option srun reads what was meant for later commands of a script
NO_INPUT = "--input=none"


def jobs(env: Mapping[str, str], uid: int) -> dict[str, str]:
    """Return the user's jobs as `beside` takes them, by their number and by what squeue shows.

    They are plain numbers, which squeue shows as 7_3 for one of an array; a component of a
    heterogeneous job is LEADER+COMPONENT. Raise CeError.
    """
    found = {}
    argv = ["squeue", "--noheader", f"--user={uid}", "--format=%i|%A"]
    for line in answer(argv, env).split():
        shown, _bar, number = line.partition("|")
        found[shown] = found[number] = _taken(shown, number)
    return found


def nodes_of(job: str, env: Mapping[str, str], timeout_s: float = _TIMEOUT_S) -> dict[str, str]:
    """Return the nodes of a job that runs, by each of its parts as `into` takes it, or nothing.

    `job` is as squeue shows it, or a plain number. Raise CeError.
    """
    argv = ["squeue", "--noheader", f"--jobs={job}", "--states=RUNNING", "--format=%i|%A|%N"]
    lines = [line.split("|", 2) for line in answer(argv, env, timeout_s).split()]
    return {_taken(shown, number): nodes for shown, number, nodes in lines}


def _taken(shown: str, number: str) -> str:
    return shown if "+" in shown else number


def into(job: str) -> list[str]:
    """Return srun's options for a step in a job (see jobs)."""
    number, plus, component = job.partition("+")
    return [f"--jobid={number}", *([f"--het-group={component}"] if plus else [])]


def beside(job: str, node: str | None, count: int = 1) -> list[str]:
    """Return the srun of one more process in a job (see jobs); the command must be appended.

    It runs on `node`, or on the job's first node if that is None. `node` may be a list of `count`
    nodes, with a process on each.
    """
    argv = ["srun", "--quiet", *into(job), "--overlap", f"--nodes={count}"]
    argv += [f"--ntasks={count}", "--ntasks-per-node=1"]
    argv += ["--mem=0", "--cpu-bind=none", "--mpi=none"]
    return [*argv, *([f"--nodelist={node}"] if node else [])]


def run_step(
    srun: Sequence[str],
    env: Mapping[str, str],
    left_s: float,
    heard: Callable[[bytes], None],
    is_enough: Callable[[], bool] = lambda: False,
) -> str | None:
    """Run a step that inherits nothing; return why srun failed, "" if not, None without time left.

    `heard` is called with each piece of what it prints. srun is killed when `is_enough`. Raise
    SiteError if there is no srun.
    """
    from container_engine.base.errors import SiteError
    from container_engine.base.process import CommandError, merged

    if left_s <= 0:
        return None
    try:
        merged(srun, without_step(env), left_s, heard, is_shown=False, is_enough=is_enough)
    except CommandError as error:
        return error.reason
    except SiteError as error:
        if error.see != "program-slow":
            raise
        return None
    return ""


def without_step(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for an srun that inherits nothing of the step that it starts in."""
    return on_the_host({k: v for k, v in env.items() if not k.startswith(_OF_STEP)})


def on_the_host(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for an srun that does not inherit the container of its job."""
    own = {k: v for k, v in env.items() if not k.startswith(_OPTIONS)}
    return {**own, "CE_INHERIT": "no"}


_USUAL = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")
_MAX_INCLUDES = 32


def conf_places(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return where to look for a slurm.conf: where the environment says, then the usual places."""
    named = env.get("SLURM_CONF", "")
    return (named, *_USUAL) if named else _USUAL


def find_conf(env: Mapping[str, str], more: Sequence[str] = ()) -> str:
    """Return the first slurm.conf that is there, of `conf_places` and then of `more`; or ""."""
    return next((path for path in (*conf_places(env), *more) if os.path.isfile(path)), "")


def conf_value(path: str, key: str, files: list[str] | None = None) -> str:
    """Return the last value of `key` in the file and its included files, or "" if it is not set.

    Append to `files` the paths of all these files.
    """
    found = ""
    seen = [path]
    lines = _lines(path, seen)
    if files is not None:
        files += seen
    for line in lines:
        name, equals, text = line.partition("=")
        if equals and name.strip().lower() == key.lower():
            # some lines hold several settings; the values of these keys have no spaces
            words = text.strip().strip('"').split()
            found = words[0].strip('"') if words else ""
    return found


def _lines(path: str, seen: list[str]) -> list[str]:
    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8", "surrogateescape")
    except OSError:
        return []
    lines = []
    for raw in text.split("\n"):
        line = raw.partition("#")[0].strip()
        word, _space, rest = line.partition(" ")
        included = os.path.join(os.path.dirname(path), rest.strip())
        if word.lower() != "include":
            lines.append(line)
        elif included not in seen and len(seen) < _MAX_INCLUDES:
            seen.append(included)
            lines += _lines(included, seen)
    return lines

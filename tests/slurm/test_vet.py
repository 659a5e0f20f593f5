"""`ce vet`: which nodes of an allocation are good."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.libraries import run
from tests.slurm.cluster import sandbox, start_again
from tests.slurm.job import started
from tests.slurm.leftovers import helpers
from tests.slurm.polling import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.slurm.cluster import Cluster

pytestmark = pytest.mark.usefixtures("tidy")

_PAGE = Path(__file__).parents[2] / "docs/howto/failed-node.md"
_ENVIRONMENT = """\
image = "{image}"
mounts = ["{here}"]
workdir = "{here}"

[[checks]]
name = "gpu"
command = ["sh", "-c", "test ! -e dead-$$SLURMD_NODENAME"]
severity = "fail"
message = "the GPU is dead"

[[checks]]
name = "disk"
command = ["sh", "-c", "test ! -e full-$$SLURMD_NODENAME"]

[[checks]]
name = "stopped"
command = ["sh", "-c", "test ! -e stop-$$SLURMD_NODENAME || kill -STOP $PPID"]
"""
_DEAD = "train.toml:5: check gpu: the GPU is dead: sh ended with exit code 1, not 0"


@pytest.fixture
def here(cluster: Cluster, shared: Path) -> Path:
    """Return a directory with an environment `train`, a program of that name, and no bad node."""
    text = _ENVIRONMENT.format(image=cluster.image("demo"), here=shared)
    (shared / "train.toml").write_text(text.replace("$PPID", "$$PPID"))
    (shared / "train").write_text("#!/bin/sh\necho trained on $SLURMD_NODENAME\n")
    (shared / "train").chmod(0o755)
    return shared


def script_of_the_page() -> str:
    """Return the script, for an allocation of two nodes of which one is needed."""
    (script,) = map(
        str, re.findall(r"```sh\n(#!/bin/bash\n.*?ce vet.*?)```", _PAGE.read_text(), re.DOTALL)
    )
    assert (script.count("--nodes=6"), script.count(" 5"), script.count("=5 ")) == (1, 1, 1)
    return script.replace("--nodes=6", "--nodes=2").replace(" 5", " 1").replace("=5 ", "=1 ")


def test_the_script_of_the_page_goes_on_without_the_bad_node_and_remembers_it(
    cluster: Cluster, here: Path
) -> None:
    (here / "job").write_text(script_of_the_page())
    batch = ["sbatch", "--wait", f"--output={here}/out", "job"]
    env = {"EDF_PATH": str(here)}
    (here / "dead-n1").touch()
    done = cluster.run(batch, env=env, cwd=here)
    out = (here / "out").read_text()
    assert done.returncode == 0, done.stderr + out
    assert out == (
        f"failed    n1: {here}/{_DEAD}\ngood      n2\n1 of 2 nodes are good\ntrained on n2\n"
    ), out
    remembered = (here / "bad-nodes").read_text()
    assert re.fullmatch(rf"n1 # \S+ {here}/{re.escape(_DEAD)}\n", remembered)

    # the node has been repaired, which the file does not know; the other one only warns
    (here / "dead-n1").unlink()
    (here / "full-n2").touch()
    done = cluster.run(batch, env=env, cwd=here)
    out = (here / "out").read_text()
    assert done.returncode == 0, done.stderr + out
    assert re.search(rf"^excluded  n1: \S+ {here}/{re.escape(_DEAD)}$", out, re.MULTILINE), out
    assert f"good      n2\n          warning: {here}/train.toml:11: check disk: sh ended" in out
    assert (here / "bad-nodes").read_text() == remembered
    # and Slurm reads that file
    done = cluster.run(["srun", "--exclude=./bad-nodes", "printenv", "SLURMD_NODENAME"], cwd=here)
    assert done.stdout == "n2\n", done.stderr


def test_too_few_good_nodes_are_one_line_and_none_is_remembered_where_all_fail(
    cluster: Cluster, here: Path
) -> None:
    for node in ("n1", "n2"):
        (here / f"dead-{node}").touch()
        (here / f"full-{node}").touch()
    warning = f"{here}/train.toml:11: check disk: sh ended with exit code 1, not 0"
    vet = "ce vet ./train.toml --json gone/verdicts; "
    vet += "ce vet ./train.toml --good-nodes 1 --exclude-file bad --json verdicts"
    done = cluster.run(["salloc", "-Q", "-N2", "sh", "-c", vet], cwd=here)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "ce: error: gone/verdicts: no such file or directory\n"
        f"failed    n[1-2]: {here}/{_DEAD}\n          warning: {warning}\n"
        "0 of 2 nodes are good\n"
        "ce: error: vet: 0 of 2 nodes are good, wanted: 1\n"
    )
    assert (here / "bad").read_text() == ""
    found = json.loads((here / "verdicts").read_text())
    assert found["good"] == []
    assert [(one["node"], one["verdict"], one["warnings"]) for one in found["nodes"]] == [
        ("n1", "failed", [warning]),
        ("n2", "failed", [warning]),
    ]


@pytest.fixture
def held(cluster: Cluster) -> Iterator[dict[str, str]]:
    """Yield the variables of a job that has two nodes, for commands beside it."""
    done = cluster.run(["salloc", "-N2", "--no-shell"])
    job = re.findall(r"allocation (\d+)", done.stderr)[0]
    yield {"SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": "n[1-2]"}
    cluster.run(["scancel", job])
    until("the end of the job", lambda: not cluster.run(["squeue", "-h"]).stdout, 60)


@pytest.mark.parametrize("what", ["slurmd", "start"])
def test_a_node_that_hangs_costs_its_limit_and_hides_no_other(
    cluster: Cluster, here: Path, held: dict[str, str], what: str
) -> None:
    vet = ["ce", "vet", "./train.toml", "--limit", "6", "--good-nodes", "1"]
    slurmd = int((cluster.dir / "run/slurmd-n2.pid").read_text())
    if what == "start":
        (here / "stop-n2").touch()
    else:
        os.kill(slurmd, signal.SIGSTOP)
    try:
        done = cluster.run(vet, env=held, cwd=here, timeout=30)
    finally:
        os.kill(slurmd, signal.SIGCONT)
    assert done.stdout == "n1\n", done.stderr
    begun = "; its container had begun to start" if what == "start" else ""
    assert re.fullmatch(
        r"good      n1\nsilent    n2: no answer within 6 s; other nodes took up to [\d.]+ s"
        rf"{begun}\n1 of 2 nodes are good\n",
        done.stderr,
    )
    # and no step is in the way of the next one
    done = cluster.run(["srun", "-N1", "-w", "n1", "true"], env=held, timeout=30)
    assert done.returncode == 0, done.stderr


def test_each_component_of_a_heterogeneous_job_is_asked(cluster: Cluster, here: Path) -> None:
    """The script of sbatch has the first component's list of nodes, but that of salloc has none."""
    vet = "ce vet ./train.toml --limit 6 --exclude-file=bad 2>&1"
    script = f"{vet}; rm stop-n2; SLURM_JOB_NODELIST=n1 {vet}"
    (here / "stop-n2").touch()
    job = ["salloc", "-Q", "-N1", "-w", "n1", ":", "-N1", "-w", "n2", "sh", "-c", script]
    out = cluster.run(job, cwd=here, timeout=120).stdout
    first, second = out.split("1 of 2 nodes are good\n")[:2]
    assert re.match("good      n1\nsilent    n2: no answer within 6 s", first), out
    assert re.match("good      n1\nexcluded  n2: [^\n]*no answer within 6 s", second), out


def test_an_environment_without_a_container_judges_no_node(cluster: Cluster) -> None:
    done = cluster.run(["salloc", "-Q", "-N2", "ce", "vet", cluster.edf('image = ""\n', None)])
    assert (done.returncode, done.stdout) == (1, "")
    assert "ce: error: vet: the environment has no container\n" in done.stderr


_SLOW = """\
image = "{image}"
startup = ["case $$SLURMD_NODENAME in n1) sleep {n1} ;; n2) sleep {n2} ;; esac"]
"""


def test_a_node_is_not_judged_by_a_limit_that_is_short_for_others_too(
    cluster: Cluster, here: Path, held: dict[str, str]
) -> None:
    (here / "slow.toml").write_text(_SLOW.format(image=cluster.image("demo"), n1=9, n2=60))
    vet = ["ce", "vet", "./slow.toml", "--limit", "17", "--exclude-file", "bad"]
    done = cluster.run(vet, env=held, cwd=here)
    assert (done.returncode, done.stderr) == (1, "")
    assert re.fullmatch(
        r"good      n1\nunknown   n2: no answer within 17 s; other nodes took up to [\d.]+ s"
        r"; its container had begun to start\n1 of 2 nodes are good\n",
        done.stdout,
    )
    assert (here / "bad").read_text() == ""


@pytest.fixture
def third(cluster: Cluster) -> Iterator[None]:
    """Give the cluster a third node during a test."""
    assert sandbox("up", "-n", "3").returncode == 0
    yield
    assert sandbox("up", "-n", str(cluster.nodes)).returncode == 0


@pytest.mark.usefixtures("third")
def test_a_node_on_which_the_container_starts_slowly_is_chosen_last(
    cluster: Cluster, here: Path
) -> None:
    (here / "slow.toml").write_text(_SLOW.format(image=cluster.image("demo"), n1=6, n2=0))
    vet = ["ce", "vet", "./slow.toml", "--good-nodes", "2"]
    done = cluster.run(["salloc", "-Q", "-N3", *vet], cwd=here)
    assert (done.returncode, done.stdout) == (0, "n[2-3]\n"), done.stderr
    slow = r"warning: its container took [6-9]\.\d s to start, the median 0\.\d s$"
    assert re.search(
        rf"^good      n1\n {slow}", done.stderr.replace("\n         ", "\n"), re.MULTILINE
    )


@pytest.mark.parametrize(
    ("lost", "verdict"),
    [
        ("etc/plugstack.conf", "this node's Slurm does not load the plugin of --environment"),
        ("prefix/lib/slurm/container_engine.so", "task 0 launch failed: "),
    ],
)
def test_a_node_without_the_plugin_has_failed_and_its_own_words_are_the_reason(
    cluster: Cluster, here: Path, lost: str, verdict: str
) -> None:
    lose = ["n2", "mount", "--bind", "/dev/null", str(cluster.dir / lost)]
    assert sandbox("node", *lose).returncode == 0
    try:
        done = cluster.run(["salloc", "-Q", "-N2", "ce", "vet", "./train.toml"], cwd=here)
    finally:
        start_again("n2")
    assert done.stdout.startswith(f"good      n1\nfailed    n2: {verdict}"), done.stdout


@pytest.mark.parametrize("severity", ["fail", "warn"])
def test_a_check_that_is_killed_for_its_memory_is_out_of_memory(
    cluster: Cluster, severity: str
) -> None:
    much = "b'x' * (1 << 30)"
    command = ["sh", "-c", f'test $$SLURMD_NODENAME = n1 || exec python3 -c "{much}"']
    check = f'[[checks]]\nname = "m"\nseverity = "{severity}"\ncommand = {json.dumps(command)}\n'
    edf = cluster.edf(check)
    done = cluster.run(["salloc", "-Q", "-N2", "--mem=300", "ce", "vet", edf])
    killed = f"{edf}:2: check m: sh was ended by SIGKILL\n"
    if severity == "fail":
        wanted = f"good      n1\nfailed    n2: out of memory: {killed}1"
    else:
        mark = "          warning: "
        wanted = f"good      n1\ngood      n2\n{mark}{killed}{mark}out of memory\n2"
    assert done.stdout == f"{wanted} of 2 nodes are good\n", done.stderr


def test_where_the_job_ends_no_node_is_judged(
    cluster: Cluster, here: Path, held: dict[str, str]
) -> None:
    (here / "stop-n2").touch()
    argv = ["sh", "-c", f"cd {here}; exec ce vet ./train.toml --exclude-file bad"]
    with started(cluster, *argv, env=held) as vet:
        until("a container of each node", lambda: len(helpers()) > 1)
        cluster.run(["scancel", held["SLURM_JOB_ID"]])
        done = vet.wait(60)
    assert done.returncode == 1
    assert done.stderr.startswith("ce: error: vet: the job has ended, so no node is judged\n")
    assert (here / "bad").read_text() == ""


_SINGLE = "MPI sees rank 0 of 1, in a step of 4 tasks"
_NO_PMIX = "          warning: hook pmix: the image's MPICH (libmpich.so.12) does not support PMIx"
_NONE = "MPI cannot be loaded: libmpich.so.12: cannot open shared object file"


@pytest.mark.parametrize(
    ("image", "mpi", "verdict"),
    [
        ("openmpi", "pmix", "good      n[1-2]\n2"),
        ("mpich", "pmi2", "good      n[1-2]\n2"),
        ("mpich", "pmix", f"failed    n[1-2]: {_SINGLE}\n{_NO_PMIX}\n0"),
        ("debian", "pmix", f"failed    n[1-2]: {_NONE}: No such file or directory\n0"),
    ],
)
def test_mpi_of_the_image_starts_on_all_good_nodes_together(
    cluster: Cluster, image: str, mpi: str, verdict: str
) -> None:
    edf = cluster.edf('[env]\nUCX_TLS = "sysv,self"\n', image=image)
    done = cluster.run(["salloc", "-Q", "-N2", "ce", "vet", "--mpi", mpi, str(edf)])
    said = re.sub(r" \(start it.*", "", done.stdout)
    said = said.replace("(libmpi.so.12)", "(libmpich.so.12)")  # as newer releases of MPICH call it
    assert said == f"{verdict} of 2 nodes are good\n", done.stderr
    assert done.returncode == (0 if "good  " in verdict else 1)


_MPI = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int node_is(const char *name) {{ return strcmp(getenv("SLURMD_NODENAME"), name) == 0; }}
int MPI_Init(void *count, void *words) {{ if (node_is("n2")) {{ {on_n2}; }} return 0; }}
int MPI_Comm_rank(int world, int *rank) {{ *rank = atoi(getenv("SLURM_PROCID")); return 0; }}
int MPI_Comm_size(int world, int *size) {{ *size = atoi(getenv("SLURM_NTASKS")); return 0; }}
int MPI_Barrier(int world) {{ return 0; }}
int MPI_Finalize(void) {{ return 0; }}
"""


@pytest.mark.parametrize(
    ("on_n2", "verdict"),
    [
        ("pause()", "silent    n2: MPI has not started: no answer within 6 s"),
        ("abort()", "silent    n2: MPI has not started: tasks 2-3: Aborted"),
        ("return 1", "failed    n2: MPI cannot be initialized"),
        ("exit(0)", "silent    n2: MPI has not started: no answer"),
    ],
)
def test_the_node_on_which_mpi_does_not_start_is_named(
    cluster: Cluster, shared: Path, on_n2: str, verdict: str
) -> None:
    (shared / "mpi.c").write_text(_MPI.format(on_n2=on_n2))
    library = shared / "libmpi.so.12"
    run("gcc", "-shared", "-fPIC", "-w", "-o", library, shared / "mpi.c")
    text = f'mounts = ["{shared}"]\n[env]\nLD_LIBRARY_PATH = "{shared}"\n'
    edf = cluster.edf(text, image="debian")
    vet = ["ce", "vet", "--mpi=none", "--limit=6", "--good-nodes=1", str(edf)]
    done = cluster.run(["salloc", "-Q", "-N2", *vet], timeout=60)
    assert (done.returncode, done.stdout) == (0, "n1\n"), done.stderr
    assert done.stderr == f"good      n1\n{verdict}\n1 of 2 nodes are good\n"

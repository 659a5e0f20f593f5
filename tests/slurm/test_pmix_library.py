"""Before the tasks of `srun --mpi=pmix`, the image's PMIx library must be able to begin.

The libraries here are played; tests/slurm/test_mpi.py has the real one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.libraries import run
from tests.slurm.test_run_checks import verdicts

if TYPE_CHECKING:
    from pathlib import Path

    from tests.slurm.cluster import Cluster
    from tests.slurm.site import Site

pytestmark = pytest.mark.usefixtures("tidy")

_SOURCE = """
#include <stdlib.h>
#include <unistd.h>
int needed_by_pmix(void);
const char *PMIx_Get_version(void) {{ return "OpenPMIx 4.2.2"; }}
int PMIx_Init(void *process, void *info, size_t count) {{ {body}; return -25; }}
"""
_SAYS = "hook pmix: check library: MPI would fail in MPI_Init: ce-ask"
_FAILED = "ended with exit code 1, not 0; it printed:"
_WAYS = {
    "none": (None, ""),
    "good": ("", ""),
    # version 2
    "old": ("return -44", ""),
    "hangs": ("pause()", "did not pass within 1.5 s; it printed: OpenPMIx 4.2.2"),
    "crashes": ("abort()", "was ended by SIGABRT; it printed: OpenPMIx 4.2.2"),
    "exits": ("exit(0)", "did not print 'libpmix.so.2: '; it printed: OpenPMIx 4.2.2"),
    "fails": ("return -46", f"{_FAILED} PMIx cannot be initialized (-46)"),
    "lacks": ("needed_by_pmix()", f"{_FAILED} libneeded.so.1: cannot open shared object file"),
    # what a server has said to an outer step, or a shell to tasks which hear it from their server
    "stale": ('if (getenv("PMIX_RANK") || getenv("PMIX_MCA_psec")) return -1', ""),
}


@pytest.mark.parametrize("way", _WAYS)
def test_a_pmix_library_that_cannot_begin_is_told_before_the_tasks(
    cluster: Cluster, site: Site, shared: Path, way: str
) -> None:
    body, said = _WAYS[way]
    site.hook("pmix", "[checks.library]\nlimit_s = 1.5\n", whole=False)
    if body is not None:
        compile_ = ("gcc", "-shared", "-fPIC", "-w")
        (shared / "needed.c").write_text("int needed_by_pmix(void) { return 0; }\n")
        needed = shared / "libneeded.so.1"
        run(*compile_, f"-Wl,-soname,{needed.name}", "-o", needed, shared / "needed.c")
        (shared / "pmix.c").write_text(_SOURCE.format(body=body))
        with_it = (needed,) if way == "lacks" else ()
        run(*compile_, "-o", shared / "libpmix.so.2", shared / "pmix.c", *with_it)
        needed.unlink()
    text = f'mounts = ["{shared}"]\n[env]\nLD_LIBRARY_PATH = "{shared}"\n'
    edf = cluster.edf(text, image="debian")
    env = {"PMIX_RANK": "7", "PMIX_MCA_psec": "of-the-shell"}
    for verdict in ("passed", "believed"):
        step = ("--mpi=pmix", "-wn1", "-n1", f"--environment={edf}", "echo", "ran")
        done = cluster.srun(*step, env=env)
        assert (done.returncode, done.stdout) == (0, "ran\n")
        line = f"ce: warning: n1: {_SAYS} {said}" if said else ""
        assert done.stderr.startswith(line)
        assert done.stderr.count("\n") == (1 if said else 0)
        expected = "failed" if said else verdict
        assert verdicts(cluster, "name", "verdict") == {"n1": [("library", expected)]}


@pytest.mark.parametrize("module", ["psec", "gds"])
def test_a_module_that_the_real_library_does_not_have_is_named(
    cluster: Cluster, module: str
) -> None:
    variable = f"PMIX_MCA_{module}"
    edf = cluster.edf(f'[env]\n{variable} = "absent"\n', image="openmpi")
    done = cluster.srun("--mpi=pmix", "-wn1", "-n1", f"--environment={edf}", "true")
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"ce: warning: n1: {_SAYS} {_FAILED} PMIx cannot be initialized (")
    assert f"), with {variable}=absent (the image's PMIx must" in line

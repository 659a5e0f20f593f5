"""Debuggers of the page on them: from one SquashFS file, in a job that runs, on all its ranks."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ce_sandbox import packages
from tests.slurm.cluster import ROOT, Cluster, Completed
from tests.slurm.debuggers import PACKAGES
from tests.slurm.job import started
from tests.slurm.polling import until

pytestmark = pytest.mark.usefixtures("tidy")
_PAGE = ROOT / "docs/howto/profile.md"
_WAITS = (
    "import time\ndef wait_for_others():\n    while True:\n        time.sleep(1)\nwait_for_others()"
)


@pytest.fixture(scope="module")
def debug(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a SquashFS file as the page makes it: its scripts, gdb, perf and py-spy."""
    tree, file = tmp_path_factory.mktemp("debug"), cluster.scratch / "debug.sqsh"
    packages.unpack(PACKAGES, cluster.dir / "cache/packages", tree)
    shutil.copy(Path(sys.executable).with_name("py-spy"), tree / "usr/bin")
    for text in re.findall(r"^```sh\n(.*?)^```$", _PAGE.read_text(), re.MULTILINE | re.DOTALL):
        script = tree / text.split()[2]
        script.write_text(text)
        script.chmod(0o755)
    tree.chmod(0o755)
    subprocess.run([cluster.prefix / "bin/ce", "pack", "-q", tree, file], check=True)
    file.chmod(0o644)
    yield file
    shutil.rmtree(tree)


def test_debuggers_of_one_file_attach_to_all_ranks_and_to_those_of_a_node(
    cluster: Cluster, debug: Path, shared: Path
) -> None:
    program = cluster.write(_WAITS)
    edf = cluster.edf(f'mounts = ["{debug}:/debug:sqsh", "{program}:/wait.py", "{shared}"]\n')
    command = ("sh", "-c", "echo $SLURM_JOB_ID.$SLURM_STEP_ID; exec python3 /wait.py")
    ce = f"{cluster.prefix}/bin/ce"
    with started(cluster, "srun", "-N2", "-n4", f"--environment={edf}", *command) as job:
        step = job.wait_for_lines(4)[0].strip()
        number = step.partition(".")[0]
        until("the step", lambda: step in cluster.run([ce, "ps"]).stdout)
        of_all = f"--jobid={number} -N2 --ntasks-per-node=1 --overlap --container-name={step}"

        def in_all(*words: str) -> Completed:
            return cluster.srun(*of_all.split(), "/debug/each", step, *words)

        done = in_all("/debug/usr/bin/py-spy", "dump", "--pid")
        ranks = re.findall(r"^--- rank (\d) on n(\d), process \d+$", done.stdout, re.MULTILINE)
        assert sorted(ranks) == [("0", "1"), ("1", "1"), ("2", "2"), ("3", "2")], done.stderr
        assert done.stdout.count("wait_for_others (wait.py:4)") == 4, done.stdout
        gdb = ("/debug/own", "gdb", "-q", "-batch", "-ex", "backtrace", "-p")
        done = in_all(*gdb)
        assert done.stdout.count("PyEval_EvalCode ()") >= 4, done.stdout + done.stderr
        exec_ = [ce, "exec", "-w", "n2", step, "--"]
        done = cluster.run([*exec_, "/debug/each", step, *gdb])
        assert re.findall(r"^--- rank (\d)", done.stdout, re.MULTILINE) == ["2", "3"]
        busy = "python3 -c 'sum(range(10**7))'"
        record = f"cd {shared} && /debug/own perf record -q -e cpu-clock:u -g -o data {busy}"
        report = "/debug/own perf report --stdio -i data"
        done = cluster.run([*exec_, "sh", "-c", f"{record} && {report}"])
        assert re.search(r"\b_Py[A-Z]\w+", done.stdout), done.stdout + done.stderr

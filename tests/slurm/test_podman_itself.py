"""Statements of docs/admin/podman.md on a site whose containers Podman starts."""

from pathlib import Path

import pytest
from podman import PodmanClient

from tests.slurm.cluster import ROOT, Cluster
from tests.slurm.error_block import mounted_on
from tests.slurm.job import started
from tests.slurm.leftovers import helpers
from tests.slurm.polling import until

pytestmark = pytest.mark.usefixtures("tidy")

_PAGE = (ROOT / "docs/admin/podman.md").read_text(encoding="utf-8")
_SCRIPT = _PAGE.partition("```sh\n")[2].partition("```")[0]
_ANSWERS = "unix:///proc/1/cwd/api.sock"


@pytest.fixture
def edf(cluster: Cluster) -> str:
    return cluster.edf('annotations.com.ce.start = "podman"\n[env]\nMINE = "a b"\n')


def test_podman_answers_where_the_page_asks_it(cluster: Cluster, edf: str) -> None:
    ask = cluster.write(_SCRIPT, mode=0o755)
    words = ("-w", "n1", f"--environment={edf}", "sh", "-c", "echo $SLURM_JOB_ID; sleep 60")
    with started(cluster, "srun", *words) as step:
        [job] = step.wait_for_lines(1)
        assert cluster.run([str(ask), "ps", "--format={{.Names}}"]).stdout == f"{job}.0\n"
        [guard] = [process.pid for process in helpers() if process.comm == "ce-guard"]
        served = Path(f"/proc/{guard}/cwd/api.sock")
        with started(cluster, str(ask), "system", "service", "-t0", _ANSWERS):
            until("a socket", served.exists)
            with PodmanClient(base_url=f"unix://{served}") as client:
                [container] = client.containers.list()
                container.reload()
                assert container.status == "running"
                assert "MINE=a b" in container.attrs["Config"]["Env"]
                code, said = container.exec_run(["cat", "/etc/os-release"])
                assert (code, b"ID=ce-demo" in said) == (0, True)
            cluster.run([str(ask), "kill", f"{job}.0"])
            assert "ce: see: ce help container-died" in step.wait().stderr


def test_podmans_own_configuration_of_a_node_has_no_effect(
    cluster: Cluster, edf: str, n2: str, shared: Path
) -> None:
    (shared / "oci/hooks.d").mkdir(parents=True)
    (shared / "oci/hooks.d/50-fails.json").write_text("not JSON at all")
    (shared / "containers.conf").write_text("not TOML at all")
    with mounted_on(n2, str(shared), "/etc/containers"):
        done = cluster.srun("-w", n2, f"--environment={edf}", "printenv", "MINE")
    assert (done.stdout, done.stderr) == ("a b\n", "")

"""The job script of the Docker page: several services of a Compose file in one job."""

import re
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.job import batch

pytestmark = pytest.mark.usefixtures("tidy")
PAGE = Path(__file__).parents[2] / "docs/howto/docker.md"
FETCH = (
    """python3 -c 'import urllib.request as u; print(u.urlopen("http://localhost:8080").status)'"""
)


def test_a_service_and_its_client_run_side_by_side(
    cluster: Cluster, demo: str, shared: Path
) -> None:
    script = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)[0]
    script = re.sub(r"--environment=(web|client)", f"--environment={demo}", script)
    script = script.replace("python3 fetch.py http://localhost:8080", FETCH)
    output = shared / "output"
    batch(cluster, "-o", str(output), "-t", "1", str(cluster.write(script, mode=0o755)))
    assert "200" in output.read_text().splitlines()

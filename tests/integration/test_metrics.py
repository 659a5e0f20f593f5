"""A real Prometheus scrapes what `ce metrics` writes, through a real node_exporter."""

import json
import os
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from container_engine.cli.main import main
from tests.unit.tools.test_start_records import Site

PATIENCE_S = 60


@pytest.fixture(scope="module")
def programs(need_tool: Callable[[str], str]) -> dict[str, str]:
    names = ("prometheus", "prometheus-node-exporter", "promtool")
    return {name: need_tool(name) for name in names}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        number: int = one.getsockname()[1]
        return number


@contextmanager
def serving(log: Path, *argv: str) -> Iterator[None]:
    with log.open("wb") as file, subprocess.Popen(argv, stdout=file, stderr=file) as process:
        try:
            yield
        finally:
            process.terminate()


def answered(port: int, query: str) -> dict[str, float]:
    """Return the values of a query, by their labels, as soon as there are any."""
    url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as reply:
                found: list[dict[str, Any]] = json.load(reply)["data"]["result"]
        except OSError:
            found = []
        if found:
            return {
                " ".join(v for k, v in one["metric"].items() if k in ("result", "phase")): float(
                    one["value"][1]
                )
                for one in found
            }
        assert time.monotonic() < end, query
        time.sleep(0.2)


def written(site: Site, place: Path) -> Path:
    """Count 12 starts, of which two have failed, and write the file for node_exporter."""
    for number in range(12):
        error = {"error": "no mount"} if number < 2 else {}
        site.start(f"{number}.0", "n1", 50, number, **error)
    place.mkdir()
    file = place / "ce.prom"
    given = os.umask(0o077)
    try:
        assert site.ce("metrics", f"--textfile={file}", "--images=5") == 0
    finally:
        os.umask(given)
    return file


def test_prometheus_scrapes_the_starts_of_the_cluster(
    tmp_path: Path, programs: dict[str, str]
) -> None:
    file = written(Site(tmp_path), tmp_path / "textfiles")
    assert file.stat().st_mode & 0o777 == 0o644
    checked = subprocess.run(
        [programs["promtool"], "check", "metrics"],
        input=file.read_bytes(),
        capture_output=True,
        timeout=60,
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
    node, port = free_port(), free_port()
    target = f"127.0.0.1:{node}"
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: ce, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    exporter = (
        programs["prometheus-node-exporter"],
        "--collector.disable-defaults",
        "--collector.textfile",
        f"--collector.textfile.directory={file.parent}",
        f"--web.listen-address={target}",
    )
    server = (
        programs["prometheus"],
        f"--config.file={tmp_path}/prometheus.yml",
        f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    with serving(tmp_path / "exporter.log", *exporter), serving(tmp_path / "log", *server):
        starts = answered(port, "container_engine_starts_total")
        assert starts == {"ok": 10.0, "failed": 2.0}
        slowest = "histogram_quantile(0.5, container_engine_start_phase_seconds_bucket)"
        assert 0.025 < answered(port, slowest)["create"] <= 0.05
        assert answered(port, "node_textfile_scrape_error") == {"": 0.0}
        median = answered(port, "container_engine_image_start_median_seconds")
        assert list(median.values()) == [pytest.approx(0.07)]


def test_without_the_package_the_verb_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    site = Site(tmp_path)
    assert main(["--site", str(site.config), "metrics", f"--textfile={tmp_path}/x.prom"]) == 1
    assert "--textfile needs the package prometheus_client" in capsys.readouterr().err

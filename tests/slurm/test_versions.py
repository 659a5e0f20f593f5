"""Without all of the right plugin no step starts: Slurm takes one of its own release only."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from tests.slurm.cluster import Cluster

pytestmark = pytest.mark.usefixtures("tidy")

# 20.11.9, which no distribution has that the engine runs on.
OTHER = 0x140B09
REASON = "{}: Incompatible plugin version"


def with_version(plugin: Path, version: int) -> bytes:
    """Return the plugin with another number where Slurm reads the version it was built with."""
    text = bytearray(plugin.read_bytes())
    with plugin.open("rb") as file:
        elf = ELFFile(file)
        symbols = elf.get_section_by_name(".dynsym")
        assert isinstance(symbols, SymbolTableSection)
        (symbol,) = symbols.get_symbol_by_name("plugin_version") or []
        address = symbol["st_value"]
        section = next(
            s for s in elf.iter_sections() if s["sh_addr"] <= address < s["sh_addr"] + s["sh_size"]
        )
        offset = address - section["sh_addr"] + section["sh_offset"]
    text[offset : offset + 4] = version.to_bytes(4, "little")
    return bytes(text)


def replace(plugin: Path, text: bytes) -> None:
    """Replace by rename; the file is mapped by processes and must not be written."""
    new = plugin.with_suffix(".new")
    new.write_bytes(text)
    new.chmod(0o755)
    new.rename(plugin)


@pytest.fixture
def right(cluster: Cluster, shared: Path) -> Path:
    """Return a copy of the plugin that fits this Slurm, with the part that it loads."""
    shutil.copy(cluster.prefix / "lib/slurm/container_engine_user.so", shared)
    return Path(shutil.copy(cluster.prefix / "lib/slurm/container_engine.so", shared))


@pytest.fixture
def own_conf(cluster: Cluster, shared: Path, right: Path) -> dict[str, str]:
    """Let srun load that copy, by a plugstack.conf of its own; return the variable for it."""
    etc = shared / "etc"
    shutil.copytree(cluster.dir / "etc", etc, ignore=shutil.ignore_patterns("munge.key"))
    conf = etc / "slurm.conf"
    (etc / "plugstack.conf").write_text(f"required {right} prefix={cluster.prefix}\n")
    ours = str(cluster.dir / "etc/plugstack.conf")
    conf.write_text(conf.read_text().replace(ours, str(etc / "plugstack.conf")))
    return {"SLURM_CONF": str(conf)}


@pytest.fixture
def halved(cluster: Cluster, right: Path) -> Iterator[Path]:
    """Take away the part of the installed plugin that users' processes load; return its path."""
    del right  # must be copied first
    part = cluster.prefix / "lib/slurm/container_engine_user.so"
    away = part.rename(part.with_suffix(".away"))
    try:
        yield part
    finally:
        away.rename(part)


@pytest.fixture
def wrong(cluster: Cluster, right: Path) -> Iterator[Path]:
    """Replace the installed plugin by one for another release of Slurm during a test."""
    del right  # must be copied first
    plugin = cluster.prefix / "lib/slurm/container_engine.so"
    good = plugin.read_bytes()
    replace(plugin, with_version(plugin, OTHER))
    try:
        yield plugin
    finally:
        replace(plugin, good)


def test_srun_says_that_the_plugin_is_for_another_release(
    cluster: Cluster, demo: str, wrong: Path
) -> None:
    done = cluster.srun(f"--environment={demo}", "cat", "/etc/os-release")
    assert done.returncode != 0
    assert "ID=" not in done.stdout
    assert f"Incompatible Slurm plugin {wrong} version (20.11.9)" in done.stderr
    assert REASON.format(wrong) in done.stderr


def test_a_node_with_the_wrong_plugin_starts_no_task_and_logs_why(
    cluster: Cluster, demo: str, own_conf: dict[str, str], wrong: Path
) -> None:
    log = cluster.dir / "log/slurmd-n1.log"
    before = log.stat().st_size
    srun = ["srun", "-w", "n1", f"--environment={demo}", "cat", "/etc/os-release"]
    done = cluster.run(srun, env=own_conf)
    # Slurm 22.05 exits with 0 whenever a node reports this, for any plugin.
    assert done.stdout == ""
    # Slurm 26.05 knows no error of that name
    told = ("Plugin initialization failed", "Unspecified error")
    assert any(f"task 0 launch failed: {words}" in done.stderr for words in told), done.stderr
    assert REASON.format(wrong) in log.read_bytes()[before:].decode()


def test_a_command_is_refused_where_a_part_of_the_plugin_is_missing(
    cluster: Cluster, halved: Path
) -> None:
    """Nothing knows then whether it has an environment to inherit."""
    done = cluster.run(["srun", "true"])
    assert done.returncode == 125
    first, *rest = done.stderr.splitlines()
    why = f"{halved}: cannot open shared object file: No such file or directory"
    assert first == f"ce: error: cannot load a part of the plugin: {why}"
    assert rest == [
        "ce: hint: ask the administrator to run ce doctor on this host",
        "ce: see: ce help plugin-configuration",
    ]


def test_a_node_without_a_part_of_the_plugin_ends_tasks_of_containers_and_no_others(
    cluster: Cluster, demo: str, own_conf: dict[str, str], halved: Path
) -> None:
    srun = ["srun", "-w", "n1", "-n2", "-O"]
    done = cluster.run([*srun, f"--environment={demo}", "echo", "on the host"], env=own_conf)
    assert (done.returncode, done.stdout) == (125, "")
    line = f"ce: error: n1: cannot load a part of the plugin: {halved}: "
    assert done.stderr.count(line) == 1, done.stderr
    assert cluster.run([*srun, "echo", "on the host"], env=own_conf).stdout.count("host") == 2


def test_the_doctor_finds_that_a_part_of_the_plugin_is_missing(
    cluster: Cluster, halved: Path
) -> None:
    done = cluster.run([str(cluster.prefix / "bin/ce"), "doctor", "--json"])
    found = {entry["check"]: entry for entry in json.loads(done.stdout)["findings"]}
    assert found["installation"]["message"] == f"missing: {halved}"


def test_the_doctor_finds_a_plugin_for_another_release(cluster: Cluster) -> None:
    noted = cluster.prefix / "share/container-engine/slurm-release"
    release = noted.read_text()
    noted.write_text("20.11\n")
    try:
        done = cluster.run([str(cluster.prefix / "bin/ce"), "doctor", "--json"])
    finally:
        noted.write_text(release)
    found = {entry["check"]: entry for entry in json.loads(done.stdout)["findings"]}
    assert found["slurm"]["state"] == "failed"
    assert "the plugin was built for 20.11: Slurm refuses to load it" in found["slurm"]["message"]

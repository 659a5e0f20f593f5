"""The scripts of the Debian package, run by dpkg itself in a directory of its own."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2] / "packaging"
CONF = "etc/slurm/plugstack.conf.d/container-engine.conf"
SHIPPED = "opt/container-engine/share/container-engine/plugstack.conf"
LINE = "required /opt/container-engine/lib/slurm/container_engine.so prefix=/opt/container-engine\n"


class Host:
    """A root directory with a package database, and packages that have only the plugin's line."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.root = scratch / "root"
        (self.root / "var/lib/dpkg/info").mkdir(parents=True)
        (self.root / "var/lib/dpkg/updates").mkdir()
        (self.root / "var/lib/dpkg/status").touch()
        self.line = self.root / CONF

    def package(self, version: str, text: str = LINE) -> Path:
        tree = self.scratch / version
        control = tree / "DEBIAN"
        control.mkdir(parents=True)
        for script in ("postinst", "prerm", "postrm"):
            shutil.copy(HERE / f"deb-{script}", control / script)
            (control / script).chmod(0o755)
        (control / "control").write_text(
            f"Package: container-engine\nVersion: {version}\nArchitecture: all\n"
            "Maintainer: x <x@localhost>\nDescription: x\n"
        )
        shipped = tree / SHIPPED
        shipped.parent.mkdir(parents=True)
        shipped.write_text(text)
        (tree / CONF).parent.mkdir(parents=True)
        tree.chmod(0o755)
        built = self.scratch / f"{version}.deb"
        subprocess.run(["dpkg-deb", "--build", tree, built], check=True, capture_output=True)
        return built

    def dpkg(self, *words: object) -> None:
        argv = ["dpkg", f"--root={self.root}", "--force-script-chrootless", "--force-not-root"]
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        subprocess.run(
            [*argv, f"--log={self.scratch}/log", *map(str, words)],
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, "PATH": path},
        )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_removed_package_leaves_no_line_that_slurm_reads(host: Host) -> None:
    """Slurm starts no step at all where a required plugin is missing."""
    host.dpkg("-i", host.package("1"))
    assert host.line.read_text() == LINE
    host.line.write_text(f"{LINE[:-1]} audit=syslog\n")
    host.dpkg("-r", "container-engine")
    assert [path.name for path in host.line.parent.iterdir()] == ["container-engine.conf.removed"]
    host.dpkg("-i", host.package("2"))
    assert "audit=syslog" in host.line.read_text()
    host.dpkg("--purge", "container-engine")
    assert not host.line.parent.exists() or not list(host.line.parent.iterdir())


def test_an_upgrade_asks_nothing_about_an_edited_line_and_keeps_it(host: Host) -> None:
    host.dpkg("-i", host.package("1"))
    host.line.write_text(f"{LINE[:-1]} seccomp=/etc/tasks.bpf\n")
    host.dpkg("-i", host.package("2", f"# changed\n{LINE}"))
    assert "seccomp=/etc/tasks.bpf" in host.line.read_text()


def test_a_line_that_the_site_deleted_does_not_come_back(host: Host) -> None:
    """The site has it elsewhere then; loaded twice, the plugin would refuse every environment."""
    host.dpkg("-i", host.package("1"))
    host.line.unlink()
    host.dpkg("-i", host.package("2"))
    assert not host.line.exists()


def test_the_rpm_takes_its_line_away_before_the_plugin() -> None:
    spec = (HERE / "rpm/container-engine.spec").read_text()
    before = spec.partition("%preun")[2].partition("%files")[0]
    assert '[ "$1" = 0 ]' in before
    assert 'mv "$line" "$line.rpmsave"' in before
    assert f"%config(noreplace,missingok) %{{_sysconfdir}}/{CONF.removeprefix('etc/')}" in spec

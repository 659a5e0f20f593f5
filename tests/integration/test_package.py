"""The Debian package of this release: complete, root's, and at home in its prefix."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PREFIX = "opt/container-engine"
# a mount namespace in which the unpacked package is where it wants to be
INSTALLED = 'mkdir -p "/$1" && mount --bind "$0/$1" "/$1" && shift && exec "$@"'


def run(*argv: str) -> str:
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(run("packaging/deb", str(tmp_path_factory.mktemp("deb"))).splitlines()[-1])


@pytest.fixture(scope="module")
def unpacked(package: Path) -> Path:
    root = package.parent / "root"
    run("dpkg-deb", "--extract", str(package), str(root))
    return root


def installed(unpacked: Path, argv: Sequence[str]) -> str:
    return run("unshare", "--mount", "sh", "-c", INSTALLED, str(unpacked), PREFIX, *argv)


def test_the_package_needs_the_python_and_the_slurm_it_was_built_for(package: Path) -> None:
    needs = run("dpkg-deb", "--field", str(package), "Depends")
    for wanted in ("python3 (>= 3.", "python3 (<< 3.", "slurm-client (<< ", "podman (>= 4.3)"):
        assert wanted in needs


def test_everything_in_the_package_is_roots_and_nobody_else_may_write_it(package: Path) -> None:
    for line in run("dpkg-deb", "--contents", str(package)).splitlines():
        mode, owner, *_rest = line.split()
        assert owner == "root/root", line
        assert mode[0] == "l" or (mode[5], mode[8]) == ("-", "-"), line
        assert "s" not in mode, line


def test_no_file_of_the_package_names_the_place_where_it_was_built(unpacked: Path) -> None:
    build = str(ROOT / "build").encode()
    files = [path for path in unpacked.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) > 100
    assert [path for path in files if build in path.read_bytes()] == []


def test_the_unpacked_package_works_at_its_place(unpacked: Path) -> None:
    assert installed(unpacked, [f"/{PREFIX}/bin/ce", "--version"]).startswith("ce ")
    found = subprocess.run(
        [
            *("unshare", "--mount", "sh", "-c", INSTALLED, str(unpacked), PREFIX),
            *(f"/{PREFIX}/bin/ce", "doctor", "--node", "--json"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    findings = {entry["check"]: entry for entry in json.loads(found.stdout)["findings"]}
    for check in ("installation", "owner", "session directory"):
        assert findings[check]["state"] == "ok", findings[check]

"""Settings of the caller of make or pytest reach neither what is built nor what is tested."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
_HOSTILE = {
    "BUILD": "7",
    "CDPATH": "/:/usr",
    "GIT_DIR": "/nowhere",
    "LC_ALL": "tr_TR.UTF-8",
    "PYTEST_ADDOPTS": "--nonsense",
    "PYTHONPATH": "/nowhere",
    "SLURM_JOB_ID": "7",
    "TMPDIR": "/nowhere",
}


def _wanted(environment: dict[str, str]) -> dict[str, str]:
    left = {name: value for name, value in environment.items() if name not in _HOSTILE}
    return left | {"LANG": "C.UTF-8"}


def test_recipes_of_make_see_no_settings_of_the_caller(tmp_path: Path) -> None:
    """Nor does its umask take what is installed from others."""
    recipe = "show: ; @env -0; umask\n"
    makefile = tmp_path / "makefile"
    makefile.write_text(f"include Makefile\n{recipe}")
    usual = {"PATH": os.environ["PATH"], "HTTPS_PROXY": "http://proxy", "CI": "true"}
    done = subprocess.run(
        ["make", "-s", "-f", str(makefile), "show"],
        cwd=ROOT,
        env=usual | _HOSTILE,
        umask=0o077,
        capture_output=True,
        text=True,
        check=True,
    )
    *entries, umask = done.stdout.split("\0")
    seen = dict(entry.split("=", 1) for entry in entries)
    assert int(umask, 8) == 0o022
    assert not seen.keys() & _HOSTILE.keys()
    assert _wanted(usual).items() <= seen.items()


def test_tests_see_no_settings_of_the_caller() -> None:
    script = (
        "import os, tests.conftest, tempfile; os.write(1, repr(dict(os.environ)).encode());"
        "assert os.umask(0) == 0o022; assert tempfile.gettempdir() == '/tmp'"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=_HOSTILE | {"HTTPS_PROXY": "http://proxy"},
        umask=0o077,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == repr({"HTTPS_PROXY": "http://proxy", "LANG": "C.UTF-8"})


def test_no_name_of_a_temporary_directory_looks_like_a_token(tmp_path: Path) -> None:
    """Such a path is neither shown nor cached, on which other tests count."""
    names = {Path(tempfile.mkdtemp(dir=tmp_path)).name for _ in range(100)}
    assert all(name.isalnum() for name in names)

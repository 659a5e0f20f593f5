"""A test that hangs ends its run, and is named."""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_test_that_hangs_ends_the_run_which_has_failed(tmp_path: Path) -> None:
    test = tmp_path / "test_hang.py"
    test.write_text(
        "def test_that_waits() -> None:\n    input_of = __import__('threading').Event()\n"
        "    input_of.wait()\n"
    )
    settings = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    limit = ["-o", "faulthandler_timeout=1", "-o", f"cache_dir={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *settings, *limit, str(test)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "in test_that_waits" in done.stderr


def test_every_run_has_a_limit() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert 0 < settings["faulthandler_timeout"] <= 900

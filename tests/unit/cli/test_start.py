"""ce-start: what it keeps from Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# With these, Python takes its standard library from elsewhere, even if started with -I.
_CHOOSING = ("PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__")


@pytest.mark.parametrize("name", _CHOOSING)
def test_a_variable_chooses_the_code_of_an_isolated_python(name: str) -> None:
    """Otherwise the test below would prove nothing."""
    argv = [os.path.realpath(sys.executable), "-I", "-c", "import sys; print(sys.executable)"]
    seen = subprocess.run(argv, env={name: "/nowhere/python3"}, capture_output=True, text=True)
    assert seen.stdout == "/nowhere/python3\n"


@pytest.mark.parametrize("name", _CHOOSING)
def test_no_variable_chooses_the_code_of_the_planner(
    prefix: Path, tmp_path: Path, name: str
) -> None:
    text = tmp_path / "own.toml"
    text.write_text('image = ""\n')
    plan = str(prefix / "libexec/container-engine/plan")
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], name: "/nowhere/python3"}
    done = subprocess.run([plan, "--", str(text)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "this runs on the host" in done.stderr

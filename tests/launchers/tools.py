"""Others' launchers, each in a virtual environment of its own, with every package pinned."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

_REQUIREMENTS = Path(__file__).parent / "requirements"


def place() -> Path:
    """Return the directory of the environments, which every user of the sandbox can read."""
    return Path(os.environ.get("CE_SANDBOX_DIR", "/var/lib/ce-sandbox")) / "cache/launchers"


def installed(name: str) -> Path:
    """Return the environment of a launcher; install it if its pins have changed."""
    pins = _REQUIREMENTS / f"{name}.txt"
    target = place() / name
    mark = target / ".installed"
    identity = hashlib.sha256(pins.read_bytes()).hexdigest()
    if not mark.exists() or mark.read_text() != identity:
        shutil.rmtree(target, ignore_errors=True)
        place().mkdir(mode=0o755, parents=True, exist_ok=True)
        # the image's Python has this path, too, and runs what is installed here
        _run("/usr/bin/python3", "-m", "venv", target)
        pip = (target / "bin/python", "-m", "pip", "install", "--quiet", "--no-deps")
        _run(*pip, "setuptools<80", "wheel")
        _run(*pip, "--requirement", pins)
        mark.write_text(identity)
    return target


def vetnode_suite(good: str) -> str:
    """Return a suite of vetnode that one node alone passes."""
    return f"""\
name: only {good}
scheduler: slurm
evals:
  - name: variables
    type: vetnode.evaluations.env_var_eval.EnvVarEval
    expected: {{ SLURMD_NODENAME: {good} }}
"""


def _run(*words: str | Path) -> None:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{words[0]}: {done.stderr.strip() or done.stdout.strip()}")

"""The one environment in which all EDFs of these tests are loaded."""

from pathlib import Path

from container_engine.edf.load import Setting, load
from container_engine.edf.locate import search_path
from container_engine.edf.model import Loaded

DATA = Path(__file__).parents[2] / "data" / "edf"
ENV = {
    "HOME": "/home/user",
    "USER": "user",
    "SCRATCH": "/scratch/user",
    "EMPTY": "",
    "PATH": "/host/bin",
    "COLON": "/co:lon",
    "MARKED": "$HOME ${HOME} $(id) `id` \"';",
}
CWD = "/work/dir"


def is_deferred(name: str) -> bool:
    return name.startswith("SLURM_")


def load_edf(name: str | Path, cwd: str | Path = CWD, **env: str) -> Loaded:
    """Load an EDF with the variables above and those given; names are found in EDF_PATH."""
    known = ENV | env
    search = search_path(known, ("/nonexistent/etc/edf",))
    return load(str(name), Setting(known, str(cwd), is_deferred), search)[0]


def write(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def seen(loaded: Loaded, directory: Path) -> str:
    """Return the problems as `ce validate` prints them, without the directory."""
    return "".join(problem.text for problem in loaded.problems).replace(f"{directory}/", "")

"""The way of an environment's name to its plan: few files, and hardly a call back up.

A file is on the way if one of its functions gets or returns the name, the path that it stands for,
what the file says, the effective environment or the plan. Files that only define these are not
counted, and neither is the command line's parser.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from container_engine.cli.main import main
from tests.unit import squashfs
from tests.unit.test_import_graph import LEVELS, PACKAGE

CARRIERS = {
    *("Namespace", "Document", "Reader", "Layer", "EdfFile", "Loaded", "Edf", "Built"),
    *("LaunchPlan", "Prepared"),
}
NOT_COUNTED = {
    "cli/command_line/parser.py",
    "edf/layer.py",
    "edf/model.py",
    "plan/model.py",
    "base/model.py",
}


def file_of(frame: FrameType) -> str:
    return frame.f_code.co_filename.removeprefix(f"{PACKAGE}/")


def level(file: str) -> int:
    return LEVELS["container_engine"][file.partition("/")[0].removesuffix(".py")]


class Way:
    """The files through which the given texts, and the objects made of them, pass."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts
        self.files: dict[str, None] = {}
        self.up: set[tuple[str, str]] = set()
        self.site_reads = 0

    def carries(self, value: object) -> bool:
        if isinstance(value, tuple) and len(value) < 4:
            return any(map(self.carries, value))
        return value in self.texts if isinstance(value, str) else type(value).__name__ in CARRIERS

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code, file = frame.f_code, file_of(frame)
        if not code.co_filename.startswith(f"{PACKAGE}/") or code.co_name.startswith("<"):
            return
        if event == "call":
            self.called(frame, file)
            number = code.co_argcount + code.co_kwonlyargcount
            values = [frame.f_locals.get(name) for name in code.co_varnames[:number]]
        else:
            values = [argument] if event == "return" else []
        if file not in NOT_COUNTED and any(map(self.carries, values)):
            self.files[file] = None

    def called(self, frame: FrameType, file: str) -> None:
        self.site_reads += (file, frame.f_code.co_name) == ("site/load.py", "read")
        caller = frame.f_back
        while caller and not caller.f_code.co_filename.startswith(f"{PACKAGE}/"):
            caller = caller.f_back
        if caller and level(file) < level(file_of(caller)):
            self.up.add((file_of(caller), file))


@contextmanager
def watched(way: Way) -> Iterator[None]:
    sys.setprofile(way)
    try:
        yield
    finally:
        sys.setprofile(None)


@pytest.fixture
def way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Way:
    image = squashfs.make(tmp_path / "i.sqsh", {"etc/x": ""})
    (tmp_path / "base.toml").write_text(f'image = "{image}"\nmounts = ["/tmp:/tmp"]\n')
    own = tmp_path / "my-env.toml"
    own.write_text('base_environment = "base"\n[env]\nA = "${HOME}"\n')
    (tmp_path / "site.conf").write_text("start_timeout_s = 100\n")
    for name in ("EDF_PATH", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    found = Way(own.stem, str(own))
    words = ["--site", str(tmp_path / "site.conf"), "plan", "--json", own.stem]
    with watched(found):
        assert main(words) == 0
    return found


def test_a_name_becomes_a_plan_in_few_files(way: Way) -> None:
    assert len(way.files) <= 15, list(way.files)


def test_hardly_a_call_goes_back_up(way: Way) -> None:
    """A model checks its own values."""
    assert len(way.up) <= 1, way.up


def test_the_sites_configuration_is_read_once(way: Way) -> None:
    assert way.site_reads == 1

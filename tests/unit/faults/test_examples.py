"""The examples on the pages of errors: what was written prints what is seen, what to write passes.

A line is written into ~/.edf/train.toml and planned; a command is typed. ELSEWHERE are those that
need more than that, with the test that provokes them.
"""

import os
import re
import shlex
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.cli.main import main
from docs.errors import EXAMPLES
from tests.unit import squashfs

Capture = pytest.CaptureFixture[str]

TESTS = Path(__file__).parents[2]
NODE, SRUN, REGISTRY = "a node prints it", "the plugin of srun prints it", "a registry answers"
OF_NODES = "tests/slurm/test_catalogue_node.py"
OF_IMAGES = "tests/slurm/test_catalogue_image.py"
ELSEWHERE = {
    "image-file-unreadable": ("root reads every file", OF_IMAGES),
    "untrusted-file": ("only root can give a file away", "tests/unit/edf/test_locate.py"),
    "environment-too-large": (NODE, OF_NODES),
    "variable-on-node": (NODE, OF_NODES),
    "container-name": (NODE, "tests/slurm/test_kept.py"),
    "container-option": (SRUN, "tests/slurm/test_container_options.py"),
    "image-unknown": (REGISTRY, OF_IMAGES),
    "registry-login": (REGISTRY, OF_IMAGES),
    "registry-limit": (REGISTRY, OF_IMAGES),
    "image-architecture": (REGISTRY, OF_IMAGES),
    "image-format": (REGISTRY, OF_IMAGES),
    "store-full": ("a file system is full", OF_IMAGES),
    "store-busy": ("another import waits", OF_IMAGES),
    "mount-source-missing": (NODE, OF_NODES),
    "mount-destination": (NODE, OF_NODES),
    "image-path": (NODE, OF_NODES),
    "virtual-environment": ("needs an image with Python", "tests/integration/test_venvs.py"),
    "command-not-found": (NODE, OF_NODES),
    "command-not-executable": (NODE, OF_NODES),
    "mpirun-inside": (NODE, "tests/slurm/test_mpi.py"),
    "pmix-root": (NODE, "tests/slurm/test_mpi.py"),
    "workdir-missing": (NODE, OF_NODES),
    "container-save": (NODE, "tests/slurm/test_save.py"),
    "entrypoint-ended": (NODE, "tests/integration/test_start.py"),
    "startup-failed": (NODE, OF_NODES),
    "container-limit": (NODE, "tests/slurm/test_limits.py"),
    "pyxis-too": (SRUN, "tests/slurm/test_container_options.py"),
    "environment-twice": (SRUN, "tests/slurm/test_nested_slurm.py"),
    "container-of-slurm": (SRUN, "tests/slurm/test_bad_input.py"),
    "components-differ": (SRUN, "tests/slurm/test_catalogue_edf.py"),
    "step-async": (
        "needs Slurm 26.05 with its step manager",
        "spank_plugin/tests/plugin/test_plugin.c",
    ),
    "task-prolog": (SRUN, "tests/slurm/test_without_plugin.py"),
    "planner-killed": (SRUN, "tests/slurm/test_bad_input.py"),
}
# Where a page has words in place of a line.
LINES = {
    "a file without image": "",
    "a value of 140000 bytes in [env]": f'X = "{"x" * 139998}"  # in [env]',
}
# What mends it needs Podman, a registry or a copy, or is to leave something out.
NOT_MENDED = {
    "edf-too-large",
    "image-build",
    "image-damaged",
    "image-not-in-store",
    "variable-too-large",
}
_LINE = re.compile(r"[\w.]+ = .*")
_SPAN = re.compile(r"`([^`]+)`")


def _archive(_user: "User") -> None:
    with tarfile.open("train.tar", "w") as archive:
        archive.add(__file__, "etc/x")


def _part(_user: "User") -> None:
    Path("part.sqsh").write_bytes(Path("train.sqsh").read_bytes()[:150])


def _lock(user: "User") -> None:
    squashfs.make(Path("more.sqsh").absolute(), {"etc/y": ""})
    user.does("writable = true")
    user.arguments = ["lock", "train"]
    assert user.sees()[0] == 0


def _hook(_user: "User") -> None:
    hook = Path("../site/hooks/writer/hook.toml").resolve()
    hook.parent.mkdir(parents=True)
    Path("../site/config.toml").write_text(f'hook_catalog = ["{hook.parents[1]}"]\n')
    hook.write_text('summary = "w"\nhelp = "h"\ndefault = "required"\nrequires.writable = true\n')


def _remove(user: "User") -> None:
    user.write("writable = true")
    os.chdir("gone")
    Path("../gone").rmdir()


def _large(_user: "User") -> None:
    Path("large.toml").write_bytes(b"#" * (2 << 20))


def _base(_user: "User") -> None:
    Path("base.toml").touch()


def _trained(user: "User") -> None:
    user.does("writable = true")


PREPARED: dict[str, Callable[["User"], None]] = {
    "environment-not-found": _trained,
    "edf-too-large": _large,
    "edf-inheritance": _base,
    "image-not-squashfs": _archive,
    "image-damaged": _part,
    "image-lock": _lock,
    "hook-refused": _hook,
    "current-directory": _remove,
}


class User:
    """A user who writes train.toml and types commands, in the directory of environments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, said: Capture) -> None:
        self.patch, self.said = monkeypatch, said
        self.site, self.table = str(Path("../site/config.toml").resolve()), ""
        self.arguments = ["images"]

    def does(self, text: str) -> bool:
        """Do what is in a span of code; return False for one that is only a name."""
        if text == "" or _LINE.fullmatch(text):
            self.write(text)
            self.arguments = ["plan", "train"]
            return True
        words = shlex.split(text, comments=True)
        if named := re.search(r"--environment=(\S+)", text):
            self.arguments = ["plan", named[1]]
        elif words[0] == "ce":
            self.arguments = words[1:]
        elif words[0] == "unset":
            for name in words[1:]:
                self.patch.delenv(name, raising=False)
        elif words[0] == "export":
            name, _, value = words[1].partition("=")
            self.patch.setenv(name, value.replace("/scratch/$USER", str(Path.cwd().parent)))
        elif words[0] == "cd":
            os.chdir(Path(words[1]).expanduser())
        else:
            return False
        return True

    def write(self, text: str) -> None:
        """Write train.toml with these lines, and an image if they have none."""
        self.table = "[env]" if "# in [env]" in text else self.table
        lines = text.split(" and ") if text else []
        if text and not text.startswith("image ="):
            lines.insert(0, self.table)
            lines.insert(0, 'image = "./train.sqsh"')
        if lines and lines[-1].startswith("com."):
            lines.insert(1, "[annotations]")
        Path("train.toml").write_text("\n".join(lines), encoding="utf-8")

    def sees(self) -> tuple[int, str]:
        """Run `ce`; return its exit code, and what it prints but for the plan."""
        self.said.readouterr()
        code = main(["--site", self.site, *self.arguments])
        return code, self.said.readouterr().err


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> User:
    here = tmp_path / ".edf"
    (here / "gone").mkdir(parents=True)
    (tmp_path / "site").mkdir()
    (tmp_path / "site/config.toml").touch()
    (here / "train.sqsh").hardlink_to(squashfs.make(tmp_path / "train.sqsh", {"etc/x": ""}))
    for name in ("EDF_PATH", "EDF_IMAGESTORE", "IMAGE", "SCRATCH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": tmp_path, "PWD": here}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.chdir(here)
    return User(monkeypatch, capsys)


def _pattern(see: str) -> str:
    """Return what matches a message, whatever is in place of `…`, `DIR`, `N` and large numbers."""
    return re.sub(r"…|\bDIR\b|\bN\b|\d{5,}", ".+", re.escape(see))


def test_each_example_is_provoked_here_or_by_a_test_that_is_named() -> None:
    assert [code for code in ELSEWHERE if code not in EXAMPLES] == []
    for code, (_reason, test) in ELSEWHERE.items():
        text = (TESTS.parent / test).read_text(encoding="utf-8")
        in_c = f"CE_HELP_{code.replace('-', '_').upper()}"
        words = (f'"{code}"', f"ce help {code}", in_c, EXAMPLES[code]["see"])
        assert any(word in text for word in words), f"{test}: {code}"


@pytest.mark.parametrize("code", [code for code in EXAMPLES if code not in ELSEWHERE])
def test_what_was_written_prints_what_is_seen_and_what_to_write_passes(
    user: User, code: str
) -> None:
    home = str(Path.cwd().parent)
    wrote, see, write = (EXAMPLES[code][x].replace("/home/alice", home) for x in EXAMPLES[code])
    if code in PREPARED:
        PREPARED[code](user)
    assert user.does(LINES.get(wrote, wrote))
    _exit_code, said = user.sees()
    assert re.search(_pattern(see), said), said
    assert f"ce help {code}" in said or "ce: warning: " in said
    spans = () if code in NOT_MENDED else _SPAN.findall(write)
    tried = [_mended(user, span, _pattern(see)) for span in spans if user.does(span)]
    assert tried or code in NOT_MENDED


def _mended(user: User, span: str, see: str) -> str:
    """Check that `ce` passes after what was done; return that."""
    if span.startswith("image =") and "sqsh" not in span:
        user.arguments[0] = "validate"  # which asks no registry
    exit_code, said = user.sees()
    assert (exit_code, re.search(see, said)) == (0, None), said
    return span

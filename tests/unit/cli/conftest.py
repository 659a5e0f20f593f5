import os
import shutil
import subprocess
import sysconfig
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.unit.cli.warm import Warm

SOURCES = Path(__file__).parents[3]


class Installed(NamedTuple):
    """An installation of `ce`, and the home of its user."""

    prefix: Path
    home: Path
    warm: Warm

    def run(
        self, *argv: str, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program, which may be `ce`, in a new process that shares no imports."""
        return subprocess.run(
            argv,
            env=self._environment(env),
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def ce(
        self, *words: str, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run `ce` in a process of its own that need not import what others have imported."""
        argv = [str(self.prefix / "bin/ce"), *words]
        return self.warm.run(argv, self._environment(env), self.home)

    def _environment(self, env: dict[str, str] | None) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": os.environ["PATH"], **(env or {})}

    def quick(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(str(self.prefix / "libexec/container-engine/plan"), *words)


def _script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory, ce_start: Path) -> Path:
    """Install `ce` as `make install` does, but with these sources and this Python's packages."""
    prefix = tmp_path_factory.mktemp("prefix")
    venv.EnvBuilder(symlinks=True).create(prefix)
    (prefix / "libexec").mkdir()
    (prefix / "libexec/python3").symlink_to((prefix / "bin/python3").resolve())
    for link in prefix.glob("bin/python*"):
        link.unlink()
    (packages,) = prefix.glob("lib/python3*/site-packages")
    (packages / "sources.pth").write_text(f"{SOURCES}\n{sysconfig.get_path('purelib')}\n")
    start = (
        "import sys\nfrom container_engine.base.variables import take_back\ntake_back()\n"
        "from container_engine.cli.main import main\nsys.exit(main())\n"
    )
    _script(prefix / "bin/ce", f"#!{prefix}/libexec/python3\n{start}")
    place = prefix / "libexec/container-engine"
    _script(place / "python/ce", start)
    shutil.copy(ce_start, place / "ce-start")
    (place / "plan").symlink_to("ce-start")
    return prefix


@pytest.fixture(scope="session")
def warm(prefix: Path) -> Iterator[Warm]:
    process = Warm(prefix / "libexec/python3")
    yield process
    process.close()


@pytest.fixture
def installed(
    prefix: Path, warm: Warm, tmp_path: Path, need_tool: Callable[[str], str]
) -> Installed:
    need_tool("mksquashfs")
    need_tool("unsquashfs")
    return Installed(prefix, tmp_path, warm)

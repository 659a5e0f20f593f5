"""Files of the measurements: below one directory of the user, in memory."""

import json
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ce_sandbox.layout import Layout
from tests.bench.user import BenchError

ENVIRONMENT = "demo"
_SOURCES = Path(__file__).parent


@dataclass(frozen=True)
class Place:
    """Paths of the measurements.

    `dir` is the user's; `image` is the SquashFS file that everything starts, `root` the same files
    unpacked in memory.
    """

    dir: Path
    image: Path
    prefix: Path

    @property
    def worker(self) -> Path:
        return self.dir / "worker.py"

    @property
    def by_hand(self) -> Path:
        return self.dir / "by-hand"

    @property
    def root(self) -> Path:
        return self.dir / "root"

    @property
    def session(self) -> Path:
        """An empty directory for the mounts that are made by hand."""
        return self.dir / "session"

    @property
    def podman(self) -> Path:
        """The directory for the store and state of usual rootless Podman."""
        return self.dir / "podman"

    @property
    def bundle(self) -> Path:
        return self.dir / "bundle"

    @property
    def four_levels(self) -> Path:
        """An EDF with three levels of bases; the last is the environment used elsewhere."""
        return self.dir / "levels" / "1.toml"

    @property
    def by_podman(self) -> Path:
        """The same environment, whose containers Podman creates."""
        return self.dir / "podman.toml"

    @property
    def node(self) -> Path:
        return self.prefix / "libexec" / "container-engine" / "ce-guard"

    @property
    def plan(self) -> Path:
        return self.prefix / "libexec" / "container-engine" / "plan"


@contextmanager
def place(layout: Layout) -> Iterator[Place]:
    """Create all files, and remove them at the end."""
    user = pwd.getpwnam(layout.users[0])
    with tempfile.TemporaryDirectory(prefix="ce-bench-", dir="/dev/shm") as name:
        here = Place(Path(name), layout.images / f"{ENVIRONMENT}.sqsh", layout.prefix)
        here.dir.chmod(0o755)
        shutil.copy(_SOURCES / "worker.py", here.worker)
        _command("gcc", "-O2", "-o", str(here.by_hand), str(_SOURCES / "by_hand.c"))
        _command("unsquashfs", "-q", "-n", "-d", str(here.root), str(here.image))
        for directory in (here.session, here.bundle, here.podman / "home", here.podman / "xdg"):
            directory.mkdir(mode=0o700, parents=True)
        here.by_podman.write_text(
            f'base_environment = "{ENVIRONMENT}"\nannotations.com.ce.start = "podman"\n'
        )
        _write_levels(here.four_levels.parent)
        (here.bundle / "config.json").write_text(json.dumps(_oci_configuration(here)))
        for path in (here.dir, *here.dir.rglob("*")):
            os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
        yield here


def _write_levels(directory: Path) -> None:
    directory.mkdir()
    for level, base in enumerate(("${EDF_DIR}/2.toml", "${EDF_DIR}/3.toml", ENVIRONMENT), start=1):
        env = "".join(f'LEVEL_{level}_{i} = "${{HOME}}/{i}"\n' for i in range(20))
        mounts = f'mounts = ["/tmp:/level-{level}", "${{HOME}}:/home-{level}:ro"]'
        text = f'base_environment = "{base}"\n{mounts}\n[env]\n{env}'
        (directory / f"{level}.toml").write_text(text)


def _command(*argv: str) -> None:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"{' '.join(argv)}: {done.stderr.strip()}")


def _oci_configuration(here: Place) -> dict[str, object]:
    """Return the smallest configuration that crun accepts for a container like ours."""
    return {
        "ociVersion": "1.0.0",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": ["sleep", "infinity"],
            "cwd": "/",
            "env": ["PATH=/usr/bin:/bin"],
        },
        "root": {"path": str(here.session / "root")},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
            {"destination": "/sys", "type": "none", "source": "/sys", "options": ["rbind", "ro"]},
        ],
        "linux": {"namespaces": [{"type": "mount"}, {"type": "pid"}]},
    }

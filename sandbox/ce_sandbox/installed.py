"""Whether the sandbox has the engine of the working tree. Prints what identifies the tree's."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from ce_sandbox.layout import Layout

ROOT = Path(__file__).resolve().parents[2]
# All that `make install` reads; of a directory all but tests and what was built there.
_SOURCES = (
    *("Makefile", "pyproject.toml", "LICENSE", "container_engine", "spank_plugin", "hooks"),
    *("docs/manual.py", "docs/guide/errors", "docs/guide/topics", "packaging/apparmor.in"),
)
_OTHERS = {"tests", "__pycache__"}
_BUILT = {".o", ".so", ".pyc"}


def sources(root: Path = ROOT) -> str:
    """Identify what would be installed from `root`: by names, modes and content."""
    told = hashlib.sha256()
    for path in sorted(_files(root)):
        mode = "x" if path.stat().st_mode & 0o100 else "-"
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        told.update(f"{path.relative_to(root)} {mode} {content}\n".encode())
    return told.hexdigest()


def is_current(layout: Layout, root: Path = ROOT) -> bool:
    """Whether `make sandbox-engine` has installed what `root` is now."""
    try:
        return (layout.prefix / ".sources").read_text().strip() == sources(root)
    except FileNotFoundError:
        return False


def _files(root: Path) -> Iterator[Path]:
    for name in _SOURCES:
        path = root / name
        yield from _below(path) if path.is_dir() else [path]


def _below(directory: Path) -> Iterator[Path]:
    for path in directory.iterdir():
        if path.name.startswith(".") or path.name in _OTHERS or path.suffix in _BUILT:
            continue
        yield from _below(path) if path.is_dir() else [path]


if __name__ == "__main__":
    print(sources())

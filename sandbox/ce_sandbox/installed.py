"""Identify the engine's sources, and check whether the sandbox has this engine installed.

As a script it prints the identity of the working tree.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from ce_sandbox.layout import Layout

ROOT = Path(__file__).resolve().parents[2]
# Everything that `make install` reads; in directories, all but tests and build outputs.
_SOURCES = (
    *("Makefile", "pyproject.toml", "LICENSE", "container_engine", "spank_plugin", "hooks"),
    *("docs/manual.py", "docs/guide/errors", "docs/guide/topics", "packaging/apparmor.in"),
)
_OTHERS = {"tests", "__pycache__"}
_BUILT = {".o", ".so", ".pyc"}


def sources(root: Path = ROOT) -> str:
    """Return the identity of what would be installed from `root`: names, modes and content."""
    digest = hashlib.sha256()
    for path in sorted(_files(root)):
        mode = "x" if path.stat().st_mode & 0o100 else "-"
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(root)} {mode} {content}\n".encode())
    return digest.hexdigest()


def is_current(layout: Layout, root: Path = ROOT) -> bool:
    """Check whether `make sandbox-engine` has installed the current state of `root`."""
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

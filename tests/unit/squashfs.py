"""Real SquashFS files for the tests."""

import subprocess
from collections.abc import Mapping
from pathlib import Path


def make(image: Path, files: Mapping[str, str]) -> Path:
    """Write `image` with these files (path: content)."""
    tree = image.parent / f"{image.name}.tree"
    for name, content in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    tree.mkdir(exist_ok=True)
    command = [
        "mksquashfs",
        str(tree),
        str(image),
        "-all-root",
        "-quiet",
        "-no-progress",
        "-noappend",
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return image

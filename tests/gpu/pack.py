"""Find the machine's PyTorch and pack an image of the machine with it."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.gpu.cluster import PREFIX, PYTHON, STATE, StepError

HERE = Path(__file__).parents[2]
CANDIDATES = ("/opt/*/bin/python3", "/opt/*/.venv/bin/python3", "/opt/*/*/bin/python3")
OTHERS = ("/usr/local/bin/python3*", "/root/*/bin/python3", "/home/*/*/bin/python3")
HAS = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
VERSION = (
    "import sys, importlib.util as u; t = u.find_spec('torch') and __import__('torch');"
    "print('Python', sys.version.split()[0] + ';',"
    " f'PyTorch {t.__version__}, CUDA {t.version.cuda}' if t else 'no PyTorch')"
)
# Prints where the interpreter's files are, and entries of site-packages that PyTorch does not need.
CLOSURE = """
import importlib.metadata as m, json, os, re, sys, sysconfig
known = {re.sub('[-_.]+', '-', d.metadata['Name'] or '').lower(): d for d in m.distributions()}
wanted, new = set(), ['torch', 'numpy', 'nvidia-ml-py', 'setuptools']
while new:
    name = re.sub('[-_.]+', '-', new.pop()).lower()
    if name in known and name not in wanted:
        wanted.add(name)
        new += [re.match('[A-Za-z0-9._-]+', r).group() for r in known[name].requires or ()]
tops = {}
for name, d in known.items():
    for file in d.files or ():
        if file.parts[0] not in ('..', '__pycache__'):
            tops.setdefault(str(d.locate_file(file.parts[0])), set()).add(name in wanted)
print(json.dumps({
    'needed': sorted({sys.prefix, sys.base_prefix, os.path.realpath(sys.executable)}),
    'left_out': sorted(path for path, uses in tops.items() if uses == {False}),
}))
"""
# Contents of these do not belong into an image, or come from the driver.
EMPTIED = (
    *("proc", "sys", "dev", "run", "tmp", "mnt", "media", "boot", "root", "home", "work"),
    *("scratch", "var/lib/ce-gpu", "var/cache", "var/tmp", "var/log", "usr/share/doc"),
    *("usr/share/man", "usr/src", "usr/local/nvidia", "opt/nvidia", "etc/slurm", "etc/munge"),
    *("usr/local/cuda*", "usr/lib/firmware", "usr/lib/modules"),
)
DRIVER = ("usr/lib/*/libcuda.so*", "usr/lib/*/libcudadebugger.so*", "usr/lib/*/libnvidia-*")
OPTIONS = ("-noappend", "-no-progress", "-no-xattrs", "-quiet", "-comp", "zstd", "-b", "256K")


def is_elf(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def find_python() -> str:
    """Return a Python with PyTorch, the one in PATH first; else the archive's own."""
    found = [shutil.which("python3") or PYTHON]
    for pattern in (*CANDIDATES, *OTHERS):
        found += sorted(str(path) for path in Path("/").glob(pattern[1:]))
    env = {"PATH": "/usr/bin:/bin"}
    for path in found:
        if (
            os.access(path, os.X_OK)
            and not subprocess.run([path, "-c", HAS], env=env, capture_output=True).returncode
        ):
            return path
    return PYTHON


def exclusions(needed: Sequence[str]) -> Iterator[str]:
    """Yield patterns of what is not packed, never a directory of the interpreter."""
    for name in (*EMPTIED, PREFIX[1:], str(HERE)[1:]):
        if not any(f"{path}/".startswith(f"/{name}/") for path in needed):
            yield from (f"{name}/*", f"{name}/.*")
    yield from DRIVER


def pack(python: str, image: Path) -> None:
    """Pack the machine's root directory, or without PyTorch that of the archive."""
    if python == PYTHON:
        pack_small(image)
        return
    done = subprocess.run([python, "-c", CLOSURE], capture_output=True, text=True)
    found = json.loads(done.stdout) if done.returncode == 0 else {"needed": [python]}
    left_out = [path[1:] for path in found.get("left_out", ()) if "[" not in path]
    excluded = [*exclusions(found["needed"]), *left_out]
    squash("/", image, "-Xcompression-level", "3", "-wildcards", "-e", *excluded)


def pack_small(image: Path) -> None:
    with tempfile.TemporaryDirectory(dir=STATE) as root:
        for name in ("small", "site"):
            more = ["--exclude=slurm-wlm"] if name == "site" else []
            argv = ["tar", "-C", root, "--no-same-owner", *more, "-xJf", f"{HERE}/{name}.tar.xz"]
            subprocess.run(argv, check=True)
        squash(root, image, "-Xcompression-level", "1", "-all-root")


def squash(source: str, image: Path, *options: str) -> None:
    argv = ["mksquashfs", source, str(image), *OPTIONS, *options]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode or not image.exists():
        raise StepError(f"mksquashfs: {done.stderr[-500:]}")
    image.chmod(0o644)

"""Small shared libraries, images that have them, and hooks that name them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.integration.engine import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.integration.engine import Engine

TRIPLE = f"{os.uname().machine}-linux-gnu"
_PROBE = Path(__file__).with_name("dlprobe.c")


def run(*argv: str | Path) -> str:
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


def build(
    path: Path,
    soname: str = "",
    *,
    says: str = "",
    symbol: str = "",
    versions: Sequence[str] = (),
    needs: Sequence[Path] = (),
    wants: Sequence[str] = (),
    flags: Sequence[str] = (),
) -> Path:
    """Build a shared library at `path`. `symbol` is a function that returns `says`.

    `versions` are symbol versions that it offers, each with a function of its own (`f_VERSION`);
    `wants` are functions of `needs` that it calls.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f'const char *{symbol}(void) {{ return "{says}"; }}'] if symbol else []
    lines += [f"int f_{name(version)}(void) {{ return 1; }}" for version in versions]
    lines += [f"int {function}(void);" for function in wants]
    calls = " + ".join(f"{function}()" for function in wants) or "0"
    lines.append(f"int use_{name(path.name)}(void) {{ return {calls}; }}")
    script = path.with_suffix(".map")
    body, before = "", ""
    for version in versions:
        body += f"{version} {{ global: f_{name(version)}; }} {before};\n"
        before = version
    script.write_text(body)
    argv = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)]
    argv += [f"-Wl,-soname,{soname}"] if soname else []
    argv += [f"-Wl,--version-script={script}"] if versions else []
    argv += ["-x", "none", *map(str, needs), "-Wl,--allow-shlib-undefined", *flags]
    subprocess.run(argv, input="\n".join(lines), check=True, text=True)
    script.unlink()
    return path


def name(text: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in text)


@dataclass(frozen=True)
class Place:
    """A directory of root's: the node's own libraries, hooks and images of one module of tests."""

    dir: Path
    glibc: Path
    musl: Path

    @property
    def node(self) -> Path:
        """The directory of the node's libraries."""
        return self.dir / "node"

    def variant(self, label: str, base: Path | None = None) -> Path:
        """Copy an image's tree by hard links, so that the copy can be changed.

        Files must be replaced, not written to.
        """
        tree = self.dir / "trees" / label
        tree.parent.mkdir(exist_ok=True)
        run("cp", "-al", base or self.glibc, tree)
        return tree

    def squash(self, tree: Path) -> Path:
        image = self.dir / f"{tree.name}.sqsh"
        quick = ["-noI", "-noD", "-noF", "-noX", "-no-progress", "-quiet", "-all-root"]
        run("mksquashfs", tree, image, *quick)
        return image

    def hook(self, text: str, label: str = "fabric") -> None:
        directory = self.dir / "hooks.d" / label
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "hook.toml").write_text(f'summary = "s"\nhelp = "h"\n{text}')

    def engine(self, engine: Engine) -> Engine:
        return engine.with_site(f'hook_catalog = ["{self.dir}/hooks.d"]')


def edf_text(*hooks: str, mounts: Sequence[str | Path] = ()) -> str:
    """Return the text of an EDF that enables hooks; each mount is a path at the same place."""
    lines = [f"mounts = {json.dumps([f'{path}:{path}' for path in mounts])}", "[annotations]"]
    return "\n".join([*lines, *(f'com.hooks.{hook}.enabled = "true"' for hook in hooks)])


def unsquash(image: Path, tree: Path) -> Path:
    run("unsquashfs", "-quiet", "-no-progress", "-d", tree, image)
    return tree


def probe(directory: Path, compiler: str = "gcc") -> Path:
    """Build the program that opens a library as NCCL would, in this directory."""
    program = directory / f"dlprobe-{compiler}"
    libraries = ["-ldl"] if compiler == "gcc" else []
    run(compiler, "-O1", "-o", program, _PROBE, *libraries)
    return program


@contextmanager
def place_in(sandbox: Path) -> Iterator[Place]:
    """Create a place below the cache of the sandbox's directory; remove it at the end."""
    directory = Path(tempfile.mkdtemp(prefix="hooks-", dir=sandbox / "cache"))
    directory.chmod(0o755)
    try:
        images = [run(ROOT / "sandbox/make-image", kind).split()[-1] for kind in ("glibc", "musl")]
        glibc, musl = (
            unsquash(Path(image), directory / kind)
            for kind, image in zip(("glibc", "musl"), images, strict=True)
        )
        (directory / "node").mkdir()
        yield Place(directory, glibc, musl)
    finally:
        shutil.rmtree(directory)

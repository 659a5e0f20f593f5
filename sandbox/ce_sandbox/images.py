"""Small images made from distribution packages, as SquashFS files; no registry is needed."""

import hashlib
import os
import platform
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ce_sandbox import debian_image, mpi_images, packages
from ce_sandbox.layout import Layout, SandboxError

_PROBE = Path(__file__).resolve().parent.parent / "images" / "probe.c"
_DEMO_PACKAGES = [
    *(
        "bash",
        "coreutils",
        "dash",
        "findutils",
        "grep",
        "hostname",
        "mawk",
        "ncurses-base",
        "procps",
    ),
    *("python3", "sed", "util-linux"),
]
_PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
_GROUP = "root:x:0:\nnogroup:x:65534:\n"


@dataclass(frozen=True)
class Recipe:
    """A recipe for one image.

    `fill` writes its tree. Files keep their owners only if `owners` is set; the image file belongs
    to the sandbox's second user if `of_second` is set. When a file in `sources` changes, the image
    is built again.
    """

    what: str
    fill: Callable[[Layout, Path], None]
    owners: bool = False
    of_second: bool = False
    sources: tuple[Path, ...] = ()


def provide(layout: Layout, name: str) -> Path:
    """Return the image of this name; build it unless this recipe has already built it."""
    recipe = RECIPES[name]
    image = layout.images / f"{name}.sqsh"
    mark = layout.images / f".{name}.recipe"
    identity = _identity(recipe)
    if image.exists() and mark.exists() and mark.read_text() == identity:
        return image
    with tempfile.TemporaryDirectory(dir=layout.cache) as work:
        root = Path(work) / "root"
        root.mkdir(mode=0o755)
        recipe.fill(layout, root)
        new = Path(work) / "new.sqsh"
        _squash(root, new, recipe)
        if recipe.of_second:
            owner = pwd.getpwnam(layout.users[1])
            os.chown(new, owner.pw_uid, owner.pw_gid)
        new.rename(image)
    mark.write_text(identity)
    return image


def _identity(recipe: Recipe) -> str:
    """Return a hash of everything that can change an image, except newer packages."""
    sources = [Path(__file__), Path(packages.__file__), _PROBE, *recipe.sources]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest() + "\n"


def _squash(root: Path, image: Path, recipe: Recipe) -> None:
    squash = ["mksquashfs", str(root), str(image), "-noappend", "-quiet", "-no-progress"]
    compress = ["-comp", "zstd", "-Xcompression-level", "3"]
    owners = [] if recipe.owners else ["-all-root"]
    _checked([*squash, *compress, *owners])
    image.chmod(0o644)


def _demo(layout: Layout, root: Path) -> None:
    packages.unpack(_DEMO_PACKAGES, layout.cache / "packages", root)
    (root / "usr/bin/awk").symlink_to("mawk")
    _identify(root, "demo", f"Container Engine demo ({_host_name()} packages)")
    with (root / "etc/bash.bashrc").open("a") as bashrc:
        bashrc.write("PS1='[demo] \\u@\\h:\\w\\$ '\n")
    _checked(["ldconfig", "-r", str(root)])


def _busybox(layout: Layout, root: Path) -> None:
    """Write busybox alone, with a link for each of its commands."""
    with tempfile.TemporaryDirectory(dir=layout.cache) as work:
        packages.unpack(["busybox-static"], layout.cache / "packages", Path(work))
        busybox = Path(work) / "usr/bin/busybox"
        _skeleton(root)
        shutil.copy(busybox, root / "bin/busybox")
    for command in _checked([str(root / "bin/busybox"), "--list"]).split():
        if command != "busybox":
            (root / "bin" / command).symlink_to("busybox")
    _identify(root, "busybox", "Container Engine test (busybox)")


def _static(layout: Layout, root: Path) -> None:
    """Write one static program and no shell."""
    del layout
    _skeleton(root)
    _checked(["gcc", "-O1", "-static", "-o", str(root / "bin/probe"), str(_PROBE)])
    _identify(root, "static", "Container Engine test (no shell)")


def _glibc(layout: Layout, root: Path) -> None:
    """Write a shell and the loader's tools; tests of hooks turn this into images of all kinds."""
    names = ["bash", "coreutils", "libc-bin"]
    packages.unpack(names, layout.cache / "packages", root)
    _identify(root, "glibc", "Container Engine test (glibc)")
    (root / "bin/sh").unlink(missing_ok=True)
    (root / "bin/sh").symlink_to("bash")
    _checked(["ldconfig", "-r", str(root)])


def _musl(layout: Layout, root: Path) -> None:
    """Write busybox and musl's loader as in Alpine: no cache, no ldconfig, no search path file."""
    _busybox(layout, root)
    (root / "lib").mkdir()
    with tempfile.TemporaryDirectory(dir=layout.cache) as work:
        packages.unpack(["musl"], layout.cache / "packages", Path(work))
        (libc,) = Path(work).glob("usr/lib/*-linux-musl/libc.so")
        shutil.copy(libc, root / f"lib/ld-musl-{platform.machine()}.so.1")
    _identify(root, "musl", "Container Engine test (musl)")


def _setuid(layout: Layout, root: Path) -> None:
    """Write setuid and setgid programs of root, which must have no effect in a container."""
    _busybox(layout, root)
    for name, mode in (("id-setuid", 0o4755), ("id-setgid", 0o2755)):
        shutil.copy(root / "bin/busybox", root / "bin" / name)
        (root / "bin" / name).chmod(mode)


def _foreign(layout: Layout, root: Path) -> None:
    """Write files of other owners, some of them readable only by their owner."""
    _busybox(layout, root)
    for name, uid, mode in (("readable", 12345, 0o644), ("private", 12345, 0o640)):
        file = root / name
        file.write_text(f"{name}\n")
        file.chmod(mode)
        os.chown(file, uid, uid)


def _debian(layout: Layout, root: Path) -> None:
    """Write a system in which packages can be installed, from a directory of the image."""
    debian_image.fill(layout.cache / "packages", root)


def _mpi_recipe(mpi: mpi_images.Mpi) -> Recipe:
    what = f"{mpi.packages[0]} and /usr/bin/mpi-probe"
    return Recipe(what, partial(mpi_images.fill, mpi), sources=mpi_images.SOURCES)


RECIPES = {
    "demo": Recipe("bash, coreutils, Python and their like", _demo),
    "busybox": Recipe("busybox only", _busybox),
    "static": Recipe("one static program (/bin/probe), no shell, no libc", _static),
    "glibc": Recipe("bash, coreutils and the loader's tools", _glibc),
    "musl": Recipe("busybox and musl's loader", _musl),
    "setuid": Recipe("busybox, with setuid and setgid files owned by root", _setuid),
    "foreign": Recipe(
        "files of other owners, image file of the second user",
        _foreign,
        owners=True,
        of_second=True,
    ),
    "debian": Recipe(
        "apt, dpkg and packages to install, for tests of root in a container",
        _debian,
        owners=True,
        sources=debian_image.SOURCES,
    ),
    **{name: _mpi_recipe(mpi) for name, mpi in mpi_images.BY_NAME.items()},
}


def _skeleton(root: Path) -> None:
    for name in ("bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "usr", "var"):
        (root / name).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)


def _identify(root: Path, ident: str, pretty: str) -> None:
    """Name the image in its os-release, so that nobody takes it for the host."""
    release = root / "etc/os-release"
    release.unlink(missing_ok=True)
    release.write_text(f'PRETTY_NAME="{pretty}"\nNAME="Container Engine"\nID=ce-{ident}\n')
    (root / "etc/passwd").write_text(_PASSWD)
    (root / "etc/group").write_text(_GROUP)


def _host_name() -> str:
    release = platform.freedesktop_os_release()
    return f"{release['NAME'].removesuffix(' GNU/Linux')} {release.get('VERSION_ID', '')}".strip()


def _checked(argv: list[str]) -> str:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise SandboxError(f"{argv[0]}: {lines[-1]}", f"by hand: {' '.join(argv)}")
    return done.stdout

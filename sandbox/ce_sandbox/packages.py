"""Unpack distribution packages into a directory; the installed system is not touched."""

import subprocess
from pathlib import Path

from ce_sandbox.layout import SandboxError

# Not needed in a small image.
_LEFT_OUT = (
    "./usr/share/doc",
    "./usr/share/info",
    "./usr/share/locale",
    "./usr/share/man",
    "./usr/share/perl*",
    "./usr/lib/*/gconv",
    "./usr/lib/*/perl*",
)


def unpack(names: list[str], cache: Path, root: Path, *, whole: bool = False) -> list[Path]:
    """Unpack packages and all their dependencies below `root`, without running their scripts.

    Return the package files. `cache` keeps the downloaded packages. Documentation and much of Perl
    are left out unless the packages are to be `whole`. `/bin` and similar directories are first
    made links into `/usr`, as on every current system.
    """
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    found = closure(names, cache)
    for package in found:
        _extract(package, root, () if whole else _LEFT_OUT)
    return found


def unpack_alone(name: str, cache: Path, root: Path) -> None:
    """Unpack one package below `root` without its dependencies, for example for headers."""
    alone = cache / "alone"
    alone.mkdir(parents=True, exist_ok=True)
    found = sorted(alone.glob(f"{name}_*.deb"))
    if not found:
        done = subprocess.run(
            ["apt-get", "-qq", "-oAPT::Sandbox::User=root", "download", name],
            cwd=alone,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        found = sorted(alone.glob(f"{name}_*.deb"))
        if done.returncode or not found:
            raise SandboxError(f"{name}: cannot be downloaded: {done.stderr.strip()}")
    _extract(found[-1], root)


def closure(names: list[str], cache: Path) -> list[Path]:
    """Return the package files of `names` and all their dependencies; download missing ones."""
    install = ["--download-only", "install", "-y", "usr-is-merged", *names]
    apt = _apt(cache, cache)
    if _run([*apt, *install]).returncode:
        print("sandbox: apt-get update", flush=True)
        _checked(["apt-get", "-qq", "update"])
        _checked([*apt, *install])
    # apt-get lists only what is missing from the archive directory, so use an empty one.
    listed = _checked([*_apt(cache, cache / "empty"), "--print-uris", *install])
    return [cache / line.split()[1] for line in listed.splitlines()]


def _apt(cache: Path, archives: Path) -> list[str]:
    """Return an apt-get command with an empty status file, as if nothing were installed."""
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    status = cache / "status"
    status.touch()
    options = {
        "Dir::State::status": status,
        "Dir::State::extended_states": cache / "extended_states",
        "Dir::Cache::archives": archives,
        "Debug::NoLocking": "1",
        "APT::Install-Recommends": "0",
        "APT::Sandbox::User": "root",
    }
    return ["apt-get", "-qq", *(f"-o{key}={value}" for key, value in options.items())]


def _extract(package: Path, root: Path, left_out: tuple[str, ...] = _LEFT_OUT) -> None:
    archive = subprocess.run(
        ["dpkg-deb", "--fsys-tarfile", str(package)], capture_output=True, stdin=subprocess.DEVNULL
    )
    tar = ["tar", "-x", "-C", str(root), "--keep-directory-symlink"]
    excludes = [f"--exclude={pattern}" for pattern in left_out]
    done = subprocess.run([*tar, *excludes], input=archive.stdout, capture_output=True)
    if archive.returncode or done.returncode:
        reason = (archive.stderr or done.stderr).decode(errors="replace").strip()
        raise SandboxError(f"{package}: cannot be unpacked: {reason}")


def _run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def _checked(argv: list[str]) -> str:
    done = _run(argv)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise SandboxError(f"{argv[0]}: {lines[-1]}", f"by hand: {' '.join(argv)}")
    return done.stdout

"""An image in which apt-get works without a network: its packages are in a directory of the image.

As in an image of Debian's, files keep their owners, and dpkg knows what is installed.
"""

import hashlib
import subprocess
from pathlib import Path

from ce_sandbox import packages

SOURCES = (Path(__file__),)

_INSTALLED = [
    *("adduser", "apt", "base-files", "base-passwd", "bash", "coreutils", "dash", "debconf"),
    *("diffutils", "dpkg", "findutils", "grep", "gzip", "hostname", "init-system-helpers"),
    *("libc-bin", "libcap2-bin", "login", "mawk", "mount", "passwd", "perl-base", "sed"),
    *("bsdutils", "sysvinit-utils", "tar", "util-linux"),
]
# Packages whose scripts create users, change owners and set capabilities. Their dependencies are
# added.
OFFERED = ["dbus", "iputils-ping", "openssh-client", "sudo"]
_DIRECTORIES = (
    *("etc/apt/apt.conf.d", "repo", "root", "tmp", "var/cache/apt/archives/partial"),
    *("var/lib/apt/lists/partial", "var/lib/dpkg/info", "var/lib/dpkg/updates"),
    *("var/lib/dpkg/alternatives", "var/lib/dpkg/triggers", "var/log", "dev", "proc", "run", "sys"),
)


def fill(cache: Path, root: Path) -> None:
    """Write the tree of the image."""
    installed = packages.unpack(_INSTALLED, cache, root, whole=True)
    for name in _DIRECTORIES:
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    for name in ("passwd", "group"):
        master = root / f"usr/share/base-passwd/{name}.master"
        (root / "etc" / name).write_text(master.read_text())
    with (root / "etc/passwd").open("a") as passwd:
        passwd.write("_apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n")
    (root / "etc/shadow").write_text("root:*:19000:0:99999:7:::\n")
    for kind in ("auth", "account", "password", "session", "session-noninteractive"):
        line = f"{kind.partition('-')[0]} required pam_unix.so\n"
        (root / f"etc/pam.d/common-{kind}").write_text(line)
    (root / "etc/shells").write_text("/bin/sh\n/bin/bash\n")
    for link, target in (("sh", "dash"), ("awk", "mawk")):
        path = root / "usr/bin" / link
        path.unlink(missing_ok=True)
        path.symlink_to(target)
    (root / "etc/apt/sources.list").write_text("deb [trusted=yes] file:/repo ./\n")
    _remember(installed, root)
    _offer([*packages.closure(OFFERED, cache)], root / "repo")


def _remember(installed: list[Path], root: Path) -> None:
    """Write dpkg's database as if it had installed the packages."""
    entries = []
    for package in installed:
        entries.append(f"{_control(package)}Status: install ok installed\n")
        listed = subprocess.run(
            ["dpkg-deb", "--fsys-tarfile", str(package)], capture_output=True, check=True
        )
        names = subprocess.run(
            ["tar", "-t"], input=listed.stdout, capture_output=True, check=True
        ).stdout.decode()
        paths = "".join(f"/{name.strip('./')}\n" for name in names.splitlines() if name != "./")
        (root / f"var/lib/dpkg/info/{_name(package)}.list").write_text(f"/.\n{paths}")
    (root / "var/lib/dpkg/status").write_text("\n".join(entries))


def _offer(offered: list[Path], directory: Path) -> None:
    entries = []
    for package in offered:
        content = package.read_bytes()
        (directory / package.name).write_bytes(content)
        entries.append(
            f"{_control(package)}Filename: ./{package.name}\nSize: {len(content)}\n"
            f"SHA256: {hashlib.sha256(content).hexdigest()}\n"
        )
    (directory / "Packages").write_text("\n".join(entries))


def _control(package: Path) -> str:
    done = subprocess.run(
        ["dpkg-deb", "-f", str(package)], capture_output=True, text=True, check=True
    )
    return done.stdout


def _name(package: Path) -> str:
    """Return the name of a package in dpkg's files, with the architecture if `Multi-Arch: same`."""
    fields = dict(
        line.split(": ", 1)
        for line in _control(package).splitlines()
        if line.startswith(("Package: ", "Multi-Arch: ", "Architecture: "))
    )
    same = fields.get("Multi-Arch") == "same"
    return f"{fields['Package']}:{fields['Architecture']}" if same else fields["Package"]

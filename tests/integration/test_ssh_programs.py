"""The ssh hook's programs, in an image that tries to make them load files of its own."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.engine import Engine

_HOME = "opt/oci-hooks/ssh/dropbear"
_EVIL = """
int open(const char *path, int flags, ...);
static void __attribute__((constructor)) run(void)
{
	open("/ran", 0101, 0666);
}
"""


def _make_image(engine: Engine, root: Path) -> None:
    shutil.copytree(engine.prefix / "libexec/container-engine/ssh", root / _HOME)
    (root / "etc").mkdir()
    (root / "dev").mkdir()
    (root / "dev/null").touch()


def _make_library(path: Path) -> None:
    argv = ["gcc", "-shared", "-nostdlib", "-fPIC", "-x", "c", "-", "-o", str(path)]
    subprocess.run(argv, input=_EVIL.encode(), check=True)


def _run(root: Path, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    program, *arguments = words
    argv = ["unshare", "--user", "--map-root-user", f"--root={root}", f"/{_HOME}/{program}"]
    return subprocess.run([*argv, *arguments], input="", capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "words",
    [
        ("bin/dropbear", "-V"),
        ("libexec/sftp-server", "-h"),
        ("path/ssh", "-V"),
        ("libexec/ce-connect",),
    ],
    ids=lambda words: os.path.basename(words[0]),
)
def test_an_images_preload_is_not_loaded_into_programs_for_logins(
    engine: Engine, tmp_path: Path, words: tuple[str, ...]
) -> None:
    _make_image(engine, tmp_path)
    (tmp_path / "etc/ld.so.preload").write_text("/evil.so\n")
    _make_library(tmp_path / "evil.so")
    done = _run(tmp_path, words)
    assert "error while loading" not in done.stderr
    assert done.returncode in (0, 1, 2, 125, 255), done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("libexec/sftp-server", "-e", "-l", "INFO"), "local user person"),
        (("path/ssh", "-G", "somewhere"), "user person"),
        (("path/scp", "nothing", "elsewhere:"), ""),
    ],
    ids=["sftp-server", "ssh", "scp"],
)
def test_programs_for_logins_load_no_library_that_the_image_names(
    engine: Engine, tmp_path: Path, words: tuple[str, ...], answer: str
) -> None:
    _make_image(engine, tmp_path)
    (tmp_path / "etc/nsswitch.conf").write_text("passwd: evil files\ngroup: evil files\n")
    (tmp_path / "etc/passwd").write_text("person:x:0:0::/:/bin/sh\n")
    (tmp_path / "lib").mkdir()
    _make_library(tmp_path / "lib/libnss_evil.so.2")
    done = _run(tmp_path, words)
    assert answer in done.stdout + done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_login_for_files_alone_loads_nothing_that_the_images_variables_name(
    engine: Engine, tmp_path: Path
) -> None:
    _make_image(engine, tmp_path)
    _make_library(tmp_path / "evil.so")
    (tmp_path / "etc/passwd").write_text("person:x:0:0::/:/bin/sh\n")
    job = tmp_path / "opt/oci-hooks/ssh/job"
    job.mkdir()
    variables = ("LD_PRELOAD=/evil.so", "LD_LIBRARY_PATH=/", "HOME=/", "SHELL=/bin/sh")
    (job / "environment").write_text("".join(f"{entry}\0" for entry in variables))
    shutil.copy(tmp_path / "evil.so", tmp_path / "libc.so.6")
    done = _run(tmp_path, ("libexec/ce-login", "-c", "/usr/lib/openssh/sftp-server"))
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "ran").exists()


# what libraries take from the system: modules, and configuration that names modules
_MODULES = re.compile(r"/\S*/(gconv|ossl-modules|engines-\S+|openssl\.cnf|krb5/plugins|gss/)")
_NAMED = ("/etc/gss/mech", "/etc/krb5.conf", "/etc/ld.so.preload", "/etc/nsswitch.conf")


def test_libraries_of_programs_for_logins_take_no_modules_of_the_image(engine: Engine) -> None:
    found = []
    for library in (engine.prefix / "libexec/container-engine/ssh/lib").iterdir():
        strings = [os.fsdecode(text) for text in library.read_bytes().split(b"\0")]
        found += [text for text in strings if _MODULES.match(text) or text.startswith(_NAMED)]
    assert found
    assert [text for text in found if not text.startswith(("/dev/null/", "/proc/0"))] == []


def test_an_images_openssl_configuration_loads_nothing_into_ssh(
    engine: Engine, tmp_path: Path
) -> None:
    """It is at every path at which the library may have been built to look for it."""
    _make_image(engine, tmp_path)
    _make_library(tmp_path / "evil.so")
    text = (
        "openssl_conf = c\n[c]\nproviders = p\n[p]\nevil = e\n"
        "[e]\nmodule = /evil.so\nactivate = 1\n"
    )
    argv = ["openssl", "version", "-d"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    for place in ("/usr/lib/ssl", "/etc/ssl", "/etc/pki/tls", said.split('"')[1]):
        (tmp_path / place[1:]).mkdir(parents=True, exist_ok=True)
        (tmp_path / place[1:] / "openssl.cnf").write_text(text)
    (tmp_path / "etc/passwd").write_text("person:x:0:0::/:/bin/sh\n")
    done = _run(tmp_path, ("path/ssh", "-G", "somewhere"))
    assert "user person" in done.stdout, done.stderr
    assert not (tmp_path / "ran").exists()


# Functions that ask libraries which nsswitch.conf names. getaddrinfo is left out: the server
# resolves numeric addresses only.
_ANSWERED = re.compile(r"get(pw|gr|sp|serv|proto|host|net)[a-z]*|initgroups|(get|set|end)usershell")


def _symbols(kind: str, path: Path) -> set[str]:
    argv = ["nm", "-D", f"--{kind}-only", "-j", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return {line.partition("@")[0] for line in done.stdout.split()}


def test_the_server_asks_nobody_in_the_image_for_users_and_groups(engine: Engine) -> None:
    """The C library would load libraries that the image's nsswitch.conf names."""
    bundle = engine.prefix / "libexec/container-engine/ssh"
    asked = set(filter(_ANSWERED.fullmatch, _symbols("undefined", bundle / "bin/dropbear")))
    assert {"getpwnam", "getgrnam"} <= asked
    assert asked <= _symbols("defined", bundle / "lib/libce-account.so")

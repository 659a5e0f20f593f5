"""The variables that ce-start hides from Python."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import container_engine

# A library that creates a file when it is loaded, as a converter of text or a module of OpenSSL.
_LIBRARY = """
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void)
{
	close(open(MARKER, O_CREAT | O_WRONLY, 0600));
}
int gconv_init(void) { return 0; }
int gconv(void) { return 1; }
"""
_OPENSSL = """
openssl_conf = a
[a]
providers = p
[p]
default = d
own = o
[d]
activate = 1
[o]
module = LIBRARY
activate = 1
"""
# With these, Python takes its standard library from elsewhere, even if started with -I.
_CHOOSING = ("PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__")


@pytest.mark.parametrize("name", _CHOOSING)
def test_a_variable_chooses_the_code_of_an_isolated_python(name: str) -> None:
    """Otherwise the test below would prove nothing."""
    argv = [os.path.realpath(sys.executable), "-I", "-c", "import sys; print(sys.executable)"]
    seen = subprocess.run(argv, env={name: "/nowhere/python3"}, capture_output=True, text=True)
    assert seen.stdout == "/nowhere/python3\n"


@pytest.mark.parametrize("name", _CHOOSING)
def test_no_variable_chooses_the_code_of_the_planner(
    prefix: Path, tmp_path: Path, name: str
) -> None:
    text = tmp_path / "own.toml"
    text.write_text('image = ""\n')
    plan = str(prefix / "libexec/container-engine/plan")
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], name: "/nowhere/python3"}
    done = subprocess.run([plan, "--", str(text)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "this runs on the host" in done.stderr


@pytest.fixture(params=["GCONV_PATH", "OPENSSL_CONF"])
def choosing(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[dict[str, str], Path]:
    """Return an environment with which a library is loaded, and the file that this makes."""
    marker, library, place = tmp_path / "loaded", tmp_path / "UTF-8.so", str(tmp_path)
    (tmp_path / "own.c").write_text(_LIBRARY)
    argv = ["cc", "-shared", "-fPIC", f'-DMARKER="{marker}"', "-o", str(library), f"{place}/own.c"]
    subprocess.run(argv, check=True)
    modules = "module UTF-8// INTERNAL UTF-8 1\nmodule INTERNAL UTF-8// UTF-8 1\n"
    (tmp_path / "gconv-modules").write_text(modules)
    (tmp_path / "openssl.cnf").write_text(_OPENSSL.replace("LIBRARY", str(library)))
    value = {"GCONV_PATH": place, "OPENSSL_CONF": f"{place}/openssl.cnf"}[request.param]
    env = {"HOME": place, "PATH": os.environ["PATH"], "LANG": "C.UTF-8", request.param: value}
    return env, marker


def test_a_variable_chooses_a_library_of_an_isolated_python(
    choosing: tuple[dict[str, str], Path],
) -> None:
    """Otherwise the test below would prove nothing."""
    env, marker = choosing
    argv = ["/usr/bin/python3", "-I", "-c", "import hashlib; hashlib.sha256()", "é"]
    subprocess.run(argv, env=env, stderr=subprocess.DEVNULL, timeout=20)
    assert marker.exists()


def test_no_variable_chooses_a_library_of_ce_and_all_reach_the_command(
    prefix: Path, choosing: tuple[dict[str, str], Path]
) -> None:
    env, marker = choosing
    text = Path(env["HOME"]) / "own.toml"
    text.write_text('image = ""\n')
    name = next(name for name in env if name in {"GCONV_PATH", "OPENSSL_CONF"})
    ce = str(prefix / "libexec/container-engine/ce-start")
    command = [ce, "run", str(text), "--", "/usr/bin/printenv", name]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout) == (0, f"{env[name]}\n"), done.stderr
    # a verb that computes checksums
    done = subprocess.run([ce, "store", "check"], env=env, capture_output=True, text=True)
    assert "there is no store yet" in done.stderr
    assert not marker.exists()


# It becomes a program of a build, which gets the environment of its process.
_OF_BUILDS = "images/confine/fakeroot.py"


def test_what_becomes_another_program_names_its_environment() -> None:
    """By default it would be the C library's, without the variables that ce-start takes away."""
    package = Path(container_engine.__file__).parent
    for file in package.rglob("*.py"):
        without = re.findall(
            r"\bos\.(?:execv|execvp|execlp?|spawn\w+|system|popen)\(", file.read_text()
        )
        assert not without or file.match(_OF_BUILDS), file


@pytest.mark.parametrize("program", ["ce-start", "plan-anew"])
def test_a_host_without_the_python_of_ce_is_told_which_one_is_missing(
    tmp_path: Path, ce_start: Path, program: str
) -> None:
    place = tmp_path / "libexec/container-engine"
    place.mkdir(parents=True)
    shutil.copy(ce_start, place / "ce-start")
    (place / "plan-anew").symlink_to("ce-start")
    (python := tmp_path / "libexec/python3").symlink_to("/gone/python3.11")
    done = subprocess.run([place / program], capture_output=True, text=True)
    reason = "it is a link to '/gone/python3.11', which does not exist"
    assert (done.returncode, done.stderr) == (125, f"ce: error: {python}: {reason}\n")

"""Builds whose steps use apt-get, as most Dockerfiles in the world do."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.engine import Engine
from tests.integration.registry import listing
from tests.integration.test_sources import finished, forget_podman

_METHODS = ("/usr/lib/apt/methods/file", "/usr/lib/apt/methods/store")
_PROGRAMS = ("/usr/bin/apt-get", "/usr/bin/dpkg", *_METHODS)
_DIRECTORIES = (
    *("etc/apt/apt.conf.d", "etc/apt/preferences.d", "repo", "tmp"),
    *("var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/lib/dpkg"),
)
_FILES = {
    "etc/passwd": "root:x:0:0::/:/bin/sh\n_apt:x:42:65534::/nonexistent:/bin/sh\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/apt/sources.list": "deb [trusted=yes] file:/repo ./\n",
    "repo/Packages": "",
    "var/lib/dpkg/status": "",
}


@pytest.fixture
def where(stranger: Engine) -> Path:
    """Return the context of a build with the host's apt-get, which is used without a network."""
    tree = stranger.scratch / "recipe/tree"
    for name in _DIRECTORIES:
        (tree / name).mkdir(parents=True)
    for name, text in _FILES.items():
        (tree / name).write_text(text)
    shutil.copytree("/usr/share/dpkg", tree / "usr/share/dpkg")
    for program in _PROGRAMS:
        said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for path in (program, *re.findall(r"(/\S+) \(", said)):
            (tree / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, tree / path[1:])
    (tree / "bin").mkdir(exist_ok=True)
    cat = ["unsquashfs", "-cat", str(stranger.image("busybox")), "bin/busybox"]
    shell = tree / "bin/sh"
    shell.write_bytes(subprocess.run(cat, capture_output=True, check=True).stdout)
    shell.chmod(0o755)
    subprocess.run(["chown", "-R", str(stranger.user.uid), str(tree.parent)], check=True)
    return tree.parent


def test_apt_get_works_in_every_stage_and_nothing_of_that_stays(
    stranger: Engine, where: Path
) -> None:
    stages = "FROM scratch AS base\nCOPY tree /\nRUN apt-get update\n"
    (where / "Dockerfile").write_text(f"{stages}FROM base\nRUN apt-get update\nENV MADE=here\n")
    done = finished(stranger, str(stranger.prefix / "bin/ce"), "build", str(where))
    forget_podman(stranger)
    assert done.returncode == 0, done.stderr
    assert 'write image = "localhost/recipe" into an environment' in done.stderr
    path = Path(done.stdout.strip())
    config = path.with_name(f"{path.name}.json").read_text()
    assert "MADE=here" in json.loads(config)["config"]["Env"]
    assert "APT_CONFIG" not in config
    left = {name for name in listing(str(path)) if name.startswith(("/etc/apt/", "/dev/"))}
    assert left == {f"/etc/apt/{name}" for name in ("apt.conf.d", "preferences.d", "sources.list")}


def test_an_image_without_apt_gets_nothing_of_it(stranger: Engine, where: Path) -> None:
    (where / "Dockerfile").write_text("FROM scratch\nCOPY tree/bin/sh /bin/sh\nRUN true\n")
    done = finished(stranger, str(stranger.prefix / "bin/ce"), "build", str(where))
    forget_podman(stranger)
    assert done.returncode == 0, done.stderr
    assert not [name for name in listing(done.stdout.strip()) if "apt" in name]


def test_a_dockerfile_has_the_shell_that_it_names_and_may_name_a_health_check(
    stranger: Engine, where: Path
) -> None:
    shell = where / "loud"
    shell.write_text('#!/bin/sh\necho "loud: $1"\n')
    shell.chmod(0o755)
    lines = (
        "FROM scratch\nCOPY tree/bin/sh /bin/sh\nCOPY loud /bin/loud\n"
        'SHELL ["/bin/loud"]\nHEALTHCHECK CMD true\nRUN hello\n'
    )
    (where / "Dockerfile").write_text(lines)
    done = finished(stranger, str(stranger.prefix / "bin/ce"), "build", "--rm", str(where))
    forget_podman(stranger)
    assert done.returncode == 0, done.stderr
    assert "loud: hello\n" in done.stderr
    assert "not supported" not in done.stderr


@pytest.mark.parametrize("quiet", [(), ("-q",)])
def test_the_failing_step_is_named_with_its_line(
    stranger: Engine, where: Path, quiet: tuple[str, ...]
) -> None:
    # Podman 4.3 sometimes loses what a step prints just before its end
    (where / "late").write_text("i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done\n")
    lines = "FROM scratch\nCOPY tree/bin/sh late /bin/\n\nRUN echo one; . late; \\\n  exit 7\n"
    (where / "Dockerfile").write_text(lines)
    done = finished(stranger, str(stranger.prefix / "bin/ce"), "build", *quiet, str(where))
    forget_podman(stranger)
    assert done.returncode == 1
    assert (
        "ce: error: Dockerfile:4: RUN echo one; . late; exit 7: exit code 7 after 'one'\n"
        in done.stderr
    )
    assert ("\none\n" in done.stderr) == (not quiet)
    below = re.search(r"ce: hint: (.*)\nce: details: (.*)\n", done.stderr)
    assert below is not None
    hint, details = below.groups()
    assert "podman" not in hint
    assert " build --isolation=chroot " in Path(details).read_text()

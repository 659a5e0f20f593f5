"""A virtual environment is packed, mounted, and compared with its environment's image."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.engine import Engine
from tests.integration.libraries import run

VERSION = Path(os.path.realpath("/usr/bin/python3")).name.removeprefix("python")


@pytest.fixture
def venv(engine: Engine) -> Path:
    """One of this host's Python, which is that of the image, with a module that nobody compiled."""
    path = engine.scratch / "venv"
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", path], check=True)
    (path / f"lib/python{VERSION}/site-packages/one.py").write_text("A = 1\n")
    (path / "bin/tool").write_text(f"#!{path}/bin/python\nimport one\nprint(one.__cached__)\n")
    (path / "bin/tool").chmod(0o755)
    return path


def packed(engine: Engine, venv: Path, edf: Path) -> tuple[list[str], str]:
    words = [str(engine.prefix / "bin/ce"), "pack", "--venv", str(venv), "venv.sqsh", "--for"]
    with engine.popen([*words, str(edf)]) as process:
        out, err = process.communicate(timeout=120)
    return out.splitlines(), err


def test_a_packed_one_starts_with_bytecode_wherever_it_is_mounted(
    engine: Engine, venv: Path
) -> None:
    lines, said = packed(engine, venv, engine.edf(image="demo"))
    file = engine.scratch / "venv.sqsh"
    assert lines == [
        f'mounts = ["{file}:{venv}:sqsh"]',
        f'startup = ["source {venv}/bin/activate"]',
    ]
    assert said.startswith("ce: venv.sqsh: ")
    for place in (str(venv), "/else/where"):
        text = "\n".join(lines).replace(f"{venv}:sqsh", f"{place}:sqsh")
        edf = engine.edf(text.replace(f"{venv}/bin", f"{place}/bin"), "demo")
        cached = engine.output(edf, "sh", "-c", 'tool; test -e "$(tool)" && echo there').split()
        assert cached[0].startswith(f"{place}/lib/python{VERSION}/site-packages/__pycache__/one.")
        assert cached[1] == "there"


def test_one_of_another_python_is_refused(engine: Engine, venv: Path) -> None:
    (venv / f"lib/python{VERSION}").rename(venv / "lib/python3.99")
    python = os.path.realpath("/usr/bin/python3")
    why = f"its packages are for Python 3.99, and {python} is {VERSION}"
    lines, said = packed(engine, venv, engine.edf(image="demo"))
    assert said.startswith(f"ce: error: {venv}: {why}\n")
    assert said.endswith("ce: see: ce help virtual-environment\n")
    assert (lines, (engine.scratch / "venv.sqsh").exists()) == ([], False)
    # nobody has to pack it for that; one that is only mounted can be made again
    text = f'mounts = ["{venv}"]\nstartup = ["source {venv}/bin/activate"]'
    edf = engine.edf(text, "demo")
    fault = f"the virtual environment {venv} does not fit: {why}"
    assert engine.refusal(edf) == f"{edf}:2: mounts: {fault}"
    argv = [str(engine.prefix / "bin/ce"), "validate", str(edf)]
    done = subprocess.run(argv, env=engine.environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, f"{edf}: not valid\n")
    assert f"ce: error: {edf}:2: mounts: {fault}\n" in done.stderr
    edf = engine.edf(f'mounts = ["{engine.scratch}:/s", "{venv}"]', "demo")
    done = engine.run(edf, "true")
    assert f"{edf}:2: mounts: {fault}" in done.stderr
    assert done.returncode == 0


def test_activating_one_that_is_elsewhere_is_refused(engine: Engine, venv: Path) -> None:
    line = 'startup = ["source /s/venv/bin/activate"]'
    edf = engine.edf(f'mounts = ["{engine.scratch}:/s"]\n{line}', "demo")
    assert engine.refusal(edf) == (
        f"{edf}:3: startup: the virtual environment /s/venv does not fit: its bin/activate is for"
        f" '{venv}', which is not in this container"
    )


def test_a_conda_environment_is_left_to_conda_pack(engine: Engine) -> None:
    (directory := engine.scratch / "conda").mkdir()
    (directory / "conda-meta").mkdir()
    _lines, said = packed(engine, directory, engine.edf())
    line = f"conda-pack -p {directory} --dest-prefix {directory} --format squashfs -o "
    assert f"ce: hint: {line}{engine.scratch}/venv.sqsh packs it" in said


@pytest.fixture
def conda(engine: Engine) -> Path:
    """Return a directory laid out as conda's environments are, with this host's Python."""
    place = engine.scratch / "env"
    python = Path(os.path.realpath("/usr/bin/python3"))
    for directory in ("bin", "conda-meta", "lib"):
        (place / directory).mkdir(parents=True)
    (place / "conda-meta/history").write_text("==> 2026-01-01 00:00:00 <==\n")
    shutil.copy(python, place / "bin")
    (place / "bin/python3").symlink_to(python.name)
    unused = shutil.ignore_patterns("config-*", "__pycache__", "lib2to3", "pydoc_data", "idlelib")
    shutil.copytree(f"/usr/lib/{python.name}", place / "lib" / python.name, True, unused)
    for link in (place / "lib").rglob("*"):
        if link.is_symlink() and not link.exists():
            link.unlink()
    (place / "bin/tool").write_text(f"#!{place}/bin/{python.name}\nprint('ran')\n")
    (place / "bin/tool").chmod(0o755)
    return place


def test_a_conda_environment_is_compared_with_the_image(engine: Engine, conda: Path) -> None:
    done = engine.run(engine.edf(f'mounts = ["{conda}"]', "demo"), f"{conda}/bin/tool")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", ""), done.stderr
    packed = engine.scratch / "env.sqsh"
    run("mksquashfs", conda, packed, "-quiet", "-no-progress")
    for mount in (f"{conda}:/moved", f"{packed}:/moved:sqsh"):
        edf = engine.edf(f'mounts = ["{mount}"]', "demo")
        done = engine.run(edf, "/moved/bin/python3", "-c", "import json")
        assert done.returncode == 0
        assert f"{edf}:2: mounts: /moved: its bin/tool is for '{conda}', which is not in" in (
            done.stderr
        )
        edf = engine.edf(f'mounts = ["{mount}"]', "musl")
        wants = "the virtual environment /moved does not fit: bin/python3 is built for glibc"
        assert wants in engine.run(edf, "true").stderr

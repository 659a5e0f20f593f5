"""A packed virtual environment works wherever it is mounted."""

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from container_engine.build.pack_venv import Archive, lacks_bytecode

VERSION = Path(os.path.realpath("/usr/bin/python3")).name.removeprefix("python")
SITE = f"lib/python{VERSION}/site-packages"


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    path = tmp_path / "made"
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", path], check=True)
    (path / SITE / "inner").mkdir()
    (path / SITE / "inner/one.py").write_text("A = 1\n")
    (path / SITE / "inner.pth").write_text(f"{path}/{SITE}/inner\n")
    code = "import one, sys\nprint(sys.prefix, one.__file__, sys.argv[1:])\n"
    long = "#!/bin/sh\n'''exec' \"{}/bin/python3\" \"$0\" \"$@\"\n' '''\n"
    for name, start in (("tool", f"#!{path}/bin/python3\n"), ("long", long.format(path))):
        (path / "bin" / name).write_text(start + code)
        (path / "bin" / name).chmod(0o755)
    (path / "bin/other").write_text("#!/usr/bin/env python3\n")
    return path


def moved(venv: Path, bytecode: str = "/no") -> tuple[Path, str]:
    """Return the content of the archive in another place, and the file that is bound to the old."""
    archive = Archive(str(venv), "/at", [str(venv)], bytecode)
    out = io.BytesIO()
    archive.write(out, lambda _done: None)
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as found:
        names = found.getnames()
    assert len(names) == len(set(names))
    place = venv.parent / "elsewhere"
    place.mkdir()
    subprocess.run(["tar", "-x", "-C", place], input=out.getvalue(), check=True)
    venv.rename(venv.parent / "gone")
    return place, archive.bound


def said(*argv: str | Path) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", ["tool", "long"])
def test_scripts_and_path_files_work_in_another_place(venv: Path, name: str) -> None:
    place, bound = moved(venv)
    inner = f"{place}/{SITE}/inner/one.py"
    assert said(place / "bin" / name, "a b") == f"{place} {inner} ['a b']\n"
    assert (place / "bin/other").read_text() == "#!/usr/bin/env python3\n"
    assert bound == ""


def test_it_is_activated_in_another_place(venv: Path) -> None:
    place, _bound = moved(venv)
    script = 'source "$1"; echo "$VIRTUAL_ENV"; command -v tool'
    activate = place / "bin/activate"
    assert said("bash", "-ec", script, "bash", activate) == f"{place}\n{place}/bin/tool\n"
    # a shell that does not say where a file is activates what is mounted where it was packed for
    content = activate.read_text()
    activate.write_text(content.replace("/at/bin", f"{place}/bin"))
    assert said("dash", "-ec", f'. "{activate}"; echo "$VIRTUAL_ENV"') == f"{place}\n"


def test_a_file_that_keeps_the_path_is_named(venv: Path) -> None:
    (venv / "share").mkdir()
    (venv / "share/kernel.json").write_text(f'["{venv}/bin/python3"]')
    assert moved(venv)[1] == "share/kernel.json"


def test_bytecode_takes_the_place_of_older_one(venv: Path, tmp_path: Path) -> None:
    assert lacks_bytecode(str(venv), VERSION)
    module = venv / SITE / "inner/one.py"
    argv = ["/usr/bin/python3", "-m", "compileall", "-q", str(module.parent)]
    subprocess.run(argv, check=True)
    assert not lacks_bytecode(str(venv), VERSION)
    os.utime(module, (1, 1))
    assert lacks_bytecode(str(venv), VERSION)
    made = tmp_path / f"bytecode/{SITE}/inner"
    made.mkdir(parents=True)
    name = f"one.cpython-{VERSION.replace('.', '')}.pyc"
    (made / name).write_bytes(b"new")
    place, _bound = moved(venv, str(tmp_path / "bytecode"))
    assert (place / SITE / "inner/__pycache__" / name).read_bytes() == b"new"

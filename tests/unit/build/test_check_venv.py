"""A virtual environment is compared with an image, neither of whose code runs."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from container_engine.build.check_venv import answer

PYTHON = os.path.realpath("/usr/bin/python3")
VERSION = Path(PYTHON).name.removeprefix("python")
SITE = f"lib/python{VERSION}/site-packages"
EXTENSION = f"{SITE}/x.cpython-{VERSION.replace('.', '')}-linux-gnu.so"
TARGET = "/venv"


def compiled(path: Path, source: str, *words: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    argv = ["gcc", "-shared", "-fPIC", "-nostdlib", "-o", str(path), "-x", "c", "-"]
    subprocess.run([*argv, "-x", "none", *words], input=source, text=True, check=True)
    return path


def versioned(path: Path, name: str, version: str) -> Path:
    """Write a library of this name that defines the symbol `f` in this version."""
    script = path.with_suffix(".map")
    path.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f"{version} {{ global: f; local: *; }};\n")
    words = (f"-Wl,-soname,{name}", f"-Wl,--version-script={script}")
    return compiled(path, "void f(void) {}", *words)


def needing(venv: Path, library: Path, file: str = EXTENSION) -> None:
    compiled(venv / file, "void f(void); void g(void) { f(); }", "-Wl,--no-as-needed", str(library))


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An image with this host's Python, and a C library of version 2.17."""
    root = tmp_path / "image"
    for path in (f"usr/lib/python{VERSION}/os.py", PYTHON[1:], "usr/bin/env"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy("/bin/true", root / path)
    (root / "usr/bin/python3").symlink_to(Path(PYTHON).name)
    versioned(root / "usr/lib/libc.so.6", "libc.so.6", "GLIBC_2.17")
    return root


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    path = tmp_path / "venv"
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", path], check=True)
    # as uv writes it
    (path / "bin/activate").write_text(f"export VIRTUAL_ENV='{TARGET}'\n")
    return path


def said(image: Path, venv: Path, *binds: tuple[str, str]) -> dict[str, Any]:
    request = {"target": TARGET, "library_path": ""}
    found: dict[str, Any] = json.loads(answer(request, str(image), [(TARGET, str(venv)), *binds]))
    return found


def refusals(image: Path, venv: Path, *binds: tuple[str, str]) -> str:
    return "\n".join(message for message, _hint in said(image, venv, *binds)["refusals"])


def test_one_of_the_images_own_python_fits(image: Path, venv: Path) -> None:
    versioned(image / "usr/lib/liby.so", "liby.so", "Y_1")
    needing(venv, image / "usr/lib/liby.so")
    found = said(image, venv)
    assert (found["refusals"], found["warnings"], found["moved"]) == ([], [], {})
    assert found["version"] == VERSION


def no_interpreter(venv: Path) -> None:
    (venv / "bin/python3").unlink()
    (venv / "bin/python3").symlink_to("/h/.local/share/uv/python/cpython-3.99/bin/python3.99")


def other_python(venv: Path) -> None:
    (venv / f"lib/python{VERSION}").rename(venv / "lib/python3.99")


def copied(venv: Path) -> None:
    (venv / "bin/python3").unlink()
    compiled(venv / "bin/python3", "int x;")
    (venv / f"lib/python{VERSION}").rename(venv / "lib/python3.99")


def copied_from_newer(venv: Path) -> None:
    (venv / "bin/python3").unlink()
    needing(
        venv, versioned(venv.parent / "new/libc.so.6", "libc.so.6", "GLIBC_2.99"), "bin/python3"
    )


def linked(venv: Path) -> None:
    (venv / SITE / "six.py").symlink_to("/h/.cache/uv/six.py")


def editable(venv: Path) -> None:
    info = venv / SITE / "p-1.dist-info"
    info.mkdir()
    document = {"dir_info": {"editable": True}, "url": "file:///h/my%20p"}
    (info / "direct_url.json").write_text(json.dumps(document))
    (venv / SITE / "p.pth").write_text("/h/my p/src\nimport p\n")


def old_editable(venv: Path) -> None:
    (venv / SITE / "easy-install.pth").write_text("# all\n/h/q\n")


def of_another_processor(venv: Path) -> None:
    file = compiled(venv / EXTENSION, "int x;")
    content = bytearray(file.read_bytes())
    content[18:20] = b"\x16\0"  # s390x
    file.write_bytes(content)


def of_a_newer_libc(venv: Path) -> None:
    library = versioned(venv.parent / "new/libc.so.6", "libc.so.6", "GLIBC_2.99")
    needing(venv, library, f"{SITE}/x.libs/libq.so")
    where = venv / f"{SITE}/x.libs"
    words = ("-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN/x.libs", f"-L{where}", "-lq")
    compiled(venv / EXTENSION, "", *words)


def of_musl(venv: Path) -> None:
    library = versioned(venv.parent / "m.so", "libc.musl-x86_64.so.1", "M")
    needing(venv, library)


def without_a_runtime(venv: Path) -> None:
    needing(venv, versioned(venv.parent / "c.so", "libstdc++.so.6", "GLIBCXX_3"))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            no_interpreter,
            "its interpreter is uv's own Python /h/.local/share/uv/python/cpython-3.99/bin/"
            "python3.99, in neither the image nor a mount",
        ),
        (other_python, f"its packages are for Python 3.99, and {PYTHON} is {VERSION}"),
        (copied, "its interpreter is a copy of a Python 3.99 that the image lacks"),
        (copied_from_newer, "bin/python3 needs GLIBC_2.99, and the image has 2.17"),
        (linked, f"{SITE}/six.py leads to /h/.cache/uv/six.py, in neither the image nor a mount"),
        (editable, "an editable install is in '/h/my p', in neither the image nor a mount"),
        (old_editable, "an editable install is in '/h/q', in neither the image nor a mount"),
        (of_another_processor, f"{EXTENSION} is for s390x processors, and the image is for "),
        (of_a_newer_libc, f"{SITE}/x.libs/libq.so needs GLIBC_2.99, and the image has 2.17"),
        (of_musl, f"{EXTENSION} is built for musl, and the image has glibc"),
        (without_a_runtime, f"{EXTENSION} needs libstdc++.so.6, in neither it nor the image"),
    ],
)
def test_what_would_not_start_is_said(
    image: Path, venv: Path, spoil: Callable[[Path], None], message: str
) -> None:
    spoil(venv)
    found = refusals(image, venv)
    assert found.startswith(message)
    assert "\n" not in found


@pytest.fixture
def conda(tmp_path: Path) -> Path:
    """An environment of conda as it is laid out: its own interpreter, library and `pip`."""
    place = tmp_path / "conda"
    for path in ("conda-meta/history", f"lib/python{VERSION}/os.py", "bin/pip", "bin/true"):
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(f"#!{TARGET}/bin/python{VERSION}\n")
    compiled(place / f"bin/python{VERSION}", "int x;")
    (place / "bin/python3").symlink_to(f"python{VERSION}")
    return place


def test_an_environment_of_conda_has_its_own_python(image: Path, conda: Path) -> None:
    (image / PYTHON[1:]).unlink()
    shutil.rmtree(image / f"usr/lib/python{VERSION}")
    found = said(image, conda)
    assert (found["refusals"], found["warnings"], found["moved"]) == ([], [], {})
    assert found["version"] == VERSION
    # its path is in many of its files
    (conda / "bin/pip").write_text(f"#!/h/conda/bin/python{VERSION}\n")
    assert said(image, conda)["moved"] == {"/h/conda": "bin/pip"}
    # and the image's C library must be as new as it wants
    library = versioned(conda.parent / "new/libc.so.6", "libc.so.6", "GLIBC_2.99")
    needing(conda, library, f"bin/python{VERSION}")
    (refused,) = said(image, conda)["refusals"]
    assert refused[0] == "bin/python3 needs GLIBC_2.99, and the image has 2.17"


def test_an_environment_of_conda_may_have_no_python(image: Path, conda: Path) -> None:
    for file in (conda / "bin/python3", conda / f"bin/python{VERSION}"):
        file.unlink()
    shutil.rmtree(conda / "lib")
    (conda / "bin/pip").unlink()
    assert said(image, conda)["refusals"] == []


def test_what_is_in_a_mount_is_there(image: Path, venv: Path, tmp_path: Path) -> None:
    editable(venv)
    linked(venv)
    (tmp_path / "h/my p/src").mkdir(parents=True)
    (tmp_path / "h/.cache/uv").mkdir(parents=True)
    (tmp_path / "h/.cache/uv/six.py").touch()
    assert refusals(image, venv, ("/h", str(tmp_path / "h"))) == ""
    # only the nodes have its source
    assert refusals(image, venv, ("/h", "/no/such")) == ""


def test_a_newer_runtime_than_the_images_is_named(image: Path, venv: Path) -> None:
    without_a_runtime(venv)
    versioned(image / "usr/lib/libstdc++.so.6", "libstdc++.so.6", "GLIBCXX_2")
    assert refusals(image, venv) == (
        f"{EXTENSION} needs GLIBCXX_3 of libstdc++.so.6, which /usr/lib/libstdc++.so.6 lacks"
    )


def test_glibc_is_not_musl(image: Path, venv: Path) -> None:
    needing(venv, image / "usr/lib/libc.so.6")
    (image / "usr/lib/libc.so.6").unlink()
    (image / "lib").mkdir()
    shutil.copy("/bin/true", image / f"lib/ld-musl-{os.uname().machine}.so.1")
    assert refusals(image, venv) == f"{EXTENSION} is built for glibc, and the image has musl"


def test_a_library_that_a_hook_may_bring_is_a_warning(image: Path, venv: Path) -> None:
    for name in ("libmpi.so.12", "libcuda.so.1"):
        needing(venv, versioned(venv.parent / name, name, "V"), f"{SITE}/{name}.abi3.so")
    found = said(image, venv)
    assert found["refusals"] == []
    assert [message for message, _hint in found["warnings"]] == [
        f"{SITE}/libmpi.so.12.abi3.so needs libmpi.so.12, in neither it nor the image"
    ]


def test_a_package_of_the_hosts_python_that_the_image_lacks_is_a_warning(
    image: Path, venv: Path
) -> None:
    with (venv / "pyvenv.cfg").open("a") as file:
        file.write("include-system-site-packages = true\n")
    (venv / SITE / "einops-1.dist-info").mkdir()
    wanted = ("Num_Py>=1", "There", 'extra; extra == "test"', "einops")
    head = "".join(f"Requires-Dist: {one}\n" for one in wanted)
    (venv / SITE / "einops-1.dist-info/METADATA").write_text(f"{head}\nRequires-Dist: text\n")
    (image / "usr/lib/python3/dist-packages/there-2.egg-info").mkdir(parents=True)
    said_now = [message for message, _hint in said(image, venv)["warnings"]]
    assert said_now == ["einops needs the package Num_Py, in neither it nor the image"]
    (image / "usr/lib/python3/dist-packages/num.py-2.dist-info").mkdir()
    assert said(image, venv)["warnings"] == []


def test_a_library_that_nothing_needs_is_a_warning(image: Path, venv: Path) -> None:
    of_a_newer_libc(venv)
    (venv / EXTENSION).unlink()
    found = said(image, venv)
    assert found["refusals"] == []
    message = f"{SITE}/x.libs/libq.so needs GLIBC_2.99, and the image has 2.17"
    assert [one for one, _hint in found["warnings"]] == [message]


def test_scripts_of_another_place_are_named(image: Path, venv: Path) -> None:
    (venv / "bin/tool").write_text("#!/old/bin/python3\n")
    assert said(image, venv)["moved"] == {"/old": "bin/tool"}
    (venv / "bin/activate").write_text('    VIRTUAL_ENV="/old"\n')
    assert said(image, venv)["moved"] == {"/old": "bin/activate"}

"""Apptainer's image files (SIF): what is read of them, and which are refused."""

import json
import os
import platform
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.base.errors import LaunchError, UserError
from container_engine.base.sif import place, write
from container_engine.build.layout import Base, write_layout
from container_engine.images.resolve import configuration, from_file
from container_engine.images.sif_environment import assigned
from container_engine.images.squashfs import DEFAULT_PATH, MADE_SO, check, unsquashfs
from container_engine.node.container.checks import check_image
from tests import sif
from tests.unit import squashfs

HERE = sif.ARCHITECTURES[platform.machine()]
OTHER = next(code for code in sif.ARCHITECTURES.values() if code != HERE)
ROOT = sif.Object(b"hsqs" * 100, architecture=HERE)


def refusal(path: Path, content: bytes) -> UserError:
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        check(str(path))
    with pytest.raises(LaunchError):
        check_image(str(path))
    assert caught.value.name == str(path)
    return caught.value


@pytest.fixture
def image(tmp_path: Path, need_tool: Callable[[str], str]) -> Path:
    need_tool("mksquashfs")
    need_tool("unsquashfs")
    script = 'export A="${A:-"a, b"}"\nexport PATH="/opt/bin:/bin"\n'
    files = {
        "etc/environment": "PATH=/not/this\n",
        ".singularity.d/env/10-docker2singularity.sh": f"#!/bin/sh\n{script}",
        ".singularity.d/env/90-environment.sh": "#!/bin/sh\nexport B=$A PATH=/mine:$PATH\n",
        "greeting": "hello",
    }
    whole = squashfs.make(tmp_path / "x.sqsh", files)
    return sif.make(tmp_path / "x.sif", whole, HERE)


def test_the_file_system_in_it_is_read_where_it_lies(image: Path) -> None:
    assert check(str(image)).compressor == "gzip"
    check_image(str(image))
    assert unsquashfs(["-cat"], str(image), ["greeting"], os.environ, 60) == b"hello"


def test_its_variables_are_those_of_the_image(image: Path) -> None:
    found = from_file("x", str(image), os.environ)
    assert found.image.env == {
        "A": "a, b",
        "B": "a, b",
        "PATH": "/mine:/opt/bin:/bin",
    }
    assert found.notices == ()


def test_what_is_written_around_an_image_is_read_again_under_any_name(
    image: Path, tmp_path: Path
) -> None:
    plain = squashfs.make(tmp_path / "plain.sqsh", {"greeting": "hello"})
    run = {
        "Env": ['A="b" $c `d`', "PATH=/p"],
        "Entrypoint": ["/e"],
        "WorkingDir": "/w",
        "Cmd": ["c"],
    }
    for config in (run, {**run, "Env": ["PATH=/p", f"A={'x' * 9000}"]}):
        write(str(image), str(plain), json.dumps(config).encode(), "arm64")
        assert place(os.open(image, os.O_RDONLY), "x").architecture == "arm64"
        renamed = image.rename(tmp_path / "renamed.img")
        found = from_file("x", str(renamed), os.environ).image
        assert [f"{name}={value}" for name, value in sorted(found.env.items())] == sorted(
            config["Env"]
        )
        assert (found.entrypoint, found.workdir) == (("/e",), "/w")
        assert unsquashfs(["-cat"], str(renamed), ["greeting"], os.environ, 60) == b"hello"
        assert json.loads(configuration([str(renamed)], os.environ))["config"]["Cmd"] == ["c"]


def test_the_maker_of_an_image_has_to_mend_its_configuration(image: Path) -> None:
    write(str(image), str(image.with_suffix(".sqsh")), b"{", "")
    with pytest.raises(UserError, match="not valid JSON") as caught:
        from_file("x", str(image), os.environ)
    assert caught.value.hint == MADE_SO


def test_a_configuration_outside_of_the_file_is_refused(tmp_path: Path) -> None:
    content = bytearray(sif.text([ROOT, sif.Object(b"{}", 0x4006)]))
    place_of_name = 4096 + 585 + 73
    content[place_of_name : place_of_name + 15] = b"oci-config.json"
    struct.pack_into("<Q", content, 4096 + 585 + 17, (1 << 64) - 1)
    assert "its configuration is not within" in str(refusal(tmp_path / "x.sif", bytes(content)))


def test_a_build_and_a_push_ask_for_an_import_first(image: Path, tmp_path: Path) -> None:
    base = Base("x", str(image), "sha256:" + "0" * 64, b"{}", 0)
    with pytest.raises(UserError, match="a SIF file, not read here"):
        write_layout(base, str(tmp_path / "layout"), os.environ, 30)


def test_an_image_for_another_processor_is_refused_on_the_node(image: Path) -> None:
    other = sif.make(image, image.with_suffix(".sqsh"), OTHER)
    with pytest.raises(LaunchError, match=r"made for a.*64, this node is a.*64") as caught:
        check_image(str(other))
    assert caught.value.see == "image-architecture"


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ([ROOT._replace(file_system=sif.EXT3)], "a SIF file with an ext3 file system"),
        ([ROOT._replace(file_system=sif.ENCRYPTED)], "a SIF file with an encrypted file system"),
        ([ROOT._replace(file_system=99)], "a SIF file with a file system of kind 99"),
        ([ROOT._replace(kind=sif.SYSTEM)], "a SIF file with no root file system"),
        ([ROOT, ROOT], "a SIF file with more than one root file system"),
        ([], "a SIF file with no root file system"),
        ([sif.Object(b"{}", sif.OCI_INDEX)], "an OCI-SIF, which keeps an image's layers"),
    ],
)
def test_what_cannot_be_read_is_named_with_a_remedy(
    tmp_path: Path, objects: list[sif.Object], reason: str
) -> None:
    error = refusal(tmp_path / "x.sif", sif.text(objects))
    assert error.reason.startswith(f"not a SquashFS file but {reason}")
    assert (bool(error.hint), error.see) == (True, "image-not-squashfs")


def changed(**fields: int) -> bytes:
    """Return a file whose header or only descriptor has other numbers."""
    places = {"count": 88, "table": 96, "start": 4096 + 17, "size": 4096 + 25}
    content = bytearray(sif.text([ROOT]))
    for name, value in fields.items():
        struct.pack_into("<Q", content, places[name], value)
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (changed(count=1 << 62), "descriptors, more than 1024"),
        (changed(count=2000), "2000 descriptors, more than 1024"),
        (changed(count=1000), "its descriptors are not within"),
        (changed(table=(1 << 64) - 1), "its descriptors are not within"),
        (changed(start=(1 << 64) - 1, size=2), "cut short"),
        (changed(size=1 << 63), "cut short"),
        (changed(start=0), "not a SquashFS file but"),
        (changed()[:-1], "cut short, it has 33167 bytes of 33168"),
        (changed()[:4096], "its descriptors are not within"),
        (sif.header(0, version=b"07"), "only 01 is known"),
    ],
)
def test_a_damaged_or_malicious_file_is_refused(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    assert reason in str(refusal(tmp_path / "x.sif", content))


def test_no_damage_has_another_effect_than_a_refusal(tmp_path: Path) -> None:
    chance, whole, path = random.Random(1), sif.text([ROOT]), tmp_path / "x.sif"
    for _ in range(300):
        content = bytearray(whole)
        for _ in range(chance.randrange(1, 5)):
            content[chance.choice((chance.randrange(128), 4096 + chance.randrange(585)))] = (
                chance.randrange(256)
            )
        path.write_bytes(content)
        with path.open("rb") as file:
            try:
                found = place(file.fileno(), "x")
            except UserError:
                continue
        assert 0 <= found.start <= found.start + found.size <= len(content)


@pytest.mark.parametrize(
    ("line", "env"),
    [
        ("export A=1", {"A": "1"}),
        ("export A=1 B='x $y' # why", {"A": "1", "B": "x $y"}),
        ("A=1\nexport A", {"A": "1"}),
        ("A=1", {}),
        ('export P="/a b:$PATH";', {"P": f"/a b:{DEFAULT_PATH}"}),
        ("export LD_LIBRARY_PATH=/l:$LD_LIBRARY_PATH", {"LD_LIBRARY_PATH": "/l:"}),
        ("export A=${B:-two}${A:-three}", {"A": "twothree"}),
        (r'export A="a\$b\n\""', {"A": r"a$b\n" + '"'}),
    ],
)
def test_plain_assignments_are_read_without_a_shell(line: str, env: dict[str, str]) -> None:
    found = assigned(f"#!/bin/sh\n# words\n{line}\n", {"PATH": DEFAULT_PATH})
    assert (found.env, found.other) == (env, "")


@pytest.mark.parametrize(
    "line",
    [
        "export A=$(id)",
        'export A="`id`"',
        "export A=$HOME/x",
        ". /opt/conda/bin/activate",
        "if true; then",
        "export A=1; export B=2",
        "export A=~/x",
        r'export A="${A:-"a\\$b"}"',
        r'export A="${A:-"a \\\"b"}"',
        "unset A",
        "A=1 program",
        'export A="$1"',
    ],
)
def test_what_only_a_shell_can_run_is_told(line: str) -> None:
    assert assigned(f"{line}\nexport Z=1\n", {}) == ({"Z": "1"}, line)

"""The site decides what image files are like: compressor, block size, and their layout on disk.

No parallel file system is here: a program of the tests stands in for `lfs setstripe`. It makes the
file as that does, so that a file with another inode would have lost its layout.
"""

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from container_engine.cli.main import main
from container_engine.images import squashfs
from container_engine.images.pack.form import BLOCK_SIZES, Form
from container_engine.images.pack.layers import LayerFile
from container_engine.images.pack.pack import Packer
from tests.unit import squashfs as image
from tests.unit.images import oci
from tests.unit.images.oci import Member

_TOOLS = ("mksquashfs", "tar2sqfs", "unsquashfs")


class Site:
    """A site's configuration with a program for layouts, and a user who runs `ce`."""

    def __init__(self, root: Path, printed: pytest.CaptureFixture[str]) -> None:
        self.root, self._printed = root, printed
        self.file, self.program, self.log = root / "c.toml", root / "setstripe", root / "log"
        self.program.write_text(
            f'#!/bin/sh\n[ -e "$4" ] || : >"$4"\nstat -c "%i $*" "$4" >>{self.log}\n'
        )
        self.program.chmod(0o755)
        self.says(f'store_layout = ["{self.program}", "-c", "8", "{{directory}}", "{{file}}"]')

    def says(self, settings: str) -> None:
        self.file.write_text(f"{settings}\n")

    def does(self, script: str) -> None:
        self.program.write_text(f"#!/bin/sh\n{script}\n")

    def ce(self, *words: str) -> tuple[str, str]:
        """Return the last line of stdout, and stderr."""
        ended = main(["--site", str(self.file), *words])
        said = self._printed.readouterr()
        assert ended == 0, said.err
        return said.out.splitlines()[-1], said.err

    @property
    def calls(self) -> list[list[str]]:
        return [line.split() for line in self.log.read_text().splitlines()]


@pytest.fixture
def site(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    need_tool: Callable[[str], str],
) -> Site:
    for tool in (*_TOOLS, "skopeo"):
        need_tool(tool)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("EDF_IMAGESTORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tree/bin").mkdir(parents=True)
    (tmp_path / "tree/bin/a").write_text("a" * 5000)
    return Site(tmp_path, capsys)


def _archive(site: Site) -> str:
    (site.root / "rootfs.tar").write_bytes(oci.layer([Member("bin/a", b"a")]))
    return "./rootfs.tar"


def _file(site: Site) -> str:
    return str(image.make(site.root / "i.sqsh", {"bin/a": "a"}))


def _layout(site: Site) -> str:
    return f"oci:{oci.layout(site.root / 'layout', [[Member('bin/a', b'a')]])}"


@pytest.mark.parametrize("source", [lambda _site: "./tree", _archive, _file, _layout])
def test_every_import_has_its_file_laid_out_before_it_is_written(
    site: Site, source: Callable[[Site], str]
) -> None:
    stored, _said = site.ce("import", "-q", source(site), "x:1")
    [[inode, *words]] = site.calls
    assert words[:2] == ["-c", "8"]
    directory, file = words[2:]
    assert (os.path.dirname(file), os.path.exists(directory)) == (directory, False)
    assert directory.startswith(f"{site.root}/store/work/")
    assert os.stat(stored).st_ino == int(inode)
    squashfs.check(stored)


@pytest.mark.parametrize(
    "words",
    [
        ("import", "-q", "-o", "made.sqsh", "./tree"),
        ("import", "-q", "-o", "made.sqsh", "oci:layout"),
        ("pack", "-q", "tree", "made.sqsh"),
    ],
)
def test_a_file_outside_of_a_store_is_laid_out_as_well(site: Site, words: Sequence[str]) -> None:
    _layout(site)
    site.ce(*words)
    assert [int(call[0]) for call in site.calls] == [os.stat(site.root / "made.sqsh").st_ino]


@pytest.mark.parametrize("has_tar2sqfs", [True, False])
def test_an_archive_keeps_its_layout_with_either_program(
    site: Site, need_tool: Callable[[str], str], *, has_tar2sqfs: bool
) -> None:
    (site.root / "path").mkdir()
    for tool in ("mksquashfs", "sh", "stat", *(["tar2sqfs"] if has_tar2sqfs else [])):
        (site.root / "path" / tool).symlink_to(need_tool(tool))
    (site.root / "archive").write_bytes(oci.layer([Member("bin/a", b"a")]))
    form = Form(
        layout=(str(site.program), "-c", "8", "{directory}", "{file}"), source=str(site.file)
    )
    packer = Packer({"PATH": str(site.root / "path")}, 60, form=form)
    target = str(site.root / "made")
    packer.pack_files(LayerFile(str(site.root / "archive")), 1, target, lambda _size: None)
    assert [int(call[0]) for call in site.calls] == [os.stat(target).st_ino]


_TOLD = "the image gets the usual layout on disk, store_layout failed: "


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo noise; echo setstripe: no such pool >&2; exit 3", "no such pool"),
        # the child goes on, and would keep a pipe open
        ("sleep 4 & wait", "not finished after 0.5 s"),
    ],
)
def test_an_import_goes_on_with_one_line_if_the_layout_fails(
    site: Site, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    monkeypatch.setattr("container_engine.images.pack.form._LAYOUT_LIMIT_S", 0.5)
    site.does(script)
    stored, said = site.ce("import", "./tree", "x:1")
    squashfs.check(stored)
    lines = [line for line in said.splitlines() if "layout" in line]
    assert lines == [f"ce: {_TOLD}{site.program}: {why}"]


def test_a_program_that_others_may_change_is_not_run(site: Site) -> None:
    site.program.chmod(0o775)
    stored, said = site.ce("import", "./tree", "x:1")
    squashfs.check(stored)
    where = f"{site.file}: store_layout: '{site.program}'"
    assert f"{_TOLD}{where}: others than its owner may write it" in said
    assert not site.log.exists()


@pytest.mark.parametrize("compressor", ["gzip", "lz4", "zstd"])
@pytest.mark.parametrize("block_size", ["128K", "1M"])
def test_every_form_of_the_site_is_one_that_can_be_read(
    site: Site, compressor: str, block_size: str
) -> None:
    site.says(f'image_compressor = "{compressor}"\nimage_block_size = "{block_size}"')
    (site.root / "tree/bin/large").write_bytes(b"large" * 300_000)
    sources = ("./tree", _archive(site), _layout(site))
    made = [site.ce("import", "-q", source, f"x:{i}")[0] for i, source in enumerate(sources)]
    site.ce("pack", "-q", "tree", "made.sqsh")
    for path in (*made, "made.sqsh"):
        found = squashfs.check(path)
        assert (found.compressor, found.block_size) == (compressor, BLOCK_SIZES[block_size]), path
    subprocess.run(["unsquashfs", "-q", "-n", "-d", "again", "made.sqsh"], check=True)
    subprocess.run(["diff", "-r", "tree", "again"], check=True)


@pytest.mark.parametrize(
    ("settings", "words", "compressor", "size"),
    [
        ("", (), "zstd", "128K"),
        ('image_compressor = "lz4"', (), "lz4", "128K"),
        ('image_compressor = "lz4"', ("--level", "9"), "zstd", "128K"),
        ('image_block_size = "1M"', ("--block-size", "256K"), "zstd", "256K"),
    ],
)
def test_options_of_pack_win_over_the_site(
    site: Site, settings: str, words: Sequence[str], compressor: str, size: str
) -> None:
    site.says(settings)
    site.ce("pack", "-q", *words, "tree", "made.sqsh")
    found = squashfs.check("made.sqsh")
    assert (found.compressor, found.block_size) == (compressor, BLOCK_SIZES[size])

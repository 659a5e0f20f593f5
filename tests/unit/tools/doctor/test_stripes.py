"""Stripes of a store on Lustre.

There is no Lustre here. `lfs` and `stat` are programs of the tests, which print what the real ones
do by their documentation, so these tests do not show that a real one is understood.
"""

from pathlib import Path

import pytest

from container_engine.base.process import output
from container_engine.tools.doctor.finding import Finding, State
from container_engine.tools.doctor.stripes import is_lustre, look, stripe_count

_PATH = "/usr/bin:/bin"


class Stands:
    """A store, and programs that stand in for Lustre's."""

    def __init__(self, root: Path) -> None:
        self.store, self._bin, self.asked = root / "store", root / "bin", root / "asked"
        self._bin.mkdir()
        (self.store / "work").mkdir(parents=True)
        (self.store / "images").mkdir()

    def program(self, name: str, script: str) -> None:
        (self._bin / name).write_text(f"#!/bin/sh\n{script}\n")
        (self._bin / name).chmod(0o755)

    def findings(self) -> list[Finding]:
        return list(look([str(self.store)], {"PATH": f"{self._bin}:{_PATH}"}))


@pytest.fixture
def lustre(tmp_path: Path) -> Stands:
    made = Stands(tmp_path)
    made.program("stat", "echo bd00bd0")
    made.program("lfs", f'echo "$*" >>{made.asked}; echo 1')
    return made


def test_a_store_whose_new_images_are_on_one_server_is_a_warning(lustre: Stands) -> None:
    [found] = lustre.findings()
    work = lustre.store / "work"
    assert lustre.asked.read_text() == f"getstripe -c -d {work}\n"
    assert found.state is State.WARNING
    assert found.message.startswith(f"{lustre.store}: {work} has stripe count 1: ")
    assert f"set store_layout, or lfs setstripe -c 8 {work}; " in str(found.remedy)


def test_the_largest_image_tells_what_nodes_read(lustre: Stands) -> None:
    for name, size in (("a", 1 << 20), ("b", 65 << 20), ("c", 1 << 10)):
        with (lustre.store / f"images/{name}.sqsh").open("wb") as file:
            file.truncate(size)
    lustre.program("lfs", 'case "$4" in *b.sqsh) echo 8;; *) echo 1;; esac')
    [found] = lustre.findings()
    assert (found.state, found.message) == (State.OK, f"{lustre.store}/images/b.sqsh: 8")


def test_a_store_elsewhere_has_no_finding(lustre: Stands) -> None:
    lustre.program("stat", 'exec /usr/bin/stat "$@"')
    assert lustre.findings() == []
    assert not lustre.asked.exists()


def test_a_failure_of_lfs_is_told(lustre: Stands) -> None:
    lustre.program("lfs", "echo lfs: cannot connect >&2; exit 1")
    [found] = lustre.findings()
    assert found.state is State.WARNING
    assert found.message.endswith("work: lfs: cannot connect")


def test_the_number_of_a_file_system_is_read_as_stat_prints_it() -> None:
    assert output(["stat", "-f", "-c", "%t", "/proc"], {"PATH": _PATH}, 10) == b"9fa0\n"
    assert is_lustre(b"bd00bd0\n")
    assert not is_lustre(b"9fa0\n")


@pytest.mark.parametrize(
    ("said", "count"),
    [
        ("1\n\n", 1),  # as Lustre's own tests (sanity.sh) compare it
        ("-1\n", -1),
        # wiki.lustre.org, Configuring Lustre File Striping
        ("stripe_count:  2 stripe_size:   4194304 pattern:       0 stripe_offset: -1\n", 2),
        ("/mnt/lustre/file\nlmm_stripe_count:  4\n", 4),
        ("1\n8\n", 8),
        ("/mnt/lustre/file has no stripe info\n", None),
        ("", None),
    ],
)
def test_what_lfs_prints_is_a_count(said: str, count: int | None) -> None:
    assert stripe_count(said.encode()) == count

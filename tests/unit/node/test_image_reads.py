"""Figures of image servers that a guard holds."""

import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from container_engine.node.report import image_reads

_NUMBERS = (10, 2, 3000, 4, 5, 6, 7, 80)


@pytest.fixture
def page() -> Iterator[int]:
    """Yield a memory file as a guard makes it."""
    file = os.memfd_create("ce-figures")
    os.write(file, struct.pack("=9Q1024s", *_NUMBERS, 1, b"/images/a.sqsh"))
    yield file
    os.close(file)


def test_the_figures_of_a_process_are_those_of_its_memory_files(page: int) -> None:
    other = os.memfd_create("ce-figures")
    os.write(other, b"too short")
    with subprocess.Popen(["sleep", "60"], pass_fds=[page, other]) as guard:
        [found] = image_reads.of_guard(guard.pid)
        pidfd = os.pidfd_open(guard.pid)
        assert image_reads.of_pidfd(pidfd) == [found]
        guard.kill()
    os.close(pidfd)
    os.close(other)
    names = (*image_reads.FIGURES, "size")
    numbers = dict(zip(names, _NUMBERS, strict=True))
    assert found == {**numbers, "shared": True, "path": "/images/a.sqsh"}


def test_a_guard_that_has_ended_has_no_figures(page: int) -> None:
    child = subprocess.Popen(["true"], pass_fds=[page])
    pidfd = os.pidfd_open(child.pid)
    child.wait()
    assert image_reads.of_guard(child.pid) == []
    assert image_reads.of_pidfd(pidfd) == []
    os.close(pidfd)


def test_the_structure_is_that_of_the_servers() -> None:
    header = Path(__file__).parents[3] / "spank_plugin/common/image_figures.h"
    text = header.read_text()
    names = [
        line.split()[2].rstrip(";") for line in text.splitlines() if "_Atomic uint64_t " in line
    ]
    assert tuple(name for name in names if name != "*figure,")[:7] == image_reads.FIGURES

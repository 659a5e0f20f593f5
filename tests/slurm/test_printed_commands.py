"""The commands that the documentation prints with their output, run on the cluster."""

import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.slurm.cluster import ALICE, ROOT, Cluster

pytestmark = pytest.mark.usefixtures("tidy")

# pages that promise to work in the sandbox as printed
PAGES = (
    *("README.md", "docs/guide/edf.md", "docs/guide/running.md", "docs/guide/troubleshooting.md"),
)
_DIR = "/var/lib/ce-sandbox"
_BLOCK = re.compile(r"^```(console|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (?:~/(\.edf/)|\./)([a-z-]+\.toml)\n")
_COMMAND = re.compile(r"^\$ (.*(?:\n> .*)*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
# commands for a terminal or a running job, which other tests run
_ELSEWHERE = re.compile(r"--pty|ce ps|ce exec|ce trace")
_NOT_OURS = re.compile(r"salloc: .*")
_NUMBER = re.compile(r"(\.toml:\d+)|\d+")


class Printed(NamedTuple):
    page: str
    command: str
    output: str


def _printed() -> Iterator[Printed]:
    for page in PAGES:
        for block in _BLOCK.finditer((ROOT / page).read_text()):
            for found in _COMMAND.finditer(block[2]) if block[1] == "console" else ():
                if not _ELSEWHERE.search(found[1]):
                    yield Printed(page, found[1].replace("\n> ", "\n"), found[2])


def _files(page: str, home: Path, sandbox: Path) -> None:
    """Write the environments of the page that name their file, and a batch script.

    The page shows the default sandbox; the images are those of this one.
    """
    (home / "job.sh").write_text("#!/bin/sh\n")
    (home / ".edf").mkdir()
    for block in _BLOCK.finditer((ROOT / page).read_text()):
        named = _FILE.match(block[2])
        if named:
            (home / (named[1] or "") / named[2]).write_text(block[2].replace(_DIR, str(sandbox)))


def _same(text: str, places: dict[str, str]) -> list[str]:
    """Return the lines without what differs between runs; nodes answer in any order."""
    for place, printed in places.items():
        text = text.replace(place, printed)
    lines = (line for line in text.splitlines() if not _NOT_OURS.fullmatch(line))
    return sorted(
        re.sub(r"\bn[12]\b", "n1", _NUMBER.sub(lambda m: m[1] or "N", line)) for line in lines
    )


PRINTED = list(_printed())


@pytest.mark.parametrize("printed", PRINTED, ids=lambda one: f"{one.page}: {one.command[:40]}")
def test_a_printed_command_says_what_the_page_shows(
    cluster: Cluster, shared: Path, printed: Printed
) -> None:
    for image in ("demo", "busybox"):
        cluster.image(image)
    _files(printed.page, shared, cluster.dir)
    done = cluster.run(
        ["bash", "-c", printed.command], env={"EDF_PATH": f"{shared}/.edf"}, cwd=shared
    )
    home = f"{_DIR}/home/ce-alice"
    places = {str(shared): home, str(cluster.home()): home, str(cluster.dir): _DIR}
    # as on the distribution that the pages were printed on; testing has no number
    here = platform.freedesktop_os_release()["PRETTY_NAME"]
    places |= {here: "Debian GNU/Linux 12 (bookworm)", "(Debian packages)": "(Debian 12 packages)"}
    places |= {ALICE: "ce-alice"}
    assert _same(done.stdout + done.stderr, places) == _same(printed.output, {})


def test_each_page_has_such_commands() -> None:
    assert {printed.page for printed in PRINTED} == set(PAGES)

"""Layers that are read while they are downloaded."""

import threading
from pathlib import Path

import pytest

from container_engine.images.fetch.registry import Wanted
from container_engine.images.fetch.streaming import Arrival, ArrivingLayer, BrokenOffError

WANTED = Wanted(f"sha256:{'0' * 64}", 10)


class BreaksOff(Arrival):
    """A download that loses its file after the first bytes, before the file is read."""

    def wait(self, wanted: Wanted, have: int, is_closed: threading.Event) -> bool:
        del have, is_closed
        Path(self.draft(wanted)).unlink()
        return False


def test_a_download_that_breaks_off_before_its_file_is_open_is_no_fault_of_the_store(
    tmp_path: Path,
) -> None:
    arrival = BreaksOff("docker://none", {}, str(tmp_path), str(tmp_path), 1)
    Path(arrival.draft(WANTED)).write_bytes(b"some")
    with pytest.raises(BrokenOffError):
        ArrivingLayer(arrival, WANTED).open().read(4)

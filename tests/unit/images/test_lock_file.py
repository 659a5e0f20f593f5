"""Reading of a lock: which image it leads to, and what it refuses."""

import json
import os
import random
from pathlib import Path

import pytest

from container_engine.base.errors import UserError
from container_engine.images import image_files, lock_file
from container_engine.images.reference import RegistryImage, parse
from tests.unit import squashfs

_DIGEST = "sha256:" + "a" * 64
_CHANGED = "is not the file that was locked"


def made(**changes: object) -> lock_file.Lock:
    """Return a lock of an image in a registry."""
    pins = {"amd64": lock_file.Pinned(digest=_DIGEST, size=1, head="", samples="")}
    document = {
        "image": "debian:12",
        "name": "docker.io/library/debian:12",
        "images": pins,
        "engine": "0",
        "environment": "",
        "hooks": {},
        "above": (),
    }
    return lock_file.Lock.of(document | changes)


def of_file(image: Path, **changes: object) -> lock_file.Lock:
    pinned = lock_file.pin_file(str(image)).model_copy(update=changes)
    return made(image=str(image), name="", images={"file": pinned})


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return squashfs.make(tmp_path / "i.sqsh", {"file": random.Random(1).randbytes(150_000).hex()})


def used(locked: lock_file.Lock, image: Path) -> str:
    return lock_file.locked_image(locked, "e.lock", str(image), "amd64", "/")


def test_a_locked_file_is_used_as_long_as_it_is_the_same(image: Path, tmp_path: Path) -> None:
    locked = of_file(image)
    assert used(locked, image) == str(image)
    moved = image.rename(tmp_path / "moved.sqsh")
    assert used(locked, moved) == str(moved)


@pytest.mark.parametrize(
    "change",
    [{"size": 1}, {"head": "0" * 64}, {"samples": "0" * 64}],
    ids=lambda one: next(iter(one)),
)
def test_each_fact_of_a_file_is_compared(image: Path, change: dict[str, object]) -> None:
    with pytest.raises(UserError, match=_CHANGED):
        used(of_file(image, **change), image)


def test_the_digest_counts_where_it_is_known(image: Path) -> None:
    locked = of_file(image, digest=_DIGEST)
    assert used(locked, image) == str(image)
    image_files.record_digest(str(image), image_files.computed_digest(str(image)), b"")
    with pytest.raises(UserError, match=_CHANGED):
        used(locked, image)


def test_other_content_is_noticed_behind_a_record_of_the_same_size_and_time(image: Path) -> None:
    image_files.record_digest(str(image), image_files.computed_digest(str(image)), b"")
    locked = of_file(image)
    before = image.stat()
    with open(image, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([byte ^ 1]))
    os.utime(image, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(UserError, match=_CHANGED):
        used(locked, image)


@pytest.mark.parametrize("part", [0, 7, 15])
def test_a_changed_byte_is_noticed_where_samples_are_taken(image: Path, part: int) -> None:
    locked = of_file(image)
    with open(image, "r+b") as file:
        place = (image.stat().st_size - 4096) * part // 15 + 4095
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(UserError, match=_CHANGED):
        used(locked, image)


def test_a_lock_of_a_file_is_for_no_image_of_a_registry(image: Path) -> None:
    with pytest.raises(UserError, match="the lock is for a file, but 'debian:12' is not a file"):
        lock_file.locked_image(of_file(image), "e.lock", "debian:12", "amd64", "/")


def test_an_image_is_used_by_its_digest_and_for_its_architecture_only() -> None:
    name = f"docker.io/library/debian:12@{_DIGEST}"
    assert lock_file.locked_image(made(), "e.lock", "debian:12", "amd64", "/") == name
    with pytest.raises(UserError, match="no image is locked for arm64, only for amd64"):
        lock_file.locked_image(made(), "e.lock", "debian:12", "arm64", "/")


def meant(*names: str) -> list[RegistryImage]:
    found = [parse(name, "/") for name in names]
    assert all(isinstance(one, RegistryImage) for one in found)
    return [one for one in found if isinstance(one, RegistryImage)]


@pytest.mark.parametrize(
    "names", [("docker.io/library/debian:13",), ("quay.io/a/b", "docker.io/library/debian")]
)
def test_a_lock_leads_to_the_repository_that_the_environment_means(names: tuple[str, ...]) -> None:
    lock_file.check_name(made(), "e.lock", "debian", meant(*names))


@pytest.mark.parametrize(
    "name",
    [
        "docker.io/library/ubuntu:12",
        "evil.example/library/debian:12",
        "docker.io/library/debian/more:12",
        "/home/somebody/i.sqsh",
    ],
)
def test_a_lock_that_leads_elsewhere_is_refused(name: str) -> None:
    says = "and the image 'debian:12' means 'docker.io/library/debian'"
    with pytest.raises(UserError, match=says):
        lock_file.check_name(
            made(name=name), "e.lock", "debian:12", meant("docker.io/library/debian")
        )
    with pytest.raises(UserError, match="means not an image of a registry"):
        lock_file.check_name(made(name=name), "e.lock", "debian:12", [])


def written(tmp_path: Path, **changes: object) -> str:
    """Write a lock beside an environment, and return the path of the environment."""
    (tmp_path / "e.toml").touch()
    text = json.loads(made().to_json()) | changes
    (tmp_path / "e.lock").write_text(json.dumps(text))
    return str(tmp_path / "e.toml")


def test_a_lock_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert lock_file.read(written(tmp_path)) == made()
    (tmp_path / "e.lock").unlink()
    assert lock_file.read(str(tmp_path / "e.toml")) is None


@pytest.mark.parametrize(
    "changes", [{"name": ""}, {"above": [{"image": "x", "name": "", "images": {}}]}]
)
def test_a_lock_that_locks_nothing_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    with pytest.raises(UserError, match="no name of an image is locked"):
        lock_file.read(written(tmp_path, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"more": 1},
        {"images": {"amd64": {"digest": "sha256:a", "size": 1}}},
        {"images": {"amd64": {"digest": f"{_DIGEST}\n", "size": 1}}},
        {"images": {"amd64": {"digest": _DIGEST, "size": -1}}},
    ],
)
def test_a_lock_of_another_form_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    with pytest.raises(UserError):
        lock_file.read(written(tmp_path, **changes))


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_a_lock_of_another_user_is_refused(tmp_path: Path) -> None:
    edf = written(tmp_path)
    os.chown(tmp_path / "e.lock", 61_001, 61_001)
    with pytest.raises(UserError, match=r"e\.lock"):
        lock_file.read(edf)


def test_changes_since_the_lock_are_reported() -> None:
    locked = made(environment="sha256:1", hooks={"ssh": "1", "cxi": "2"})
    now = lock_file.Declared("sha256:1", ("debian:12",), {"ssh": "1", "cxi": "2"})
    assert lock_file.differences(locked, now) == []
    assert lock_file.differences(locked, now._replace(images=("debian:13",))) == [
        "its image was 'debian:12' and is 'debian:13'"
    ]
    changed = now._replace(environment="sha256:2", hooks={"cxi": "3", "new": "1"})
    assert lock_file.differences(locked, changed) == [
        "the environment asks for something else",
        "hook cxi was release 2 and is release 3",
        "hook new was not used and is release 1",
        "hook ssh was release 1 and is not used",
    ]

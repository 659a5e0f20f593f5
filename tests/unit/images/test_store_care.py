"""What a store has, what is wrong with it, and what goes to make room."""

import os
import time
from pathlib import Path

import pytest

from container_engine.images import checking, inventory, lease
from container_engine.images.blobs import sha256
from container_engine.images.reference import RegistryImage, parse
from container_engine.images.store import Store
from tests.unit import squashfs


def named(name: str) -> RegistryImage:
    image = parse(name, "/")
    assert isinstance(image, RegistryImage)
    return image


def digest_of(number: int) -> str:
    return f"sha256:{number:064x}"


def add(store: Store, number: int, *names: str, used: float = 0) -> Path:
    """A complete image."""
    path = Path(store.image(digest_of(number)))
    path.parent.mkdir(parents=True, exist_ok=True)
    squashfs.make(Path(f"{store.root}.made"), {"f": f"{number}"}).rename(path)
    path.with_name(f"{path.name}.json").write_text("{}")
    path.with_name(f"{path.name}.sha256").write_text(f"{sha256(str(path))}\n")
    for name in names:
        store.remember(named(name), digest_of(number))
    os.utime(path, (time.time() - used, time.time() - used))
    return path


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "s"), "amd64")


def problems(store: Store) -> dict[str, str]:
    root = Path(store.root)
    return {str(Path(d.path).relative_to(root)): d.problem for d in checking.check(store.root)}


def test_a_store_is_listed_with_names_the_last_used_first(store: Store) -> None:
    old = add(store, 1, "a:1", used=1000)
    new = add(store._replace(arch="arm64"), 2)
    found = inventory.items(store.root)
    assert [(i.path, i.arch) for i in found] == [(str(new), "arm64"), (str(old), "amd64")]
    assert [i.names for i in found] == [(), ("docker.io/library/a:1",)]


def test_an_empty_or_a_sound_store_has_nothing_wrong(store: Store) -> None:
    assert problems(store) == {}
    add(store, 1, "a:1")
    assert problems(store) == {}


def test_every_damage_is_found_and_repaired(store: Store) -> None:
    root = Path(store.root)
    for number in range(1, 5):
        add(store, number, f"a:{number}")
    images = [Path(store.image(digest_of(n))) for n in range(5)]
    images[1].write_bytes(images[1].read_bytes()[:200])
    data = bytearray(images[2].read_bytes())
    data[120] ^= 1
    images[2].write_bytes(data)
    images[3].with_name(f"{images[3].name}.json").unlink()
    (root / "refs/x-amd64.json").write_text("{")
    store.remember(named("gone:1"), digest_of(9))
    (root / "blobs/sha256").mkdir(parents=True)
    (root / "blobs/sha256" / ("0" * 64)).write_text("x")
    (root / "work/killed").mkdir(parents=True)
    (root / "locks").mkdir()
    dead = lease.this_process("ann").model_copy(update={"pid": 1, "start": "1"})
    (root / "locks/a").write_text(dead.model_dump_json())
    found = problems(store)
    assert found[f"images/{images[1].name}"].startswith("cut short, ")
    assert found[f"images/{images[2].name}"] == "its content has changed since the import"
    assert found[f"images/{images[3].name}"] == "its configuration is missing"
    assert found["refs/x-amd64.json"] == "cannot be understood"
    assert "docker.io/library/gone:1 leads to no image" in found.values()
    assert found[f"blobs/sha256/{'0' * 64}"] == "not what its name says"
    assert found["work/killed"] == "left by an import that was ended"
    assert found["locks/a"].startswith("the lock of ann on ")
    assert len(found) == 8
    for damage in checking.check(store.root):
        checking.repair(damage)
    assert problems(store) == {}
    assert [item.digest for item in inventory.items(store.root)] == [digest_of(4)]


def test_an_import_that_runs_is_left_alone(store: Store) -> None:
    lock = Path(store.root) / "locks/a"
    with lease.held(str(lock), "ann", 1, lambda *_: None) as held:
        Path(store.work(held.holder.token)).mkdir(parents=True)
        assert problems(store) == {}


def test_what_was_not_used_for_long_goes_and_then_what_is_too_much(store: Store) -> None:
    for number in range(3):
        add(store, number, used=100 * number)
    found, now = inventory.items(store.root), time.time()
    size = found[0].size

    def gone(unused_s: float | None, limit: int | None) -> list[str]:
        return [i.digest for i in inventory.superfluous(found, unused_s, limit, now)]

    assert gone(None, None) == []
    assert gone(150, None) == [digest_of(2)]
    assert gone(None, size) == [digest_of(1), digest_of(2)]


def test_an_image_goes_with_its_names_and_all_that_belongs_to_it(store: Store) -> None:
    add(store, 1, "a:1", "b:1")
    inventory.remove(store.root, inventory.items(store.root)[0])
    assert [path for path in Path(store.root).rglob("*") if path.is_file()] == []


def test_keeping_alive_marks_images_as_used(store: Store) -> None:
    add(store, 1, used=1000)
    assert inventory.keep_alive(store.root) == 1
    assert time.time() - inventory.items(store.root)[0].used < 60

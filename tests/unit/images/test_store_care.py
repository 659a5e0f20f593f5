"""Content and damage of a store, and what is removed to free space."""

import contextlib
import errno
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.base.errors import UserError
from container_engine.base.records import to_json
from container_engine.cli.main import main
from container_engine.images import image_files
from container_engine.images.importing.adopt import Adopter
from container_engine.images.listener import Quiet
from container_engine.images.policy import Rules
from container_engine.images.reference import RegistryImage, parse
from container_engine.images.store import ephemeral_store, inventory, lease
from container_engine.images.store.inventory import NOTHING
from container_engine.images.store.store import Store, Stores
from container_engine.site.model import Policy
from container_engine.tools import store_check
from tests.unit import squashfs


def named(name: str) -> RegistryImage:
    image = parse(name, "/")
    assert isinstance(image, RegistryImage)
    return image


OTHER = 65534
CONFIG = b'{"created": "2024-02-03T04:05:06.789Z", "config": {"WorkingDir": "/w"}}'


def manifest_of(number: int) -> bytes:
    return f"manifest {number}".encode()


def digest_of(number: int) -> str:
    return f"sha256:{hashlib.sha256(manifest_of(number)).hexdigest()}"


def add(store: Store, number: int, *names: str, used: float = 0) -> Path:
    """Add a complete image, imported and last used so many seconds ago."""
    path = Path(store.image(digest_of(number)))
    path.parent.mkdir(parents=True, exist_ok=True)
    made = squashfs.make(Path(f"{store.root}.made"), {"f": f"{number}"})
    made = made.rename(f"{store.root}.one")
    image_files.install_stored(str(made), CONFIG, str(path), manifest_of(number))
    when = time.time() - used
    image_files.note_use(str(path), image_files.Use(when, when))
    os.utime(path, (when, when))
    for name in names:
        store.write_ref(named(name), digest_of(number))
    return path


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "s"), "amd64")


def problems(store: Store) -> dict[str, str]:
    root = Path(store.root)
    found = store_check.Checker(store.root).check()
    return {str(Path(damage.path).relative_to(root)): damage.problem for damage in found}


def repair(store: Store) -> None:
    for damage in store_check.Checker(store.root).check():
        store_check.repair(damage)


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


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def damage_images(images: list[Path]) -> dict[str, str]:
    """Damage each image in a different way; return the messages to expect."""
    images[0].write_bytes(images[0].read_bytes()[:200])
    flip(images[1], 120)
    images[2].with_name(f"{images[2].name}.json").unlink()
    flip(images[3].with_name(f"{images[3].name}.json"), CONFIG.index(b"/w") + 1)
    images[4].with_name(f"{images[4].name}.sha256").unlink()
    flip(images[5].with_name(f"{images[5].name}.manifest"), 0)
    words = (
        "cut short, it has 200 bytes of ",
        "its content has changed since the import",
        "its configuration is missing",
        "its configuration has changed since the import",
        "its checksum is missing, so nothing vouches for its content",
        "its manifest has changed since the import",
    )
    return {f"images/{path.name}": said for path, said in zip(images, words, strict=True)}


def test_every_damage_is_found_and_repaired(store: Store) -> None:
    root, old = Path(store.root), (time.time() - 7200,) * 2
    for number in range(7):
        add(store, number, f"a:{number}")
    expected = damage_images([Path(store.image(digest_of(n))) for n in range(6)])
    store.write_ref(named("gone:1"), digest_of(9))
    ref = next(root.glob("refs/*a:6-amd64.json"))
    (root / "refs/x-amd64.json").write_text("{")
    (root / "refs/other-amd64.json").write_bytes(ref.read_bytes())
    for directory in ("blobs/sha256", "work/killed", "locks"):
        (root / directory).mkdir(parents=True)
    (root / f"blobs/sha256/{'0' * 64}").write_text("x")
    for name in ("images/sha256-1-amd64.sqsh.json", "images/draft.host.1", "refs/draft.host.1"):
        (root / name).touch()
        os.utime(root / name, old)
    dead = lease.this_process("ann")._replace(pid=1, start="another")
    (root / "locks/a").write_text(to_json(dead).decode())
    far = dead._replace(machine="another", host="far")
    (root / "locks/b").write_text(to_json(far).decode())
    os.utime(root / "locks/b", old)
    gone = next(str(path.relative_to(root)) for path in root.glob("refs/*gone*"))
    expected |= {
        gone: "docker.io/library/gone:1 leads to no image",
        "refs/x-amd64.json": "cannot be parsed",
        "refs/other-amd64.json": "is for another name, docker.io/library/a:6",
        f"blobs/sha256/{'0' * 64}": "does not match its name",
        "images/sha256-1-amd64.sqsh.json": "it belongs to no image",
        "images/draft.host.1": "it belongs to no image",
        "refs/draft.host.1": "left by an import that was ended",
        "work/killed": "left by an import that was ended",
        "locks/a": "the lock of ann on ",
        "locks/b": "the lock of ann on far ",
    }
    found = problems(store)
    assert {path: said[: len(expected.get(path, ""))] for path, said in found.items()} == expected
    repair(store)
    assert problems(store) == {}
    assert [item.names for item in inventory.items(store.root)] == [("docker.io/library/a:6",)]


def test_what_another_member_of_a_group_keeps_private_is_not_removed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with a umask of 077 in a directory that the group may write."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        store = Store(str(root / "s"), "amd64")
        image, open_to_all = add(store, 1, "a:1"), add(store, 2, "b:1")
        ref, blob = Path(store.ref(named("a:1"))), root / f"s/blobs/sha256/{'0' * 64}"
        blob.parent.mkdir(parents=True)
        blob.write_text("x")
        for one in (root, *(root / "s").rglob("*")):
            os.chown(one, -1, OTHER)
            one.chmod(0o2775 if one.is_dir() else 0o664)
        private = (image, ref, blob, Path(f"{open_to_all}.json"))
        for one in private:
            one.chmod(0o600)
        # as root first, on a store with some damage: others may be able to read neither the modules
        # nor the site's directory, in a clone below /root
        monkeypatch.setattr(sys, "prefix", place)
        add(Store(str(root / "w"), "amd64"), 1, "a:1").write_bytes(b"")
        monkeypatch.setenv("EDF_IMAGESTORE", str(root / "w"))
        main(["store", "repair", "--json"])
        capsys.readouterr()
        monkeypatch.setenv("EDF_IMAGESTORE", store.root)
        try:
            os.setegid(OTHER)
            os.seteuid(OTHER)
            code = main(["store", "repair", "--json"])
        finally:
            os.seteuid(0)
            os.setegid(0)
        assert code == 1
        found = json.loads(capsys.readouterr().out)["damages"]
        assert {one["state"] for one in found} == {"left"}
        assert len(found) == 4
        assert all(one.exists() for one in (*private, open_to_all))


def test_a_configuration_is_mended_from_the_blobs(store: Store) -> None:
    beside = Path(f"{add(store, 1, 'a:1')}.json")
    blob = Path(f"{store.root}/blobs/sha256/{hashlib.sha256(CONFIG).hexdigest()}")
    blob.parent.mkdir(parents=True)
    blob.write_bytes(CONFIG)
    for damage in (beside.unlink, lambda: beside.write_text("{}")):
        damage()
        assert len(problems(store)) == 1
        repair(store)
        assert beside.read_bytes() == CONFIG
        assert problems(store) == {}


def test_a_check_does_not_count_as_a_use(store: Store) -> None:
    add(store, 1, used=1000)
    before = inventory.items(store.root)
    assert problems(store) == {}
    assert inventory.items(store.root) == before


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

    def gone(**limits: int) -> list[str]:
        chosen = inventory.superfluous(found, inventory.Limits(**limits), now)
        return [item.digest for item, _why in chosen]

    assert gone() == []
    assert gone(unused_s=150) == [digest_of(2)]
    assert gone(age_s=50) == [digest_of(1), digest_of(2)]
    assert gone(size=size) == [digest_of(1), digest_of(2)]
    reasons = inventory.superfluous(found, inventory.Limits(100 * 86400, 0, None), now + 86400 * 3)
    assert [why for _item, why in reasons] == ["not used for 3 days"] * 3


def test_creation_import_and_use_are_told_apart(store: Store) -> None:
    path = add(store, 1, used=100_000)
    image_files.note_name(str(path), "reg.io/a:1")
    [item] = inventory.items(store.root)
    assert time.gmtime(item.created)[:5] == (2024, 2, 3, 4, 5)
    assert item.used == pytest.approx(time.time() - 100_000, abs=60)
    image_files.mark_used(str(path), time.time())
    [item] = inventory.items(store.root)
    assert item.used == pytest.approx(time.time(), abs=60)
    assert item.imported == pytest.approx(time.time() - 100_000, abs=60)
    for kept in (path, *map(Path, image_files.belongings(str(path)))):  # safe from a purge by age
        assert kept.stat().st_mtime == pytest.approx(time.time(), abs=60)
        assert kept.stat().st_atime == pytest.approx(time.time(), abs=60)
    Path(f"{path}.json").write_text("{}")
    assert inventory.items(store.root)[0].created == item.imported


def test_an_image_goes_with_its_names_and_all_that_belongs_to_it(store: Store) -> None:
    add(store, 1, "a:1", "b:1")
    inventory.remove(store.root, inventory.items(store.root)[0], NOTHING)
    assert [path for path in Path(store.root).rglob("*") if path.is_file()] == []


def test_times_of_a_clock_that_is_ahead_do_not_count(store: Store) -> None:
    path = add(store, 1, used=1000)
    year = time.time() + 365 * 86400
    image_files.note_use(str(path), image_files.Use(year, year))
    [item] = inventory.items(store.root)
    assert (item.imported, item.used) == pytest.approx((time.time() - 1000,) * 2, abs=60)


def test_a_host_whose_clock_is_ahead_takes_nothing_for_old(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob, lock = Path(f"{store.blobs}/sha256/aa"), Path(f"{store.root}/locks/a")
    other = lease.this_process("ann")._replace(machine="another")
    record = tmp_path / ".local/state/container-engine/void/1-x"
    void = tmp_path / ".ce-void-x"
    for path, text in ((blob, ""), (lock, to_json(other).decode())):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    for directory in (record.parent, void):
        directory.mkdir(parents=True)
    (void / "owner").write_text(to_json(other).decode())
    record.symlink_to(void)
    day, now = 86400, time.time()
    monkeypatch.setattr(time, "time", lambda: now + 10 * day)
    assert inventory.old_blobs(store.root, 7 * day) == []
    assert [found.is_stale for found in lease.found_in(str(lock.parent))] == [False]
    assert ephemeral_store.dead({"HOME": str(tmp_path)}) == []
    image = add(store, 1, "a:1", used=10 * day)  # used at this moment
    monkeypatch.setenv("EDF_IMAGESTORE", store.root)
    assert main(["gc", "--unused", "7", "--age", "7"]) == 0
    assert image.exists()


def test_an_import_that_begins_while_a_store_is_checked_keeps_its_work(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks, found_in = str(Path(store.root) / "locks"), lease.found_in
    Path(f"{store.root}/work").mkdir(parents=True)
    with contextlib.ExitStack() as stack:

        def begun_after(directory: str) -> list[lease.Found]:
            before = list(found_in(directory))
            held = lease.held(f"{locks}/a", "ann", 1, lambda *_: None)
            Path(store.work(stack.enter_context(held).holder.token)).mkdir()
            return before

        monkeypatch.setattr(lease, "found_in", begun_after)
        assert problems(store) == {}


def test_an_image_that_has_changed_since_it_was_looked_at_is_not_removed(store: Store) -> None:
    path = add(store, 1, "a:1")
    good = path.read_bytes()
    flip(path, 100)
    [damage] = store_check.Checker(store.root).check()
    path.unlink()
    path.write_bytes(good)  # as another import does
    assert store_check.repair(damage) == "it has changed since it was looked at"
    assert path.read_bytes() == good


def test_keeping_alive_makes_files_new_and_changes_nothing_else(store: Store) -> None:
    add(store, 1, "a:1", used=1000)
    store.explain()
    before, old = inventory.items(store.root), (1, 1)
    kept = [path for path in Path(store.root).rglob("*") if path.is_file()]
    assert len(kept) == 7
    for path in kept[1:]:
        os.utime(path, old)
    assert inventory.keep_alive(store.root, time.time()) == 1
    assert min(path.stat().st_mtime for path in kept) > time.time() - 60
    assert inventory.items(store.root) == before


def test_a_huge_or_strange_file_beside_an_image_is_named_and_not_read(store: Store) -> None:
    path = add(store, 1, "a:1")
    with open(f"{path}.json", "wb") as file:
        file.truncate(5 << 30)
    os.unlink(f"{path}.used")
    os.mkfifo(f"{path}.used")
    with open(store.ref(named("a:1")), "wb") as file:
        file.truncate(5 << 30)
    assert [item.names for item in inventory.items(store.root)] == [()]
    assert problems(store)[f"images/{path.name}"] == "its configuration: larger than 4 MiB"
    assert Stores(store, ()).find(named("a:1")) is None


class Meanwhile:
    """A change by other processes while a check reads its first file."""

    def __init__(self, do: Callable[[], object]) -> None:
        self._do: Callable[[], object] | None = do

    def __call__(self, _size: int) -> None:
        do, self._do = self._do, None
        if do is not None:
            do()


def test_what_is_removed_during_a_check_is_no_damage(store: Store) -> None:
    paths = sorted(add(store, number, f"a:{number}") for number in range(3))
    blob = Path(f"{store.root}/blobs/sha256/{'0' * 64}")
    blob.parent.mkdir(parents=True)
    blob.write_text("x")
    found = {item.path: item for item in inventory.items(store.root)}

    def remove() -> None:
        for path in paths:
            inventory.remove(store.root, found[str(path)], NOTHING)
        blob.unlink()

    assert list(store_check.Checker(store.root, Meanwhile(remove)).check()) == []
    assert store_check.Checker(store.root).size() == 0


def test_a_name_that_is_imported_during_a_check_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store, 1, "a:1")
    items, lists = inventory.items, []

    def listed(root: str) -> list[inventory.Item]:
        lists.append(items(root))
        if len(lists) == 2:
            add(store, 2, "b:1")
        return lists[-1]

    monkeypatch.setattr(inventory, "items", listed)
    assert list(store_check.Checker(store.root).check()) == []


@pytest.fixture
def without_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_made: str, _path: str) -> None:
        raise PermissionError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("without_links")
def test_without_hard_links_an_image_is_not_replaced_either(tmp_path: Path) -> None:
    made, path = tmp_path / "made", tmp_path / "image"
    made.write_text("new")
    assert image_files.appear(str(made), str(path))
    assert (path.read_text(), made.exists()) == ("new", False)
    made.write_text("another")
    assert not image_files.appear(str(made), str(path))
    assert path.read_text() == "new"
    with pytest.raises(FileNotFoundError):
        image_files.appear(str(tmp_path / "none"), str(tmp_path / "other"))


def test_names_that_somebody_else_wrote_do_not_become_ours(
    store: Store, as_nobody: Callable[[Path], None]
) -> None:
    path = add(store, 1)
    image_files.note_name(str(path), "reg.io/a:1", "abc")
    assert image_files.recorded_names(str(path)) == {"reg.io/a:1": "abc"}
    as_nobody(Path(f"{path}.names"))
    assert image_files.recorded_names(str(path)) == {}
    image_files.note_name(str(path), "reg.io/b:1")
    assert image_files.recorded_names(str(path)) == {"reg.io/b:1": ""}


def test_a_configuration_that_is_nested_without_end_hides_no_image(store: Store) -> None:
    path = add(store, 1)
    Path(f"{path}.json").write_text(f'{{"a": {"[" * 100_000}{"]" * 100_000}}}')
    assert [item.path for item in inventory.items(store.root)] == [str(path)]


def test_an_image_that_is_imported_over_a_damaged_one_is_not_called_imported(
    store: Store, tmp_path: Path
) -> None:
    image = squashfs.make(tmp_path / "i.sqsh", {"f": "x"})
    adopter = Adopter(os.environ, "me", 30, Quiet(), Rules(Policy(), ""))
    kept = Path(adopter.adopt(str(image), "docker.io/library/i:latest", store))
    os.utime(kept)  # as after a copy that keeps no times
    assert adopter.adopt(str(image), "docker.io/library/i:latest", store) == str(kept)
    with kept.open("r+b") as file:
        file.seek(96)
        file.write(b"?" * 8)
    with pytest.raises(UserError, match="has changed since its import") as raised:
        adopter.adopt(str(image), "docker.io/library/i:latest", store)
    assert raised.value.see == "image-damaged"

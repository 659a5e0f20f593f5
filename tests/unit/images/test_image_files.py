"""Files beside an image or an environment count only if its owner wrote them."""

import os
from pathlib import Path

import pytest

from container_engine.base.errors import UserError
from container_engine.images import image_files, lock_file
from container_engine.images.reference import LocalImage, RegistryImage, parse
from container_engine.images.resolve import from_file
from container_engine.images.store.store import Store, Stores
from tests.unit import squashfs

OTHER, THIRD = 61_001, 61_002
DIGEST = f"sha256:{'ab' * 32}"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")


def owned(path: Path, uid: int, text: str = "{}") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.chown(path, uid, uid)
    return path


def refused(path: Path, main: Path) -> str:
    with pytest.raises(UserError) as caught:
        image_files.read_beside(str(path), str(main))
    assert caught.value.see == "untrusted-file"
    return caught.value.message


def test_the_owner_of_the_main_file_and_root_have_a_say_and_nobody_else(tmp_path: Path) -> None:
    main, said = owned(tmp_path / "x.sqsh", OTHER), tmp_path / "x.sqsh.json"
    assert image_files.read_beside(str(said), str(main)) is None
    for uid in (OTHER, 0):
        owned(said, uid, "good")
        assert image_files.read_beside(str(said), str(main)) == b"good"
    owned(said, THIRD)
    assert refused(said, main) == f"{said}: owned by user {THIRD}, and {main} by user {OTHER}"
    owned(said, OTHER).chmod(0o666)
    assert refused(said, main) == f"{said}: everybody may write it, and it decides what runs"


def test_a_link_is_followed_if_its_owner_may_say_where(tmp_path: Path) -> None:
    main, link = owned(tmp_path / "x.sqsh", OTHER), tmp_path / "x.sqsh.json"
    link.symlink_to(owned(tmp_path / "y.json", OTHER, "good"))
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    assert image_files.read_beside(str(link), str(main)) == b"good"
    os.chown(link, THIRD, THIRD, follow_symlinks=False)
    assert f"{link}: owned by user {THIRD}" in refused(link, main)


def test_what_is_no_file_or_huge_is_refused_and_nobody_waits(tmp_path: Path) -> None:
    main, said = owned(tmp_path / "x.sqsh", 0), tmp_path / "x.sqsh.json"
    os.mkfifo(said)
    with pytest.raises(UserError, match="not a regular file"):
        image_files.read_beside(str(said), str(main))
    said.unlink()
    said.write_bytes(bytes(image_files.MOST_BESIDE))
    assert image_files.read_beside(str(said), str(main)) == bytes(image_files.MOST_BESIDE)
    said.write_bytes(bytes(image_files.MOST_BESIDE + 1))
    with pytest.raises(UserError, match="larger than 4 MiB"):
        image_files.read_beside(str(said), str(main))


def test_a_configuration_or_a_lock_of_somebody_else_decides_nothing(tmp_path: Path) -> None:
    image = squashfs.make(tmp_path / "x.sqsh", {"f": "1"})
    edf = owned(tmp_path / "e.toml", 0, f'image = "{image}"\n')
    owned(tmp_path / "x.sqsh.json", OTHER)
    with pytest.raises(UserError, match=r"x\.sqsh\.json: owned by user"):
        from_file("x", str(image), os.environ)
    owned(tmp_path / "e.lock", OTHER)
    with pytest.raises(UserError, match=r"e\.lock: owned by user"):
        lock_file.read(str(edf))


def test_a_checksum_of_somebody_else_is_no_identity(tmp_path: Path) -> None:
    image = squashfs.make(tmp_path / "x.sqsh", {"f": "1"})
    image_files.record_digest(str(image), DIGEST)
    assert image_files.known_digest(str(image)) == DIGEST
    os.chown(f"{image}.sha256", OTHER, OTHER)
    assert image_files.known_digest(str(image)) == ""


def named(name: str) -> RegistryImage:
    image = parse(name, "/")
    assert isinstance(image, RegistryImage)
    return image


def test_an_image_from_a_path_that_is_no_text_has_a_ref(tmp_path: Path) -> None:
    store, image = Store(str(tmp_path / "s"), "amd64"), LocalImage("x", "dir", "/a\udcff")
    owned(Path(store.image(DIGEST)), 0)
    store.write_ref(image, DIGEST)
    found = Stores(store, ()).find(image)
    assert found is not None
    assert (found.ref.name, found.ref.origin) == (r"dir:/a\xff", r"dir:/a\xff")
    assert image.source == "dir:/a\udcff"


@pytest.mark.parametrize("of", ["ref", "image"])
def test_a_store_that_everybody_may_write_has_only_the_owners_images(
    tmp_path: Path, of: str
) -> None:
    store, image = Store(str(tmp_path / "s"), "amd64"), named("a:1")
    owned(Path(store.image(DIGEST)), 0)
    store.write_ref(image, DIGEST)
    stores = Stores(store, ())
    foreign = Path(store.ref(image) if of == "ref" else store.image(DIGEST))
    os.chown(foreign, OTHER, OTHER)
    assert stores.find(image) is not None  # a store shared by a group
    foreign.parent.chmod(0o1777)
    with pytest.raises(UserError, match=f"owned by user {OTHER}, in a store that everybody"):
        stores.find(image)
    os.chown(foreign.parent, OTHER, OTHER)  # now the store's owner
    assert stores.find(image) is not None


@pytest.mark.parametrize("of", ["ref", "image"])
def test_what_everybody_may_write_or_exchange_counts_for_nothing(tmp_path: Path, of: str) -> None:
    """A store that was made with the umask 000, or made so by `chmod -R 777`."""
    store, image = Store(str(tmp_path / "s"), "amd64"), named("a:1")
    owned(Path(store.image(DIGEST)), 0)
    store.write_ref(image, DIGEST)
    stores = Stores(store, ())
    file = Path(store.ref(image) if of == "ref" else store.image(DIGEST))
    usual = file.stat().st_mode
    file.chmod(0o666)
    with pytest.raises(UserError, match=f"^{file}: everybody may write it$"):
        stores.find(image)
    file.chmod(usual)
    for place in (file.parent, file.parent.parent):
        place.chmod(0o777)
        with pytest.raises(UserError, match=f"everybody may exchange what is in {place}$"):
            stores.find(image)
        place.chmod(0o775)  # a group
        assert stores.find(image) is not None


def test_a_ref_counts_for_no_other_name(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "s"), "amd64")
    first, second = named("a:1"), named("b:1")
    owned(Path(store.image(DIGEST)), 0)
    store.write_ref(first, DIGEST)
    Path(store.ref(first)).rename(store.ref(second))
    assert Stores(store, ()).find(second) is None
    Path(store.ref(second)).rename(store.ref(first))
    assert Stores(store, ()).find(first) is not None


def test_the_lock_of_a_file_of_the_sites_gets_the_hint_to_build_on_it() -> None:
    made = lock_file.Lock(
        version=1, engine="0", environment=DIGEST, image="x", name="", images={}, hooks={}
    )
    with pytest.raises(UserError) as caught:
        lock_file.write("/sys/demo.lock", made)  # where not even root may create files
    assert caught.value.hint == (
        'lock an environment of your own: a file with base_environment = "demo"'
    )


def test_a_lock_that_locks_nothing_is_refused_with_its_key(tmp_path: Path) -> None:
    edf = tmp_path / "e.toml"
    edf.write_text("")
    empty = lock_file.Lock(
        version=1, engine="1", environment="x", image="i.sqsh", name="", images={}, hooks={}
    )
    (tmp_path / "e.lock").write_text(empty.to_json())
    with pytest.raises(UserError) as caught:
        lock_file.read(str(edf))
    assert caught.value.message.startswith(f"{tmp_path}/e.lock: images: 'file' is missing")
    assert caught.value.see == "image-lock"

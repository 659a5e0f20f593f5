"""Failing registries and hosts: an import is retried where that may help, or reports why."""

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from container_engine.base.errors import CeError
from container_engine.images.importing.importer import Importer, Limits
from container_engine.images.reference import RegistryImage
from container_engine.images.store.store import Stores, architecture, read_ref
from tests.integration.faulty import ALL, BLOBS, MANIFESTS, Fault, Front, front
from tests.integration.registry import Person, Registry, listing, start
from tests.unit.images import oci
from tests.unit.images.oci import Member

CONTENT = [Member("a", os.urandom(1_500_000))]


@pytest.fixture
def between(registry: Registry) -> Iterator[Front]:
    with front(registry.address) as server:
        home = Path(registry.env["HOME"])
        known = home / ".config/containers/registries.conf.d"
        known.mkdir(exist_ok=True)
        text = f'[[registry]]\nlocation = "{server.address}"\ninsecure = true\n'
        (known / "front.conf").write_text(text)
        yield server
        (known / "front.conf").unlink()


@pytest.fixture
def wanted(registry: Registry, between: Front, tmp_path: Path) -> RegistryImage:
    """Return an image that is requested through the server in between."""
    registry.push(tmp_path / "i", "faults:1", CONTENT)
    return registry.image(f"{between.address}/faults:1")


def impatient(registry: Registry, person: Person) -> Importer:
    return Importer(registry.env, "ann", Limits(60, 5, 3600), person)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(BLOBS, 2, after=700_000),
        Fault(BLOBS, 1, after=700_000, changes=True),
        Fault(BLOBS, 2, status=500),
        Fault(MANIFESTS, 1, status=503),
        Fault(MANIFESTS, 1, after=20),
        Fault(ALL, 1, status=429, headers={"Retry-After": "1"}),
    ],
    ids=["reset", "wrong-bytes", "500", "503", "reset-early", "429"],
)
def test_what_passes_is_tried_again(
    person: Person, between: Front, wanted: RegistryImage, fault: Fault
) -> None:
    between.faults.append(fault)
    assert listing(person.get(wanted)) == {"/a"}
    assert fault.times == 0


@pytest.mark.parametrize("compressor", ["none", "gzip", "zstd"])
def test_layers_stay_as_they_are_if_their_download_breaks_off(
    registry: Registry, person: Person, between: Front, tmp_path: Path, compressor: str
) -> None:
    name = f"broken-{compressor}:1"
    registry.push(tmp_path / "i", name, CONTENT, compressor=compressor)
    between.faults.append(Fault(BLOBS, 1, status=500))
    assert listing(person.get(registry.image(f"{between.address}/{name}"))) == {"/a"}
    assert between.faults[0].times == 0


@pytest.mark.parametrize("faults", [[], [Fault(BLOBS, 1, after=100)]], ids=["streamed", "copied"])
def test_a_pull_may_last_longer_than_the_registrys_tokens_live(
    registry: Registry, person: Person, between: Front, tmp_path: Path, faults: list[Fault]
) -> None:
    """skopeo believes that each token lives for a minute at least, as Docker's protocol says."""
    layers = [[Member(f"f{number}", os.urandom(240_000))] for number in range(24)]
    registry.push(tmp_path / "i", "tokens:1", *layers)
    between.token_s, between.pace = 2, 200_000
    between.faults += faults
    began = time.monotonic()
    assert len(listing(person.get(registry.image(f"{between.address}/tokens:1")))) == 24
    assert time.monotonic() - began > 2 * between.token_s


@pytest.fixture
def liar(registry: Registry, tmp_path: Path) -> tuple[str, str, str]:
    """Return the digests of an index, of the image that it lists, and of another image.

    All are in one repository of the server in between.
    """
    oci.layout_of_several(tmp_path / "index", {"": [[Member("f", b"good")]]})
    push = ["skopeo", "copy", "-q", "--all", f"oci:{tmp_path / 'index'}:latest"]
    target = f"docker://{registry.address}/liar:index"
    subprocess.run([*push, target], env=registry.env, check=True)
    index = shown(registry, "liar:index")
    other = registry.push(tmp_path / "other", "liar:other", [Member("f", b"other")])
    listed = json.loads(index)["manifests"][0]["digest"]
    return digest(index), listed, digest(shown(registry, other.partition("/")[2]))


def shown(registry: Registry, name: str) -> bytes:
    inspect = ["skopeo", "inspect", "--raw", f"docker://{registry.address}/{name}"]
    return subprocess.run(inspect, env=registry.env, check=True, capture_output=True).stdout


def digest(text: bytes) -> str:
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


@pytest.mark.parametrize("named", ["image", "index", "listed"])
def test_another_manifest_than_the_digest_says_is_refused_and_nothing_is_stored(
    registry: Registry,
    person: Person,
    between: Front,
    liar: tuple[str, str, str],
    tmp_path: Path,
    named: str,
) -> None:
    """`listed` is the manifest that an index, asked for by its tag, lists."""
    index, good, other = liar
    asked = index if named == "index" else good
    name = ":index" if named == "listed" else f"@{asked}"
    wanted = registry.image(f"{between.address}/liar{name}")
    between.faults.append(Fault(f"/manifests/{asked}", instead=f"/v2/liar/manifests/{other}"))
    # a newer skopeo compares it first, and does not say what it got
    said = f"answers with ({other}|another manifest) where {asked} was asked for"
    refusal = pytest.raises(CeError, match=said)
    with refusal as caught:
        person.get(wanted)
    assert caught.value.see == "image-damaged"
    with refusal:
        person.importer.to_file(wanted, str(tmp_path / "x.sqsh"), architecture(), replaces=False)
    assert not [name for name in person.files() if name.startswith(("images/", "refs/"))]
    assert not list(tmp_path.glob("x.sqsh*"))
    between.faults.clear()
    assert listing(person.get(wanted)) == {"/f"}


def test_a_name_with_the_digest_of_an_index_counts_only_with_that_index(
    registry: Registry, person: Person, between: Front, liar: tuple[str, str, str]
) -> None:
    index, good, other = liar
    wanted = registry.image(f"{between.address}/liar@{index}")
    assert good.replace(":", "-") in person.get(wanted)
    person.get(registry.image(f"{between.address}/liar@{other}"))
    asked = len(between.asked)
    assert good.replace(":", "-") in person.get(wanted)
    assert len(between.asked) == asked, "what is proven is not asked again"
    # as an engine that believed the registry left it
    person.store.write_ref(wanted, other)
    assert good.replace(":", "-") in person.get(wanted)
    known = read_ref(person.store.ref(wanted))
    assert known is not None
    assert known.digest == good


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault(MANIFESTS, status=404), r"manifest unknown|404|not found"),
        (Fault(MANIFESTS, status=401), r"401|unauthorized|authentication required"),
        (Fault(MANIFESTS, status=403), r"403|denied|forbidden"),
        (Fault(BLOBS, status=404), r"404"),
        (Fault(BLOBS, after=9, changes=True), r"(?i)digest"),
    ],
    ids=["no manifest", "no login", "not allowed", "no blob", "always wrong bytes"],
)
def test_what_does_not_pass_is_said_and_leaves_nothing(
    person: Person, between: Front, wanted: RegistryImage, fault: Fault, said: str
) -> None:
    between.faults.append(fault)
    with pytest.raises(CeError) as caught:
        person.get(wanted)
    assert re.search(said, caught.value.message)
    assert wanted.name in caught.value.message
    assert not [name for name in person.files() if not name.startswith(("README", "blobs"))]
    between.faults.clear()
    assert listing(person.get(wanted)) == {"/a"}


def test_a_registry_that_falls_silent_is_given_up(
    registry: Registry, person: Person, between: Front, wanted: RegistryImage
) -> None:
    between.faults.append(Fault(BLOBS, after=100_000, stalls=True))
    began = time.monotonic()
    with pytest.raises(CeError, match="has sent nothing for 5 s"):
        impatient(registry, person).obtain(wanted, Stores(person.store, ()))
    assert time.monotonic() - began < 40


def test_an_import_that_takes_too_long_says_which_and_whose_limit_that_is(
    registry: Registry, person: Person, between: Front, wanted: RegistryImage
) -> None:
    between.faults.append(Fault(BLOBS, after=100_000, stalls=True))
    # A registry may be silent for longer than an import may take.
    importer = Importer(registry.env, "ann", Limits(0.5, 60, 3600), person)
    with pytest.raises(CeError) as caught:
        importer.obtain(wanted, Stores(person.store, ()))
    assert caught.value.message == (
        f"'{wanted.name}': not imported within 0.5 s, the site's import_timeout_s"
        " (skopeo is running)"
    )
    assert not list(person.root.glob("work/*"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_import_that_is_ended_tidies_up(
    registry: Registry, person: Person, between: Front, wanted: RegistryImage, number: int
) -> None:
    between.faults.append(Fault(BLOBS, after=100_000, stalls=True))
    process = start(registry, person.root, "pull", wanted.name)
    while not list(person.root.glob("work/*/arriving-*")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == -number
    assert not list(person.root.glob("work/*"))
    assert not list(person.root.glob("locks/*"))


def test_an_image_that_is_too_large_is_refused_before_it_is_fetched(
    registry: Registry, between: Front, small: Path, tmp_path: Path
) -> None:
    registry.push(tmp_path / "i", "large:1", [Member("a", os.urandom(2_000_000))])
    person = Person(registry, small / "store")
    with pytest.raises(CeError, match=r"MiB are free, the import needs about 4\.1 MiB"):
        person.get(registry.image(f"{between.address}/large:1"))
    assert not any(re.search(BLOBS, path) for path in between.asked)


def _outgrow(registry: Registry, root: Path, tmp_path: Path, files: int, said: str) -> None:
    """Get an image that fits, and fail to get one that is small as a layer and large as blocks."""
    person = Person(registry, root)
    kept = person.get(registry.image(registry.push(tmp_path / "k", "kept:1", [Member("k")])))
    block = os.urandom(150_000)  # a layer is compressed as one long stream
    content = [Member(f"{n}", block[n:]) for n in range(files)]
    name = registry.push(tmp_path / "i", "grows:1", content, compressor="zstd")
    with pytest.raises(CeError, match=f"(?i){said}"):
        person.get(registry.image(name))
    assert os.listdir(person.root / "work") == []
    assert listing(kept) == {"/k"}
    assert [path.name for path in (person.root / "images").glob("*.sqsh")] == [Path(kept).name]


def test_a_disk_that_fills_up_is_named_and_the_store_stays_whole(
    registry: Registry, small: Path, tmp_path: Path
) -> None:
    _outgrow(registry, small / "store", tmp_path, 60, "no space left")


class Filling(Person):
    """A user whose disk is filled by another process while an image arrives."""

    def far(self, *_progress: object) -> None:
        with contextlib.suppress(OSError), open(self.root.parent / "other", "ab", 0) as file:
            while file.write(bytes(1 << 12)):
                pass


def test_a_disk_that_others_fill_on_the_way_is_named(
    registry: Registry, small: Path, tmp_path: Path
) -> None:
    name = registry.push(tmp_path / "i", "squeezed:1", [Member("a", os.urandom(1_200_000))])
    person = Filling(registry, small / "store")
    with pytest.raises(CeError) as caught:
        person.get(registry.image(name))
    assert caught.value.message == f"'{person.root}': no space left on device"
    assert caught.value.see == "store-full"
    assert os.listdir(person.root / "work") == []


@pytest.fixture
def limited(tmp_path: Path, need_tool: Callable[[str], str]) -> Iterator[Path]:
    """Yield a directory with a quota of 16 MiB on a file system that has more."""
    need_tool("mkfs.btrfs")
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    file, top = tmp_path / "btrfs", tmp_path / "top"
    with file.open("wb") as opened:
        opened.truncate(128 << 20)
    top.mkdir()
    subprocess.run(["mkfs.btrfs", "-q", str(file)], check=True, capture_output=True)
    subprocess.run(["mount", "-o", "loop", str(file), str(top)], check=True)
    try:
        for words in (
            ("quota", "enable", str(top)),
            ("subvolume", "create", f"{top}/mine"),
            ("qgroup", "limit", "16M", f"{top}/mine"),
        ):
            subprocess.run(["btrfs", *words], check=True, capture_output=True)
        yield top / "mine"
    finally:
        subprocess.run(["umount", str(top)], check=True)


def test_a_quota_that_is_too_small_is_known_before_anything_is_fetched(
    registry: Registry, between: Front, limited: Path, tmp_path: Path
) -> None:
    content = [Member("a", os.urandom(12_000_000))]
    registry.push(tmp_path / "i", "quota:1", content)
    person = Person(registry, limited / "store")
    image = registry.image(f"{between.address}/quota:1")
    with pytest.raises(CeError) as caught:
        person.get(image)
    assert caught.value.message == (
        f"'{limited}/store': disk quota exceeded: the import needs about 25 MiB"
    )
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("ce gc --layers makes room")
    assert not any(re.search(BLOBS, path) for path in between.asked)
    with pytest.raises(CeError, match=r"disk quota exceeded: the import needs about 25 MiB"):
        person.importer.to_file(image, f"{limited}/out.sqsh", person.store.arch, replaces=False)
    assert [path.name for path in limited.iterdir()] == ["store"]


def test_a_quota_that_is_used_up_is_named_and_the_store_stays_whole(
    registry: Registry, limited: Path, tmp_path: Path
) -> None:
    _outgrow(registry, limited / "store", tmp_path, 400, "quota exceeded")


@pytest.mark.parametrize("words", [("init", "x"), ("lock", "e")], ids=["init", "lock"])
def test_a_home_without_room_is_named_and_nothing_is_left_half_written(
    registry: Registry, small: Path, words: tuple[str, str]
) -> None:
    home = small / "home"
    (home / ".edf").mkdir(parents=True)
    image = home / "i.sqsh"
    (home / "empty").mkdir()
    make = ["mksquashfs", str(home / "empty"), str(image), "-quiet", "-no-progress"]
    subprocess.run(make, check=True)
    env = Registry(registry.address, {**registry.env, "HOME": str(home), "PWD": "/tmp"})
    (home / ".edf/e.toml").write_text(f'image = "{image}"\n')
    _fill_up(small / "fill")
    process = start(env, home / "store", *words)
    out, err = process.communicate(timeout=60)
    assert process.returncode != 0, out
    assert "no space left on device" in err
    assert f"'{home}/." in err
    assert "hint: make room there" in err
    assert [path.name for path in (home / ".edf").iterdir()] == ["e.toml"]


def _fill_up(path: Path) -> None:
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))

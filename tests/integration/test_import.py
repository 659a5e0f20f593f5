"""Images from a real registry, by skopeo and mksquashfs, as `ce import` and `ce plan` get them."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from container_engine.base.errors import CeError, UserError
from container_engine.images.reference import (
    FileImage,
    LocalImage,
    Pull,
    RegistryImage,
    parse_source,
)
from container_engine.images.store.store import Store, Stores, architecture
from tests.integration.engine import Engine
from tests.integration.registry import RUN, Person, Registry, listing, start
from tests.unit.images import oci
from tests.unit.images.oci import Member


@pytest.mark.parametrize("compressor", oci.COMPRESSORS)
def test_an_image_is_imported_with_its_configuration(
    registry: Registry, person: Person, tmp_path: Path, compressor: str
) -> None:
    low = [oci.directory("d"), Member("d/gone"), Member("d/kept")]
    high = [oci.whiteout("d/gone"), Member("new")]
    name = registry.push(tmp_path / "i", f"{compressor}:1", low, high, compressor=compressor)
    path = person.get(registry.image(name))
    assert listing(path) == {"/d", "/d/kept", "/new"}
    assert json.loads(Path(f"{path}.json").read_text())["config"] == RUN
    assert "/work/" not in "".join(person.files())


def test_a_name_whose_time_is_ahead_is_looked_up_again(
    registry: Registry, person: Person, tmp_path: Path
) -> None:
    image = registry.image(registry.push(tmp_path / "1", "ahead:1", [Member("one")]))
    digest = os.path.basename(person.get(image)).split("-")[1]
    year = time.time() + 365 * 86400
    for pull in (Pull.AGE, Pull.ALWAYS):
        person.store.write_ref(image, f"sha256:{digest}", checked=year, tried=year)
        registry.push(tmp_path / pull, "ahead:1", [Member(pull)])
        assert listing(person.get(image, pull)) == {f"/{pull}"}


def test_two_names_of_one_image_are_one_file_that_stays(registry: Registry, tmp_path: Path) -> None:
    content = [Member(f"f{n}", os.urandom(20_000)) for n in range(300)]
    first = registry.push(tmp_path / "i", "twins:1", content)
    second = f"{registry.address}/twins:2"
    copy = ["skopeo", "copy", "--quiet", f"docker://{first}", f"docker://{second}"]
    subprocess.run(copy, env=registry.env, check=True)
    both = [start(registry, tmp_path / "store", "pull", name) for name in (first, second)]
    said = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert len({stdout for stdout, _stderr in said}) == 1
    assert "".join(stderr for _stdout, stderr in said).count(": imported, ") == 1, said


class Suspended(Person):
    """A user whose import is suspended until another process has taken it over."""

    def far(self, name: str, doing: str, done: int, total: int) -> None:
        del doing, done, total
        if not self.said:
            self.said.append("suspended")
            for place in ("locks", "work"):
                shutil.rmtree(self.root / place)
            other = Person(Registry("", self.env), self.root)
            other.get(self.image(name))

    def image(self, name: str) -> RegistryImage:
        return Registry("", {}).image(name)


def test_who_was_taken_over_uses_the_image_of_who_took_over(
    registry: Registry, tmp_path: Path
) -> None:
    content = [Member(f"f{n}", os.urandom(20_000)) for n in range(300)]
    name = registry.push(tmp_path / "i", "suspended:1", content)
    person = Suspended(registry, tmp_path / "store")
    path = person.get(registry.image(name))
    # on a busy machine the registry may be silent for seconds, too
    assert [text for text in person.said if "waiting for" not in text] == ["suspended"]
    assert len(listing(path)) == 300


class Watching(Person):
    """A user who looks at what is shown of an import."""

    def __init__(self, registry: Registry, root: Path) -> None:
        super().__init__(registry, root)
        self.seen: list[tuple[str, int, int]] = []

    def far(self, name: str, doing: str, done: int, total: int) -> None:
        del name
        self.seen.append((doing, done, total))


def test_what_is_shown_are_the_bytes_that_arrived_and_then_those_packed(
    registry: Registry, tmp_path: Path
) -> None:
    low = [Member(f"low{n}", os.urandom(1 << 20)) for n in range(20)]
    high = [Member(f"high{n}", os.urandom(1 << 20)) for n in range(10)]
    below = registry.push(tmp_path / "1", "shown:1", low, compressor="none")
    name = registry.push(tmp_path / "2", "shown:2", low, high, compressor="none")
    person = Watching(registry, tmp_path / "store")
    person.get(registry.image(below))
    person.seen.clear()
    person.get(registry.image(name))
    (total,) = {total for _doing, _done, total in person.seen}
    phases = {
        what: [n for doing, n, _t in person.seen if doing == what] for what, _, _ in person.seen
    }
    assert set(phases) <= {"downloading", "packing"}
    for counts in phases.values():
        assert counts == sorted(counts)
        assert counts[-1] <= total
    # the store had the layer below already
    assert min(phases.get("downloading", [total])) >= 20 << 20
    assert person.seen[-1] == ("packing", total, total)


def test_an_image_of_this_host_is_copied_and_not_downloaded(
    registry: Registry, tmp_path: Path
) -> None:
    where = oci.layout(tmp_path / "i", [[Member("a", os.urandom(1 << 20))]])
    image = parse_source(f"oci:{where}", "/")
    assert not isinstance(image, FileImage)
    person = Watching(registry, tmp_path / "store")
    person.get(image)
    assert {doing for doing, _done, _total in person.seen} == {"copying", "packing"}


def test_an_image_of_another_architecture_is_refused_each_time(
    registry: Registry, person: Person, tmp_path: Path
) -> None:
    name = registry.push(tmp_path / "i", "foreign:1", [Member("a")], arch="s390x")
    for _try in range(2):  # the second try finds the configuration in the store
        with pytest.raises(UserError, match=r"made for s390x, .* is needed") as caught:
            person.get(registry.image(name))
        assert caught.value.see == "image-architecture"
    assert not [file for file in person.files() if file.startswith(("images", "refs"))]


def test_an_image_is_imported_although_its_layers_are_somebody_elses(
    registry: Registry, person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = [Member("a")], [Member("b")]
    person.get(registry.image(registry.push(tmp_path / "1", "theirs:1", *layers)))
    image = registry.image(registry.push(tmp_path / "2", "theirs:2", *layers, [Member("c")]))

    def refuse(_path: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("container_engine.images.importing.convert.os.utime", refuse)
    assert listing(person.get(image)) == {"/a", "/b", "/c"}


def test_a_layer_that_goes_while_it_is_wanted_is_downloaded_again(
    registry: Registry, person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = [Member("a")], [Member("b")]
    person.get(registry.image(registry.push(tmp_path / "1", "going:1", *layers)))
    image = registry.image(registry.push(tmp_path / "2", "going:2", *layers, [Member("c")]))
    gone: list[str] = []

    def tidy_up(path: str) -> None:
        if not gone:
            gone.append(path)
            os.unlink(path)  # as another process's ce gc --layers does

    monkeypatch.setattr("container_engine.images.importing.convert.os.utime", tidy_up)
    assert listing(person.get(image)) == {"/a", "/b", "/c"}
    assert len(gone) == 1


def test_an_image_that_is_there_needs_no_registry(
    registry: Registry, person: Person, tmp_path: Path
) -> None:
    image = registry.image(registry.push(tmp_path / "i", "once:1", [Member("a")]))
    path = person.get(image)
    person.importer = person.with_env({"PATH": "/none"})
    for pull in (Pull.AGE, Pull.MISSING, Pull.NEVER):
        assert person.get(image, pull) == path


def test_a_tag_that_moved_is_followed_when_asked_to(
    registry: Registry, person: Person, tmp_path: Path
) -> None:
    image = registry.image(registry.push(tmp_path / "1", "moving:1", [Member("one")]))
    first = person.get(image)
    registry.push(tmp_path / "2", "moving:1", [Member("two")])
    assert person.get(image) == person.get(image, Pull.MISSING) == first
    second = person.get(image, Pull.ALWAYS)
    assert listing(second) == {"/two"}
    assert person.get(image) == second


def test_a_tag_that_moved_is_followed_when_the_answer_is_old(
    registry: Registry, person: Person, tmp_path: Path
) -> None:
    image = registry.image(registry.push(tmp_path / "1", "aging:1", [Member("one")]))
    person.importer = person.with_env(registry.env, max_age_s=0)
    person.get(image)
    registry.push(tmp_path / "2", "aging:1", [Member("two")])
    assert listing(person.get(image)) == {"/two"}


def test_an_unchanged_image_is_not_imported_again(
    registry: Registry, person: Person, tmp_path: Path
) -> None:
    image = registry.image(registry.push(tmp_path / "1", "same:1", [Member("one")]))
    path = person.get(image)
    before = os.stat(path)
    assert person.get(image, Pull.ALWAYS) == path
    assert os.stat(path) == before
    assert len(person.said) == 1


def test_an_old_image_is_used_while_its_registry_is_away(
    registry: Registry, person: Person, tmp_path: Path
) -> None:
    image = registry.image(registry.push(tmp_path / "1", "away:1", [Member("one")]))
    path = person.get(image)
    person.importer = person.with_env({"PATH": "/none"}, max_age_s=0)
    stores = Stores(person.store, ())
    for _n in range(2):
        stored = person.importer.obtain(image, stores)
        assert stored.path == path
        assert "used as it was on " in stored.notices[0]
        assert time.time() < stored.not_after < time.time() + 301
    with pytest.raises(CeError):
        person.get(image, Pull.ALWAYS)


def test_an_image_of_the_sites_store_is_used_where_it_is(
    registry: Registry, person: Person, tmp_path: Path
) -> None:
    image = registry.image(registry.push(tmp_path / "1", "site:1", [Member("one")]))
    path = person.get(image)
    for own in (None, Store(str(tmp_path / "mine"), architecture())):
        stores = Stores(own, (person.store,))
        assert person.importer.obtain(image, stores).path == path
    assert person.importer.obtain(image, stores, Pull.ALWAYS).path == path
    assert not list((tmp_path / "mine").glob("images/*"))


def test_layers_that_images_share_are_fetched_once(
    registry: Registry, person: Person, tmp_path: Path
) -> None:
    shared = [Member("base", os.urandom(300_000))]
    person.get(registry.image(registry.push(tmp_path / "1", "one:1", shared)))
    blobs = {path.name: path.stat().st_ino for path in person.root.glob("blobs/sha256/*")}
    other = registry.push(tmp_path / "2", "two:1", shared, [Member("top")])
    assert listing(person.get(registry.image(other))) == {"/base", "/top"}
    after = {path.name: path.stat().st_ino for path in person.root.glob("blobs/sha256/*")}
    assert len(blobs.items() & after.items()) >= 1


def test_a_damaged_layer_of_an_earlier_import_is_noticed_and_removed(
    registry: Registry, person: Person, tmp_path: Path
) -> None:
    image = registry.image(registry.push(tmp_path / "1", "bad:1", [Member("x", b"x" * 9999)]))
    os.unlink(person.get(image))
    largest = max(person.root.glob("blobs/sha256/*"), key=lambda path: path.stat().st_size)
    for blob in person.root.glob("blobs/sha256/*"):
        if blob.read_bytes()[:2] == b"\x1f\x8b":
            largest = blob
    largest.write_bytes(largest.read_bytes()[:-9] + b"?" * 9)
    with pytest.raises(UserError, match=r"^layer "):
        person.get(image)
    assert not largest.exists()
    assert listing(person.get(image)) == {"/x"}


def test_a_digest_names_the_same_image_as_its_tag(
    registry: Registry, person: Person, tmp_path: Path
) -> None:
    name = registry.push(tmp_path / "i", "both:1", [Member("a")])
    stored = person.importer.obtain(registry.image(name), Stores(person.store, ()))
    pinned = registry.image(f"{registry.address}#both:9@{stored.digest}")
    assert person.get(pinned) == stored.path


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"Entrypoint": "/bin/echo hi"}, "config.Entrypoint: must be an array"),
        ({"Env": "PATH=/bin"}, "config.Env: must be an array"),
        ({"Env": ["A=1", 2]}, "config.Env[1]: must be a string"),
        ({"Cmd": "sh"}, "config.Cmd: must be an array"),
        ({"WorkingDir": ["/"]}, "config.WorkingDir: must be a string"),
        ({"Entrypoint": ["", "x"]}, "config.Entrypoint[0]: must be a program, not an empty string"),
        ({"Env": ["A=\0"]}, "a NUL character in a variable"),
        ({"WorkingDir": "/é" * 1366}, "config.WorkingDir: 4098 bytes, a path has at most 4095"),
        ({"WorkingDir": f"/a/{'n' * 256}/b"}, "config.WorkingDir: a name of 256 bytes"),
        ({"Env": ["A=1", f"B={'x' * 131_070}"]}, "config.Env[1]: 131072 bytes, Linux takes"),
        ({"Entrypoint": ["/e", "x" * 131_072]}, "config.Entrypoint[1]: 131072 bytes, Linux takes"),
    ],
)
def test_a_configuration_that_could_not_start_is_refused_by_the_import(
    registry: Registry, person: Person, tmp_path: Path, run: dict[str, object], said: str
) -> None:
    where = oci.layout(tmp_path, [[Member("a")]], run)
    pushed = f"{registry.address}/unfit:{hashlib.sha256(said.encode()).hexdigest()[:9]}"
    copy = ["skopeo", "copy", "-q", f"oci:{where}:latest", f"docker://{pushed}"]
    subprocess.run(copy, env=registry.env, check=True)
    local = parse_source(f"oci:{where}:latest", "/")
    assert isinstance(local, LocalImage)
    imports: tuple[Callable[[], str], ...] = (
        lambda: person.get(registry.image(pushed)),
        lambda: person.importer.to_file(
            local, str(tmp_path / "x.sqsh"), architecture(), replaces=False
        ),
    )
    for import_it in imports:
        with pytest.raises(UserError) as caught:
            import_it()
        assert said in str(caught.value)
    assert not [name for name in person.files() if name.startswith(("images/", "refs/"))]
    assert not list(tmp_path.glob("x.sqsh*"))


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        (lambda good: [good[0], f"sha256:{'0' * 64}"], "its content has the digest "),
        (lambda good: good[:1], "its manifest lists 2 layers, and its configuration 1"),
        (lambda _good: [], "its manifest lists 2 layers, and its configuration 0"),
    ],
    ids=["another content", "another number", "none"],
)
@pytest.mark.parametrize("twice", [False, True], ids=["at once", "in two passes"])
def test_layers_that_the_configuration_does_not_state_are_refused(
    registry: Registry,
    person: Person,
    tmp_path: Path,
    stated: Callable[[list[str]], list[str]],
    said: str,
    twice: bool,
) -> None:
    low, high = [Member("low")], [Member("high")] * (1 + twice)
    where = oci.layout(tmp_path, [low, high], RUN, stated=stated)
    pushed = f"{registry.address}/stated:{len(said)}-{said[-1]}-{twice:d}".replace(" ", "")
    copy = ["skopeo", "copy", "-q", f"oci:{where}:latest", f"docker://{pushed}"]
    subprocess.run(copy, env=registry.env, check=True)
    with pytest.raises(UserError, match=said) as caught:
        person.get(registry.image(pushed))
    assert caught.value.see == "image-damaged"
    local = parse_source(f"oci:{where}:latest", "/")
    assert isinstance(local, LocalImage)
    with pytest.raises(UserError, match=said):
        person.importer.to_file(local, str(tmp_path / "x.sqsh"), architecture(), replaces=False)
    assert not [name for name in person.files() if name.startswith(("images/", "refs/"))]
    assert not list(tmp_path.glob("x.sqsh*"))


def test_what_the_registry_does_not_have_leaves_nothing(registry: Registry, person: Person) -> None:
    with pytest.raises(UserError) as caught:
        person.get(registry.image(f"{registry.address}/absent:1"))
    assert caught.value.message.startswith(f"'{registry.address}/absent:1': ")
    assert "manifest unknown" in caught.value.message
    assert [file for file in person.files() if not file.startswith(("blobs/", "README"))] == []


def test_a_layer_that_cannot_be_leaves_nothing(
    registry: Registry, person: Person, tmp_path: Path
) -> None:
    name = registry.push(tmp_path / "i", "broken:1", [Member("../x")])
    with pytest.raises(UserError, match="leads out of the image"):
        person.get(registry.image(name))
    assert [file for file in person.files() if not file.startswith(("blobs/", "README"))] == []


def test_an_image_for_another_kind_of_machine_is_refused(
    registry: Registry, person: Person, tmp_path: Path
) -> None:
    name = registry.push(tmp_path / "i", "foreign:1", [Member("a")])
    person.store = person.store._replace(arch="s390x")
    with pytest.raises(UserError) as caught:
        person.get(registry.image(name))
    assert caught.value.message == (f"'{name}': made for {architecture()}, s390x is needed")


def test_a_store_that_cannot_be_written_is_named(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    person = Person(registry, tmp_path / "file/store")
    with pytest.raises(UserError) as caught:
        person.get(registry.image("127.0.0.1:1/x"))
    assert caught.value.message == f"'{tmp_path}/file/store': not a directory"


def test_a_store_with_a_colon_is_refused_before_another_directory_is_written(
    registry: Registry, tmp_path: Path
) -> None:
    """For skopeo the path of a layout ends at the colon."""
    beside = tmp_path / "project"
    beside.mkdir()
    (beside / "index.json").write_text("mine")
    image = registry.image(registry.push(tmp_path / "i", "colon:1", [Member("a")]))
    with pytest.raises(UserError, match="cannot write below a path with a colon"):
        Person(registry, tmp_path / "project:1").get(image)
    assert {path.name: path.read_text() for path in beside.iterdir()} == {"index.json": "mine"}
    assert not list((tmp_path / "project:1").glob("*/sha256/*"))


def test_of_several_that_want_an_image_one_imports_it(registry: Registry, tmp_path: Path) -> None:
    content = [Member(f"f{n}", os.urandom(20_000)) for n in range(500)]
    name = registry.push(tmp_path / "i", "wanted:1", content)
    (tmp_path / "e.toml").write_text(f'image = "{name}"')
    arguments = (registry, tmp_path / "store", "plan", "--json", f"{tmp_path}/e.toml")
    ended = [process.communicate() for process in [start(*arguments) for _n in range(3)]]
    said = "".join(stderr for _stdout, stderr in ended)
    assert said.count(": imported, ") == 1
    assert len({json.loads(stdout)["image"]["path"] for stdout, _stderr in ended}) == 1


def test_a_plan_has_what_the_images_configuration_says(registry: Registry, tmp_path: Path) -> None:
    name = registry.push(tmp_path / "i", "planned:1", [Member("a")])
    (tmp_path / "e.toml").write_text(f'image = "{name}"\n[env]\nPATH = "/x:${{image:PATH}}"\n')
    process = start(registry, tmp_path / "store", "plan", "--json", f"{tmp_path}/e.toml")
    plan = json.loads(process.communicate()[0])
    assert (plan["workdir"], plan["image"]["name"]) == ("/w", name)
    assert plan["image"]["digest"].startswith("sha256:")
    assert plan["env"][0]["value"] == "/x:/opt/bin"


def test_an_image_can_be_imported_into_a_file(registry: Registry, tmp_path: Path) -> None:
    name = registry.push(tmp_path / "i", "file:1", [Member("a")])
    target = tmp_path / "out.sqsh"
    for words, code in (([], 0), ([], 1), (["--force"], 0)):
        process = start(registry, tmp_path / "store", "import", name, "-o", str(target), *words)
        _stdout, stderr = process.communicate()
        assert process.returncode == code, stderr
    assert listing(str(target)) == {"/a"}
    assert sorted(p.name for p in tmp_path.glob("*out*")) == [
        "out.sqsh",
        "out.sqsh.json",
        "out.sqsh.sha256",
    ]


def test_after_a_killed_import_the_next_one_succeeds(
    registry: Registry, person: Person, tmp_path: Path
) -> None:
    content = [Member(f"f{n}", os.urandom(20_000)) for n in range(500)]
    name = registry.push(tmp_path / "i", "killed:1", content)
    process = start(registry, person.root, "import", name)
    while not list(person.root.glob("work/*/image")):
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not list(person.root.glob("images/*"))
    person.get(registry.image(name))
    assert not list(person.root.glob("work/*"))


@pytest.mark.parametrize("transport", ["oci", "oci-archive", "docker-archive"])
def test_what_other_tools_saved_is_imported(
    registry: Registry, tmp_path: Path, transport: str
) -> None:
    (tmp_path / "i").mkdir()
    source = f"oci:{oci.layout(tmp_path / 'i', [[Member('a')]], RUN)}:latest"
    if transport != "oci":
        saved = f"{transport}:{tmp_path}/saved"
        subprocess.run(["skopeo", "copy", "-q", source, saved], env=registry.env, check=True)
        source = saved
    process = start(registry, tmp_path / "store", "import", "--quiet", source)
    stdout, stderr = process.communicate()
    assert stderr == ""
    assert listing(stdout.strip()) == {"/a"}


def test_where_nothing_shall_be_kept_an_image_is_there_for_one_run(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    image = str(engine.image("busybox"))
    argv = ["unsquashfs", "-cat", image, "bin/busybox"]
    busybox = subprocess.run(argv, capture_output=True, check=True).stdout
    places = ("dev", "etc", "proc", "run", "sys", "tmp")
    files = [Member("bin/busybox", busybox, mode=0o755), *map(oci.directory, places)]
    (tmp_path / "i").mkdir()
    oci.layout(tmp_path / "i", [[*files, Member("here", b"it is")]])
    target = f"docker://{registry.address}/void:1"
    copy = ["skopeo", "copy", "--quiet", f"oci:{tmp_path}/i:latest", target]
    subprocess.run(copy, env=registry.env, check=True)
    edf = engine.scratch / "void.toml"
    edf.write_text(f'image = "{registry.address}/void:1"\n')
    known = engine.scratch / "home/.config/containers/registries.conf"
    known.parent.mkdir(parents=True)
    known.write_text(f'[[registry]]\nlocation = "{registry.address}"\ninsecure = true\n')
    place = engine.scratch / "passing"
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    env = {"EDF_IMAGESTORE": "void", "TMPDIR": str(place), "HOME": f"{engine.scratch}/home"}
    with engine.start(edf, "/bin/busybox", "sh", "-c", "read word; cat /here", env=env) as process:
        assert process.stdin is not None
        while not (left := list(place.iterdir())) and process.poll() is None:
            pass
        while list(place.iterdir()) and process.poll() is None:
            pass
        assert process.poll() is None, process.communicate()
        assert left
        out, said = process.communicate("go on\n", timeout=60)
    assert out == "it is", said
    assert not list(place.iterdir())


def _put(registry: Registry, name: str, document: dict[str, Any]) -> str:
    """Push a manifest or index as it is; return its digest."""
    body = json.dumps(document).encode()
    asked = urllib.request.Request(
        f"http://{registry.address}/v2/{name}/manifests/{hashlib.sha256(body).hexdigest()[:9]}",
        data=body,
        method="PUT",
        headers={"Content-Type": document["mediaType"]},
    )
    with urllib.request.urlopen(asked):
        return f"sha256:{hashlib.sha256(body).hexdigest()}"


def _raw(registry: Registry, reference: str) -> bytes:
    argv = ["skopeo", "inspect", "--raw", f"docker://{reference}"]
    return subprocess.run(argv, env=registry.env, capture_output=True, check=True).stdout


def test_an_index_may_lead_to_an_index(registry: Registry, person: Person, tmp_path: Path) -> None:
    reference = registry.push(tmp_path / "i", "nested:1", [Member("a")])
    kind, text = "application/vnd.oci.image.", _raw(registry, reference)
    entry: dict[str, Any] = {
        "mediaType": f"{kind}manifest.v1+json",
        "size": len(text),
        "digest": f"sha256:{hashlib.sha256(text).hexdigest()}",
        "platform": {"architecture": person.store.arch, "os": "linux"},
    }
    for _ in range(2):
        index = {"schemaVersion": 2, "mediaType": f"{kind}index.v1+json", "manifests": [entry]}
        digest = _put(registry, "nested", index)
        entry = {"mediaType": index["mediaType"], "size": len(json.dumps(index)), "digest": digest}
    path = person.get(registry.image(f"{registry.address}/nested@{digest}"))
    assert listing(path) == {"/a"}
    person.importer = person.with_env({"PATH": "/none"})  # nothing is asked again
    assert person.get(registry.image(f"{registry.address}/nested@{digest}")) == path


def test_layers_in_zstd_of_a_manifest_of_docker_are_said_before_they_come(
    registry: Registry, person: Person, tmp_path: Path
) -> None:
    reference = registry.push(tmp_path / "i", "mixed:1", [Member("a")], compressor="zstd")
    manifest, kind = json.loads(_raw(registry, reference)), "application/vnd.docker."
    manifest["mediaType"] = f"{kind}distribution.manifest.v2+json"
    manifest["config"]["mediaType"] = f"{kind}container.image.v1+json"
    manifest["layers"][0]["mediaType"] = f"{kind}image.rootfs.diff.tar.zstd"
    digest = _put(registry, "mixed", manifest)
    with pytest.raises(UserError, match="zstd in a Docker manifest") as caught:
        person.get(registry.image(f"{registry.address}/mixed@{digest}"))
    assert "oci-mediatypes=true" in (caught.value.hint or "")
    assert not list(person.root.glob("blobs/*/*"))

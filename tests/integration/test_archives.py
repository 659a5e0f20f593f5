"""Archives and layouts as people keep them: compressed, with several images, with odd names."""

import gzip
import io
import json
import lzma
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.cli.main import main
from tests.integration.engine import Engine
from tests.integration.importing import Importing
from tests.integration.registry import RUN, listing
from tests.unit.images import oci
from tests.unit.images.oci import Member, directory, hard_link, link

ONE, TWO = (["one:1"], [Member("1")]), (["localhost/two:1", "x/two:2"], [Member("2")])
ROOT = [directory("bin"), Member("bin/tool", b"x", mode=0o755), link("sh", "bin/tool")]
COMPRESSORS = ["none", "gzip", "zstd"]
EVERY = [*COMPRESSORS, "xz", "bzip2"]


def packed(file: Path, compressor: str) -> Path:
    file.write_bytes(oci.MORE_COMPRESSORS[compressor][1](file.read_bytes()))
    return file


@pytest.mark.parametrize("compressor", EVERY)
@pytest.mark.parametrize("prefix", ["docker-archive:", ""])
def test_what_docker_saved_is_imported_compressed_or_not(
    me: Importing, compressor: str, prefix: str
) -> None:
    file = packed(oci.docker_save(me.root / "my:x.tar", [ONE]), compressor)
    assert listing(me.path("import", f"{prefix}{file}", "n:1")) == {"/1"}
    assert list(me.root.glob("ce-import-*")) == []


@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize(
    ("chosen", "name", "file"),
    [
        ("one:1", "localhost/one:1", "/1"),
        ("docker.io/library/one:1", "localhost/one:1", "/1"),
        ("two:1", "localhost/two:1", "/2"),
        ("localhost/two:1", "localhost/two:1", "/2"),
        ("x/two:2", "localhost/two:2", "/2"),
        ("@1", "localhost/a:latest", "/2"),
    ],
)
def test_one_of_several_images_is_chosen_by_its_name(
    me: Importing, compressor: str, chosen: str, name: str, file: str
) -> None:
    archive = packed(oci.docker_save(me.root / "a.tar", [ONE, TWO]), compressor)
    path = me.path("import", f"docker-archive:{archive}:{chosen}")
    assert listing(path) == {file}
    assert me.launched(name)["path"] == path


@pytest.mark.parametrize("prefix", ["docker-archive:", ""])
def test_of_several_images_it_is_said_which_there_are(me: Importing, prefix: str) -> None:
    file = oci.docker_save(me.root / "a.tar", [ONE, TWO, ([], [Member("3")])])
    names = "one:1, localhost/two:1, x/two:2, @2"
    said = me.refusal("import", f"{prefix}{file}")
    assert f"'{prefix}{file}': it has 3 images: {names}\n" in said
    assert f"ce: hint: choose one: ce import docker-archive:{file}:@2\n" in said
    absent = f"docker-archive:{file}:three:1"
    said = f"'{absent}': it has no image 'three:1', but {names}\n"
    assert said in me.refusal("import", absent)
    assert f"no image '@3', but {names}\n" in me.refusal("import", f"docker-archive:{file}:@3")
    assert listing(me.path("import", f"docker-archive:{file}:@2")) == {"/3"}


@pytest.mark.parametrize("compressor", EVERY)
@pytest.mark.parametrize("output", [(), ("-o", "made.sqsh")])
def test_a_root_file_system_as_an_archive_is_imported_as_a_directory_is(
    me: Importing, compressor: str, output: tuple[str, ...]
) -> None:
    file = me.root / "exported.tar"
    file.write_bytes(oci.layer([*ROOT, hard_link("again", "bin/tool")]))
    path = me.path("import", *output, str(packed(file, compressor)))
    assert listing(path) - {"->", "bin/tool"} == {"/again", "/bin", "/bin/tool", "/sh"}
    assert file.exists()  # its name is no digest
    if not output:
        assert me.launched("localhost/exported")["path"] == path


@pytest.mark.parametrize("twice", [(), (Member("etc/foo"),)], ids=["once", "a name twice"])
def test_a_root_file_system_has_no_markers(me: Importing, twice: tuple[Member, ...]) -> None:
    """In a layer these names would remove files; here they are what tar makes of them."""
    names = (".wh..wh.x", "etc/.wh..wh..opq", "etc/.wh.foo", "etc/foo")
    file = me.root / "exported.tar"
    file.write_bytes(oci.layer([*map(Member, names), *twice]))
    assert listing(me.path("import", str(file))) == {"/etc", *(f"/{name}" for name in names)}


@pytest.mark.parametrize("kind", ["archive", "directory"])
@pytest.mark.parametrize("beside", [(), ("metadata.yaml", "templates")], ids=["alone", "as LXD"])
def test_a_root_file_system_inside_a_directory_is_warned_of(
    me: Importing, kind: str, beside: tuple[str, ...]
) -> None:
    root = me.root / "top/ubuntu"
    (root / "bin").mkdir(parents=True)
    (root / "etc").mkdir()
    source = me.root / "top"
    for name in beside:
        (source / name).touch()
    if kind == "archive":
        source = me.root / "r.tar"
        with tarfile.open(source, "w") as archive:
            archive.add(me.root / "top", ".")
    assert main(("import", str(source), "top:1")) == 0
    assert f"{source}: its programs are below 'ubuntu', where no container looks" in me.said()
    (me.root / "top/etc").mkdir()
    for whole in (root, *([me.root / "top"] if beside else [])):
        assert main(("import", str(whole), "top:2")) == 0
        assert "its programs are below" not in me.said()


@pytest.mark.parametrize("compressor", EVERY)
@pytest.mark.parametrize("prefix", ["oci-archive:", ""])
def test_an_archive_of_a_layout_is_imported_compressed_or_not(
    me: Importing, compressor: str, prefix: str
) -> None:
    where = oci.layout(me.root / "i", [[Member("a")]])
    file = me.root / "l:1.tar"
    with tarfile.open(file, "w") as archive:
        archive.add(where, ".")
    assert listing(me.path("import", f"{prefix}{packed(file, compressor)}", "n:1")) == {"/a"}
    if prefix:
        assert listing(me.path("import", f"{prefix}{file}:latest", "n:2")) == {"/a"}
        assert "no image 'x', but latest" in me.refusal("import", f"{prefix}{file}:x")


def as_docker_saves(file: Path, where: Path, manifest: str) -> Path:
    """Write an archive of a layout, in which manifest.json has the image of this manifest, too."""

    def blob(described: dict[str, str]) -> str:
        return f"blobs/{described['digest'].replace(':', '/')}"

    image = json.loads((where / blob({"digest": manifest})).read_text())
    layers = list(map(blob, image["layers"]))
    saved = {"Config": blob(image["config"]), "RepoTags": ["d:1"], "Layers": layers}
    (where / "manifest.json").write_text(json.dumps([saved]))
    with tarfile.open(file, "w") as archive:
        for name in ("blobs", "index.json", "manifest.json", "oci-layout"):
            archive.add(where / name, name)
    return file


@pytest.mark.parametrize(
    "source", ["docker-archive:{}", "docker-archive:{}:d:1", "oci-archive:{}", "{}"]
)
@pytest.mark.parametrize("compressor", ["none", "gzip"])
def test_an_archive_may_be_both_as_docker_writes_it_today(
    me: Importing, source: str, compressor: str
) -> None:
    where = oci.layout(me.root, [[Member("a")]], compressor="none")
    digest = json.loads((where / "index.json").read_text())["manifests"][0]["digest"]
    file = packed(as_docker_saves(me.root / "d.tar", where, digest), compressor)
    assert listing(me.path("import", source.format(file), "n:1")) == {"/a"}


@pytest.mark.parametrize("compressor", ["none", "gzip"])
def test_of_both_the_one_with_the_wanted_architecture_is_taken(
    me: Importing, compressor: str
) -> None:
    """On a host of another architecture, Docker writes all platforms and lists its own."""
    where = me.root / "i"
    where.mkdir()
    oci.layout_of_several(where, {"": [[Member("here")]], "s390x": [[Member("other")]]})
    outer = json.loads((where / "index.json").read_text())["manifests"][0]["digest"]
    index = json.loads((where / "blobs" / outer.replace(":", "/")).read_text())
    for one in index["manifests"]:
        file = as_docker_saves(me.root / "d.tar", where, one["digest"])
        packed(file, compressor)
        assert listing(me.path("import", str(file), "n:1")) == {"/here"}
        assert listing(me.path("import", "--arch=s390x", str(file), "n:1")) == {"/other"}
        assert "for riscv64" in me.refusal("import", "--arch=riscv64", str(file))


@pytest.mark.parametrize("first", ["blobs", "index.json"])
@pytest.mark.parametrize("compressor", ["none", "gzip"])
def test_an_archive_of_a_layout_may_lack_the_entries_of_its_directories(
    engine: Engine, first: str, compressor: str
) -> None:
    # skopeo unpacks such an archive for root alone
    where = engine.scratch / "layout"
    where.mkdir()
    oci.layout(where, [[Member("a")]])
    files = sorted(path for path in where.rglob("*") if path.is_file())
    files.sort(key=lambda path: path.relative_to(where).parts[0] != first)
    archive = engine.scratch / "o.tar"
    with tarfile.open(archive, "w") as out:
        for path in files:
            out.add(path, str(path.relative_to(where)))
    packed(archive, compressor)
    image = engine.scratch / "o.sqsh"
    argv = [str(engine.prefix / "bin/ce"), "import", str(archive), "-o", str(image)]
    with engine.popen(argv) as process:
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, said
    assert listing(str(image)) == {"/a"}


@pytest.mark.parametrize("compressor", ["xz", "bzip2"])
def test_layers_may_be_compressed_as_podman_reads_them(me: Importing, compressor: str) -> None:
    where = me.root / "i"
    where.mkdir()
    oci.layout(where, [[Member("a")], [Member("b")]], compressor=compressor)
    assert listing(me.path("import", f"oci:{where}", "n:1")) == {"/a", "/b"}


def test_an_archive_in_xz_is_named_by_what_is_before_its_ending(me: Importing) -> None:
    file = me.root / "rootfs.tar.xz"
    file.write_bytes(lzma.compress(oci.layer(ROOT)))
    path = me.path("import", str(file))
    assert me.launched("localhost/rootfs")["path"] == path


def test_a_root_file_system_may_have_directories_of_the_names_in_archives(me: Importing) -> None:
    file = me.root / "r.tar"
    file.write_bytes(oci.layer([directory("repositories"), directory("blobs"), Member("blobs/x")]))
    found = listing(me.path("import", str(file), "n:1"))
    assert found == {"/repositories", "/blobs", "/blobs/x"}


def flat(where: Path, change: Callable[[list[dict[str, object]]], object]) -> Path:
    """Write a layout whose index.json lists an image for each of two architectures; change it."""
    layers = {"": [[Member("here")]], "s390x": [[Member("other")]]}
    oci.layout_of_several(where, layers)
    outer = json.loads((where / "index.json").read_text())
    nested = outer["manifests"][0]["digest"].removeprefix("sha256:")
    index = json.loads((where / "blobs/sha256" / nested).read_text())
    change(index["manifests"])
    (where / "index.json").write_text(json.dumps(index))
    return where


def attested(listed: list[dict[str, object]]) -> None:
    platform = {"architecture": "unknown", "os": "unknown"}
    listed.append({**listed[0], "platform": platform})


def attested_alone(listed: list[dict[str, object]]) -> None:
    attested(listed)
    del listed[1]


def tagged(*tags: str) -> Callable[[list[dict[str, object]]], object]:
    def change(listed: list[dict[str, object]]) -> None:
        for one, tag in zip(listed, tags, strict=True):
            one["annotations"] = {"org.opencontainers.image.ref.name": tag}

    return change


def without_platforms(listed: list[dict[str, object]]) -> None:
    for one in listed:
        del one["platform"]


@pytest.mark.parametrize(
    ("change", "chosen", "words", "file"),
    [
        (lambda _listed: None, "", (), "/here"),
        (lambda _listed: None, "", ("--arch", "s390x"), "/other"),
        (attested, "", (), "/here"),
        (attested_alone, "", (), "/here"),
        (tagged("a", "a"), "", (), "/here"),
        (tagged("a", "a"), ":a", ("--arch", "s390x"), "/other"),
        (tagged("a", "b"), ":a", (), "/here"),
        (tagged("a", "b"), ":@0", (), "/here"),
        (without_platforms, ":@0", (), "/here"),
    ],
)
def test_of_a_layout_the_image_is_chosen_by_platform_or_tag(
    me: Importing,
    change: Callable[[list[dict[str, object]]], object],
    chosen: str,
    words: tuple[str, ...],
    file: str,
) -> None:
    where = flat(me.root / "my:i", change)
    assert listing(me.path("import", *words, f"oci:{where}{chosen}", "n:1")) == {file}


def test_of_an_index_in_a_layout_the_wanted_architecture_is_taken(me: Importing) -> None:
    where = me.root / "i"
    where.mkdir()
    oci.layout_of_several(where, {"": [[Member("here")]], "s390x": [[Member("other")]]})
    assert listing(me.path("import", f"oci:{where}", "n:1")) == {"/here"}
    found = me.path("import", "--arch=s390x", f"oci:{where}:latest", "n:1")
    assert listing(found) == {"/other"}


def test_an_index_in_a_layout_is_what_its_digest_says(me: Importing) -> None:
    where = me.root / "i"
    where.mkdir()
    oci.layout_of_several(where, {"": [[Member("here")]], "s390x": [[Member("other")]]})
    index = json.loads((where / "index.json").read_text())
    digest = index["manifests"][0]["digest"].removeprefix("sha256:")
    # an index that leads to itself would never end
    (where / "blobs/sha256" / digest).write_text(json.dumps(index))
    assert "its index does not match its digest" in me.refusal("import", f"oci:{where}")
    index["manifests"][0]["digest"] = "sha256:../../x"
    (where / "index.json").write_text(json.dumps(index))
    assert "is neither a SHA-256 nor a SHA-512 digest" in me.refusal("import", f"oci:{where}")


@pytest.mark.parametrize("prefix", ["oci", "oci-archive"])
@pytest.mark.parametrize("is_nested", [False, True])
def test_manifests_may_be_named_by_sha512(me: Importing, is_nested: bool, prefix: str) -> None:
    where = me.root / "i"
    where.mkdir()
    if is_nested:
        oci.layout_of_several(where, {"": [[Member("a")]], "s390x": [[Member("b")]]}, "sha512")
    else:
        oci.layout(where, [[Member("a")]], algorithm="sha512")
    file = me.root / "i.tar"
    with tarfile.open(file, "w") as archive:
        archive.add(where, ".")
    source = f"{prefix}:{where if prefix == 'oci' else file}"
    assert listing(me.path("import", source, "n:1")) == {"/a"}
    digest = json.loads((where / "index.json").read_text())["manifests"][0]["digest"]
    named = where / "blobs" / digest.replace(":", "/")
    named.write_text(named.read_text() + " ")
    with tarfile.open(file, "w") as archive:
        archive.add(where, ".")
    what = "index" if is_nested else "manifest"
    assert f"its {what} does not match its digest {digest}" in me.refusal("import", source, "n:2")


@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_a_manifest_in_an_archive_is_what_its_digest_says(me: Importing, compressor: str) -> None:
    where = oci.layout(me.root / "i", [[Member("a")]])
    said = json.loads((where / "index.json").read_text())["manifests"][0]["digest"]
    manifest = where / "blobs" / said.replace(":", "/")
    manifest.write_text(manifest.read_text() + " ")
    file = me.root / "l.tar"
    with tarfile.open(file, "w") as archive:
        archive.add(where, ".")
    refusal = me.refusal("import", f"oci-archive:{packed(file, compressor)}")
    assert f"its manifest does not match its digest {said}" in refusal


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_manifest_in_a_layout_is_what_its_digest_says(me: Importing, is_nested: bool) -> None:
    where = me.root / "i"
    where.mkdir()
    if is_nested:
        oci.layout_of_several(where, {"": [[Member("here")]], "s390x": [[Member("other")]]})
    else:
        oci.layout(where, [[Member("here")]])
    said = json.loads((where / "index.json").read_text())["manifests"][0]["digest"]
    if is_nested:
        inner = (where / "blobs/sha256" / said.removeprefix("sha256:")).read_text()
        said = json.loads(inner)["manifests"][0]["digest"]
    manifest = where / "blobs/sha256" / said.removeprefix("sha256:")
    manifest.write_text(manifest.read_text() + " ")
    message = f"its manifest does not match its digest {said}"
    assert message in me.refusal("import", f"oci:{where}")


@pytest.mark.parametrize("prefix", ["oci", "dir"])
@pytest.mark.parametrize("output", [(), ("-o", "made.sqsh")])
def test_a_directory_is_taken_for_what_it_has(
    me: Importing, prefix: str, output: tuple[str, ...]
) -> None:
    where = oci.layout(me.root / "tools", [[Member("a")], [Member("b")]], RUN)
    source = me.root / "copy/tools"
    source.parent.mkdir()
    copy = ["skopeo", "copy", "-q", f"oci:{where}:latest", f"{prefix}:{source}"]
    subprocess.run(copy, check=True)
    path = me.path("import", *output, str(source))
    assert listing(path) == {"/a", "/b"}
    if not output:
        found = me.launched("localhost/tools")
        assert (found["path"], found["workdir"]) == (path, "/w")


def test_a_directory_with_several_images_needs_a_choice(me: Importing) -> None:
    where = flat(me.root / "i", tagged("a", "b"))
    said = me.refusal("import", str(where))
    assert ": it has 2 images: a, b\n" in said
    command = said.partition("ce import ")[2].split()[0]
    assert command == f"oci:{where}:b"


def test_an_unpacked_archive_of_docker_is_no_root_file_system(me: Importing) -> None:
    where = me.root / "un packed"
    where.mkdir()
    archive = oci.docker_save(me.root / "a.tar", [ONE])
    subprocess.run(["tar", "-C", str(where), "-xf", str(archive)], check=True)
    said = me.refusal("import", str(where))
    assert ": what docker save writes, unpacked\n" in said
    hint = said.partition("ce: hint: ")[2].partition("\n")[0]
    pack, _then, again = hint.partition(" ; then ce ")
    subprocess.run(["sh", "-c", pack], check=True)
    assert listing(me.path(*again.split())) == {"/1"}


@pytest.mark.parametrize("compressor", ["none", "gzip"])
def test_an_archive_of_skopeos_directory_is_no_root_file_system(
    me: Importing, compressor: str
) -> None:
    where = oci.layout(me.root / "i", [[Member("a")]])
    copy = ["skopeo", "copy", "-q", f"oci:{where}:latest", f"dir:{me.root}/copy"]
    subprocess.run(copy, check=True)
    file = me.root / "copy.tar"
    with tarfile.open(file, "w") as archive:
        archive.add(me.root / "copy", ".")
    said = me.refusal("import", str(packed(file, compressor)))
    assert ": a directory that skopeo made, in an archive\n" in said
    root = me.root / "root.tar"
    root.write_bytes(oci.layer([Member("version", b"1.0\n"), Member("manifest.json", b"{}")]))
    found = listing(me.path("import", str(packed(root, compressor)), "n:1"))
    assert found == {"/version", "/manifest.json"}


@pytest.mark.parametrize("lacking", ["oci-layout", "index.json", "blobs"])
def test_a_directory_that_is_no_whole_layout_is_a_root_file_system(
    me: Importing, lacking: str
) -> None:
    root = me.root / "root"
    (root / "blobs").mkdir(parents=True)
    for name in ("oci-layout", "index.json", "manifest.json", "version"):
        (root / name).write_text("{}")
    if lacking == "blobs":
        (root / lacking).rmdir()
    else:
        (root / lacking).unlink()
    assert listing(me.path("import", str(root))) == {f"/{path.name}" for path in root.iterdir()}


def test_an_index_that_is_a_pipe_is_not_waited_for(me: Importing) -> None:
    os.mkfifo(me.root / "index.json")
    assert "not a regular file" in me.refusal("import", f"oci:{me.root}")


@pytest.mark.parametrize("form", ["directory", "archive"])
def test_an_image_with_several_tags_is_one_image(me: Importing, form: str) -> None:
    """BuildKit lists an image as often as it has names."""
    where = oci.layout(me.root / "i", [[Member("a")]])
    index = json.loads((where / "index.json").read_text())
    names = [{"org.opencontainers.image.ref.name": name} for name in ("1", "2")]
    index["manifests"] = [{**index["manifests"][0], "annotations": name} for name in names]
    (where / "index.json").write_text(json.dumps(index))
    source = where
    if form == "archive":
        source = me.root / "i.tar"
        with tarfile.open(source, "w") as archive:
            archive.add(where, ".")
    for chosen in ("", ":1", ":2"):
        transport = {"directory": "oci:", "archive": "oci-archive:"}[form]
        assert listing(me.path("import", f"{transport}{source}{chosen}", "n:1")) == {"/a"}
    assert listing(me.path("import", str(source), "n:1")) == {"/a"}
    assert "it has no image '3', but 1, 2" in me.refusal("import", f"{transport}{source}:3")


def test_images_of_one_name_are_chosen_by_number(me: Importing) -> None:
    def both(listed: list[dict[str, object]]) -> None:
        tagged("a", "a")(listed)
        without_platforms(listed)

    where = flat(me.root / "i", both)
    assert "it has 2 images: @0, @1\n" in me.refusal("import", f"oci:{where}")
    assert "it has 2 images 'a': @0, @1\n" in me.refusal("import", f"oci:{where}:a")
    archive = oci.docker_save(me.root / "a.tar", [ONE, TWO, (["one:1"], [Member("3")])])
    names = "@0, localhost/two:1, x/two:2, @2"
    assert f"it has 3 images: {names}\n" in me.refusal("import", str(archive))
    said = me.refusal("import", f"docker-archive:{archive}:one:1")
    assert "it has 2 images 'one:1': @0, @2\n" in said
    assert listing(me.path("import", f"docker-archive:{archive}:@2", "n:1")) == {"/3"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (tagged("a", "b"), "it has 2 images: a, b"),
        (without_platforms, "it has 2 images: @0, @1"),
        (lambda listed: listed.clear(), "it has no image"),
        (lambda listed: listed.pop(0), "made for s390x, "),
    ],
)
def test_what_a_layout_has_is_said(
    me: Importing, change: Callable[[list[dict[str, object]]], object], message: str
) -> None:
    assert message in me.refusal("import", f"oci:{flat(me.root / 'i', change)}")


def test_hints_lead_to_what_works(me: Importing) -> None:
    docker = oci.docker_save(me.root / "docker.tar", [ONE])
    where = oci.layout(me.root / "i", [[Member("a")]])
    layout = me.root / "layout.tar"
    with tarfile.open(layout, "w") as archive:
        archive.add(where, ".")
    root = me.root / "root.tar"
    root.write_bytes(oci.layer(ROOT))
    for wrong in (
        *(f"docker-archive:{file}" for file in (layout, root)),
        *(f"oci-archive:{file}" for file in (docker, root)),
        *(f"oci:{file}" for file in (docker, layout, root)),
        f"docker-archive:{root}:x:1",
    ):
        said = me.refusal("import", wrong)
        command = said.partition("ce import ")[2].split()[0]
        assert listing(me.path("import", command, "n:1")), wrong
    tree = me.root / "tree"
    tree.mkdir()
    for wrong in (f"docker-archive:{tree}", f"oci-archive:{tree}", f"oci:{tree}"):
        assert "ce import ./DIR" in me.refusal("import", wrong)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xfd7zXZ\0" + b"x" * 600, "damaged: "),
        (b"BZh91AY&SY" + b"x" * 600, "damaged: "),
        (gzip.compress(b"no archive" * 100), "not a complete tar archive: "),
        (gzip.compress(oci.layer(ROOT))[:-100], "damaged: "),
        (oci.layer(ROOT)[:1500], "unexpected end of data"),
    ],
    ids=["xz", "bzip2", "a text", "damaged", "cut short"],
)
def test_what_is_no_archive_is_said(me: Importing, content: bytes, message: str) -> None:
    file = me.root / "a.tar.x"
    file.write_bytes(content)
    assert message in me.refusal("import", str(file))
    assert file.read_bytes() == content
    assert not list(me.store.glob("images/*"))


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("first", [b"", oci.layer([Member("f")])[:512]], ids=["first", "later"])
def test_a_huge_extended_header_takes_no_memory(me: Importing, kind: bytes, first: bytes) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, 1 << 30
    file = me.root / "a.tar"
    with file.open("wb") as out:
        out.write(first + info.tobuf())
        out.truncate(1 << 31)
    for source in (f"docker-archive:{file}", str(file)):
        assert ": an extended header is too long" in me.refusal("import", source)


def test_an_incomplete_archive_of_docker_is_no_root_file_system(me: Importing) -> None:
    whole = oci.docker_save(me.root / "a.tar", [ONE])
    part = io.BytesIO()
    with tarfile.open(whole) as source, tarfile.open(fileobj=part, mode="w") as target:
        for member in source:
            if member.name != "manifest.json":
                target.addfile(member, source.extractfile(member))
    whole.write_bytes(part.getvalue())
    for name in (f"docker-archive:{whole}", str(whole)):
        assert ": an incomplete archive of images: it has" in me.refusal("import", name)


def test_an_archive_for_which_there_is_no_room_to_unpack_is_said(
    me: Importing, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    names, members = ONE
    file = oci.docker_save(me.root / "a.tar", [(names, [*members, Member("big", bytes(9 << 20))])])
    small = me.root / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(small)], check=True)
    try:
        monkeypatch.setattr(tempfile, "tempdir", str(small))
        said = me.refusal("import", str(packed(file, "gzip")))
        assert "no space left on device\nce: hint: TMPDIR=DIR names a directory with more" in said
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)

"""Images of this host on their way to a registry, and back by several tools."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.integration.registry import Registry, start
from tests.integration.trees import Podman, entries
from tests.unit import squashfs

RUN = {
    "Env": ["PATH=/opt/bin:/bin", "LD_PRELOAD=/opt/x.so", "TEXT=a b"],
    "Entrypoint": ["/opt/start", "--"],
    "Cmd": ["serve"],
    "WorkingDir": "/w",
    "User": "7:8",
    "Labels": {"org.example.who": "me"},
}
NAMES = ("plain", "two words", "new\nline", "ümläut", ".wh", "x.wh.y", "-> y", "l" * 250)


class Pushing:
    """A user with a directory, a store and a registry, as whom `ce` runs."""

    def __init__(self, registry: Registry, root: Path) -> None:
        self.registry, self.root = registry, root
        self.env = {"TMPDIR": str(root / "tmp")}
        (root / "tmp").mkdir()

    def begin(self, *words: str) -> subprocess.Popen[str]:
        registry = self.registry._replace(env={**self.registry.env, **self.env})
        return start(registry, self.root / "store", *words)

    def done(self, *words: str) -> tuple[int, str, str]:
        with self.begin(*words) as process:
            out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def ce(self, *words: str) -> str:
        code, out, err = self.done(*words)
        assert code == 0, err
        return out.strip()

    def refusal(self, *words: str) -> str:
        code, out, err = self.done(*words)
        assert (code, out) == (1, ""), err
        assert list((self.root / "tmp").iterdir()) == []
        return err.removeprefix("ce: error: ")

    def name(self, tag: str) -> str:
        return f"{self.registry.address}/me/tools:{tag}"

    def inspected(self, name: str) -> dict[str, Any]:
        argv = ["skopeo", "inspect", "--config", "--raw", f"docker://{name}"]
        done = subprocess.run(argv, env=self.registry.env, capture_output=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture
def me(registry: Registry, tmp_path: Path) -> Pushing:
    return Pushing(registry, tmp_path)


@pytest.fixture
def image(me: Pushing, need_tool: Callable[[str], str]) -> Path:
    """Return an image with everything that a layer can hold, as root has made it."""
    need_tool("sqfs2tar")
    tree = me.root / "tree"
    for name in NAMES:
        (tree / "names" / name / "below").mkdir(parents=True)
        (tree / "names" / name / "below" / name).write_text(name)
    (tree / "bin").mkdir()
    (tree / "bin/tool").write_text("#!/bin/sh\n")
    os.link(tree / "bin/tool", tree / "bin/other")
    (tree / "link").symlink_to("../.wh.nothing")
    os.mkfifo(tree / "fifo", 0o620)
    (tree / "tmp").mkdir()
    (tree / "tmp").chmod(0o1777)
    os.setxattr(tree / "bin/tool", "user.note", b"\x00\xff\n")
    (tree / "zeros").write_bytes(bytes(3_000_000))
    if os.geteuid() == 0:
        os.chown(tree / "bin/tool", 1234, 42)
    (tree / "bin/tool").chmod(0o6751)
    file = me.root / "image.sqsh"
    argv = ["mksquashfs", str(tree), str(file), "-quiet", "-no-progress"]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    document = {"architecture": "amd64", "os": "linux", "config": RUN}
    (me.root / "image.sqsh.json").write_text(json.dumps(document))
    return file


def unpacked(me: Pushing, image: str) -> Path:
    where = me.root / "unpacked"
    argv = ["unsquashfs", "-quiet", "-no-progress", "-d", str(where), image]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return where


def test_an_image_comes_back_with_the_digest_that_was_printed(me: Pushing, image: Path) -> None:
    name = me.ce("push", str(image), me.name("1"))
    tagged, _at, digest = name.partition("@")
    assert (tagged, digest[:7]) == (me.name("1"), "sha256:")
    path = me.ce("import", "--arch", "amd64", name)
    assert Path(path).name == f"{digest.replace(':', '-')}-amd64.sqsh"
    there = {
        # the files of an imported image belong to root
        place: entry._replace(owner=(0, 0))
        for place, entry in entries(me.root / "tree").items()
    }
    assert entries(unpacked(me, path)) == there
    assert me.ce("import", "--arch", "amd64", me.name("1")) == path


def test_the_same_image_has_the_same_digest_again(me: Pushing, image: Path) -> None:
    first = me.ce("push", str(image), me.name("same"))
    copy = me.root / "copy.sqsh"
    copy.write_bytes(image.read_bytes())
    copy.with_name("copy.sqsh.json").write_bytes((me.root / "image.sqsh.json").read_bytes())
    me.env["TMPDIR"] = str(me.root)
    time.sleep(1.1)  # a time of a second would differ
    second = me.ce("push", "-q", "--arch", "amd64", str(copy), me.name("other"))
    assert first.partition("@")[2] == second.partition("@")[2]


def test_podman_pulls_it_with_owners_and_settings(me: Pushing, image: Path, podman: Podman) -> None:
    name = me.ce("push", str(image), me.name("podman"))
    with podman.mounted(name.replace(":podman@", "@")) as root:
        assert entries(root) == entries(me.root / "tree")
    config = me.inspected(me.name("podman"))
    assert config["config"] == RUN
    assert (config["architecture"], config["os"]) == ("amd64", "linux")
    assert len(config["rootfs"]["diff_ids"]) == 1


def test_an_image_of_the_store_is_named_as_environments_name_it(me: Pushing) -> None:
    file = squashfs.make(me.root / "plain.sqsh", {"etc/os-release": "ID=x\n"})
    me.ce("import", "-q", str(file))
    me.ce("import", "-q", "--arch", "arm64", str(file), "tools:2")
    assert "@sha256:" in me.ce("push", "plain", me.name("store"))
    assert "in no store of this host" in me.refusal("push", "tools:2", me.name("arm"))
    assert "'plain': in no store of this host for arm64" in me.refusal(
        "push", "--platform", "linux/arm64", "plain", me.name("arm")
    )
    me.ce("push", "--arch", "arm64", "tools:2", me.name("arm"))
    assert me.inspected(me.name("arm"))["architecture"] == "arm64"
    me.ce("import", "-q", "--arch", "arm64", me.name("arm"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("./x.sqsh", "me/tools:1"), "'me/tools:1': names no registry\nce: hint: for example"),
        (("./x.sqsh", "localhost/t"), "'localhost/t': names no registry\n"),
        (("./x.sqsh", "./y.sqsh"), "'./y.sqsh': a path, not a reference to a registry\n"),
        (("./x.sqsh", f"r.example/t@sha256:{'0' * 64}"), "a digest follows from the content"),
        (("./none.sqsh", "r.example/t:1"), "/none.sqsh': no such file or directory\n"),
        (("none", "r.example/t:1"), "'none': in no store of this host\nce: hint: ce images"),
        (("./", "r.example/t:1"), "a directory, not a SquashFS file\n"),
        # the reason differs on a machine without network
        (("./x.sqsh", "registry.invalid/t:1"), "registry.invalid cannot be reached: "),
        (("./x.sqsh", "127.0.0.1:9/t:1"), "127.0.0.1:9 cannot be reached: connect"),
    ],
)
def test_what_cannot_be_pushed_is_said_at_once(
    me: Pushing, words: tuple[str, str], message: str
) -> None:
    squashfs.make(me.root / "x.sqsh", {"a": "b"})
    image = words[0].replace("./", f"{me.root}/")
    said = me.refusal("push", image, words[1])
    assert message in said
    assert ("cannot be reached" in said) == ("\nce: hint: push on a host" in said)
    assert "packing" not in said


def test_a_registry_that_refuses_an_image_is_not_one_out_of_reach(me: Pushing) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/v2/" else 404)
            self.end_headers()

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            self.send_response(400)
            self.end_headers()

    file = squashfs.make(me.root / "x.sqsh", {"a": "b"})
    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}"
        known = me.root / "registries.conf"
        known.write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
        me.env["CONTAINERS_REGISTRIES_CONF"] = str(known)
        said = me.refusal("push", "-q", str(file), f"{address}/t:1")
        server.shutdown()
    assert "400" in said
    assert "ce: hint: the registry can be reached and refuses" in said


def test_plain_http_is_refused_with_what_allows_it(me: Pushing) -> None:
    file = squashfs.make(me.root / "x.sqsh", {"a": "b"})
    (me.root / "empty").touch()
    me.env["CONTAINERS_REGISTRIES_CONF"] = str(me.root / "empty")
    said = me.refusal("push", str(file), me.name("http"))
    assert said.startswith(f"'{me.name('http')}': ")
    assert "server gave HTTP response to HTTPS client" in said
    assert "ce: hint: this registry speaks plain HTTP: write [[registry]], location" in said


def test_a_link_whose_name_removes_a_file_in_a_layer_is_refused(me: Pushing) -> None:
    tree, file = me.root / "tree", me.root / "x.sqsh"
    (tree / "etc").mkdir(parents=True)
    (tree / "etc/.wh.gone").symlink_to("../.wh.x")
    subprocess.run(["mksquashfs", str(tree), str(file), "-quiet", "-no-progress"], check=True)
    said = me.refusal("push", str(file), me.name("link"))
    assert "'/etc/.wh.gone -> ../.wh.x' is what marks a removed file" in said


@pytest.mark.parametrize("mark", [".wh.gone", ".wh..wh..opq", "new\n/.wh.gone"])
def test_a_name_that_removes_a_file_in_a_layer_is_refused(me: Pushing, mark: str) -> None:
    file = squashfs.make(me.root / "x.sqsh", {f"etc/{mark}": "x", "etc/gone": "y"})
    said = me.refusal("push", str(file), me.name("marked"))
    shown = f"/etc/{mark}".rpartition("\n")[2]
    assert f"/x.sqsh': '{shown}' is what marks a removed file in the layers of images" in said


def test_a_difference_that_removes_files_is_refused(me: Pushing) -> None:
    file = me.root / "x.sqsh"
    (me.root / "d").mkdir()
    argv = ["mksquashfs", str(me.root / "d"), str(file), "-quiet", "-p", "gone c 0 0 0 0 0"]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    said = me.refusal("push", str(file), me.name("difference"))
    assert "'/gone' is what marks a removed file" in said
    assert "ce: hint: a difference (ce save --difference) goes above an image" in said


@pytest.mark.parametrize("part", ["content", "names"])
def test_a_damaged_image_is_named(me: Pushing, part: str) -> None:
    file = squashfs.make(me.root / "x.sqsh", {"etc/x": os.urandom(300_000).hex()})
    data = bytearray(file.read_bytes())
    inodes = int.from_bytes(data[64:72], "little")
    at, why = {"content": (200, "its files cannot be read"), "names": (inodes + 2, "damaged")}[part]
    data[at : at + 38] = b"?" * 38
    file.write_bytes(data)
    said = me.refusal("push", "-q", str(file), me.name("damaged"))
    assert said.startswith(f"'{file}': {why}: ")


def test_damage_that_no_decompressor_notices_is_not_sent(me: Pushing) -> None:
    (me.root / "x").mkdir()
    (me.root / "x/random").write_bytes(os.urandom(2_000_000))
    me.ce("import", "-q", str(me.root / "x"))
    [file] = (me.root / "store/images").glob("*.sqsh")
    before = file.stat()
    with file.open("r+b") as damaged:
        damaged.seek(200_000)  # a block that is stored as it is, between those that are sampled
        damaged.write(b"?" * 512)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    said = me.refusal("push", "-q", "x", me.name("unnoticed"))
    assert said.startswith(f"'{file}': damaged: its content is not what was recorded")
    with pytest.raises(subprocess.CalledProcessError):
        me.inspected(me.name("unnoticed"))


def test_a_disk_that_is_too_small_is_named(me: Pushing, small: Path) -> None:
    file = squashfs.make(me.root / "x.sqsh", {"x": os.urandom(5_000_000).hex()})
    me.env["TMPDIR"] = str(small)
    said = me.refusal("push", "-q", str(file), me.name("full"))
    assert said.startswith(f"'{small}': no space left on device\n")
    assert "ce: hint: TMPDIR=DIR names a directory with more room\n" in said
    assert list(small.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_push_leaves_nothing_and_can_be_repeated(
    me: Pushing, number: signal.Signals
) -> None:
    file = squashfs.make(me.root / "x.sqsh", {"x": os.urandom(30_000_000).hex()})
    name, drafts = me.name(f"cut{number:d}"), me.root / "tmp"
    with me.begin("push", str(file), name) as process:
        while not list(drafts.glob("*/oci/layer")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        process.communicate(timeout=30)
    assert process.returncode == -number
    if number != signal.SIGKILL:
        assert list(drafts.iterdir()) == []
    with pytest.raises(subprocess.CalledProcessError):
        me.inspected(name)
    me.ce("push", "-q", str(file), name)
    assert list(drafts.iterdir()) == []
    assert me.inspected(name)["os"] == "linux"

"""Errors of images, stores and registries, each provoked for real, as srun shows them."""

import gzip
import http.server
import json
import os
import pwd
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from container_engine.base.records import to_json
from container_engine.images.store.lease import Holder
from container_engine.images.store.store import Store, architecture
from tests.integration.registry import Registry, serving
from tests.slurm.cluster import ALICE, BOB, Cluster
from tests.slurm.error_block import ErrorBlock, Provoked
from tests.slurm.forge import Forge
from tests.slurm.site import Site
from tests.unit.images.oci import Member

pytestmark = pytest.mark.usefixtures("tidy")


def _named(provoked: Provoked, image: str) -> str:
    return provoked.edf(f'image = "{image}"\n', None)


# ---- files -----------------------------------------------------------------------------------


def _whole(cluster: Cluster) -> bytes:
    return cluster.image("busybox").read_bytes()


# name, content of the file, its mode, code
_FILES: list[tuple[str, Callable[[Cluster], bytes], int, str]] = [
    ("empty", lambda _c: b"", 0o644, "image-damaged"),
    ("a web page", lambda _c: b"<html>not found</html>\n" * 10, 0o644, "image-not-squashfs"),
    ("an archive", lambda _c: gzip.compress(b"x" * 500), 0o644, "image-not-squashfs"),
    ("zeros", lambda _c: bytes(4096), 0o644, "image-not-squashfs"),
    ("cut short", lambda c: _whole(c)[:100_000], 0o644, "image-damaged"),
    ("somebody else's", _whole, 0o600, "image-file-unreadable"),
]


@pytest.mark.parametrize(
    ("make", "mode", "code"), [f[1:] for f in _FILES], ids=[f[0] for f in _FILES]
)
def test_a_file_that_is_no_image_for_you(
    cluster: Cluster, provoked: Provoked, make: Callable[[Cluster], bytes], mode: int, code: str
) -> None:
    image = provoked.shared / "x.sqsh"
    image.write_bytes(make(cluster))
    image.chmod(mode)
    ErrorBlock(provoked.srun(_named(provoked, str(image))), code, f"'{image}'", "image")


def test_a_file_that_was_purged(provoked: Provoked) -> None:
    image = provoked.shared / "purged.sqsh"
    ErrorBlock(provoked.srun(_named(provoked, str(image))), "image-file-not-found", f"'{image}'")


def test_a_name_that_is_nearly_right(provoked: Provoked) -> None:
    (provoked.shared / "pytorch-24.05.sqsh").touch()
    image = provoked.shared / "pytorch-2405.sqsh"
    block = ErrorBlock(provoked.srun(_named(provoked, str(image))), "image-file-not-found")
    assert block.parts["hint"] == f"did you mean '{provoked.shared}/pytorch-24.05.sqsh'?"


def test_a_directory_in_place_of_a_file(provoked: Provoked) -> None:
    done = provoked.srun(_named(provoked, str(provoked.shared)))
    ErrorBlock(done, "image-not-squashfs", "a directory")


def test_content_that_is_damaged_is_found_on_the_node(cluster: Cluster, provoked: Provoked) -> None:
    whole = bytearray(_whole(cluster))
    whole[96:] = b"\xff" * (len(whole) - 96)
    image = provoked.shared / "x.sqsh"
    image.write_bytes(whole)
    ErrorBlock(provoked.srun(_named(provoked, str(image))), "image-damaged", ": n")


def test_a_program_in_a_damaged_part_of_the_image(cluster: Cluster, provoked: Provoked) -> None:
    """The mount succeeds, but the blocks of the program cannot be read."""
    whole = bytearray(_whole(cluster))
    whole[96:600_000] = os.urandom(600_000 - 96)
    image = provoked.shared / "x.sqsh"
    image.write_bytes(whole)
    done = provoked.srun(_named(provoked, str(image)), command=("busybox",))
    ErrorBlock(done, "image-damaged", "busybox", "Input/output error", exit_code=126)


def test_an_image_that_goes_away_between_submission_and_start(
    cluster: Cluster, provoked: Provoked
) -> None:
    image = provoked.shared / "x.sqsh"
    image.write_bytes(_whole(cluster))
    edf = _named(provoked, str(image))
    assert cluster.srun(f"--environment={edf}", "true").returncode == 0
    image.unlink()
    ErrorBlock(provoked.srun(edf), "image-file-not-found", f"'{image}'")


def test_a_lock_of_another_file(cluster: Cluster, provoked: Provoked) -> None:
    image = provoked.shared / "x.sqsh"
    image.write_bytes(_whole(cluster))
    edf = provoked.shared / "locked.toml"
    edf.write_text(f'image = "{image}"\n')
    assert cluster.run(["ce", "lock", str(edf)]).returncode == 0
    image.write_bytes(_whole(cluster) + bytes(4096))
    ErrorBlock(provoked.srun(str(edf)), "image-lock", "locked.lock")


def test_a_lock_of_another_user(cluster: Cluster, provoked: Provoked) -> None:
    image = provoked.shared / "x.sqsh"
    image.write_bytes(_whole(cluster))
    edf = provoked.shared / "locked.toml"
    edf.write_text(f'image = "{image}"\n')
    lock = edf.with_suffix(".lock")
    lock.write_text("{}")
    for path in (image, edf):
        shutil.chown(path, ALICE)
    shutil.chown(lock, BOB)
    ErrorBlock(
        provoked.srun(str(edf)), "untrusted-file", f"{lock}: owned by {BOB}, and {edf} by {ALICE}"
    )


# ---- names -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Ubuntu:24.04", "docker.io#", "x y", "~/x.sqsh"])
def test_a_name_that_is_neither_a_path_nor_a_reference(provoked: Provoked, name: str) -> None:
    ErrorBlock(
        provoked.srun(_named(provoked, name)), "image-reference", name.split("/", maxsplit=1)[0]
    )


def test_an_image_that_may_not_be_fetched(provoked: Provoked) -> None:
    env = {"CE_PULL": "never", "EDF_IMAGESTORE": str(provoked.shared / "store")}
    done = provoked.srun(_named(provoked, "127.0.0.1:1/x:y"), env=env)
    ErrorBlock(done, "image-not-in-store", "127.0.0.1:1")


def test_an_image_that_the_site_does_not_want(provoked: Provoked, site: Site) -> None:
    site.configure('[policy]\nallowed_images = ["registry.example/*"]\n')
    done = provoked.srun(_named(provoked, "127.0.0.1:1/x:y"))
    ErrorBlock(done, "image-policy", "allowed_images", "127.0.0.1:1/x:y")


def test_an_image_that_the_scanner_does_not_like(provoked: Provoked, site: Site) -> None:
    scanner = site.program("scanner", "echo 3 holes; exit 1")
    site.configure(f'[policy]\nscanner = ["{scanner}", "{{path}}"]\nscanner_verdict = "block"\n')
    done = provoked.srun(provoked.edf(""))
    ErrorBlock(done, "image-scan", "3 holes")


# ---- registries ------------------------------------------------------------------------------


@contextmanager
def _answering(code: int, body: bytes = b"", kind: str = "", pause_s: float = 0) -> Iterator[str]:
    """Run a registry that answers every request in this way, each after a pause."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name that http.server calls
            ended.wait(pause_s)
            self.send_response(code)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: object) -> None:
            pass

    ended = threading.Event()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        ended.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _user_of(provoked: Provoked, address: str) -> dict[str, str]:
    """Return the environment of a user who may use the registry without TLS."""
    home = provoked.shared / "home"
    conf = home / ".config/containers/registries.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
    entry = pwd.getpwnam(ALICE)
    for path in (home, *home.rglob("*")):
        os.chown(path, entry.pw_uid, entry.pw_gid)
    return {"HOME": str(home), "EDF_IMAGESTORE": str(provoked.shared / "store")}


def test_a_registry_that_is_not_there(provoked: Provoked) -> None:
    env = {"EDF_IMAGESTORE": str(provoked.shared / "store")}
    done = provoked.srun(_named(provoked, "127.0.0.1:1/x:y"), env=env)
    ErrorBlock(done, "registry-unreachable", "connection refused").details("skopeo")


def test_a_registry_that_wants_a_login(provoked: Provoked) -> None:
    with _answering(401) as address:
        env = _user_of(provoked, address)
        done = provoked.srun(_named(provoked, f"{address}/x:y"), env=env)
    block = ErrorBlock(done, "registry-login")
    assert block.parts["hint"] == f"ce login {address}"


def test_a_registry_that_limits_requests(provoked: Provoked, site: Site) -> None:
    site.configure("registry_timeout_s = 1\n")
    with _answering(429) as address:
        env = _user_of(provoked, address)
        done = provoked.srun(_named(provoked, f"{address}/x:y"), env=env)
    ErrorBlock(done, "registry-limit", f"{address} allows no more requests for now (HTTP 429)")


def test_a_name_that_the_registry_does_not_have(provoked: Provoked) -> None:
    with _answering(404) as address:
        env = _user_of(provoked, address)
        done = provoked.srun(_named(provoked, f"{address}/x:y"), env=env)
    ErrorBlock(done, "image-unknown", f"{address}/x:y")


def test_a_registry_that_does_not_answer(provoked: Provoked, site: Site) -> None:
    site.configure("registry_timeout_s = 0.5\n")
    with _answering(200, pause_s=30) as address:
        env = _user_of(provoked, address)
        done = provoked.srun(_named(provoked, f"{address}/x:y"), env=env)
    cause = f"{address} did not answer within 0.5 s"
    ErrorBlock(done, "registry-unreachable", f"'{address}/x:y'", cause).details("skopeo inspect")


_INDEX = "application/vnd.oci.image.index.v1+json"
_OTHER_MACHINE = {
    "schemaVersion": 2,
    "mediaType": _INDEX,
    "manifests": [
        {
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": f"sha256:{'0' * 64}",
            "size": 1,
            "platform": {"architecture": "s390x", "os": "linux"},
        }
    ],
}
# name, the registry's manifest of the image, code, word of the error line
_MANIFESTS: list[tuple[str, object, str, str]] = [
    ("another machine's", _OTHER_MACHINE, "image-architecture", "only for s390x"),
    ("no document", [], "image-format", "neither an OCI image nor a Docker image"),
]


@pytest.mark.parametrize(
    ("manifest", "code", "word"), [m[1:] for m in _MANIFESTS], ids=[m[0] for m in _MANIFESTS]
)
def test_an_image_that_this_machine_cannot_run(
    provoked: Provoked, manifest: object, code: str, word: str
) -> None:
    with _answering(200, json.dumps(manifest).encode(), _INDEX) as address:
        env = _user_of(provoked, address)
        done = provoked.srun(_named(provoked, f"{address}/x:y"), env=env)
    ErrorBlock(done, code, f"'{address}/x:y'", word)


def test_a_host_without_skopeo(provoked: Provoked, cluster: Cluster) -> None:
    srun = shutil.which("srun")
    assert srun is not None
    edf = _named(provoked, "127.0.0.1:1/x:y")
    argv = ["/usr/bin/env", f"PATH={provoked.shared}", srun, f"--environment={edf}", "true"]
    done = cluster.run(argv, env={"EDF_IMAGESTORE": str(provoked.shared / "store")})
    ErrorBlock(done, "program-missing", "cannot start skopeo: no such file or directory")


def test_a_directory_without_a_containerfile(cluster: Cluster, provoked: Provoked) -> None:
    done = cluster.run(["ce", "build", str(provoked.shared)])
    ErrorBlock(done, "image-build", f"'{provoked.shared}'", exit_code=1)


# ---- stores ----------------------------------------------------------------------------------


def _is_a_file(place: Path) -> None:
    place.write_text("")


def _is_read_only(place: Path) -> None:
    place.mkdir(0o555)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with serving(tmp_path_factory.mktemp("served")) as registry:
        yield registry


@pytest.fixture(scope="module")
def pushed(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the name of a small image in the registry."""
    return registry.push(tmp_path_factory.mktemp("a") / "layout", "x:1", [Member("a", b"b")])


@pytest.mark.parametrize("spoil", [_is_a_file, _is_read_only])
def test_a_store_that_cannot_be_used(
    provoked: Provoked, spoil: Callable[[Path], None], registry: Registry, pushed: str
) -> None:
    """The store is only opened once the registry has answered."""
    store = provoked.shared / "store"
    spoil(store)
    env = _user_of(provoked, registry.address)
    ErrorBlock(provoked.srun(_named(provoked, pushed), env=env), "store-unusable", str(store))


def test_a_store_that_is_full(provoked: Provoked, registry: Registry, tmp_path: Path) -> None:
    store = provoked.shared / "store"
    store.mkdir()
    name = registry.push(tmp_path / "layout", "x:large", [Member("a", os.urandom(4_000_000))])
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=1777", "tmpfs", store], check=True)
    try:
        env = _user_of(provoked, registry.address)
        done = provoked.srun(_named(provoked, name), env=env)
    finally:
        subprocess.run(["umount", store], check=True)
    ErrorBlock(done, "store-full", str(store))


def test_an_import_of_somebody_else_that_does_not_end(
    provoked: Provoked, site: Site, registry: Registry, pushed: str
) -> None:
    """The other user is on another host, so that nobody can see whether the import still lives."""
    site.configure("import_timeout_s = 1\n")
    env = _user_of(provoked, registry.address)
    store = Path(env["EDF_IMAGESTORE"])
    lock = Path(Store(str(store), architecture()).lock(registry.image(pushed)))
    lock.parent.mkdir(parents=True)
    holder = Holder(token="t", user="ann", host="login2", machine="other", pid=7)
    lock.write_text(to_json(holder).decode())
    for path in (store, lock.parent):
        path.chmod(0o777)
    block = ErrorBlock(
        provoked.srun(_named(provoked, pushed), env=env), "store-busy", "ann on login2 (process 7)"
    )
    assert block.parts["hint"] == f"if that is no longer so, remove {lock}"


# what the image's packer does, code, words of the error line
_PACKERS = [
    ("exec sleep 60", "program-slow", "not imported within 5 s"),
    ("echo no luck today >&2; exit 3", "program-failed", "no luck today"),
]


@pytest.mark.parametrize(("script", "code", "word"), _PACKERS)
def test_a_program_that_does_not_do_its_work(
    provoked: Provoked,
    site: Site,
    registry: Registry,
    pushed: str,
    script: str,
    code: str,
    word: str,
) -> None:
    packer = site.program("tar2sqfs", script)
    if code == "program-slow":
        site.configure("import_timeout_s = 5\n")
    env = _user_of(provoked, registry.address)
    before = ("env", f"PATH={packer.parent}:/usr/bin:/bin")
    ErrorBlock(
        provoked.srun(_named(provoked, pushed), env=env, before=before), code, "tar2sqfs", word
    )


def test_no_place_for_images(provoked: Provoked) -> None:
    before = ("env", "-u", "HOME", "-u", "SCRATCH", "-u", "EDF_IMAGESTORE")
    done = provoked.srun(_named(provoked, "127.0.0.1:1/x:y"), before=before)
    ErrorBlock(done, "store-none")


def test_an_image_whose_list_of_users_is_not_read_whole(provoked: Provoked, tmp_path: Path) -> None:
    forge = Forge(provoked.cluster, tmp_path)
    forge.put("etc/passwd", b"#\n" * (9 << 20))
    image = provoked.shared / "users.sqsh"
    shutil.move(forge.image(), image)
    done = provoked.srun(_named(provoked, str(image)))
    ErrorBlock(done, "container-setup", "cannot read '/etc/passwd' in the image: File too large")

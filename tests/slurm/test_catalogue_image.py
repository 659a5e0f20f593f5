"""Errors of images, stores and registries, each provoked for real, as srun shows them."""

import gzip
import http.server
import os
import pwd
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.registry import serving
from tests.slurm.blame import Blame, Provoked
from tests.slurm.cluster import ALICE, Cluster
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
    Blame(provoked.srun(_named(provoked, str(image))), code, f"'{image}'", "image")


def test_a_file_that_was_purged(provoked: Provoked) -> None:
    image = provoked.shared / "purged.sqsh"
    Blame(provoked.srun(_named(provoked, str(image))), "image-file-not-found", f"'{image}'")


def test_a_directory_in_place_of_a_file(provoked: Provoked) -> None:
    done = provoked.srun(_named(provoked, str(provoked.shared)))
    Blame(done, "image-not-squashfs", "a directory")


def test_content_that_is_damaged_is_found_on_the_node(cluster: Cluster, provoked: Provoked) -> None:
    whole = bytearray(_whole(cluster))
    whole[96:] = b"\xff" * (len(whole) - 96)
    image = provoked.shared / "x.sqsh"
    image.write_bytes(whole)
    Blame(provoked.srun(_named(provoked, str(image))), "image-damaged", ": n")


def test_an_image_that_goes_away_between_submission_and_start(
    cluster: Cluster, provoked: Provoked
) -> None:
    image = provoked.shared / "x.sqsh"
    image.write_bytes(_whole(cluster))
    edf = _named(provoked, str(image))
    assert cluster.srun(f"--environment={edf}", "true").returncode == 0
    image.unlink()
    Blame(provoked.srun(edf), "image-file-not-found", f"'{image}'")


def test_a_lock_of_another_file(cluster: Cluster, provoked: Provoked) -> None:
    image = provoked.shared / "x.sqsh"
    image.write_bytes(_whole(cluster))
    edf = provoked.shared / "locked.toml"
    edf.write_text(f'image = "{image}"\n')
    assert cluster.run(["ce", "lock", str(edf)]).returncode == 0
    image.write_bytes(_whole(cluster) + bytes(4096))
    Blame(provoked.srun(str(edf)), "image-lock", "locked.lock")


# ---- names -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Ubuntu:24.04", "docker.io#", "x y", "~/x.sqsh"])
def test_a_name_that_is_neither_a_path_nor_a_reference(provoked: Provoked, name: str) -> None:
    Blame(provoked.srun(_named(provoked, name)), "image-reference", name.split("/", maxsplit=1)[0])


def test_an_image_that_may_not_be_fetched(provoked: Provoked) -> None:
    env = {"CE_PULL": "never", "EDF_IMAGESTORE": str(provoked.shared / "store")}
    done = provoked.srun(_named(provoked, "127.0.0.1:1/x:y"), env=env)
    Blame(done, "image-not-in-store", "127.0.0.1:1")


def test_an_image_that_the_site_does_not_want(provoked: Provoked, site: Site) -> None:
    site.configure('[policy]\nallowed_images = ["registry.example/*"]\n')
    done = provoked.srun(_named(provoked, "127.0.0.1:1/x:y"))
    Blame(done, "image-policy", "allowed_images", "127.0.0.1:1/x:y")


def test_an_image_that_the_scanner_does_not_like(provoked: Provoked, site: Site) -> None:
    scanner = site.program("scanner", "echo 3 holes; exit 1")
    site.configure(f'[policy]\nscanner = ["{scanner}", "{{path}}"]\nscanner_verdict = "block"\n')
    done = provoked.srun(provoked.edf(""))
    Blame(done, "image-scan", "3 holes")


# ---- registries ------------------------------------------------------------------------------


@contextmanager
def _answering(code: int) -> Iterator[str]:
    """A registry that answers everything in this way."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # as http.server calls it
            self.send_response(code)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_words: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _user_of(provoked: Provoked, address: str) -> dict[str, str]:
    """The environment of somebody who may use a registry without TLS."""
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
    Blame(done, "registry-unreachable", "connection refused").details("skopeo")


def test_a_registry_that_wants_a_login(provoked: Provoked) -> None:
    with _answering(401) as address:
        env = _user_of(provoked, address)
        done = provoked.srun(_named(provoked, f"{address}/x:y"), env=env)
    blame = Blame(done, "registry-login")
    assert blame.parts["hint"] == f"ce login {address}"


def test_a_name_that_the_registry_does_not_have(provoked: Provoked) -> None:
    with _answering(404) as address:
        env = _user_of(provoked, address)
        done = provoked.srun(_named(provoked, f"{address}/x:y"), env=env)
    Blame(done, "image-unknown", f"{address}/x:y")


# ---- stores ----------------------------------------------------------------------------------


def _is_a_file(place: Path) -> None:
    place.write_text("")


def _is_read_only(place: Path) -> None:
    place.mkdir(0o555)


@pytest.mark.parametrize("spoil", [_is_a_file, _is_read_only])
def test_a_store_that_cannot_be_used(
    provoked: Provoked, spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    """It is only looked at once the registry has answered."""
    store = provoked.shared / "store"
    spoil(store)
    (tmp_path / "served").mkdir()
    with serving(tmp_path / "served") as registry:
        name = registry.push(tmp_path / "layout", "x:1", [Member("a", b"b")])
        env = _user_of(provoked, registry.address)
        done = provoked.srun(_named(provoked, name), env=env)
    Blame(done, "store-unusable", str(store))


def test_a_store_that_is_full(provoked: Provoked, tmp_path: Path) -> None:
    store = provoked.shared / "store"
    store.mkdir()
    (tmp_path / "served").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=1777", "tmpfs", store], check=True)
    try:
        with serving(tmp_path / "served") as registry:
            name = registry.push(tmp_path / "layout", "x:1", [Member("a", os.urandom(4_000_000))])
            env = _user_of(provoked, registry.address)
            done = provoked.srun(_named(provoked, name), env=env)
    finally:
        subprocess.run(["umount", store], check=True)
    Blame(done, "store-full", str(store))


def test_no_place_for_images(provoked: Provoked) -> None:
    before = ("env", "-u", "HOME", "-u", "SCRATCH", "-u", "EDF_IMAGESTORE")
    done = provoked.srun(_named(provoked, "127.0.0.1:1/x:y"), before=before)
    Blame(done, "store-none")

"""Registries whose certificates this host does not trust, or should not."""

import http.server
import os
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from container_engine.base.errors import CeError
from container_engine.images.fetch.registry import Skopeo
from container_engine.images.reference import RegistryImage, parse
from tests.integration.registry import SOURCES

_PLACE = ".config/containers/certs.d"


class _Empty(http.server.BaseHTTPRequestHandler):
    """A registry that has nothing."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_words: object) -> None:
        pass


class _Quiet(http.server.ThreadingHTTPServer):
    def handle_error(self, *_words: object) -> None:
        pass  # a client that does not trust it

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401  # a socket, or its address
        """Close a connection once its client has read why, not while it still writes."""
        time.sleep(0.5)
        super().shutdown_request(request)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory, need_tool: Callable[[str], str]) -> Path:
    """Return a directory with an authority's ca.crt and ca.key."""
    need_tool("openssl")
    where = tmp_path_factory.mktemp("authority")
    _openssl(where, "req -x509 -newkey rsa:2048 -nodes -subj /CN=ca -keyout ca.key -out ca.crt")
    return where


def _openssl(where: Path, words: str) -> None:
    subprocess.run(["openssl", *words.split()], cwd=where, check=True, capture_output=True)


@contextmanager
def serving(authority: Path, name: str, days: int = 2, wants: bool = False) -> Iterator[str]:
    """Run a registry with a certificate for `name` of the authority; yield its address.

    With `wants` clients must have a certificate of the authority, too.
    """
    (authority / "names").write_text(f"subjectAltName={name}")
    _openssl(authority, "req -newkey rsa:2048 -nodes -subj /CN=x -keyout key -out request")
    signed = "x509 -req -in request -CA ca.crt -CAkey ca.key -CAcreateserial -extfile names"
    _openssl(authority, f"{signed} -out certificate -days {days}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "certificate", authority / "key")
    if wants:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority / "ca.crt")
    server = _Quiet(("127.0.0.1", 0), _Empty)
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def refused(address: str, env: dict[str, str]) -> CeError:
    image = parse(f"{address}/a:1", "/")
    assert isinstance(image, RegistryImage)
    with pytest.raises(CeError) as caught:
        Skopeo(env, 20, 20).look_up(image, "amd64")
    return caught.value


def _home(tmp_path: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}


def test_a_private_authority_is_trusted_where_the_hint_says(
    authority: Path, tmp_path: Path
) -> None:
    with serving(authority, "IP:127.0.0.1") as address:
        env = _home(tmp_path)
        error = refused(address, env)
        assert "certificate signed by unknown authority" in error.message
        assert error.hint == (
            "this host does not trust the registry's certificate: put that of its authority (PEM)"
            f" into ~/{_PLACE}/{address}/ca.crt, or name a file with it in SSL_CERT_FILE"
        )
        by_file = {**env, "SSL_CERT_FILE": str(authority / "ca.crt")}
        assert "404" in refused(address, by_file).message
        place = tmp_path / _PLACE / address
        place.mkdir(parents=True)
        shutil.copy(authority / "ca.crt", place)
        assert "404" in refused(address, env).message


@pytest.mark.parametrize(
    ("name", "days", "wants", "hint"),
    [
        ("DNS:other.example", 2, False, "certificate is another host's: is the registry's name"),
        ("IP:127.0.0.1", 0, False, "is this host's clock right?"),
        ("IP:127.0.0.1", 2, True, "the registry wants a certificate of yours: ~/.config"),
    ],
    ids=["another name", "expired", "of the client"],
)
def test_what_is_wrong_with_a_certificate_is_said(
    authority: Path, tmp_path: Path, name: str, days: int, wants: bool, hint: str
) -> None:
    with serving(authority, name, days, wants) as address:
        error = refused(address, {**_home(tmp_path), "SSL_CERT_FILE": str(authority / "ca.crt")})
        assert error.see == "registry-unreachable"
        assert hint in (error.hint or "")


def test_a_login_at_a_registry_that_is_not_trusted_has_the_same_hint(
    authority: Path, tmp_path: Path
) -> None:
    with serving(authority, "IP:127.0.0.1") as address:
        argv = ["login", "-u", "ann", "--password-stdin", address]
        done = subprocess.run(
            [sys.executable, "-m", "container_engine", *argv],
            env=_home(tmp_path),
            cwd=SOURCES,
            input="x",
            text=True,
            capture_output=True,
        )
    assert done.returncode != 0
    assert f"put that of its authority (PEM) into ~/{_PLACE}/{address}/ca.crt" in done.stderr

"""Proxies between this host and a registry, and registries that limit requests."""

import contextlib
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from container_engine.base.errors import CeError
from container_engine.images.fetch import registry as fetch
from container_engine.images.importing.importer import Importer, Limits
from container_engine.images.reference import Pull
from container_engine.images.store.store import Stores
from tests.integration.faulty import ALL, BLOBS, MANIFESTS, Fault, Front, front
from tests.integration.registry import Person, Registry, listing
from tests.unit.images.oci import Member

_WANTS_LOGIN = 'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="x"'
_BAD, _NOT_ALLOWED = "HTTP/1.1 502 Bad Gateway", "HTTP/1.1 403 Forbidden"


@contextlib.contextmanager
def answering(text: str) -> Iterator[str]:
    """Run a proxy that answers each request with `text`, "" with nothing; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _address = server.accept()
                    with connection:
                        connection.recv(4096)
                        if text:
                            connection.sendall(f"{text}\r\nContent-Length: 0\r\n\r\n".encode())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.fixture
def beyond(registry: Registry) -> Iterator[str]:
    """Return a name of a registry without TLS that only a proxy can reach."""
    known = Path(registry.env["HOME"]) / ".config/containers/registries.conf.d"
    known.mkdir(exist_ok=True)
    (known / "beyond.conf").write_text('[[registry]]\nlocation = "p.example"\ninsecure = true\n')
    yield "p.example"
    (known / "beyond.conf").unlink()


def refused(
    registry: Registry, person: Person, name: str, env: Mapping[str, str], look_up_s: float = 20
) -> CeError:
    importer = Importer({**registry.env, **env}, "ann", Limits(60, look_up_s, 3600), person)
    with pytest.raises(CeError) as caught:
        importer.obtain(registry.image(name), Stores(person.store, ()), Pull.AGE)
    assert name in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("answer", "why"),
    [(_BAD, "Bad Gateway"), (_NOT_ALLOWED, "Forbidden"), ("", "unexpected EOF")],
)
def test_a_proxy_that_refuses_is_named(
    registry: Registry, person: Person, monkeypatch: pytest.MonkeyPatch, answer: str, why: str
) -> None:
    monkeypatch.setattr("container_engine.images.fetch.registry._PAUSES", ())
    with answering(answer) as proxy:
        error = refused(registry, person, "r.example/a:1", {"https_proxy": f"http://{proxy}"})
    assert error.message == (
        f"'r.example/a:1': r.example cannot be reached through the proxy http://{proxy}: {why}"
    )
    assert error.see == "registry-unreachable"
    assert error.hint == (
        "https_proxy names the proxy: is it the right one? no_proxy=r.example asks without it"
    )


def test_a_proxy_that_is_not_there_is_named(
    registry: Registry, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("container_engine.images.fetch.registry._PAUSES", ())
    error = refused(registry, person, "r.example/a:1", {"HTTPS_PROXY": "127.0.0.1:9"})
    assert error.message.endswith(
        "r.example cannot be reached through the proxy 127.0.0.1:9: connection refused"
    )


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_a_proxy_that_wants_a_login_says_so_without_its_password(
    registry: Registry, person: Person, beyond: str, scheme: str
) -> None:
    host = beyond if scheme == "http" else "r.example"
    with answering(_WANTS_LOGIN) as proxy:
        env = {f"{scheme}_proxy": f"http://ann:canary@{proxy}"}
        error = refused(registry, person, f"{host}/a:1", env)
    assert error.message.endswith(
        f"{host} cannot be reached through the proxy http://{proxy}: Proxy Authentication Required"
    )
    assert error.see == "registry-unreachable"
    assert error.hint == (f"the proxy wants a login: {scheme}_proxy=http://USER:PASSWORD@{proxy}")
    assert "canary" not in f"{error}{error.details}"


def test_a_proxy_that_falls_silent_is_named(registry: Registry, person: Person) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        proxy = f"http://127.0.0.1:{server.getsockname()[1]}"
        error = refused(registry, person, "r.example/a:1", {"https_proxy": proxy}, 2)
    assert error.message.endswith(f"r.example did not answer within 2 s through the proxy {proxy}")


def test_a_proxy_is_used_and_can_be_left_out(
    registry: Registry, person: Person, beyond: str, tmp_path: Path
) -> None:
    registry.push(tmp_path / "i", "beyond:1", [Member("a", b"x")])
    with front(registry.address) as server:
        env = {**registry.env, "http_proxy": f"http://{server.address}"}
        image = registry.image(f"{beyond}/beyond:1")
        found = person.with_env(env).obtain(image, Stores(person.store, ()), Pull.ALWAYS)
        assert listing(found.path) == {"/a"}
        assert all(path.startswith(f"http://{beyond}/") for path in server.asked)
        asked = len(server.asked)
        error = refused(registry, person, f"{beyond}/b:1", {**env, "no_proxy": ".example"})
        assert "proxy" not in error.message
        assert len(server.asked) == asked


@pytest.fixture
def limiting(registry: Registry) -> Iterator[Front]:
    with front(registry.address) as server:
        known = Path(registry.env["HOME"]) / ".config/containers/registries.conf.d"
        known.mkdir(exist_ok=True)
        text = f'[[registry]]\nlocation = "{server.address}"\ninsecure = true\n'
        (known / "limiting.conf").write_text(text)
        yield server
        (known / "limiting.conf").unlink()


@pytest.mark.parametrize("where", [ALL, MANIFESTS, BLOBS], ids=["ping", "manifest", "blob"])
@pytest.mark.parametrize("after_s", [0, 3600])
def test_a_registry_that_allows_no_more_requests_is_not_asked_again_and_again(
    registry: Registry,
    person: Person,
    limiting: Front,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    after_s: int,
) -> None:
    monkeypatch.setattr(fetch, "_SILENT_S", 0.5)
    registry.push(tmp_path / "i", "limit:1", [Member("a", b"x")])
    limiting.faults.append(Fault(where, status=429, headers={"Retry-After": str(after_s)}))
    error = refused(registry, person, f"{limiting.address}/limit:1", {}, 3)
    assert error.see == "registry-limit"
    assert f"{limiting.address} allows no more requests for now (HTTP 429)" in error.message
    limited = [path for path in limiting.asked if re.search(where, path)]
    assert len(limited) < 30
    told = rf"{limiting.address}/limit:1: waiting for {limiting.address}, until [0-9:]{{8}} at the"
    told += r" latest \(the site's registry_timeout_s, 3 s\)"
    assert any(re.fullmatch(told, line) for line in person.said) == (after_s > 0), person.said

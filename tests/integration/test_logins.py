"""A registry with TLS and passwords: access, and secrecy of the password."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from container_engine.base.errors import UserError
from tests.integration.registry import Person, Registry, listing, serving, start
from tests.unit import squashfs
from tests.unit.images import oci
from tests.unit.images.oci import Member

USER, PASSWORD = "ann", "canary-7361-password"
# bcrypt hash of the password
HASHED = f"{USER}:$2b$04$xvYQOc7KJ8jDnqd5NqKw.uajbfRADAo1/319EmhhGtMD.dNwJYLUS\n"


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, need_tool: Callable[[str], str]
) -> Iterator[Registry]:
    """Yield a registry with an image `kept:1`; its user trusts its certificate, without a login."""
    need_tool("openssl")
    home = tmp_path_factory.mktemp("guarded")
    (home / "htpasswd").write_text(HASHED)
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(home / "key")]
    command += ["-out", str(home / "certificate")]
    subprocess.run(command, check=True, capture_output=True)
    extra: dict[str, dict[str, object]] = {
        "http": {"tls": {"certificate": str(home / "certificate"), "key": str(home / "key")}},
        "auth": {"htpasswd": {"realm": "test", "path": str(home / "htpasswd")}},
    }
    with serving(home, extra) as running:
        trusted = home / ".config/containers/certs.d" / running.address
        trusted.mkdir(parents=True)
        shutil.copy(home / "certificate", trusted / "ca.crt")
        content = [Member("a", os.urandom(20_000_000))]
        (home / "i").mkdir()
        oci.layout(home / "i", [content])
        copy = ["skopeo", "copy", "-q", "--dest-creds", f"{USER}:{PASSWORD}"]
        target = f"docker://{running.address}/kept:1"
        subprocess.run([*copy, f"oci:{home}/i:latest", target], env=running.env, check=True)
        yield running


@pytest.fixture
def home(guarded: Registry) -> Iterator[Path]:
    where = Path(guarded.env["HOME"])
    yield where
    for name in (".config/enroot", ".docker"):
        shutil.rmtree(where / name, ignore_errors=True)


@pytest.fixture
def visitor(guarded: Registry, tmp_path: Path) -> Person:
    return Person(guarded, tmp_path / "store")


def keep_for_enroot(home: Path, text: str, mode: int = 0o600) -> Path:
    path = home / ".config/enroot/.credentials"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def keep_for_docker(home: Path, registry: Registry, user: str, password: str) -> None:
    secret = base64.b64encode(f"{user}:{password}".encode()).decode()
    (home / ".docker").mkdir()
    text = json.dumps({"auths": {registry.address: {"auth": secret}}})
    (home / ".docker/config.json").write_text(text)


def test_without_a_login_the_registrys_answer_is_shown(guarded: Registry, visitor: Person) -> None:
    with pytest.raises(UserError, match=r"(?i)unauthorized|authentication required") as caught:
        visitor.get(guarded.image(f"{guarded.address}/kept:1"))
    assert caught.value.hint == f"ce login {guarded.address}"
    assert "parsing" not in caught.value.message


def test_a_login_that_has_come_to_its_end_is_to_be_made_again(
    guarded: Registry, home: Path, tmp_path: Path
) -> None:
    image = guarded.image(f"{guarded.address}/kept:1")
    keep_for_docker(home, guarded, USER, PASSWORD)
    before = Person(guarded, tmp_path / "before")
    assert listing(before.get(image)) == {"/a"}
    try:
        (home / "htpasswd").write_text(HASHED.replace("xvYQ", "yvYQ"))
        with pytest.raises(UserError, match=r"(?i)unauthorized|authentication required") as caught:
            Person(guarded, tmp_path / "after").get(image)
    finally:
        (home / "htpasswd").write_text(HASHED)
    assert caught.value.hint == f"ce login {guarded.address}"
    assert caught.value.see == "registry-login"


def test_enroots_credentials_are_used(guarded: Registry, visitor: Person, home: Path) -> None:
    machine = f"machine {guarded.address}\n  login ann password {PASSWORD}\n"
    keep_for_enroot(home, f"# mine\nmachine other login x password y\n{machine}")
    assert listing(visitor.get(guarded.image(f"{guarded.address}/kept:1"))) == {"/a"}


def test_a_user_in_the_reference_chooses_the_login(
    guarded: Registry, visitor: Person, home: Path
) -> None:
    keep_for_docker(home, guarded, "eve", "wrong")
    host = f"machine {guarded.address} login"
    keep_for_enroot(home, f"{host} bob password wrong\n{host} {USER} password {PASSWORD}\n")
    image = guarded.image(f"{USER}@{guarded.address}#kept:1")
    assert listing(visitor.get(image)) == {"/a"}


def test_a_login_of_podmans_counts_before_enroots(
    guarded: Registry, visitor: Person, home: Path
) -> None:
    keep_for_docker(home, guarded, USER, PASSWORD)
    keep_for_enroot(home, f"machine {guarded.address} login bob password wrong\n")
    assert listing(visitor.get(guarded.image(f"{guarded.address}/kept:1"))) == {"/a"}


@pytest.mark.parametrize("place", [".docker/config.json", ".config/containers/auth.json"])
def test_a_credential_helper_is_asked(
    guarded: Registry, visitor: Person, home: Path, tmp_path: Path, place: str
) -> None:
    helper = tmp_path / "docker-credential-of-a-test"
    answer = json.dumps({"ServerURL": guarded.address, "Username": USER, "Secret": PASSWORD})
    helper.write_text(f"#!/bin/sh\necho \"$1\" >> {tmp_path}/asked\ncat <<'END'\n{answer}\nEND\n")
    helper.chmod(0o755)
    (home / place).parent.mkdir(parents=True, exist_ok=True)
    (home / place).write_text(json.dumps({"credHelpers": {guarded.address: "of-a-test"}}))
    # The helper takes precedence over a login of enroot's.
    keep_for_enroot(home, f"machine {guarded.address} login bob password wrong\n")
    path = f"{tmp_path}:{guarded.env['PATH']}"
    visitor.importer = visitor.with_env({**guarded.env, "PATH": path})
    try:
        image = guarded.image(f"{guarded.address}/kept:1")
        assert listing(visitor.get(image)) == {"/a"}
    finally:
        (home / place).unlink()
    assert set((tmp_path / "asked").read_text().split()) == {"get"}


def test_a_user_without_a_password_is_named(guarded: Registry, visitor: Person, home: Path) -> None:
    with pytest.raises(UserError) as caught:
        visitor.get(guarded.image(f"zoe@{guarded.address}#kept:1"))
    assert caught.value.message.endswith(f"no password of 'zoe' for {guarded.address} is known")
    assert caught.value.hint == (
        f"podman login -u 'zoe' {guarded.address}, or a line in {home}/.config/enroot/.credentials"
    )


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("machine a login b password c", 0o644, "others may read the passwords in it"),
        ("machine a login b\npassword $(pass show c)", 0o600, ":2: not 'machine NAME"),
    ],
)
def test_credentials_that_cannot_be_used_are_refused(
    guarded: Registry, visitor: Person, home: Path, text: str, mode: int, said: str
) -> None:
    path = keep_for_enroot(home, text, mode)
    with pytest.raises(UserError) as caught:
        visitor.get(guarded.image(f"{guarded.address}/kept:1"))
    assert caught.value.message.startswith(str(path))
    assert said in caught.value.message


def processes() -> Iterator[tuple[str, bytes]]:
    """Yield the command line of each process, and its command line with its environment."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
            yield command.decode(errors="replace"), command + (entry / "environ").read_bytes()
        except OSError:
            continue


def test_a_password_is_seen_nowhere(guarded: Registry, home: Path, tmp_path: Path) -> None:
    keep_for_enroot(home, f"machine {guarded.address} login {USER} password {PASSWORD}\n")
    secrets = [PASSWORD.encode(), base64.b64encode(f"{USER}:{PASSWORD}".encode())]
    process = start(guarded, tmp_path / "store", "pull", f"{guarded.address}/kept:1")
    programs: set[str] = set()
    while process.poll() is None:
        for command, all_of_it in processes():
            programs.update(word for word in ("skopeo", "tar2sqfs") if command.startswith(word))
            assert not any(secret in all_of_it for secret in secrets), command
    said = "".join(process.communicate())
    assert process.returncode == 0, said
    assert "skopeo" in programs
    assert PASSWORD not in said
    for path in (tmp_path / "store").rglob("*"):
        assert path.is_dir() or not any(secret in path.read_bytes() for secret in secrets), path


def test_a_lock_and_an_inspection_use_enroots_credentials(
    guarded: Registry, home: Path, tmp_path: Path
) -> None:
    edf = tmp_path / "kept.toml"
    edf.write_text(f'image = "{guarded.address}#kept:1"\n')
    keep_for_enroot(home, f"machine {guarded.address} login {USER} password {PASSWORD}\n")
    said = {}
    for verb in ("lock", "inspect"):
        with start(guarded, tmp_path / "store", verb, str(edf)) as process:
            said[verb], err = process.communicate()
        assert process.returncode == 0, err
    digest = said["lock"].split()[2]
    assert digest.startswith("sha256:")
    assert digest in said["inspect"]
    assert not (tmp_path / "store").exists()


def test_a_push_without_the_right_to_it_is_refused_and_a_login_of_enroots_suffices(
    guarded: Registry, home: Path, tmp_path: Path
) -> None:
    image = squashfs.make(tmp_path / "x.sqsh", {"a": "b"})
    name = f"{guarded.address}/pushed:1"
    with start(guarded, tmp_path / "store", "push", str(image), name) as process:
        out, err = process.communicate()
    assert (process.returncode, out) == (1, "")
    error, hint = [line for line in err.splitlines() if ": error: " in line or ": hint: " in line]
    assert error.startswith(f"ce: error: '{name}': ")
    assert "unauthorized" in error or "authentication required" in error
    assert hint == f"ce: hint: ce login {guarded.address}"
    assert "packing" not in err
    keep_for_docker(home, guarded, USER, "wrong")
    with start(guarded, tmp_path / "store", "push", str(image), name) as process:
        _out, err = process.communicate()
    assert f"ce: hint: ce login {guarded.address}, as a user who may push there" in err
    shutil.rmtree(home / ".docker")
    keep_for_enroot(home, f"machine {guarded.address} login {USER} password {PASSWORD}\n")
    for source in (str(image), f"{USER}@{guarded.address}#pushed:1"):
        words = ("push", source, name) if source == str(image) else ("pull", source)
        with start(guarded, tmp_path / "store", *words) as process:
            out, err = process.communicate()
        assert process.returncode == 0, err
        assert PASSWORD not in out + err

"""The password for skopeo exists only in the memory of the process that hands it over."""

import base64
import json
import os
import subprocess
from pathlib import Path

import pytest

from container_engine.base.errors import UserError
from container_engine.images.fetch.enroot_logins import logged_in
from container_engine.images.reference import RegistryImage, parse


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "tmp").mkdir()
    kept = tmp_path / ".config/enroot/.credentials"
    kept.parent.mkdir(parents=True)
    kept.write_text("machine reg.example login ann password geheim\n")
    kept.chmod(0o600)
    runtime = str(tmp_path / "run")
    return {
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path / "tmp"),
        "XDG_RUNTIME_DIR": runtime,
        "PATH": os.environ["PATH"],
    }


def image() -> RegistryImage:
    found = parse("reg.example/a:1", "/")
    assert isinstance(found, RegistryImage)
    return found


def test_a_program_reads_the_login_and_no_file_has_it(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", env["TMPDIR"])
    before = set(Path("/tmp").glob("ce-auth-*"))
    with logged_in(image(), env) as made:
        path = made["REGISTRY_AUTH_FILE"]
        said = subprocess.run(["cat", path], env=made, capture_output=True, check=True).stdout
        auth = base64.b64encode(b"ann:geheim").decode()
        assert json.loads(said) == {"auths": {"reg.example": {"auth": auth}}}
        assert path.startswith(f"/proc/{os.getpid()}/fd/")
        assert list((tmp_path / "tmp").iterdir()) == []
        assert set(Path("/tmp").glob("ce-auth-*")) == before
    assert not os.path.exists(path) or "ce-auth" not in os.readlink(path)


def test_without_a_login_of_enroots_the_environment_is_the_callers(env: dict[str, str]) -> None:
    (Path(env["HOME"]) / ".config/enroot/.credentials").unlink()
    with logged_in(image(), env) as made:
        assert made == env


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_passwords_that_others_may_read_are_not_used(
    env: dict[str, str], tmp_path: Path, mode: int
) -> None:
    (tmp_path / ".config/enroot/.credentials").chmod(mode)
    with pytest.raises(UserError, match="others may read the passwords"), logged_in(image(), env):
        pass


@pytest.mark.parametrize(
    ("registry", "machine", "is_used"),
    [
        ("reg.example:5000", "reg.example", True),
        ("reg.example:5000", "reg.example:5000", True),
        ("reg.example:5000", "reg.example:5001", False),
        ("localhost:5000", "localhost:5000", True),
        ("localhost:5000", "localhost", False),
        ("127.0.0.1:5000", "127.0.0.1", False),
        ("127.1.2.3:5000", "127.1.2.3", False),
    ],
)
def test_a_login_for_this_host_is_for_no_port_that_anybody_may_have(
    env: dict[str, str], tmp_path: Path, registry: str, machine: str, *, is_used: bool
) -> None:
    kept = tmp_path / ".config/enroot/.credentials"
    kept.write_text(f"machine {machine} login ann password geheim\n")
    found = parse(f"{registry}/a:1", "/")
    assert isinstance(found, RegistryImage)
    with logged_in(found, env) as made:
        assert ("REGISTRY_AUTH_FILE" in made) == is_used

"""Signed images, mirrors and other names of registries, by the site's files for skopeo."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from container_engine.cli.main import main
from tests.integration.registry import Person, Registry, listing
from tests.unit.images import oci
from tests.unit.images.oci import Member


class Signer:
    """A user with a GPG key, who pushes signed images; signatures are files in a directory."""

    def __init__(self, home: Path, registry: Registry, user: str) -> None:
        # A short path: it is part of the name of gpg-agent's socket, whose length is limited.
        self.gpg = Path(tempfile.mkdtemp(prefix="gpg-"))
        self.home, self.registry = home, registry
        self.env = {**registry.env, "GNUPGHOME": str(self.gpg)}
        key = ["--quick-generate-key", f"{user}@site.example", "rsa2048", "sign", "never"]
        self._run(*key)
        listed = self._run("--list-keys", "--with-colons")
        self.fingerprint = re.search(r"^fpr:+([0-9A-F]+):", listed, re.MULTILINE)[1]  # type: ignore[index]
        self.key = home / f"{user}.gpg"
        self.key.write_bytes(self._bytes("--export", self.fingerprint))

    def push(self, name: str, *files: Member) -> str:
        where = self.home / name.replace(":", "-")
        where.mkdir()
        oci.layout(where, [list(files)])
        copy = ["skopeo", "copy", "--quiet", "--sign-by", self.fingerprint]
        target = f"docker://{self.registry.address}/{name}"
        subprocess.run([*copy, f"oci:{where}:latest", target], env=self.env, check=True)
        return f"{self.registry.address}/{name}"

    def forget(self) -> None:
        subprocess.run(["gpgconf", "--kill", "all"], env=self.env, check=False)
        # The agent removes its sockets only after it has answered.
        shutil.rmtree(self.gpg, ignore_errors=True)

    def _run(self, *words: str) -> str:
        return self._bytes(*words).decode()

    def _bytes(self, *words: str) -> bytes:
        argv = ["gpg", "--batch", "--quiet", "--passphrase", "", *words]
        return subprocess.run(argv, env=self.env, check=True, capture_output=True).stdout


@pytest.fixture
def signers(
    registry: Registry, tmp_path: Path, need_tool: Callable[[str], str]
) -> Iterator[tuple[Signer, Signer]]:
    """Yield the site's signer and a stranger; the place of signatures is known to everybody."""
    need_tool("gpg")
    signatures = tmp_path / "signatures"
    known = Path(registry.env["HOME"]) / ".config/containers/registries.d/test.yaml"
    known.parent.mkdir(exist_ok=True)
    place = dict.fromkeys(("sigstore", "sigstore-staging"), f"file://{signatures}")
    known.write_text(json.dumps({"docker": {registry.address: place}}))
    made = (Signer(tmp_path, registry, "site"), Signer(tmp_path, registry, "eve"))
    yield made
    for signer in made:
        signer.forget()
    known.unlink()


def test_only_what_the_sites_key_has_signed_is_imported(
    registry: Registry,
    signers: tuple[Signer, Signer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    site, eve = signers
    signed = {"type": "signedBy", "keyType": "GPGKeys", "keyPath": str(site.key)}
    policy = tmp_path / "policy.json"
    policy.write_text(
        json.dumps(
            {
                "default": [{"type": "reject"}],
                "transports": {"docker": {registry.address: [signed]}},
            }
        )
    )
    config = tmp_path / "config.toml"
    config.write_text(f'[policy]\nsignature_policy = "{policy}"\n')
    more = {"EDF_IMAGESTORE": f"{tmp_path}/store", "XDG_CACHE_HOME": f"{tmp_path}/cache"}
    for name, value in (registry.env | more).items():
        monkeypatch.setenv(name, value)

    def ce(*words: str) -> tuple[int, str, str]:
        code = main(["--site", str(config), *words])
        return code, *capsys.readouterr()

    good = site.push("signed:1", Member("good"))
    code, out, said = ce("pull", "-q", good)
    assert code == 0, said
    assert listing(out.strip()) == {"/good"}
    for name in (
        registry.push(tmp_path / "u", "nobodys:1", [Member("bad")]),
        eve.push("eves:1", Member("bad")),
    ):
        edf = tmp_path / "e.toml"
        edf.write_text(f'image = "{name}"\n')
        for words in (("pull", name), ("plan", str(edf))):
            code, _out, said = ce(*words)
            assert code == 1
            assert re.search(rf"'{name}': .*[Ss]ource image rejected: ", said), said
            assert f"ce: hint: the site's policy.signature_policy is {policy}\n" in said
    assert len(list((tmp_path / "store/images").glob("*.sqsh"))) == 1
    assert os.listdir(tmp_path / "store/work") == []


@pytest.fixture
def known(registry: Registry) -> Iterator[Callable[[str], None]]:
    """Yield a function that writes a registries.conf.d file."""
    file = Path(registry.env["HOME"]) / ".config/containers/registries.conf.d/names.conf"
    file.parent.mkdir(exist_ok=True)

    def write(text: str) -> None:
        file.write_text(text)

    yield write
    file.unlink()


def test_a_mirror_is_asked_in_place_of_a_registry(
    registry: Registry, person: Person, known: Callable[[str], None], tmp_path: Path
) -> None:
    registry.push(tmp_path / "i", "mirror/tools:1", [Member("mirrored")])
    known(
        '[[registry]]\nprefix = "far.invalid"\nlocation = "far.invalid"\n'
        f'[[registry.mirror]]\nlocation = "{registry.address}/mirror"\ninsecure = true\n'
    )
    assert listing(person.get(registry.image("far.invalid/tools:1"))) == {"/mirrored"}


def test_a_registry_for_short_names_is_the_sites_choice(
    registry: Registry, person: Person, known: Callable[[str], None], tmp_path: Path
) -> None:
    registry.push(tmp_path / "i", "hub/tools:1", [Member("ours")])
    known(
        '[[registry]]\nprefix = "docker.io/library"\n'
        f'location = "{registry.address}/hub"\ninsecure = true\n'
    )
    assert listing(person.get(registry.image("tools:1"))) == {"/ours"}


def test_a_blocked_registry_is_not_asked(
    registry: Registry, person: Person, known: Callable[[str], None]
) -> None:
    known('[[registry]]\nprefix = "blocked.invalid"\nblocked = true\n')
    with pytest.raises(Exception, match="blocked"):
        person.get(registry.image("blocked.invalid/tools:1"))

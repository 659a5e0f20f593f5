"""Signatures of Apptainer's image files: which count, and what `ce inspect` prints without one."""

import gzip
import json
import os
import platform
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from container_engine.base.errors import UserError
from container_engine.cli.main import main
from container_engine.images.sif_signature import is_signed, signer
from tests import sif
from tests.sif import Object, message, signature
from tests.unit import squashfs

DATA = Path(__file__).parents[2] / "data/sif"  # signed by Apptainer 1.4.5 (apptainer sign)
HERE = sif.ARCHITECTURES[platform.machine()]
APPTAINERS = "9E74C2B4CC8BC00E1111A652D1EDD1D1C5666553"


class Key(NamedTuple):
    """A key of PGP with a home of its own, and a keyring with it."""

    home: Path
    ring: Path

    def run(self, *words: str, text: str = "") -> bytes:
        argv = ["gpg", "--batch", "--quiet", "--homedir", str(self.home), *words]
        return subprocess.run(argv, input=text.encode(), stdout=-1, stderr=-1, check=True).stdout

    def sign(self, text: str, *options: str) -> bytes:
        return self.run(*options, "--output", "-", "--clear-sign", text=text)

    @property
    def fingerprint(self) -> str:
        lines = self.run("--with-colons", "--list-keys").decode().splitlines()
        return next(line.split(":")[9] for line in lines if line.startswith("fpr"))


def key_in(home: Path, name: str) -> Key:
    home.mkdir(mode=0o700)
    key = Key(home, home / "ring.gpg")
    words = ("--passphrase", "", "--quick-gen-key", f"{name} <{name}@example.org>", "ed25519")
    key.run(*words, "sign", "never")
    key.ring.write_bytes(key.run("--export"))
    return key


@pytest.fixture(scope="module")
def keys(
    tmp_path_factory: pytest.TempPathFactory, need_tool: Callable[[str], str]
) -> Iterator[tuple[Key, Key]]:
    for tool in ("gpg", "gpgv", "mksquashfs", "unsquashfs"):
        need_tool(tool)
    home = tmp_path_factory.mktemp("keys", numbered=True)
    made = key_in(home / "site", "site"), key_in(home / "other", "other")
    yield made
    for key in made:
        subprocess.run(["gpgconf", "--homedir", str(key.home), "--kill", "all"], check=True)


ROOT = Object(b"hsqs" * 100, architecture=HERE)
OTHER_ROOT = Object(b"hsqz" * 100, architecture=HERE)
TEXT = Object(b"Bootstrap: docker\n", sif.DEFINITION)
CONFIG = Object(b'{"Env":["A=b"]}', sif.JSON, name=b"oci-config.json")
PARTS = (TEXT, CONFIG, ROOT)
ELSEWHERE = 0xF0000002


def why_not(path: Path, text: bytes, key: Key) -> str:
    path.write_bytes(text)
    with pytest.raises(UserError) as refused:
        signer(str(path), str(key.ring), os.environ)
    assert refused.value.name == str(path)
    return refused.value.reason


def test_a_file_that_apptainer_has_signed_is_signed_by_that_key(
    tmp_path: Path, keys: tuple[Key, Key]
) -> None:
    path, ring = tmp_path / "x.sif", str(DATA / "signer.gpg")
    whole = gzip.decompress((DATA / "signed.sif.gz").read_bytes())
    path.write_bytes(whole)
    assert is_signed(str(path))
    assert signer(str(path), ring, os.environ) == APPTAINERS
    assert "No public key" in why_not(path, whole, keys[0])
    apptainers = Key(tmp_path, DATA / "signer.gpg")
    for place in (32176, 32195, 36863, 20, 50):  # definition, configuration, partition, header
        changed = bytearray(whole)
        changed[place] ^= 1
        assert "signed" in why_not(path, bytes(changed), apptainers), place


def test_one_key_of_the_site_is_enough(tmp_path: Path, keys: tuple[Key, Key]) -> None:
    site, other = keys
    by_both = [signature(key.sign(message(PARTS))) for key in (other, site)]
    path = tmp_path / "x.sif"
    for algorithm in ("sha256", "sha384", "sha512"):
        made = signature(site.sign(message(PARTS, algorithm=algorithm)))
        path.write_bytes(sif.text([*PARTS, made]))
        assert signer(str(path), str(site.ring), os.environ) == site.fingerprint
    path.write_bytes(sif.text([*PARTS, *by_both]))
    assert signer(str(path), str(site.ring), os.environ) == site.fingerprint
    # objects of another group need not be signed, since nothing of them is used
    path.write_bytes(sif.text([*PARTS, by_both[1], TEXT._replace(group=ELSEWHERE)]))
    assert signer(str(path), str(site.ring), os.environ) == site.fingerprint


def test_what_is_not_signed_as_it_is_counts_as_unsigned(
    tmp_path: Path, keys: tuple[Key, Key]
) -> None:
    site, other = keys
    good = message(PARTS)
    whole = signature(site.sign(good))
    cases: dict[str, tuple[list[Object], str]] = {
        "none": ([*PARTS], "not signed"),
        "another key": ([*PARTS, signature(other.sign(good))], "No public key"),
        "another group": ([*PARTS, signature(site.sign(good), ELSEWHERE)], "not signed"),
        "a part": ([*PARTS, signature(site.sign(message(PARTS[:2])))], "not about all objects"),
        "others": ([*PARTS, signature(site.sign(message([*PARTS, TEXT])))], "or about others"),
        "more": ([*PARTS[:2], ROOT, whole, TEXT], "not about all objects"),
        "swapped": ([TEXT, CONFIG, OTHER_ROOT, whole], "object 3 has changed"),
        "text": ([TEXT._replace(content=b"bootstrap: docker\n"), *PARTS[1:], whole], "object 1"),
        "config": ([TEXT, CONFIG._replace(content=b'{"Env":["A=c"]}'), ROOT, whole], "object 2"),
        "role": (
            [TEXT, CONFIG, ROOT._replace(architecture=b"09"), whole],
            "descriptor of object 3",
        ),
        "longer": ([TEXT, CONFIG, ROOT._replace(content=ROOT.content * 2), whole], "descriptor"),
        "config elsewhere": (
            [TEXT, CONFIG._replace(group=ELSEWHERE), ROOT, whole],
            "not in one group",
        ),
        "a second config": ([*PARTS, whole, CONFIG._replace(group=ELSEWHERE)], "not in one group"),
        "no group": ([one._replace(group=0xF0000000) for one in PARTS], "not in one group"),
        "sha1": ([*PARTS, signature(site.sign(message(PARTS, algorithm="sha1")))], "its header"),
        "weak": ([*PARTS, signature(site.sign(good, "--digest-algo", "SHA1"))], "Invalid digest"),
        "version": (
            [*PARTS, signature(site.sign(good.replace('"version": 1', '"version": 2')))],
            "version 2",
        ),
        "no JSON": ([*PARTS, signature(site.sign("hello"))], "another form"),
        "no PGP": ([*PARTS, signature(b'{"payloadType":"application/vnd"}')], "none of PGP"),
        "old": ([*PARTS, signature(site.sign("SIFHASH:\n2f0b3dca\n"))], "before 3.6"),
        "words before": ([*PARTS, signature(good.encode() + b"\n" + whole.content)], "none of PGP"),
        "damaged": (
            [*PARTS, signature(whole.content.replace(b'"version": 1', b'"version":1 '))],
            "BAD",
        ),
        "too many": ([*PARTS, *[signature(b"x")] * 40, whole], "none of PGP"),
    }
    for name, (objects, said) in cases.items():
        assert said in why_not(tmp_path / "x.sif", sif.text(objects), site), name


def test_the_numbers_of_a_signature_are_compared_once_each(
    tmp_path: Path, keys: tuple[Key, Key]
) -> None:
    document = json.loads(message(PARTS))
    document["objects"].append(document["objects"][0])
    twice = signature(keys[0].sign(json.dumps(document)))
    assert "not about all" in why_not(tmp_path / "x", sif.text([*PARTS, twice]), keys[0])


def test_a_file_with_two_root_file_systems_has_no_signature_that_counts(
    tmp_path: Path, keys: tuple[Key, Key]
) -> None:
    whole = signature(keys[0].sign(message(PARTS)))
    for more in (OTHER_ROOT, OTHER_ROOT._replace(group=ELSEWHERE)):
        text = sif.text([*PARTS, whole, more])
        assert "more than one root file system" in why_not(tmp_path / "x", text, keys[0])


def test_descriptors_that_lead_elsewhere_are_refused(tmp_path: Path, keys: tuple[Key, Key]) -> None:
    site = keys[0]
    good = bytearray(sif.text([*PARTS, signature(site.sign(message(PARTS)))]))

    def changed(number: int, place: int, form: str, value: int) -> bytes:
        text = bytearray(good)
        struct.pack_into(form, text, 4096 + (number - 1) * 585 + place, value)
        return bytes(text)

    path = tmp_path / "x.sif"
    assert "cut short" in why_not(path, changed(4, 17, "<Q", 1 << 62), site)
    assert "cut short" in why_not(path, changed(4, 25, "<Q", 1 << 40), site)
    assert "cut short" in why_not(path, changed(4, 25, "<Q", (1 << 64) - 1), site)
    assert "cut short" in why_not(path, changed(3, 17, "<Q", (1 << 63) + 5), site)
    assert "not within the file" in why_not(path, changed(1, 17, "<Q", (1 << 64) - 1), site)
    assert "object 1 has changed" in why_not(path, changed(1, 17, "<Q", 0), site)
    assert "the same number" in why_not(path, changed(1, 5, "<I", 2), site)


def test_a_file_without_an_end_of_its_signature_is_refused(
    tmp_path: Path, keys: tuple[Key, Key]
) -> None:
    whole = sif.text([*PARTS, signature(keys[0].sign(message(PARTS)))])
    assert "cut short" in why_not(tmp_path / "x.sif", whole[:-40], keys[0])


class Site(NamedTuple):
    root: Path
    printed: pytest.CaptureFixture[str]

    def ce(self, *words: str, code: int = 0) -> str:
        found = main(["--site", str(self.root / "config.toml"), *words])
        said = self.printed.readouterr()
        assert found == code, said.err
        return said.out + said.err

    def trusts(self, ring: Path) -> None:
        (self.root / "config.toml").write_text(f'[policy]\nsif_keys = "{ring}"\n')


@pytest.fixture
def here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Site:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("EDF_IMAGESTORE", str(tmp_path / "store"))
    (tmp_path / "config.toml").write_text("")
    return Site(tmp_path, capsys)


def test_launches_and_imports_take_what_the_sites_keys_have_signed(
    here: Site, keys: tuple[Key, Key]
) -> None:
    site, other = keys
    root = Object(
        squashfs.make(here.root / "x.sqsh", {"etc/a": "b"}).read_bytes(), architecture=HERE
    )
    path, edf = here.root / "x.sif", here.root / "e.toml"
    edf.write_text(f'image = "{path}"\n')
    path.write_bytes(sif.text([root]))
    assert "signature     none\n" in here.ce("inspect", str(path))
    path.write_bytes(sif.text([root, signature(site.sign(message([root])))]))
    said = "signature     not verified, the site has no policy.sif_keys\n"
    assert said in here.ce("inspect", str(path))
    here.ce("plan", str(edf))
    here.trusts(site.ring)
    assert f"signature     by {site.fingerprint}, verified\n" in here.ce("inspect", str(path))
    here.ce("plan", str(edf))
    here.ce("import", "--quiet", str(path), "good")
    here.trusts(other.ring)
    for words in (("plan", str(edf)), ("import", str(path), "bad"), ("inspect", str(path))):
        refused = here.ce(*words, code=1)
        assert "policy.sif_keys: " in refused, refused
        assert "No public key" in refused
        assert "ce help image-policy" in refused
    edf.write_text(f'image = "{here.root}/x.sqsh"\n')
    here.ce("plan", str(edf))  # the rule is about SIF files


def test_an_armored_file_is_not_taken_for_a_keyring(here: Site, keys: tuple[Key, Key]) -> None:
    armored = here.root / "keys.asc"
    armored.write_bytes(keys[0].run("--armor", "--export"))
    here.trusts(armored)
    assert "gpg --dearmor" in here.ce("config", "check", code=1)
    here.trusts(here.root / "none")
    assert "policy.sif_keys: '" in here.ce("config", "check", code=1)

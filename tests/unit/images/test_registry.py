"""Answers of a registry are checked before use; skopeo is a script that repeats them."""

import hashlib
import json
import os
import tarfile
from pathlib import Path

import pytest

from container_engine.base.errors import CeError, UserError
from container_engine.faults.catalogue import FAULTS
from container_engine.images.fetch import registry
from container_engine.images.fetch.refusal import explained
from container_engine.images.fetch.registry import (
    Remote,
    Skopeo,
    Wanted,
    check_platform,
    choose,
    doubt,
    small_blob,
)
from container_engine.images.fetch.streaming import Arrival, BrokenOffError
from container_engine.images.pack.layers import LayerFile
from container_engine.images.pack.pack import Packer
from container_engine.images.policy import Budget, Rules
from container_engine.images.reference import LocalImage, RegistryImage, parse
from container_engine.oci.image import Descriptor
from container_engine.site.model import Policy
from tests.unit.images import oci
from tests.unit.images.oci import Member

HEX = "ab" * 32
SILENCE = registry._Silence("x", "", 20, lambda _message: None)
WANTED = Wanted(f"sha256:{HEX}", 10)


def image() -> RegistryImage:
    found = parse("127.0.0.1:1/x:1", "/")
    assert isinstance(found, RegistryImage)
    return found


class Answers:
    """A registry that has one manifest and one configuration."""

    def __init__(self, root: Path) -> None:
        self.root = root
        program = root / "bin/skopeo"
        program.parent.mkdir()
        program.write_text(
            f'#!/bin/sh\nwhat=manifest\ncase "$*" in *--config*) what=config;; esac\n'
            f"cat {root}/$what\n"
        )
        program.chmod(0o755)
        self.skopeo = Skopeo({"PATH": f"{root}/bin:{os.environ['PATH']}"}, 20, 20)

    def say(self, layer: int = 1, config: int = 1, **configuration: object) -> None:
        described = [{"digest": f"sha256:{HEX}", "size": size} for size in (config, layer)]
        manifest = {"config": described[0], "layers": [described[1]]}
        (self.root / "manifest").write_text(json.dumps(manifest))
        (self.root / "config").write_text(json.dumps(configuration))


@pytest.fixture
def answers(tmp_path: Path) -> Answers:
    return Answers(tmp_path)


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Source image rejected: A signature was required, but no signature exists", 1),
        ('initializing source docker://r/x:1: registry r is blocked in /etc/r.conf or "/x"', 1),
        ("received unexpected HTTP status: 502 Bad Gateway", 3),
    ],
)
def test_what_will_not_change_is_not_asked_again(
    said: str, asked: int, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_PAUSES", (0.0, 0.0))
    (answers.root / "said").write_text(f"level=fatal msg={json.dumps(said)}")
    (answers.root / "bin/skopeo").write_text(
        f"#!/bin/sh\necho >> {answers.root}/asked\ncat {answers.root}/said >&2\nexit 1\n"
    )
    with pytest.raises(CeError):
        answers.skopeo.look_up(image(), "amd64")
    assert len((answers.root / "asked").read_text()) == asked


def test_a_negative_size_is_refused(answers: Answers) -> None:
    answers.say(layer=5)
    assert answers.skopeo.look_up(image(), "amd64").size == 5
    answers.say(layer=-1)
    with pytest.raises(UserError, match=r"neither an OCI image nor.*size"):
        answers.skopeo.look_up(image(), "amd64")


def test_a_huge_configuration_is_refused_before_it_is_asked_for(answers: Answers) -> None:
    answers.say(config=(4 << 20) + 1)
    with pytest.raises(UserError, match="its configuration is larger than 4 MiB") as caught:
        answers.skopeo.look_up(image(), "amd64")
    assert caught.value.see == "image-format"


def test_an_artifact_has_no_platforms(answers: Answers) -> None:
    answers.say(architecture=["a list"])
    with pytest.raises(UserError, match="an artifact, not an image"):
        answers.skopeo.platforms(image(), ["amd64"])


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"architecture": "arm64", "os": "linux"}, "made for arm64, amd64 is needed"),
        ({"architecture": "aarch64", "os": "linux"}, "made for arm64, amd64 is needed"),
        ({"architecture": "ppc64le", "os": ""}, "made for ppc64le, amd64 is needed"),
        ({"architecture": "amd64", "os": "windows"}, "made for windows/amd64, linux/amd64 is"),
        ({"architecture": "", "os": "windows"}, "made for windows, linux/amd64 is needed"),
        ({"architecture": "i686"}, "made for 386, amd64 is needed"),
        ({}, "an artifact, not an image"),
        ({"architecture": ["a list"]}, "an artifact, not an image"),
    ],
)
def test_an_image_of_another_platform_is_refused(document: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        check_platform(image(), json.dumps(document).encode(), "amd64")
    assert caught.value.see == ("image-format" if "artifact" in message else "image-architecture")


@pytest.mark.parametrize(
    "name", ["amd64", "AMD64", "x86_64", "x86-64", "x64", "amd64/v3", "x86_64_v3", "x86-64-v2"]
)
def test_all_words_for_an_architecture_mean_it(name: str) -> None:
    config = json.dumps({"architecture": name, "os": "linux"}).encode()
    check_platform(image(), config, "amd64")
    assert doubt(image(), config, "amd64") == ""
    with pytest.raises(UserError, match="made for amd64, arm64 is needed"):
        check_platform(image(), config, "arm64")


@pytest.mark.parametrize(("name", "known"), [("ARM64/v8", "arm64"), ("arm/v7", "arm")])
def test_a_variant_behind_the_architecture_is_left_out(name: str, known: str) -> None:
    check_platform(image(), json.dumps({"architecture": name, "os": " Linux"}).encode(), known)


@pytest.mark.parametrize(
    "document",
    [
        {"architecture": "", "os": ""},
        {"architecture": "", "os": "linux"},
        {"os": "linux"},
        {"architecture": None, "os": None, "config": {}},
        {"architecture": "unknown", "os": "linux"},
        {"rootfs": {"type": "layers"}},
    ],
)
def test_an_image_that_names_no_architecture_is_taken_with_a_warning(
    document: dict[str, object],
) -> None:
    config = json.dumps({"rootfs": {}, **document, "config": {"Env": []}}).encode()
    check_platform(image(), config, "amd64")
    said = doubt(image(), config, "amd64")
    assert said == f"{image().name}: its configuration names no architecture, taken for amd64"


@pytest.mark.parametrize("word", ["noarch", "all", "made-up/v2", "x\x1b[1m"])
def test_an_image_of_an_unknown_architecture_is_taken_with_a_warning(word: str) -> None:
    config = json.dumps({"architecture": word, "os": "linux"}).encode()
    check_platform(image(), config, "amd64")
    said = doubt(image(), config, "amd64")
    names = f"names an unknown architecture, {word!r}, taken for amd64"
    assert said == f"{image().name}: its configuration {names}"


ATTESTATION = {"architecture": "unknown", "os": "unknown"}


@pytest.mark.parametrize(
    ("platforms", "chosen"),
    [
        ([{"architecture": "s390x"}, {"architecture": "x86_64", "os": "linux"}], 1),
        ([{"architecture": "arm64"}, {"architecture": "AMD64", "os": ""}], 1),
        ([ATTESTATION, None], 1),
        ([{"architecture": "", "os": "linux"}, ATTESTATION], 0),
        ([None, {"architecture": "amd64"}], 1),
        ([{"architecture": "amd64", "os": "windows"}, {"architecture": "amd64"}], 1),
        ([{"architecture": "arm64"}, {"architecture": "amd64", "os": "Linux"}], 1),
        (
            [{"architecture": "amd64", "variant": one} for one in ("v3", "v1", "v2")],
            1,
        ),
        (
            [{"architecture": "amd64", "os": "windows"}, {"architecture": "arm64"}],
            "not available for amd64, only for arm64, windows/amd64",
        ),
        ([{"architecture": "arm64"}, None], "not available for amd64, only for arm64"),
        ([None, None], "not available for amd64, its index names no architecture"),
        ([{"architecture": "noarch"}], 0),
        ([{"architecture": "noarch"}, ATTESTATION], 0),
        ([{"architecture": "noarch"}, {"architecture": "amd64"}], 1),
        (
            [{"architecture": "noarch"}, {"architecture": "arm64"}],
            "not available for amd64, only for arm64, noarch",
        ),
        ([{"architecture": "a"}, {"architecture": "b"}], "not available for amd64, only for a, b"),
        ([ATTESTATION], "not available for amd64, its index names no architecture"),
    ],
)
def test_of_an_index_the_image_is_chosen_by_platform(
    platforms: list[dict[str, str] | None], chosen: int | str
) -> None:
    described = [
        {"digest": f"sha256:{number}", "size": 1, "platform": platform}
        for number, platform in enumerate(platforms)
    ]
    listed = tuple(Descriptor.of_json(json.dumps(one).encode()) for one in described)
    if isinstance(chosen, str):
        with pytest.raises(UserError, match=chosen):
            choose(image(), listed, "amd64")
    else:
        assert choose(image(), listed, "amd64").digest == f"sha256:{chosen}"


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_a_blob_that_is_not_what_its_name_says_is_removed(tmp_path: Path, algorithm: str) -> None:
    good = tmp_path / algorithm / hashlib.new(algorithm, b"{}").hexdigest()
    good.parent.mkdir()
    good.write_bytes(b"{}")
    assert small_blob(str(good)) == b"{}"
    good.write_bytes(b"[]")
    with pytest.raises(UserError, match="does not match its digest"):
        small_blob(str(good))
    assert not good.exists()


def test_a_blob_that_brings_more_than_it_said_is_broken_off(tmp_path: Path) -> None:
    arrival = Arrival("docker://none", {}, str(tmp_path), str(tmp_path), 20)
    end, start = os.pipe()
    target = os.open(tmp_path / "draft", os.O_WRONLY | os.O_CREAT)
    os.write(start, bytes(11))
    os.close(start)
    with pytest.raises(BrokenOffError):
        arrival._receive(end, target, WANTED)
    os.close(end)
    os.close(target)


def test_skopeo_is_ended_when_more_comes_than_was_announced(tmp_path: Path) -> None:
    remote = Remote("", "docker://x", 10, (WANTED,), b"")
    watch = registry._Arrival("/none", str(tmp_path), remote, lambda _done: None, SILENCE)
    blob = tmp_path / WANTED.place
    blob.parent.mkdir()
    for size, is_good in ((10, True), (1 << 30, False)):
        with open(blob, "wb") as file:
            file.truncate(size)
        if is_good:
            watch.look()
    with pytest.raises(UserError, match="more than it announced"):
        watch.look()


def pack(tmp_path: Path, members: list[Member], budget: Budget, *, slowly: bool) -> None:
    path = tmp_path / "layer"
    # A file that occurs twice is packed in two passes.
    path.write_bytes(oci.layer([*members, *members[:1]] if slowly else members))
    named = path.rename(tmp_path / hashlib.sha256(path.read_bytes()).hexdigest())
    target = str(tmp_path / "image")
    Packer(os.environ, 60, budget).pack([LayerFile(str(named))], 0, target, lambda _size: None)


@pytest.mark.parametrize("slowly", [False, True])
def test_what_unpacks_to_far_more_than_the_site_allows_is_refused(
    tmp_path: Path, slowly: bool
) -> None:
    rules = Rules(Policy(max_image_size="100K"), "/etc/c.toml")
    with pytest.raises(UserError, match="100K: its layers unpack to more than 20 times") as caught:
        pack(tmp_path, [Member("f", bytes(3 << 20))], rules.budget(), slowly=slowly)
    assert caught.value.see == "image-policy"
    pack(tmp_path, [Member("f", bytes(1 << 19))], rules.budget(), slowly=slowly)
    pack(tmp_path, [Member("f", bytes(3 << 20))], Rules(Policy(), "").budget(), slowly=slowly)


@pytest.mark.parametrize("slowly", [False, True])
def test_endless_names_are_refused(
    tmp_path: Path, slowly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("container_engine.images.policy._ENTRIES", 10)
    members = [Member(f"f{number}") for number in range(20)]
    with pytest.raises(UserError, match="its layers have more than 10 files"):
        pack(tmp_path, members, Budget(10_000, UserError), slowly=slowly)


def archive(**pax: str) -> bytes:
    info = tarfile.TarInfo("f")
    info.pax_headers = pax
    return info.tobuf(tarfile.PAX_FORMAT) + bytes(1024)


@pytest.mark.parametrize("pax", [{"mtime": t} for t in ("inf", "-inf", "nan", "1e999", "soon")])
def test_a_time_that_is_not_a_number_counts_as_damage(tmp_path: Path, pax: dict[str, str]) -> None:
    data = archive(**pax)
    path = tmp_path / hashlib.sha256(data).hexdigest()
    path.write_bytes(data)
    target = str(tmp_path / "image")
    with pytest.raises(UserError, match="damaged") as caught:
        Packer(os.environ, 60).pack([LayerFile(str(path))], 0, target, lambda _size: None)
    assert caught.value.see == "image-damaged"


@pytest.mark.parametrize(
    ("name", "says", "hint"),
    [
        (
            "localhost:5055/a:1",
            "http: server gave HTTP response to HTTPS client",
            'location = "localhost:5055" and insecure = true',
        ),
        (
            "reg:5055/a:1",
            "tls: failed to verify certificate: x509: certificate signed by unknown authority",
            "~/.config/containers/certs.d/reg:5055/ca.crt",
        ),
        ("localhost/a", "dial tcp: refused", "'a' is not the same as 'localhost/a'"),
        ("myapp", "dial tcp: lookup x: no such host", "run ce pull IMAGE on one that does"),
    ],
)
def test_a_registry_that_cannot_be_used_is_answered_with_what_helps(
    tmp_path: Path, name: str, says: str, hint: str
) -> None:
    program = tmp_path / "skopeo"
    program.write_text(f"#!/bin/sh\necho 'level=fatal msg=\"{says}\"' >&2; exit 1\n")
    program.chmod(0o755)
    wanted = parse(name, "/")
    assert isinstance(wanted, RegistryImage)
    with pytest.raises(UserError) as caught:
        Skopeo({"PATH": f"{tmp_path}:/usr/bin:/bin"}, 20, 20).look_up(wanted, "amd64")
    assert hint in (caught.value.hint or "")
    assert caught.value.see == "registry-unreachable"


def test_a_name_without_a_registry_may_be_that_of_an_image_of_this_host() -> None:
    short, full = parse("ubuntu:24.4", "/"), parse("nvcr.io/ubuntu:24.4", "/")
    assert isinstance(short, RegistryImage)
    assert isinstance(full, RegistryImage)
    text = "dial tcp: lookup registry.example: no such host"
    remedy = (
        "this host cannot reach the registry: run ce pull IMAGE on one that does, such as a login"
        " node, or set HTTPS_PROXY"
    )
    hint = explained(text, short, {})[2]
    assert hint == f"{remedy}. If you meant an image of this host: ce images"
    assert explained(text, full, {})[1:] == ("registry-unreachable", None)
    assert FAULTS["registry-unreachable"].remedy == remedy


def test_a_file_that_is_not_an_archive_is_not_answered_with_a_registry() -> None:
    image = LocalImage("x", "docker-archive", "/y.tar")
    text = "loading tar component manifest.json: file does not exist"
    assert explained(text, image, {}) == (text, "image-format", None)


@pytest.mark.parametrize(
    "says",
    [
        "determining manifest MIME type for docker://r/a@sha512:ab: Manifest does not match"
        " provided manifest digest sha512:ab",
        "reading config blob sha512:ab: Download config.json digest sha256:cd does not match"
        " expected sha512:ab",
        "Internal error writing blob sha512:ab, blob with digest sha512:ab saved with sha256:cd",
    ],
)
def test_what_skopeo_cannot_compare_is_not_called_a_registry_out_of_reach(says: str) -> None:
    text, see, hint = explained(says, image(), {})
    assert (see, "named by SHA-512, where skopeo knows only SHA-256" in text) == (
        "image-format",
        True,
    )
    assert hint == "have it pushed by a tool that names them by SHA-256"


def test_the_image_of_an_index_may_be_named_by_sha512(answers: Answers) -> None:
    answers.say()
    child = (answers.root / "manifest").read_bytes()
    named = f"sha512:{hashlib.sha512(child).hexdigest()}"
    entry = {"digest": named, "size": 1, "platform": {"architecture": "amd64"}}
    (answers.root / "index").write_text(json.dumps({"manifests": [entry]}))
    program = answers.root / "bin/skopeo"
    program.write_text(
        f"#!/bin/sh\nwhat=index\ncase $* in *@{named}) what=manifest ;; esac\n"
        f"cat {answers.root}/$what\n"
    )
    found = answers.skopeo.look_up(image(), "amd64")
    assert found.digest == f"sha256:{hashlib.sha256(child).hexdigest()}"
    assert found.source.endswith(f"@{named}")
    (answers.root / "manifest").write_bytes(child + b" ")
    with pytest.raises(UserError, match=f"where {named} was asked for"):
        answers.skopeo.look_up(image(), "amd64")


@pytest.mark.parametrize(
    ("steps", "plain"),
    [
        (
            "dial tcp: lookup r.example on 10.0.0.53:53: dial udp 10.0.0.53:53: connect:"
            " network is unreachable",
            "r.example cannot be reached: network is unreachable",
        ),
        (
            "proxyconnect tcp: dial tcp 10.0.0.1:3128: connect: connection refused",
            "r.example cannot be reached through the proxy: connection refused",
        ),
        ("x509: certificate signed by unknown authority", "pinging container registry r.example"),
    ],
)
def test_a_registry_that_does_not_answer_is_named_with_the_cause_alone(
    tmp_path: Path, steps: str, plain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("container_engine.images.fetch.registry._PAUSES", ())
    said = f'pinging container registry r.example: Get \\"https://r.example/v2/\\": {steps}'
    program = tmp_path / "skopeo"
    program.write_text(f"#!/bin/sh\necho 'level=fatal msg=\"{said}\"' >&2; exit 1\n")
    program.chmod(0o755)
    wanted = parse("r.example/a:1", "/")
    assert isinstance(wanted, RegistryImage)
    with pytest.raises(UserError, match=plain):
        Skopeo({"PATH": f"{tmp_path}:/usr/bin:/bin"}, 20, 20).look_up(wanted, "amd64")

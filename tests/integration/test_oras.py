"""SIF files in a registry, as `apptainer push FILE.sif oras://…` leaves them there."""

import hashlib
import json
import os
import platform
import struct
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import sif
from tests.integration.faulty import BLOBS, MANIFESTS, Fault, Front, front
from tests.integration.registry import SOURCES, Registry, start
from tests.integration.registry import listing as listed
from tests.unit import squashfs

HERE = sif.ARCHITECTURES[platform.machine()]
OTHER = next(code for code in sif.ARCHITECTURES.values() if code != HERE)
SIF = "application/vnd.sylabs.sif.layer.v1.sif"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
FILES = {
    "greeting": "hello",
    ".singularity.d/env/90-environment.sh": "#!/bin/sh\nexport WHO=me\n",
    ".singularity.d/env/10-docker2singularity.sh": '#!/bin/sh\nexport PATH="/opt/bin:/bin"\n',
}


class User(NamedTuple):
    """A user of a registry that can be reached through a server that fails as told."""

    registry: Registry
    between: Front
    root: Path

    def send(self, path: str, data: bytes, method: str, kind: str) -> str:
        place = path if path.startswith("http") else f"http://{self.registry.address}/v2{path}"
        asked = urllib.request.Request(
            place, data=data, method=method, headers={"Content-Type": kind}
        )
        with urllib.request.urlopen(asked) as answer:
            return str(answer.headers["Location"])

    def blob(self, data: bytes, kind: str) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        place = self.send("/me/sif/blobs/uploads/", b"", "POST", "application/octet-stream")
        self.send(f"{place}&digest={digest}", data, "PUT", "application/octet-stream")
        return {"mediaType": kind, "digest": digest, "size": len(data)}

    def push(self, tag: str, *layers: bytes, kind: str = SIF, **changed: object) -> str:
        """Push an artifact in Apptainer's form; return its name, and what was `changed` in it."""
        config = self.blob(b"{}", "application/vnd.sylabs.sif.config.v1+json")
        title = {"org.opencontainers.image.title": "x.sif"}
        document = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {**config, "data": "e30="},
            "layers": [
                {**self.blob(layer, kind), "annotations": title, **changed} for layer in layers
            ],
            "annotations": {"org.opencontainers.image.created": "2023-12-19T16:02:14Z"},
        }
        self.send(f"/me/sif/manifests/{tag}", json.dumps(document).encode(), "PUT", MANIFEST)
        return f"oras://{self.between.address}/me/sif:{tag}"

    def ce(self, *words: str) -> str:
        with start(self.registry, self.root / "store", *words) as process:
            out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        return out.strip()

    def refusal(self, *words: str) -> str:
        with start(self.registry, self.root / "store", *words) as process:
            out, err = process.communicate(timeout=120)
        assert (process.returncode, out) == (1, ""), err
        return err.removeprefix("ce: error: ")

    def apptainer(self, *words: str) -> subprocess.CompletedProcess[str]:
        code = "import sys; from container_engine.compat import apptainer as a; "
        code += "from container_engine.cli.main import main; sys.exit(a.main(main))"
        return subprocess.run(
            [sys.executable, "-c", code, *words],
            env={**self.registry.env, "PYTHONPATH": str(SOURCES)},
            cwd=self.root,
            capture_output=True,
            text=True,
        )


@pytest.fixture
def user(registry: Registry, tmp_path: Path) -> Iterator[User]:
    with front(registry.address) as between:
        more = Path(registry.env["HOME"]) / ".config/containers/registries.conf.d"
        more.mkdir(exist_ok=True)
        text = f'[[registry]]\nlocation = "{between.address}"\ninsecure = true\n'
        (more / "front.conf").write_text(text)
        yield User(registry, between, tmp_path)
        (more / "front.conf").unlink()


@pytest.fixture
def image(tmp_path: Path) -> bytes:
    whole = squashfs.make(tmp_path / "x.sqsh", FILES)
    return sif.make(tmp_path / "x.sif", whole, HERE).read_bytes()


def test_an_environment_starts_from_a_sif_file_in_a_registry(user: User, image: bytes) -> None:
    name = user.push("1", image)
    edf = user.root / "e.toml"
    edf.write_text(f'image = "{name}"\n')
    plan = json.loads(user.ce("plan", "--json", str(edf)))["image"]
    assert (plan["env"]["WHO"], plan["env"]["PATH"]) == ("me", "/opt/bin:/bin")
    assert "/greeting" in listed(plan["path"])
    # the name means the same whichever way it is written, and by its digest
    digest = plan["digest"]
    plain = name.removeprefix("oras://")
    for other in (plain, f"docker://{plain}", f"oras://{plain.rpartition(':')[0]}@{digest}"):
        assert user.ce("import", "--quiet", other) == plan["path"]
    assert user.ce("store", "check", "--quiet") == ""


def test_the_file_itself_is_what_apptainer_pulls(user: User, image: bytes) -> None:
    name = user.push("file", image)
    done = user.apptainer("pull", name)
    assert done.returncode == 0, done.stderr
    assert (user.root / "sif_file.sif").read_bytes() == image
    user.ce("import", "--quiet", "-o", str(user.root / "kept.sif"), name)
    assert (user.root / "kept.sif").read_bytes() == image
    user.ce("import", "--quiet", "-o", str(user.root / "plain.sqsh"), name)
    assert (user.root / "plain.sqsh").read_bytes()[:4] == b"hsqs"


def beyond_the_file(whole: bytes) -> bytes:
    """Return a SIF file with a partition that is larger than what follows it."""
    changed = bytearray(whole)
    place = 4096 + 585 + 17 + 8  # of the second descriptor
    struct.pack_into("<q", changed, place, 1 << 40)
    return bytes(changed)


def test_what_is_no_sif_file_is_refused_by_the_name_that_was_given(
    user: User, image: bytes
) -> None:
    start_of = image.index(b"hsqs")
    damaged = image[: start_of + 96] + os.urandom(len(image) - start_of - 96)
    first = sif.text([sif.Object(image[start_of:], architecture=OTHER)])
    cases: dict[str, tuple[Callable[[str], str], str]] = {
        "text": (lambda tag: user.push(tag, b"not an image" * 99), "not a SquashFS file"),
        "plain": (lambda tag: user.push(tag, image[start_of:]), "its registry says SIF"),
        "cut": (lambda tag: user.push(tag, image[:-4096]), "cut short"),
        "beyond": (lambda tag: user.push(tag, beyond_the_file(image)), "cut short"),
        "damaged": (lambda tag: user.push(tag, damaged), ""),
        "other": (lambda tag: user.push(tag, first), "is needed"),
        "two": (lambda tag: user.push(tag, image, image), "an artifact, not an image"),
        "kind": (lambda tag: user.push(tag, image, kind="text/plain"), "an artifact, not an"),
    }
    for tag, (push, said) in cases.items():
        name = push(tag)
        message = user.refusal("import", "--quiet", name)
        assert said in message, (tag, message)
        assert f"'{name}'" in message.splitlines()[0], (tag, message)
        assert "/blobs/" not in message, (tag, message)
    store = user.root / "store"
    assert not [path for path in store.rglob("images/**/*") if path.is_file()]


def test_a_registry_that_lies_is_not_believed(user: User, image: bytes) -> None:
    name = user.push("lie", image)
    user.between.faults.append(Fault(BLOBS, after=len(image) // 2, changes=True))
    assert "Digest did not match" in user.refusal("import", "--quiet", name)
    user.between.faults.clear()
    pinned = f"{name.rpartition(':')[0]}@sha256:{'0' * 64}"
    user.between.faults.append(Fault(MANIFESTS, instead="/v2/me/sif/manifests/lie"))
    assert "where sha256:0000" in user.refusal("import", "--quiet", pinned)


def test_a_file_of_an_earlier_import_is_compared_with_its_digest_again(
    user: User, image: bytes
) -> None:
    name = user.push("kept", image)
    path = Path(user.ce("import", "--quiet", name))
    content = path.read_bytes()
    user.ce("rmi", name)
    blob = user.root / f"store/blobs/sha256/{hashlib.sha256(image).hexdigest()}"
    blob.write_bytes(image[:-4096] + bytes(4096))
    assert "does not match its digest\nce: hint: it was removed" in user.refusal("import", name)
    assert user.ce("import", "--quiet", name) == str(path)
    assert path.read_bytes() == content


def test_a_size_that_is_a_lie_does_not_pass_the_sites_limit(user: User, image: bytes) -> None:
    name = user.push("small", image, size=10)
    message = user.refusal("import", "--quiet", name)
    assert "10" in message
    assert not list((user.root / "store").rglob("*.sqsh"))


def test_what_cannot_have_a_sif_file_says_so(user: User, image: bytes) -> None:
    name = user.push("not", image)
    assert "SIF files are pulled, not pushed" in user.refusal("push", "./x.sif", name)
    edf = user.root / "e.toml"
    edf.write_text(f'image = "{name}"\n')
    assert "a pod does not start from" in user.refusal(
        "export", "kubernetes", str(edf), "--", "true"
    )

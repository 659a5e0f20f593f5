"""Environments with their locks on their way to a registry, and into other homes."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from container_engine.build.layout import write_artifact
from container_engine.cli.main import main
from container_engine.submit.sent_environment import TYPE, Sent
from tests.integration.registry import SOURCES, Registry
from tests.unit import squashfs
from tests.unit.images.oci import Member


class People(NamedTuple):
    """Users with homes of their own, a registry, and what the last command printed."""

    root: Path
    registry: Registry
    environment: pytest.MonkeyPatch
    printed: pytest.CaptureFixture[str]

    def ce(self, who: str, *words: str, code: int = 0) -> str:
        """Run `ce` in somebody's home; return its output, or what it complains about."""
        home = self.root / who
        home.mkdir(exist_ok=True)
        if not (home / ".config").exists():
            shutil.copytree(Path(self.registry.env["HOME"]) / ".config", home / ".config")
        with self.environment.context() as changed:
            for name, value in {"HOME": str(home), "USER": who}.items():
                changed.setenv(name, value)
            for name in ("EDF_PATH", "EDF_IMAGESTORE", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
                changed.delenv(name, raising=False)
            changed.chdir(home)
            found = main(list(words))
        said = self.printed.readouterr()
        assert found == code, said.err
        return said.err if code else said.out.strip()

    def edf(self, who: str, name: str, text: str) -> None:
        file = self.root / who / f".edf/{name}.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def files(self, who: str) -> dict[str, str]:
        """Return the contents of somebody's environments and locks."""
        found = (self.root / who / ".edf").glob("*")
        return {file.name: file.read_text() for file in found}

    def image(self, name: str, content: str) -> str:
        where = self.root / f"layout-{content}"
        return self.registry.push(where, name, [Member("f", content.encode())])

    def locked(self, name: str) -> str:
        """Push an image, and lock Ann's environment `train` of it; return the image's reference."""
        image = self.image(f"sent/{name}:1", name)
        self.edf("ann", "train", TEXT.format(image=image))
        self.ce("ann", "lock", "train")
        return image

    def used(self, who: str, name: str) -> str:
        """Return the digest of the image that a launch uses."""
        return str(json.loads(self.ce(who, "plan", "--json", name))["image"]["digest"])

    def name(self, tag: str) -> str:
        return f"{self.registry.address}/me/environments/train:{tag}"

    def push_artifact(self, tag: str, kind: str, files: Mapping[str, tuple[str, bytes]]) -> str:
        where = self.root / f"artifact-{tag}"
        write_artifact(str(where), kind, files)
        argv = ["skopeo", "copy", "-q", f"oci:{where}", f"docker://{self.name(tag)}"]
        subprocess.run(argv, env=self.registry.env, check=True)
        return self.name(tag)


@pytest.fixture
def people(
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> People:
    return People(tmp_path, registry, monkeypatch, capsys)


TEXT = """\
# what the group has agreed on
image = "{image}"
mounts = ["${{HOME}}"]
"""


def test_it_starts_the_same_image_in_another_home_although_the_tag_has_moved(
    people: People,
) -> None:
    people.locked("moves")
    sent = people.ce("ann", "push", "--environment", "train", people.name("moves"))
    assert sent.startswith(f"{people.name('moves')}@sha256:")
    assert people.ce("ann", "push", "--environment", "train", people.name("moves")) == sent
    want = people.used("ann", "train")
    people.image("sent/moves:1", "after")
    made = people.ce("bob", "init", "mine", "--from", sent)
    assert made == str(people.root / "bob/.edf/mine.toml")
    assert people.files("bob") == {
        f"mine.{end}": people.files("ann")[f"train.{end}"] for end in ("toml", "lock")
    }
    people.ce("bob", "lock", "--check", "mine")
    assert people.used("bob", "mine") == want


WHOLE = """\
annotations.com.ce.time_limit_s = "9"
devices = ["example.org/gpu=all"]
image = ["{image}", "{above}"]
mounts = ["${{SCRATCH:-/tmp}}:/scratch", "${{HOME}}/x:/x:ro"]
startup = ["echo $$A ${{USER}}", 'echo "two"']
entrypoint = true
[env]
B = "${{image:PATH}}:/x"
DOLLARS = "$$A"
"two words\\u0007" = "\\u001b[1m"
[[checks]]
name = "sees"
command = ["true", "${{HOME}}", "$$A"]
limit_s = 9
"""


def test_one_with_bases_becomes_one_file_with_the_same_meaning(people: People) -> None:
    lower, upper = people.image("sent/base:1", "base"), people.image("sent/upper:1", "upper")
    people.edf("ann", "lower", WHOLE.format(image=lower, above=upper))
    people.edf("ann", "train", 'base_environment = "lower"\nworkdir = "${PWD}"\nwritable = false\n')
    people.ce("ann", "lock", "train")
    sent = people.ce("ann", "push", "--environment", "train", people.name("bases"))
    people.ce("bob", "init", "train", "--from", sent)
    assert sorted(people.files("bob")) == ["train.lock", "train.toml"]
    got = people.files("bob")["train.toml"]
    assert "base_environment" not in got
    assert '"${SCRATCH:-/tmp}:/scratch"' in got
    assert got.count('"${HOME}"') == 1
    people.ce("bob", "lock", "--check", "train")
    rendered = [
        people.ce("ann", "render", name) for name in ("train", f"{people.root}/bob/.edf/train.toml")
    ]
    assert rendered[0] == rendered[1]


def test_what_would_not_start_elsewhere_is_not_sent(people: People) -> None:
    image = people.image("sent/here:1", "here")
    file = squashfs.make(people.root / "x.sqsh", {"f": "x"})
    people.edf("ann", "train", TEXT.format(image=image))
    people.edf("ann", "file", f'image = "{file}"\n')
    people.ce("ann", "import", str(file), f"{people.registry.address}/only/here:1")
    people.edf("ann", "local", f'image = "{people.registry.address}/only/here:1"\n')
    people.ce("ann", "lock", "file", "local")

    def said(name: str) -> str:
        return people.ce("ann", "push", "--environment", name, people.name("no"), code=1)

    assert "'train': has no lock\nce: hint: ce lock train pins its image; then push" in said(
        "train"
    )
    people.ce("ann", "lock", "train")
    people.edf("ann", "train", TEXT.format(image=image) + 'workdir = "/"\n')
    assert "its lock is not up to date: the environment asks for something else" in said("train")
    assert f"is a file of this host\nce: hint: ce push {file} REFERENCE" in said("file")
    assert "only/here" in said("local")
    assert "no environment" in said("none") or "not found" in said("none")
    listed = ["skopeo", "inspect", "--raw", f"docker://{people.name('no')}"]
    assert subprocess.run(listed, env=people.registry.env, capture_output=True).returncode != 0


def test_images_and_environments_are_not_taken_for_each_other(people: People) -> None:
    image = people.locked("other")
    said = people.ce("bob", "init", "x", "--from", image, code=1)
    assert f"ce: error: '{image}': not an environment\nce: hint: " in said
    assert f"ce init NAME --image {image}" in said
    sent = people.ce("ann", "push", "--environment", "train", people.name("other"))
    said = people.ce("bob", "pull", sent, code=1)
    assert "an artifact, not an image\nce: hint: " in said
    assert f"ce init NAME --from {sent}" in said
    assert people.files("bob") == {}


def test_a_file_that_is_changed_while_a_registry_is_asked_is_sent_as_it_was(
    people: People,
) -> None:
    people.locked("edited")
    edits = people.root / "bin/skopeo"
    edits.parent.mkdir()
    real = shutil.which("skopeo")
    edits.write_text(f'#!/bin/sh\necho "# later" >> ~/.edf/train.toml\nexec {real} "$@"\n')
    edits.chmod(0o755)
    people.environment.setenv("PATH", f"{edits.parent}:{os.environ['PATH']}")
    sent = people.ce("ann", "push", "--environment", "train", people.name("edited"))
    assert "# later" in people.files("ann")["train.toml"]
    people.ce("bob", "init", "train", "--from", sent)
    assert "# later" not in people.files("bob")["train.toml"]
    people.ce("bob", "lock", "--check", "train")


def hostile(lock: dict[str, Any]) -> dict[str, tuple[bytes, bytes, str]]:
    """Return contents of artifacts, and what is said about each."""
    good, locked = b'image = "ubuntu:24.04"\n', json.dumps(lock).encode()
    return {
        "toml": (b"image = [", locked, "x.toml:1: "),
        "key": (b'image = "a:1"\nmounts = 5\n', locked, "x.toml:2: mounts: "),
        "utf": (b'image = "\xff"', locked, "its file is not UTF-8"),
        "lock": (good, b'{"version": 2}', "ce lock writes a new one"),
        "part": (good, b"[]", "ce lock writes a new one"),
        "huge": (good + b"#" * (5 << 20), locked, "its files are larger than 4 MiB"),
    }


@pytest.mark.parametrize("kind", [*hostile({}), "more"])
def test_what_a_registry_has_is_judged_before_a_file_is_written(people: People, kind: str) -> None:
    image = people.image(f"sent/hostile-{kind}:1", kind)
    people.edf("ann", "train", TEXT.format(image=image))
    people.ce("ann", "lock", "train")
    lock = json.loads(people.files("ann")["train.lock"])
    edf, text, want = hostile(lock).get(kind, (b"", b"", "not an environment"))
    files = Sent(os.fsdecode(edf), os.fsdecode(text)).named("../../../tmp/evil")
    if kind == "more":
        files["third"] = ("text/plain", b"?")
    name = people.push_artifact(kind, TYPE, files)
    assert want in people.ce("bob", "init", "x", "--from", name, code=1)
    assert not (people.root / "bob/.edf").exists() or people.files("bob") == {}


def test_a_lock_that_leads_elsewhere_starts_nothing(people: People) -> None:
    image, other = people.image("sent/said:1", "said"), people.image("sent/hidden:1", "hidden")
    people.edf("ann", "train", TEXT.format(image=other))
    people.ce("ann", "lock", "train")
    lock = people.files("ann")["train.lock"]
    sent = Sent(TEXT.format(image=image), lock)
    people.ce("bob", "init", "x", "--from", people.push_artifact("leads", TYPE, sent.named("x")))
    assert "leads to" in people.ce("bob", "plan", "x", code=1)


@pytest.mark.parametrize("there", ["x.toml", "x.lock"])
def test_a_file_that_exists_stays_and_nothing_is_added(people: People, there: str) -> None:
    image = people.image(f"sent/{there}:1", there)
    people.edf("ann", "train", TEXT.format(image=image))
    people.ce("ann", "lock", "train")
    sent = people.ce("ann", "push", "--environment", "train", people.name(there))
    (people.root / "bob/.edf").mkdir(parents=True)
    (people.root / "bob/.edf" / there).write_text("mine")
    assert f"{there} exists already" in people.ce("bob", "init", "x", "--from", sent, code=1)
    assert people.files("bob") == {there: "mine"}


def test_a_file_that_a_server_refuses_when_it_is_closed_does_not_stay(
    people: People, need_tool: Callable[[str], str]
) -> None:
    """NFS tells so late of a used quota, and would keep the environment without its lock."""
    image = people.image("sent/closed:1", "closed")
    people.edf("ann", "train", TEXT.format(image=image))
    people.ce("ann", "lock", "train")
    sent = people.ce("ann", "push", "--environment", "train", people.name("closed"))
    file = people.root / "x.toml"
    fault = ("-e", "inject=close:error=EDQUOT:when=1", "-P", str(file), "-o", "/dev/null")
    words = (sys.executable, "-m", "container_engine", "init", str(file), "--from", sent)
    done = subprocess.run(
        (need_tool("strace"), "-f", *fault, *words),
        env=people.registry.env,
        cwd=SOURCES,
        capture_output=True,
        text=True,
    )
    assert f"ce: error: '{file}': disk quota exceeded\n" in done.stderr
    assert list(people.root.glob("x.*")) == []


def test_options_that_do_not_go_together_are_refused(people: People) -> None:
    said = people.ce(
        "ann", "push", "--environment", "--arch", "arm64", "x", "r.example.org/x:1", code=1
    )
    assert "a lock is for all architectures" in said
    with pytest.raises(SystemExit):
        people.ce("ann", "init", "x", "--from", "r.example.org/x:1", "--image", "y")
    assert "either --image or --from, not both" in people.printed.readouterr().err

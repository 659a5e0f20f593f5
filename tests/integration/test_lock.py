"""Locks: the image that a launch uses, and the message when the environment has changed."""

import contextlib
import hashlib
import json
import os
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from container_engine.cli.main import main
from container_engine.images import image_files
from tests.integration.faulty import Fault, Front, front
from tests.integration.leftovers import until
from tests.integration.registry import Registry
from tests.unit import squashfs
from tests.unit.images import oci
from tests.unit.images.oci import Member


class Project(NamedTuple):
    """A directory with an environment, and a user with a store of their own."""

    dir: Path
    registry: Registry
    environment: pytest.MonkeyPatch
    printed: pytest.CaptureFixture[str]

    @property
    def edf(self) -> Path:
        return self.dir / "train.toml"

    @property
    def lock(self) -> Path:
        return self.dir / "train.lock"

    def ce(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        with self.environment.context() as changed:
            for name, value in env.items():
                changed.setenv(name, value)
            code = main([*words, str(self.edf)])
        said = self.printed.readouterr()
        return subprocess.CompletedProcess(words, code, said.out, said.err)

    def locked(self) -> dict[str, Any]:
        done = self.ce("lock")
        assert done.returncode == 0, done.stderr
        content: dict[str, Any] = json.loads(self.lock.read_text())
        return content

    def launched(self, **env: str) -> tuple[str, str]:
        """Return the digest or path of a launch's image, and the messages about the lock."""
        done = self.ce("plan", "--json", **env)
        assert done.returncode == 0, done.stderr
        image = json.loads(done.stdout)["image"]
        said = [line for line in done.stderr.splitlines() if str(self.lock) in line]
        return image["digest"] or image["path"], "\n".join(said)

    def push(self, name: str, content: str) -> str:
        where = self.dir / f"layout-{content}"
        return self.registry.push(where, name, [Member("f", content.encode())])


@pytest.fixture
def project(
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Project:
    more = {"EDF_IMAGESTORE": f"{tmp_path}/store", "XDG_CACHE_HOME": f"{tmp_path}/cache"}
    for name, value in (registry.env | more).items():
        monkeypatch.setenv(name, value)
    return Project(tmp_path, registry, monkeypatch, capsys)


def test_a_launch_uses_what_is_locked_although_the_tag_has_moved(project: Project) -> None:
    name = project.push("locked:1", "one")
    project.edf.write_text(f'image = "{name}"\n')
    lock = project.locked()
    [(arch, pinned)] = lock["images"].items()
    assert project.launched(CE_PULL="always") == (pinned["digest"], "")
    project.push("locked:1", "two")
    assert project.launched(CE_PULL="always") == (pinned["digest"], "")
    assert project.locked()["images"][arch]["digest"] != pinned["digest"]


def test_a_launch_says_that_the_environment_has_moved_on(project: Project) -> None:
    name = project.push("moving:1", "one")
    other = project.push("moving:2", "two")
    project.edf.write_text(f'image = "{name}"\n')
    [pinned] = project.locked()["images"].values()
    assert project.ce("lock", "--check").returncode == 0
    project.edf.write_text(f'image = "{name}"\nworkdir = "/w"\n')
    digest, said = project.launched()
    assert digest == pinned["digest"]
    assert "the environment asks for something else (ce lock renews it)" in said
    project.edf.write_text(f'image = "{other}"\n')
    digest, said = project.launched()
    assert digest == pinned["digest"]
    assert f"its image was '{name}' and is '{other}'" in said


@contextlib.contextmanager
def in_front(project: Project) -> Iterator[Front]:
    with front(project.registry.address) as between:
        known = Path(project.registry.env["HOME"]) / ".config/containers/registries.conf.d"
        known.mkdir(exist_ok=True)
        text = f'[[registry]]\nlocation = "{between.address}"\ninsecure = true\n'
        (known / "front.conf").write_text(text)
        yield between
        (known / "front.conf").unlink()


def push_index(project: Project, name: str, content: str) -> list[str]:
    """Push an index of images for two architectures; return their digests."""
    where = project.dir / f"index-{content}"
    stacks = {arch: [[Member("f", f"{content} {arch}".encode())]] for arch in ("amd64", "arm64")}
    oci.layout_of_several(where, stacks)
    target = f"docker://{project.registry.address}/{name}"
    push = ["skopeo", "copy", "-q", "--all", "--preserve-digests", f"oci:{where}:latest", target]
    subprocess.run(push, env=project.registry.env, check=True)
    tagged = json.loads((where / "index.json").read_bytes())["manifests"][0]["digest"]
    index = json.loads((where / "blobs" / tagged.replace(":", "/")).read_bytes())
    return [one["digest"] for one in index["manifests"]]


@pytest.mark.parametrize("requests", range(1, 4))
def test_all_architectures_are_locked_as_they_were_at_one_moment(
    project: Project, requests: int
) -> None:
    before, after = push_index(project, "moves:1", "old"), push_index(project, "moves:2", "new")
    with in_front(project) as between:
        project.edf.write_text(f'image = "{between.address}/moves:1"\n')
        moved = Fault("/manifests/1$", instead="/v2/moves/manifests/2")
        between.faults += [Fault("/manifests/1$", requests), moved]
        images = project.locked()["images"]
    assert [images["amd64"]["digest"], images["arm64"]["digest"]] in (before, after)


def test_an_index_that_leads_to_an_index_is_locked(project: Project) -> None:
    """The outer one names no architecture, as builders write it that add to a layout."""
    listed = push_index(project, "inner:1", "inner")
    url = f"http://{project.registry.address}/v2/inner/manifests"
    kind = "application/vnd.oci.image.index.v1+json"
    asked = urllib.request.Request(f"{url}/1", headers={"Accept": kind})
    with urllib.request.urlopen(asked) as answer:
        inner = answer.read()
    entry = {"mediaType": kind, "size": len(inner)}
    entry["digest"] = f"sha256:{hashlib.sha256(inner).hexdigest()}"
    outer = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": [entry]}).encode()
    put = urllib.request.Request(f"{url}/2", outer, {"Content-Type": kind}, method="PUT")
    with urllib.request.urlopen(put):
        project.edf.write_text(f'image = "{project.registry.address}/inner:2"\n')
    images = project.locked()["images"]
    assert [images["amd64"]["digest"], images["arm64"]["digest"]] == listed


def test_a_locked_image_that_the_registry_no_longer_answers_with_is_refused(
    project: Project,
) -> None:
    with in_front(project) as between:
        project.push("lied:1", "honest")
        project.edf.write_text(f'image = "{between.address}/lied:1"\n')
        [pinned] = project.locked()["images"].values()
        project.push("lied:1", "dishonest")
        between.faults.append(Fault("/manifests/sha256", instead="/v2/lied/manifests/1"))
        done = project.ce("plan")
    assert done.returncode != 0
    assert f"where {pinned['digest']} was asked for" in done.stderr


def test_the_check_tells_whether_a_lock_is_missing_or_old(project: Project) -> None:
    name = project.push("checked:1", "one")
    project.edf.write_text(f'image = "{name}"\n[env]\nA = "1"\n')
    done = project.ce("lock", "--check")
    assert (done.returncode, done.stdout) == (1, f"{project.lock}: missing\n")
    before = project.locked()
    project.edf.write_text(f'# a comment\nimage = "{name}"\n\nenv.A = "1"\n')
    done = project.ce("lock", "--check")
    assert (done.returncode, done.stdout) == (0, f"{project.lock}: up to date\n")
    project.edf.write_text(f'image = "{name}"\nenv.A = "2"\n')
    done = project.ce("lock", "--check")
    assert (done.returncode, done.stdout) == (
        1,
        f"{project.lock}: the environment asks for something else\n",
    )
    assert json.loads(project.lock.read_text()) == before


@pytest.mark.parametrize(
    "changed",
    ['command = ["true", "a", "b"]', 'command = ["true", "a b"]\nlimit_s = 20\nseverity = "fail"'],
)
def test_any_other_line_of_a_check_makes_a_lock_old(project: Project, changed: str) -> None:
    head = f'image = "{project.push("checks:1", "one")}"\n[[checks]]\nname = "sees"\n'
    project.edf.write_text(f'{head}command = ["true", "a b"]\n')
    project.locked()
    assert project.ce("lock", "--check").returncode == 0
    project.edf.write_text(f"{head}{changed}\n")
    done = project.ce("lock", "--check")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.endswith(": the environment asks for something else\n")


def test_a_lock_is_the_same_for_everybody(project: Project) -> None:
    name = project.push("shared:1", "one")
    project.edf.write_text(f'image = "{name}"\nmounts = ["${{WHERE}}:/data"]\n')
    assert project.ce("lock", WHERE="/a").returncode == 0
    assert project.ce("lock", "--check", WHERE="/b").returncode == 0


def test_a_hook_of_another_release_is_named(project: Project) -> None:
    image = squashfs.make(project.dir / "i.sqsh", {"f": "1"})
    hook = 'annotations."com.hooks.pytorch.enabled" = "true"'
    project.edf.write_text(f'image = "{image}"\n{hook}\n')
    lock = project.locked()
    release = lock["hooks"]["pytorch"]
    project.lock.write_text(json.dumps(lock | {"hooks": lock["hooks"] | {"pytorch": "0.1"}}))
    done = project.ce("lock", "--check")
    assert (done.returncode, done.stdout) == (
        1,
        f"{project.lock}: hook pytorch was release 0.1 and is release {release}\n",
    )


def test_a_lock_that_leads_to_another_repository_is_refused(project: Project) -> None:
    other = project.push("other:1", "other")
    project.push("elsewhere:1", "elsewhere")
    project.edf.write_text(f'image = "{project.push("mine:1", "mine")}"\n')
    lock = project.locked()
    said = lock["image"]
    project.lock.write_text(json.dumps(lock | {"name": other}))
    done = project.ce("plan")
    assert done.returncode == 1
    repository = said.removesuffix(":1")
    assert f"{project.lock}: leads to '{other}', and the image '{said}' means" in done.stderr
    assert f"means '{repository}'\n" in done.stderr
    assert "ce: see: ce help image-lock" in done.stderr
    # the image that the lock records for the environment does not count
    for image in (other, "${REGISTRY}/x:1"):
        project.lock.write_text(json.dumps(lock | {"name": other, "image": image}))
        assert f"leads to '{other}', and the image '{said}' means" in project.ce("plan").stderr


def test_a_plan_shows_the_image_that_a_lock_leads_to(project: Project) -> None:
    name = project.push("shown:1", "shown")
    project.edf.write_text('image = "${WHERE}"\n')
    assert project.ce("lock", WHERE=name).returncode == 0
    [pinned] = json.loads(project.lock.read_text())["images"].values()
    done = project.ce("plan", WHERE=name)
    assert f"image name   {name}@{pinned['digest']}  #" in done.stdout


def test_a_locked_file_must_be_that_file(project: Project) -> None:
    image = squashfs.make(project.dir / "i.sqsh", {"f": "1"})
    project.edf.write_text(f'image = "{image}"\n')
    lock = project.locked()
    assert lock["images"]["file"]["size"] == image.stat().st_size
    assert project.launched() == (str(image), "")
    squashfs.make(image, {"f": "1", "g": "2"})
    done = project.ce("plan")
    assert done.returncode == 1
    assert f"{project.lock}: '{image}' is not the file that was locked" in done.stderr


def test_a_locked_file_of_somebody_else_has_a_digest_in_its_launches(project: Project) -> None:
    images = [squashfs.make(project.dir / name, {"f": name}) for name in ("a.sqsh", "b.sqsh")]
    for image in images:
        os.chown(image, 65534, 65534)  # its directory cannot be written, either
        image.chmod(0o644)
    project.edf.write_text(
        f'image = ["{images[0]}", "{images[1]}"]\n[env]\nCACHE = "${{image:digest:-}}"\n'
    )

    def known() -> tuple[str, str, str | None]:
        plan = json.loads(project.ce("plan", "--json").stdout)
        image, [cache] = plan["image"], (one["value"] for one in plan["env"])
        return image["content"], image["above"][0]["content"], cache

    assert known() == ("", "", None)
    project.locked()
    assert not Path(f"{images[0]}.sha256").exists()
    first, second = (f"sha256:{hashlib.sha256(one.read_bytes()).hexdigest()}" for one in images)
    assert known() == (first, second, f"{first}+{second}".replace(":", "-"))


def flip(image: Path, at: int) -> None:
    """Change one byte; keep size and time."""
    data, times = bytearray(image.read_bytes()), image.stat()
    data[at] ^= 1
    image.write_bytes(data)
    os.utime(image, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_locked_file_whose_data_has_changed_is_refused(project: Project) -> None:
    image = squashfs.make(project.dir / "i.sqsh", {"f": "1"})
    project.edf.write_text(f'image = "{image}"\n')
    digest = project.locked()["images"]["file"]["digest"]
    assert digest == f"sha256:{hashlib.sha256(image.read_bytes()).hexdigest()}"
    assert image_files.known_digest(str(image)) == digest
    Path(f"{image}.sha256").unlink()
    assert project.ce("plan").returncode == 0  # the recorded digest is not required
    flip(image, image.stat().st_size // 2)
    assert "is not the file that was locked" in project.ce("plan").stderr


def test_a_file_that_is_replaced_while_it_is_read_is_not_locked(project: Project) -> None:
    image, other = project.dir / "i.sqsh", project.dir / "other.sqsh"
    for path, content in ((image, "1"), (other, "2")):
        squashfs.make(path, {"f": content})
        os.truncate(path, 1 << 30)  # to read it takes a while
    project.edf.write_text(f'image = "{image}"\n')

    def replace() -> None:
        # its beginning and samples are looked at before
        if until(lambda: _read(str(image)) > 1 << 20):
            other.rename(image)

    replacing = threading.Thread(target=replace)
    replacing.start()
    done = project.ce("lock")
    replacing.join()
    assert (done.returncode, f"'{image}': changed while it was read" in done.stderr) == (1, True)
    assert not project.lock.exists()
    assert image_files.known_digest(str(image)) == ""


def _read(path: str) -> int:
    """Return the offset to which a process has read the file, 0 if none has."""
    for fd in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(fd) == path:
                return int((fd.parents[1] / "fdinfo" / fd.name).read_text().split()[1])
    return 0


def test_the_check_of_a_lock_reads_all_of_a_file(project: Project) -> None:
    image = project.dir / "i.sqsh"
    squashfs.make(image, {"f": "".join(map(chr, os.urandom(400_000)))})
    project.edf.write_text(f'image = "{image}"\n')
    project.locked()
    assert project.ce("lock", "--check").returncode == 0
    flip(image, image.stat().st_size // 30)  # in a part that a launch does not read
    assert project.ce("plan").returncode == 0
    done = project.ce("lock", "--check")
    assert (done.returncode, done.stdout) == (
        1,
        f"{project.lock}: the content of '{image}' has changed\n",
    )


def test_a_locked_image_of_this_host_is_found_by_its_digest(project: Project) -> None:
    image = squashfs.make(project.dir / "i.sqsh", {"f": "1"})
    assert main(["import", "-q", str(image), "own:1"]) == 0
    project.edf.write_text('image = "own:1"\n')
    [pinned] = project.locked()["images"].values()
    assert project.launched() == (pinned["digest"], "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("{", "not valid JSON"),
        ({"version": 2}, "version: must be 1"),
        ({"images": {"s390x": {"digest": f"sha256:{'0' * 64}", "size": 1}}}, "only for s390x"),
    ],
)
def test_a_lock_that_cannot_be_used_ends_the_launch(
    project: Project, change: str | dict[str, object], message: str
) -> None:
    project.edf.write_text('image = "ubuntu:24.04"\n')
    good = {"version": 1, "engine": "0", "environment": "x", "image": "ubuntu:24.04", "hooks": {}}
    good |= {"name": "docker.io/library/ubuntu:24.04", "images": {}}
    project.lock.write_text(change if isinstance(change, str) else json.dumps({**good, **change}))
    done = project.ce("plan")
    assert done.returncode == 1
    assert str(project.lock) in done.stderr
    assert message in done.stderr
    assert "ce: hint: ce lock writes a new one" in done.stderr

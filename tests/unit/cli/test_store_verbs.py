"""Output of `ce images`, `rmi`, `gc`, `store` and `inspect` for a user's store."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from container_engine.base.records import to_json
from container_engine.cli.main import main
from container_engine.images import image_files
from container_engine.images.store import lease
from tests.unit import squashfs


class Owner:
    """A user with a store, who runs `ce` in this process."""

    def __init__(
        self,
        root: Path,
        printed: pytest.CaptureFixture[str],
        environment: pytest.MonkeyPatch,
    ) -> None:
        self.root, self.store, self._printed = root, root / "store", printed
        self.environment = environment

    def ce(self, *words: str, code: int = 0) -> str:
        ended = main(words)
        said = self._printed.readouterr()
        assert ended == code, said
        return said.out if code == 0 or said.out else said.err

    def add(self, *names: str, used: float = 0) -> Path:
        """Add an image with these names, last used so many seconds ago."""
        content = {"bin/a": names[0] * 1000, "bin/b": "b", "etc/c": "cc"}
        file = squashfs.make(self.root / f"{len(os.listdir(self.root))}.sqsh", content)
        for name in names:
            path = Path(self.ce("import", "-q", str(file), name).strip())
        when = time.time() - used
        os.utime(path, (when, when))
        image_files.note_use(str(path), image_files.Use(when, when))
        return path


@pytest.fixture
def owner(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    need_tool: Callable[[str], str],
) -> Owner:
    need_tool("mksquashfs")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("EDF_IMAGESTORE", str(tmp_path / "store"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return Owner(tmp_path, capsys, monkeypatch)


def test_images_are_listed_with_all_their_names_the_last_used_first(owner: Owner) -> None:
    old, new = owner.add("old:1", used=99_999), owner.add("new:1", "nvcr.io/x/new:2")
    head, titles, *rows = owner.ce("images").splitlines()
    assert head == f"{owner.store}: 2 images, 8.0 KiB"
    assert titles.split() == ["NAME", "DIGEST", "ARCH", "SIZE", "CREATED", "USED"]
    assert [row.split()[0] for row in rows] == ["new:1", "=", "old:1"]
    assert rows[1] == "  = nvcr.io/x/new:2"
    assert owner.ce("images", "--quiet").split() == [str(new), str(old)]
    document = json.loads(owner.ce("images", "--json"))
    schema = Path(__file__).parents[3] / "edf_schemas/images.json"
    Draft202012Validator(json.loads(schema.read_text())).validate(document)
    listed = document["images"]
    assert [item["path"] for item in listed] == [str(new), str(old)]
    assert listed[0].keys() >= {"names", "digest", "arch", "size", "created", "used", "store"}


def test_what_is_empty_says_so(owner: Owner) -> None:
    assert owner.ce("images") == f"{owner.store}: no images (ce pull IMAGE gets one)\n"
    assert owner.ce("images", "-q") == ""
    assert json.loads(owner.ce("images", "--json"))["images"] == []
    assert owner.ce("gc") == f"nothing to remove in {owner.store}\n"
    assert f"'{owner.store}': there is no store yet" in owner.ce("store", "check", code=1)
    owner.environment.setenv("EDF_IMAGESTORE", "void")
    assert owner.ce("images") == "EDF_IMAGESTORE=void, and the site has no stores\n"
    assert "there is no store of your own" in owner.ce("rmi", "x", code=1)
    assert owner.ce("gc") == "nothing to remove\n"


def test_a_launch_is_a_use(owner: Owner) -> None:
    owner.add("used:1", used=99_999)
    (owner.root / "e.toml").write_text('image = "used:1"\n')
    owner.ce("plan", "./e.toml")
    [item] = json.loads(owner.ce("images", "--json"))["images"]
    assert item["used"] == pytest.approx(time.time(), abs=60)
    assert item["imported"] == pytest.approx(time.time() - 99_999, abs=60)


def test_a_name_goes_and_the_image_with_its_last_name(owner: Owner) -> None:
    path = owner.add("one:1", "two:1")
    assert owner.ce("rmi", "one:1") == ""
    assert path.exists()
    assert owner.ce("rmi", "two:1") == f"removed {path} (4.0 KiB)\n"
    assert os.listdir(owner.store / "images") == []
    owner.add("three:1")
    assert "ce: hint: there is three:1\n" in owner.ce("rmi", "three", code=1)
    digest = json.loads(owner.ce("images", "--json"))["images"][0]["digest"]
    digits = digest.removeprefix("sha256:")
    assert f"'{digits[:11]}': not in " in owner.ce("rmi", digits[:11], code=1)
    owner.ce("rmi", digits[:12])
    assert owner.ce("images", "-q") == ""


def test_either_all_arguments_are_removed_or_none(owner: Owner) -> None:
    one, two = owner.add("one:1"), owner.add("two:1", "three:1")
    said = owner.ce("rmi", "one:1", "missing:1", code=1)
    assert said.startswith(f"ce: error: 'missing:1': not in {owner.store}")
    assert one.exists()
    said = owner.ce("rmi", "three:1", "one:1", "two:1", "one:1")
    assert said.splitlines() == [f"removed {path} (4.0 KiB)" for path in (one, two)]
    assert owner.ce("images", "-q") == ""


def test_the_beginning_of_several_digests_removes_nothing(owner: Owner) -> None:
    owner.add("own:1")
    images = owner.store / "images"
    [one] = images.glob("*.sqsh")
    digits = one.name.split("-")[1]
    another = digits[:-1] + ("0" if digits[-1] != "0" else "1")
    (images / one.name.replace(digits, another)).write_bytes(one.read_bytes())
    for asked in (digits[:20], f"sha256:{digits[:5]}"):
        said = owner.ce("rmi", asked, code=1)
        assert f"'{asked}': 2 digests begin with this: sha256:" in said
    assert len(list(images.glob("*.sqsh"))) == 2
    owner.ce("rmi", f"sha256:{digits}")
    assert [path.name.split("-")[1] for path in images.glob("*.sqsh")] == [another]


def test_room_is_made_by_use_age_and_size_and_only_when_asked(owner: Owner) -> None:
    day = 86_400
    for number, days in enumerate((1, 5, 9)):
        owner.add(f"i:{number}", used=days * day)
    assert owner.ce("gc") == f"nothing to remove in {owner.store}\n"
    said = owner.ce("gc", "-n", "--unused", "7")
    assert said == (
        "docker.io/library/i:2 amd64 (4.0 KiB): not used for 9 days\n4.0 KiB would be freed\n"
    ).replace("amd64", json.loads(owner.ce("images", "--json"))["images"][0]["arch"])
    assert len(owner.ce("images", "-q").split()) == 3
    assert "imported 5 days ago" in owner.ce("gc", "-n", "--age", "4")
    assert owner.ce("gc", "-q", "--size", "8K") == ""
    assert len(owner.ce("images", "-q").split()) == 2
    assert "not a size" in owner.ce("gc", "--size", "much", code=1)
    assert owner.ce("gc", "--touch").endswith("2 images have new times\n")
    assert "not used for 5 days" in owner.ce("gc", "-n", "--unused", "4")
    owner.add("new:1", used=130)
    assert "not used for 2 minutes" in owner.ce("gc", "-n", "--unused", "0")


def test_layers_go_on_demand_unless_an_import_may_read_them(owner: Owner) -> None:
    for name in ("blobs/sha256/aa", "blobs/sha256/bb", "locks/x"):
        (owner.store / name).parent.mkdir(parents=True, exist_ok=True)
        (owner.store / name).write_bytes(bytes(1024))
    rest = "compressed layers keep 2.0 KiB: ce gc --layers removes them\n"
    assert owner.ce("gc") == f"nothing to remove in {owner.store}\n{rest}"
    assert owner.ce("images") == (
        f"{owner.store}: no images (ce pull IMAGE gets one);"
        " compressed layers: 2.0 KiB (ce gc --layers)\n"
    )
    assert owner.ce("gc", "--layers") == (
        "layers of the last week are kept: an import is running\n"
        f"nothing to remove in {owner.store}\n"
    )
    dead = lease.this_process("me")._replace(start="another")
    (owner.store / "locks/x").write_text(to_json(dead).decode())  # its process was killed
    assert owner.ce("gc", "--layers") == (
        "2 compressed layers (2.0 KiB): only save later imports a download\n2.0 KiB freed\n"
    )
    assert os.listdir(owner.store / "blobs/sha256") == []
    assert owner.ce("gc") == f"nothing to remove in {owner.store}\n"


def test_layers_of_the_last_week_are_named_where_others_go(owner: Owner) -> None:
    for name, size in (("aa", 1024), ("bb", 2048)):
        (owner.store / "blobs/sha256").mkdir(parents=True, exist_ok=True)
        (owner.store / "blobs/sha256" / name).write_bytes(bytes(size))
    long_ago = time.time() - 8 * 86400
    os.utime(owner.store / "blobs/sha256/aa", (long_ago, long_ago))
    rest = "compressed layers keep 2.0 KiB: ce gc --layers removes them\n"
    for options, freed in ((["-n"], "1.0 KiB would be freed\n"), ([], "1.0 KiB freed\n")):
        assert owner.ce("gc", *options).endswith(f"{freed}{rest}")


def test_the_cache_of_builds_is_named_with_the_command_that_removes_it(owner: Owner) -> None:
    cache = owner.root / f"ce-build-{os.getuid()}"
    locked = cache / "overlay/usr"
    locked.mkdir(parents=True)
    (locked / "file").touch()
    locked.chmod(0o555)
    said = owner.ce("gc").splitlines()[-1]
    assert said == f"steps of ce build are in {cache}: chmod -R u+rwX {cache}; rm -rf {cache}"
    subprocess.run(["/bin/sh", "-ec", said.partition(": ")[2]], check=True)
    assert not cache.exists()


def test_a_check_finds_and_a_repair_removes_what_is_damaged(owner: Owner) -> None:
    owner.add("good:1")
    assert owner.ce("store", "check") == f"{owner.store}: nothing is wrong, 4.0 KiB read\n"
    bad = owner.add("bad:1")
    bad.write_bytes(bad.read_bytes()[:200])
    said = owner.ce("store", "check", "-q", code=1)
    assert said.startswith(f"{bad}: cut short, it has 200 bytes of ")
    repaired = owner.ce("store", "repair").splitlines()
    assert repaired[0] == f"removed: {said.rstrip()}"
    assert "docker.io/library/bad:1 leads to no image" in repaired[1]
    assert owner.ce("store", "check", "-q") == ""
    assert len(owner.ce("images", "-q").split()) == 1


def test_an_image_is_shown_with_what_takes_the_room_in_it(owner: Owner) -> None:
    path = owner.add("shown:1")
    text = owner.ce("inspect", "shown:1")
    assert f"file          {path}\n" in text
    assert "env           PATH=/usr/local/sbin" in text
    assert "\n1 layer, " in text
    assert text.index("2 files  /bin") < text.index("1 files  /etc")
    (owner.root / "e.toml").write_text('image = "shown:1"\n')
    shown = json.loads(owner.ce("inspect", "--json", "--depth", "0", "./e.toml"))
    assert shown["tree"] == {"/": {"size": 7003, "files": 3}}
    assert shown["path"] == str(path)
    (owner.root / "base.toml").write_text("writable = true\n")
    assert "has no image" in owner.ce("inspect", "./base.toml", code=1)


def slurm_answers(owner: Owner, squeue: str) -> None:
    programs = owner.root / "bin"
    programs.mkdir()
    answers = {"squeue": squeue, "scontrol": "ClusterName = alps\n"}
    for name, text in answers.items():
        (programs / name).write_text(f"#!/bin/sh\nprintf '%s' '{text}'\n")
        (programs / name).chmod(0o755)
    owner.environment.setenv("PATH", f"{programs}:{os.environ['PATH']}")


def test_what_the_jobs_of_a_named_cluster_use_stays(owner: Owner) -> None:
    path = owner.add("used:1")
    jobs = f"12 {os.geteuid()} RUNNING\n13 {os.geteuid()} COMPLETED\n"
    slurm_answers(owner, f"CLUSTER: alps\n{jobs}")
    (owner.store / "uses").mkdir()
    (owner.store / f"uses/12-abababababab.{os.geteuid()}@alps").symlink_to(path.name)
    assert "'used:1': in use by job 12\n" in owner.ce("rmi", "used:1", code=1)
    (owner.store / f"uses/12-abababababab.{os.geteuid()}@alps").unlink()
    # a moment ago, by a job that Slurm knows to have ended
    (owner.store / f"uses/13-abababababab.{os.geteuid()}@alps").symlink_to(path.name)
    owner.ce("rmi", "used:1")


def test_a_job_that_slurm_has_forgotten_is_not_said_to_use_an_image(owner: Owner) -> None:
    path = owner.add("used:1")
    slurm_answers(owner, f"13 {os.geteuid()} RUNNING\n")
    (owner.store / "uses").mkdir()
    (owner.store / f"uses/12-abababababab.{os.geteuid()}@alps").symlink_to(path.name)
    kept = "last used by job 12, which Slurm no longer lists; kept for an hour after its first use"
    assert owner.ce("rmi", "used:1", code=1) == (
        f"ce: error: 'used:1': {kept}\n"
        "ce: hint: if none of your jobs runs in it: ce rmi --force used:1\n"
    )
    assert f": {kept}\n" in owner.ce("gc", "--size=0")
    owner.ce("rmi", "--force", "used:1")

"""Names without a registry: the image they stand for, and locks and policies on them."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from container_engine.cli.main import main
from tests.integration.faulty import MANIFESTS, Fault, Front, front
from tests.integration.registry import Registry
from tests.unit.images.oci import Member


class Lab:
    """A user with a store and a registries.conf of their own."""

    def __init__(
        self, registry: Registry, directory: Path, printed: pytest.CaptureFixture[str]
    ) -> None:
        self.dir, self.registry, self.push = directory, registry, registry.push
        self._printed = printed
        self._conf = directory / ".config/containers/registries.conf"
        self._conf.parent.mkdir(parents=True)
        self.edf = directory / "t.toml"

    def says(self, text: str, *others: str) -> None:
        known = "".join(
            f'[[registry]]\nlocation = "{address}"\ninsecure = true\n'
            for address in (self.registry.address, *others)
        )
        self._conf.write_text(f"{text}\n{known}")

    def ce(self, *words: str) -> subprocess.CompletedProcess[str]:
        code = main([*words])
        said = self._printed.readouterr()
        return subprocess.CompletedProcess(words, code, said.out, said.err)


@pytest.fixture
def lab(
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Lab:
    for name, value in (("HOME", tmp_path), ("EDF_IMAGESTORE", tmp_path / "store")):
        monkeypatch.setenv(name, str(value))
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return Lab(registry, tmp_path, capsys)


@pytest.fixture
def other(registry: Registry) -> Iterator[Front]:
    with front(registry.address) as running:
        yield running


def test_a_lock_and_a_policy_see_what_an_alias_stands_for(lab: Lab) -> None:
    name = lab.push(lab.dir / "i", "team/aliased:1", [Member("a", os.urandom(9))])
    lab.says(f'[aliases]\nsolver = "{name.removesuffix(":1")}"')
    lab.edf.write_text('image = "solver:1"\n')
    assert lab.ce("lock", str(lab.edf)).returncode == 0
    assert json.loads(lab.edf.with_suffix(".lock").read_text())["name"] == name
    lab.edf.with_suffix(".lock").unlink()
    site = lab.dir / "site.toml"
    site.write_text('[policy]\nallowed_images = ["docker.io"]\n')
    done = lab.ce("--site", str(site), "plan", str(lab.edf))
    assert f"policy.allowed_images: '{name}' matches none of 'docker.io'" in done.stderr
    done = lab.ce("plan", "--json", str(lab.edf))
    assert json.loads(done.stdout)["image"]["name"] == name
    assert f"ce: {name}: imported" in done.stderr
    assert lab.ce("rmi", "solver:1").returncode == 0


def test_a_chosen_file_counts_for_names_and_registries_also_in_version_1(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = lab.push(lab.dir / "i", "chosen:1", [Member("a", os.urandom(9))])
    lab.says('unqualified-search-registries = ["far.invalid"]')
    chosen = lab.dir / "mine.conf"
    hosts = f'registries = ["{lab.registry.address}"]\n'
    chosen.write_text(f"[registries.search]\n{hosts}[registries.insecure]\n{hosts}")
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(chosen))
    done = lab.ce("import", "chosen:1")
    assert (done.returncode, f"ce: {name}: imported" in done.stderr) == (0, True), done.stderr


def test_the_first_search_registry_that_has_a_name_is_used(lab: Lab, other: Front) -> None:
    name = lab.push(lab.dir / "i", "sought:1", [Member("a", os.urandom(9))])
    search = f'unqualified-search-registries = ["{other.address}", "{lab.registry.address}"]'
    lab.says(search, other.address)
    other.faults.append(Fault(MANIFESTS, status=404))
    done = lab.ce("pull", "sought:1")
    assert f"ce: {name}: imported" in done.stderr
    lab.says(f'short-name-mode = "enforcing"\n{search}', other.address)
    done = lab.ce("pull", "sought:1")
    assert f"'sought:1': could be any of '{other.address}/sought:1', '{name}' (" in done.stderr


def test_what_was_made_here_keeps_its_name_whatever_an_alias_says(lab: Lab) -> None:
    lab.says('[aliases]\nmine = "r.example/mine"')
    (lab.dir / "tree").mkdir()
    assert lab.ce("import", "-q", str(lab.dir / "tree"), "mine:1").returncode == 0
    lab.edf.write_text('image = "mine:1"\n')
    done = lab.ce("plan", "--json", str(lab.edf))
    assert json.loads(done.stdout)["image"]["name"] == "mine:1"

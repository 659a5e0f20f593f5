"""Files that users have published, unchanged: each has the outcome given in the table."""

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.edf.model import Loaded
from container_engine.edf.show import to_json, to_toml
from container_engine.images.reference import RegistryImage, parse
from container_engine.submit.context import Context, site_config
from container_engine.submit.environment import load_effective
from container_engine.submit.prepare import prepare
from container_engine.submit.refused import RefusedError
from container_engine.submit.stores import adopter, own_store
from tests.unit import squashfs
from tests.unit.edf.cases import DATA, write
from tests.unit.edf.published import OUTCOMES

PUBLISHED = DATA / "published"
_IMAGE_PATH = re.compile(r"""^(\s*image\s*=\s*["'])/""", re.MULTILINE)


_KEY_PATH = re.compile(r'(authorize_ssh_key\s*=\s*)"[^"]*"')
_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEYlR/1leMZ/tnNZ1pHLTCwKAastzVEBflRVxX4d+X5U\n"


class World:
    """The variables, bases and images that the files name, below one directory.

    Absolute paths of images cannot be made on every machine: `relocated` returns a copy of a file
    whose image and ssh key are below the same directory instead.
    """

    def __init__(self, root: Path, image: Path) -> None:
        self.root = root
        self._image = image
        for name in ("edf/common_env", "edf/ml_pytorch_env1", "repo/base/env", "project/env"):
            write(root, f"{name}.toml", 'image = "ubuntu:24.04"\n')
        write(root, "config.toml", "")
        env = {
            "BASE_ENV": "base",
            "EDF_IMAGESTORE": f"{root}/store",
            "EDF_PATH": f"{root}/edf",
            "HOME": f"{root}/home",
            "IMAGE_NAME": "image:1",
            "PATH": f"/host/bin:{os.environ['PATH']}",
            "PROJECT_DIR": f"{root}/project",
            "PWD": str(root),
            "REPO_DIR": f"{root}/repo",
            "SCRATCH": f"{root}/scratch",
            "USER": "user",
            "VERL_IMAGE": "verl:1",
        }
        site = str(root / "config.toml")
        self.context = Context(
            env, str(root), os.geteuid(), f"{root}/prefix", time.time_ns(), site_file=site
        )

    def load(self, path: Path) -> Loaded:
        return load_effective(str(path), self.context)

    def relocated(self, path: Path) -> Path:
        text = _IMAGE_PATH.sub(rf"\g<1>{self.root}/", path.read_text())
        text = _KEY_PATH.sub(rf'\g<1>"{write(self.root, "key.pub", _KEY)}"', text)
        copy = write(self.root, f"copies/{path.name}", text)
        edf = self.load(copy).edf
        assert edf is not None
        if edf.image:
            self._make(edf.image)
        return copy

    def _make(self, image: str) -> None:
        """Provide the image: the file itself, or an import under its name."""
        reference = parse(image, self.context.cwd)
        if isinstance(reference, RegistryImage):
            settings = site_config(self.context)
            store = own_store(self.context, settings)
            adopter(self.context, settings).adopt(str(self._image), reference.canonical, store)
        else:
            target = Path(reference.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            for suffix in ("", ".json"):
                shutil.copyfile(f"{self._image}{suffix}", f"{target}{suffix}")


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory, need_tool: Callable[[str], str]) -> Path:
    need_tool("mksquashfs")
    image = tmp_path_factory.mktemp("image") / "i.sqsh"
    Path(f"{image}.json").write_text('{"config": {"WorkingDir": "/w"}}')
    return squashfs.make(image, {"etc/os-release": "ID=x\n"})


@pytest.fixture
def world(tmp_path: Path, image: Path) -> World:
    return World(tmp_path, image)


def named(*outcomes: str) -> list[str]:
    return [name for name, outcome in OUTCOMES.items() if outcome in outcomes]


def said(loaded: Loaded) -> str:
    return "".join(problem.text for problem in loaded.problems).replace(f"{PUBLISHED}/", "")


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_file_is_valid_or_gets_the_message_beside_it(name: str, world: World) -> None:
    loaded = world.load(PUBLISHED / f"{name}.toml")
    text = PUBLISHED / f"{name}.txt"
    assert said(loaded) == (text.read_text() if text.exists() else "")
    assert bool(said(loaded)) == (OUTCOMES[name].endswith("warned") or OUTCOMES[name] == "refused")
    assert (loaded.edf is None) == (OUTCOMES[name] == "refused")


@pytest.mark.parametrize("name", [name for name in OUTCOMES if OUTCOMES[name] != "refused"])
def test_a_valid_file_renders_and_what_it_renders_to_is_the_same_again(
    name: str, world: World
) -> None:
    edf = world.load(PUBLISHED / f"{name}.toml").edf
    assert edf is not None
    again = world.load(write(world.root, "again.toml", to_toml(edf))).edf
    assert again is not None
    assert (to_toml(again), to_json(again)) == (to_toml(edf), to_json(edf))


@pytest.mark.parametrize("name", named("launches", "launches warned"))
def test_a_file_with_an_image_plans(name: str, world: World) -> None:
    path = world.relocated(PUBLISHED / f"{name}.toml")
    prepared = prepare(str(path), world.context)
    assert prepared.plan is not None
    edf = world.load(path).edf
    assert edf is not None
    plan = json.loads(prepared.plan.to_json())
    assert plan["image"]["name"] == edf.image
    assert len(plan["mounts"]) == len(edf.mounts)
    assert {entry["name"] for entry in plan["env"]} == {entry.name for entry in edf.env}
    assert plan["annotations"] == {entry.key: entry.value for entry in edf.annotations}
    assert plan["workdir"] == (edf.workdir or "/w")


@pytest.mark.parametrize("name", named("base", "base warned"))
def test_a_file_without_an_image_is_no_more_than_a_base(name: str, world: World) -> None:
    path = PUBLISHED / f"{name}.toml"
    with pytest.raises(RefusedError) as refused:
        prepare(str(path), world.context)
    assert str(refused.value) == (
        f"{path}: image: missing, so this environment can only serve as a base for others"
    )


def test_the_page_on_migration_counts_right() -> None:
    refused = len(named("refused"))
    page = (DATA.parents[2] / "docs/guide/migration.md").read_text("utf-8")
    assert f"{len(OUTCOMES) - refused} of {len(OUTCOMES)} load; the other {refused} " in page


def test_every_published_file_is_in_the_table_and_names_its_source() -> None:
    files = sorted(PUBLISHED.glob("*.toml"))
    assert [path.stem for path in files] == sorted(OUTCOMES)
    assert len(files) == 92
    for path in files:
        assert path.read_text().startswith("# source: "), path

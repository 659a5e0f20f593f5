"""Another project's validator judges by the schemas as the engine does, as far as they can."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from container_engine.cli.main import main
from container_engine.cli.verbs.schema import FORMATS as NAMES
from container_engine.cli.verbs.schema import models
from container_engine.edf.document import KEYS
from container_engine.images.store.inventory import Item
from container_engine.plan.model import Image, LaunchPlan
from container_engine.tools.running_steps import Step
from tests.unit import squashfs

ROOT = Path(__file__).parents[3]
SCHEMAS = ROOT / "edf_schemas"
DATA = ROOT / "tests" / "data" / "edf"
# Faults that a schema can express: types and unknown keys.
BAD_BY_SCHEMA = [
    "1-base-as-a-table",
    "1-devices-as-a-string",
    "1-dotted-variable",
    "1-entrypoint-as-a-program",
    "1-entrypoint-as-a-string",
    "1-env-as-array-of-tables",
    "1-every-type-wrong",
    "1-hooks-outside-of-annotations",
    "1-image-as-a-table",
    "1-stack-with-a-number",
    "5-stack-of-nothing",
    "1-integer-as-variable",
    "1-key-below-annotations",
    "1-key-below-env",
    "1-mounts-as-a-string",
    "1-mounts-as-a-table",
    "1-number-in-an-array",
    "1-problems-in-several-keys",
    "1-startup-as-a-string",
    "1-string-for-a-boolean",
    "1-unknown-key",
    "1-unknown-key-in-capitals",
    "1-unknown-key-of-another-tool",
    "1-unknown-key-without-a-neighbour",
    "1-word-for-a-boolean",
    "1-date-as-image",
    "1-toml-too-deep",
    "8-array-of-tables",
    "8-arrays-and-dates",
]


def schema(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_text("utf-8"))
    return document


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(schema(name))


def edf(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text("utf-8-sig").replace("\r\n", "\n"))


def parts(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [document, *document.get("$defs", {}).values()]


def test_every_format_that_has_a_model_can_be_named() -> None:
    assert list(NAMES) == sorted(models())


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_one_of_its_draft(name: str) -> None:
    assert schema(name)["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    Draft202012Validator.check_schema(schema(name))


@pytest.mark.parametrize("name", NAMES)
def test_every_key_has_a_description_and_a_version(name: str) -> None:
    for part in parts(schema(name)):
        for key, described in part.get("properties", {}).items():
            assert described.get("description"), key
            assert described.get("since"), key


@pytest.mark.parametrize("name", ["edf", "config"])
def test_every_key_that_people_write_has_an_example_that_is_valid(name: str) -> None:
    judge = validator(name)
    for key, described in schema(name)["properties"].items():
        assert described["examples"], key
        for example in described["examples"]:
            judge.validate({key: example})
            models()[name].of({key: example})


def test_the_schema_knows_the_keys_of_the_loader() -> None:
    assert set(schema("edf")["properties"]) == set(KEYS)


@pytest.mark.parametrize("path", sorted(DATA.glob("good/*.toml")), ids=lambda path: path.stem)
def test_good_files_are_good_by_the_schema(path: Path) -> None:
    validator("edf").validate(edf(path))


@pytest.mark.parametrize("name", BAD_BY_SCHEMA)
def test_bad_files_are_bad_by_the_schema(name: str) -> None:
    assert not validator("edf").is_valid(edf(DATA / "bad" / f"{name}.toml"))


def test_no_other_bad_file_is_bad_by_the_schema() -> None:
    """An editor must not mark files for faults that only the engine finds."""
    found = set()
    for path in DATA.glob("bad/*.toml"):
        try:
            document = edf(path)
        except (ValueError, RecursionError):
            continue
        if not validator("edf").is_valid(document):
            found.add(path.stem)
    assert found == set(BAD_BY_SCHEMA)


def test_a_plan_is_valid_by_its_schema_and_a_changed_one_is_not() -> None:
    image = Image(path="/i.sqsh", name="i", env={"PATH": "/bin"})
    plan = LaunchPlan(
        engine="0.1.0", name="e", files=("/e",), image=image, workdir="/", workdir_from=""
    )
    document = json.loads(plan.to_json())
    validator("plan").validate(document)
    for change in ({"version": 3}, {"mounts": "/a"}, {"unknown": 1}, {"image": None}):
        assert not validator("plan").is_valid(document | change), change


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("hooks/*/hook.toml")), ids=lambda p: p.parent.name
)
def test_the_built_in_hooks_are_right_by_their_schema(path: Path) -> None:
    validator("hook").validate(tomllib.loads(path.read_text("utf-8")))


def test_a_sites_hook_is_judged_by_what_it_says() -> None:
    validator("hook").validate({"default": "on", "parameters": {"variant": {"default": "x"}}})
    edit: dict[str, Any] = {"edits": {"a": {"mount": []}}}
    wrong: tuple[dict[str, Any], ...] = ({"default": "maybe"}, edit, {"implies": "cxi"})
    for bad in wrong:
        assert not validator("hook").is_valid(bad)


def test_a_site_configuration_is_judged() -> None:
    validator("config").validate({"version": 1, "edf_dir": "/etc/edf", "tmpfs_size": "1g"})
    assert not validator("config").is_valid({"edf_dirs": "/etc/edf"})
    assert not validator("config").is_valid({"start_timeout_s": 0})


@pytest.mark.parametrize("name", NAMES)
def test_ce_schema_prints_what_is_checked_in(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", name]) == 0
    stale = "run: make generated"
    assert capsys.readouterr().out == (SCHEMAS / f"{name}.json").read_text("utf-8"), stale


def test_lists_of_images_and_steps_are_valid_by_their_schemas() -> None:
    item = Item("/i.sqsh", "sha256:1", "amd64", ("a:1",), 1, 1.0, 1.0, 1.0)
    step = Step("7.0", "sh", "n1", "0:01", "e", "debian", traced=True, plain="7.0")
    for name, key, row in (
        ("images", "images", {**item._asdict(), "names": ["a:1"], "store": "/s"}),
        ("ps", "steps", step._asdict()),
    ):
        judge = validator(name)
        judge.validate({"version": 1, key: [row]})
        judge.validate({"version": 1, key: []})
        assert not judge.is_valid([row])
        assert not judge.is_valid({"version": 1, key: [{**row, "unknown": 1}]})


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with two environments and an image, and a store with a damaged image."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("EDF_IMAGESTORE", str(tmp_path / "store"))
    monkeypatch.setenv("PYTHONPATH", "/x")
    (tmp_path / "store/images").mkdir(parents=True)
    squashfs.make(tmp_path / "i.sqsh", {"etc/os-release": "ID=x"})
    for name, text in (
        ("a", 'mounts = ["/a", "/b"]'),
        ("b", 'mounts = ["/b", "/a"]\n[env]\nA = "1"'),
    ):
        (tmp_path / f"{name}.toml").write_text(f'image = "./i.sqsh"\n{text}\n')
    return tmp_path / "store"


@pytest.mark.parametrize(
    ("name", "words", "code"),
    [
        ("diff", "diff ./a.toml ./b.toml", 1),
        ("explain", "explain ./b.toml", 0),
        ("explain", "explain ./b.toml --env A", 0),
        ("gc", "gc --dry-run --age 1", 0),
        ("lint", "lint ./b.toml", 0),
        ("locks", "lock --check ./a.toml", 1),
        ("locks", "lock ./a.toml", 0),
        ("store", "store check", 0),
        ("version", "version", 0),
    ],
)
def test_what_verbs_print_with_json_is_valid_by_its_schema(
    store: Path, name: str, words: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert store.is_dir()
    assert main([*words.split(), "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    validator(name).validate(document)
    assert document["version"] == 1


def test_an_installed_engine_needs_no_schema_files(tmp_path: Path) -> None:
    """The package is used alone, without the checkout around it."""
    (tmp_path / "container_engine").symlink_to(ROOT / "container_engine")
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    program += "from container_engine.cli.main import main; sys.exit(main(sys.argv[1:]))"
    argv = [sys.executable, "-c", program, str(tmp_path), "schema", "edf"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == schema("edf")


def test_the_files_for_editors_name_schemas_that_exist() -> None:
    rules = tomllib.loads((SCHEMAS / "taplo.toml").read_text("utf-8"))["rule"]
    assert all((SCHEMAS / rule["schema"]["path"]).is_file() for rule in rules)
    catalog = json.loads((SCHEMAS / "catalog.json").read_text("utf-8"))
    for entry in catalog["schemas"]:
        assert (SCHEMAS / Path(entry["url"]).name).is_file()
    assert catalog["schemas"][0]["fileMatch"] == rules[0]["include"]


def test_the_page_for_editors_names_what_is_there() -> None:
    page = (ROOT / "docs/guide/editor.md").read_text("utf-8")
    for name in ("taplo.toml", "catalog.json"):
        assert f"edf_schemas/{name}" in page
        assert (SCHEMAS / name).is_file()
    assert "#:schema ./edf.json" in page

"""taplo, which editors use for TOML, judges EDFs by our schema as `ce validate` does."""

import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.unit.cli.test_schema import BAD_BY_SCHEMA

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "edf_schemas"
DATA = ROOT / "tests/data/edf"
TAPLO = Path(sysconfig.get_path("scripts")) / "taplo"

# taplo itself differs: a byte order mark, numbers that JSON lacks; its dates are strings.
NOT_FOR_TAPLO = {"1-byte-order-mark-and-carriage-returns", "8-prefix-of-another"}
GOOD_FOR_TAPLO = {"1-date-as-image", "8-arrays-and-dates"}


def lint(cwd: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TAPLO, "lint", *words], cwd=cwd, capture_output=True, text=True, timeout=60
    )


def by_schema(*files: Path) -> bool:
    """Check whether taplo finds all of the files valid."""
    schema = f"--schema=file://{SCHEMAS}/edf.json"
    return lint(ROOT, "--no-auto-config", schema, *files).returncode == 0


def test_every_good_file_is_good_for_taplo() -> None:
    assert by_schema(*(p for p in DATA.glob("good/*.toml") if p.stem not in NOT_FOR_TAPLO))


@pytest.mark.parametrize("name", sorted(set(BAD_BY_SCHEMA) - GOOD_FOR_TAPLO))
def test_what_our_schema_refuses_taplo_refuses(name: str) -> None:
    assert not by_schema(DATA / "bad" / f"{name}.toml")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name, text in (("good", "writable = false"), ("bad", 'writable = "no"')):
        file = tmp_path / ".edf" / f"{name}.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f'image = "ubuntu:24.04"\n{text}\n')
    (tmp_path / "edf.json").write_bytes((SCHEMAS / "edf.json").read_bytes())
    return tmp_path


def judge(home: Path, *words: str) -> None:
    """Check that the good file is valid and the bad one is not, for the right reason."""
    good, bad = (lint(home, *words, f".edf/{name}.toml") for name in ("good", "bad"))
    assert good.returncode == 0, good.stderr
    assert bad.returncode == 1
    assert '"no" is not of type "boolean"' in bad.stderr


def test_the_schema_line_of_the_documentation_works(home: Path) -> None:
    for file in home.glob(".edf/*.toml"):
        file.write_text("#:schema ../edf.json\n" + file.read_text())
    judge(home)


def test_the_rule_file_works_below_the_directory_it_lies_in(home: Path) -> None:
    (home / ".taplo.toml").write_bytes((SCHEMAS / "taplo.toml").read_bytes())
    judge(home)


def test_the_catalog_works(home: Path) -> None:
    catalog = (SCHEMAS / "catalog.json").read_text()
    (home / "catalog.json").write_text(catalog.replace("/etc/container-engine", str(home)))
    judge(home, f"--schema-catalog=file://{home}/catalog.json")

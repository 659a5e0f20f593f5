"""Files that people published, unchanged: the valid ones load, the others get a fitting answer."""

from pathlib import Path

import pytest

from tests.unit.edf.cases import DATA, load_edf, seen, write

PUBLISHED = DATA / "published"

# Loads, in an environment that defines the variables and the bases it uses.
VALID = (
    "002 004 014 016 017 019 026 035 038 043 046 049 050 052 053 055 058 059 061 062 064 067 068 "
    "082 083 085 088 089 091 095 103 110 113 115 136 137"
)
# Loads, with a warning: a placeholder left in, a hook without com., a path of the host …
WARNED = "001 022 031 056 077 079 098 100 101 107 112 122"
# Not TOML, nothing but a placeholder, or a command that it wants to run.
REFUSED = "037 044 047 065 071 080 092 106"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The bases that some of the files name."""
    for name in ("edf/common_env", "edf/ml_pytorch_env1", "repo/base/env", "project/env"):
        write(tmp_path, f"{name}.toml", 'image = "ubuntu:24.04"\n')
    return tmp_path


def load_published(name: str, site: Path) -> tuple[bool, str]:
    loaded = load_edf(
        PUBLISHED / f"{name}.toml",
        EDF_PATH=str(site / "edf"),
        SCRATCH="/scratch/user",
        PWD="/work/dir",
        VERL_IMAGE="verl:1",
        IMAGE_NAME="image:1",
        REPO_DIR=str(site / "repo"),
        BASE_ENV="base",
        PROJECT_DIR=str(site / "project"),
    )
    return loaded.edf is not None, seen(loaded, PUBLISHED)


@pytest.mark.parametrize("name", VALID.split())
def test_a_valid_file_loads_without_a_word(name: str, site: Path) -> None:
    assert load_published(name, site) == (True, "")


@pytest.mark.parametrize("name", WARNED.split())
def test_a_doubtful_file_loads_with_the_warning_beside_it(name: str, site: Path) -> None:
    assert load_published(name, site) == (True, (PUBLISHED / f"{name}.txt").read_text())


@pytest.mark.parametrize("name", REFUSED.split())
def test_an_invalid_file_gets_the_message_beside_it(name: str, site: Path) -> None:
    assert load_published(name, site) == (False, (PUBLISHED / f"{name}.txt").read_text())


def test_every_published_file_is_in_the_table_and_names_its_source() -> None:
    files = sorted(PUBLISHED.glob("*.toml"))
    assert [path.stem for path in files] == sorted(f"{VALID} {WARNED} {REFUSED}".split())
    for path in files:
        assert path.read_text().startswith("# source: "), path

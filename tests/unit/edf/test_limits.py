"""Input that is far too large also gets an answer, and soon."""

from pathlib import Path

import pytest

from container_engine.edf.load import Setting, load
from tests.unit.edf.cases import ENV, is_deferred, load_edf, seen, write


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[env]\nA = "' + "$USER" * 10_000 + '"\n', ""),
        (
            '[env]\nA = "' + "$USER" * 10_001 + '"\n',
            "x.toml:2: env.A: more than 10000 variables in one value",
        ),
        ('workdir = "/$LONG"\n', ""),
        (
            '[env]\nA = "$LONG"\n',
            "x.toml:2: env.A: has 500002 bytes with its name; Linux allows 131071",
        ),
        ('[env]\nA = "$LONG$SLURM_NODEID"\n', ""),
        ('[env]\nA = "$LONG$LONG$LONG"\n', "x.toml:2: env.A: expands to more than 1 MiB"),
        (
            "base_environment = [" + '"./x",' * 101 + "]\n",
            "x.toml:1: base_environment: more than 100 entries",
        ),
        ("a" + ".a" * 100_000 + " = 1\n", "x.toml:1: nested more than 32 levels deep"),
        ("[" + "a." * 100_000 + "a]\n", "x.toml:1: nested more than 32 levels deep"),
        ("a = " + "{a = " * 100_000, "x.toml:1: nested more than 32 levels deep"),
        ("a = " + "[" * 100_000, "x.toml:1: nested more than 32 levels deep"),
        (
            'workdir = "' + "x" * 5000 + '"\n',
            f"x.toml:1: workdir: '{'x' * 996}...\nce: hint: a relative path begins with './'",
        ),
        (f'workdir = "/{"<" * 900_000}"\n', ""),
        (f'mounts = ["{"/x:" * 300_000}"]\n', "x.toml:1: mounts[0]: expected SOURCE:DESTINATION"
         ":FLAGS, found 300001 parts\nce: hint: a colon inside a path is written '\\:'"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)  # fmt: skip
def test_a_limit_is_named(tmp_path: Path, text: str, said: str) -> None:
    directory = tmp_path
    loaded = load_edf(write(directory, "x.toml", text), LONG="x" * 500_000)
    assert seen(loaded, directory) == (f"ce: error: {said}\n" if said else "")


def test_ten_thousand_variables_and_a_thousand_mounts_are_fine(tmp_path: Path) -> None:
    env = "".join(f'V{number} = "$USER"\n' for number in range(10_000))
    mounts = "".join(f'  "/{number}",\n' for number in range(1000))
    path = write(tmp_path, "x.toml", f"mounts = [\n{mounts}]\n[env]\n{env}")
    edf = load_edf(path).edf
    assert edf is not None
    assert len(edf.env) == 10_000
    assert edf.env[-1].origin.line == 10_000 + 1003
    assert edf.mounts[-1].origin.line == 1001


def test_the_first_of_many_problems_are_listed_and_the_others_counted(tmp_path: Path) -> None:
    directory = tmp_path
    path = write(directory, "x.toml", "".join(f"a{number} = 1\n" for number in range(250)))
    loaded = load_edf(path)
    assert loaded.edf is not None
    assert len(loaded.problems) == 101
    assert str(loaded.problems[-1]) == f"{path}: 150 more problems"
    path.write_text(path.read_text() + "workdir = 1\n")
    assert load_edf(path).edf is None


def test_a_value_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    directory = tmp_path
    loaded = load_edf(write(directory, "x.toml", 'workdir = "/$BAD"\n'), BAD="\udcff")
    assert seen(loaded, directory) == (
        "ce: error: x.toml:1: workdir: the value of variable 'BAD' is not valid UTF-8\n"
    )


def test_the_environment_is_only_asked_for_names(tmp_path: Path) -> None:
    class Asked(dict[str, str]):
        def __iter__(self) -> object:  # type: ignore[override]
            raise AssertionError("somebody walks through the environment")

        keys = values = items = __iter__  # type: ignore[assignment]

    text = 'image = "$USER"\nmounts = ["$HOME"]\n[env]\nA = "${NOPE:-x}"\n'
    path = write(tmp_path, "x.toml", text)
    loaded, _files = load(str(path), Setting(Asked(ENV), "/", is_deferred))
    assert loaded.edf is not None

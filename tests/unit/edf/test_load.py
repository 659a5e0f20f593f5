"""Base environments: search, reading, limits and merging."""

from pathlib import Path

import pytest

from container_engine.edf.model import Edf, Origin
from container_engine.edf.show import to_json
from tests.unit.edf.cases import load_edf, seen, write


class Files:
    """A directory of EDFs that find each other by name."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, name: str, text: str) -> None:
        write(self.directory, f"{name}.toml", text)

    def load(self, name: str) -> Edf:
        loaded = load_edf(name, EDF_PATH=str(self.directory))
        assert loaded.edf is not None, seen(loaded, self.directory)
        return loaded.edf

    def said(self, name: str) -> str:
        return seen(load_edf(name, EDF_PATH=str(self.directory)), self.directory)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def base(*names: str) -> str:
    return f"base_environment = {list(names)}\n"


def test_later_scalars_win_and_false_and_empty_are_values(files: Files) -> None:
    files.write("a", 'image = "a"\nworkdir = "/a"\nwritable = true\nentrypoint = true\n')
    files.write("b", 'image = "b"\nentrypoint = false\n')
    files.write("top", base("a", "b") + 'image = ""\nwritable = false\n')
    edf = files.load("top")
    assert (edf.image, edf.workdir, edf.writable, edf.entrypoint) == ("", "/a", False, False)


def test_without_a_word_a_container_is_writable_and_the_entrypoint_undecided(files: Files) -> None:
    files.write("top", "")
    edf = files.load("top")
    assert (edf.image, edf.workdir, edf.writable, edf.entrypoint) == (None, None, True, None)


def test_arrays_are_appended_and_repetitions_stay_where_they_were_first(files: Files) -> None:
    files.write(
        "a", 'mounts = ["/1", "/2"]\ndevices = ["/dev/1", "/dev/2"]\nstartup = ["1", "2"]\n'
    )
    files.write(
        "top",
        base("a") + 'mounts = ["/3", "/1"]\ndevices = ["/dev/3", "/dev/1"]\nstartup = ["3", "1"]\n',
    )
    edf = files.load("top")
    assert [mount.source for mount in edf.mounts] == ["/1", "/2", "/3"]
    assert [device.name for device in edf.devices] == ["/dev/1", "/dev/2", "/dev/3"]
    assert [line for line, _ in edf.startup] == ["1", "2", "3"]


def test_tables_merge_by_key_and_annotations_after_flattening(files: Files) -> None:
    files.write("a", '[env]\nA = "1"\nB = "1"\n[annotations.com.x]\ny = "1"\nz = "1"\n')
    files.write("top", base("a") + '[env]\nB = "2"\n[annotations]\n"com.x.y" = "2"\n')
    edf = files.load("top")
    assert {entry.name: entry.value for entry in edf.env} == {"A": "1", "B": "2"}
    assert {e.key: e.value for e in edf.annotations} == {"com.x.y": "2", "com.x.z": "1"}


def test_every_value_remembers_its_file_and_line(files: Files) -> None:
    files.write("a", '# first\nimage = "a"\nmounts = [\n  "/1",\n\n  "/2",\n]\n[env]\nA = "1"\n')
    files.write(
        "top", base("a") + 'startup = ["x"]\n[annotations]\ncom.x.y = "1"\n[env]\nB = "1"\n'
    )
    edf = files.load("top")
    below, top = (str(files.directory / f"{name}.toml") for name in ("a", "top"))
    assert edf.files == (below, top)
    assert edf.image_origin == Origin(below, 2)
    assert [mount.origin for mount in edf.mounts] == [Origin(below, 4), Origin(below, 6)]
    assert [entry.origin for entry in edf.env] == [Origin(below, 9), Origin(top, 6)]
    assert [entry.origin for entry in edf.annotations] == [Origin(top, 4)]
    assert edf.startup == (("x", Origin(top, 2)),)


def test_bases_are_evaluated_in_order_each_after_its_own(files: Files) -> None:
    for name, bases in {"1": (), "2": ("1",), "3": ("1",), "top": ("2", "3")}.items():
        files.write(name, base(*bases) + f'startup = ["{name}"]\n')
    edf = files.load("top")
    assert [Path(file).stem for file in edf.files] == ["1", "2", "3", "top"]
    assert [line for line, _ in edf.startup] == ["1", "2", "3", "top"]


def test_a_file_that_is_inherited_twice_counts_again_at_its_second_place(files: Files) -> None:
    files.write("common", 'workdir = "/common"\n')
    files.write("a", base("common") + 'workdir = "/a"\n')
    files.write("b", base("common"))
    files.write("top", base("a", "b"))
    assert files.load("top").workdir == "/common"


def test_the_problems_of_a_file_that_is_inherited_twice_are_reported_once(files: Files) -> None:
    files.write("common", "mount = []\nworkdir = 5\n")
    files.write("a", base("common"))
    files.write("b", base("common") + "writable = 1\n")
    files.write("top", base("a", "b") + "image = 1\n")
    assert files.said("top") == (
        "ce: error: top.toml:2: image: expected a string or an array of strings,"
        " found the integer 1\n"
        'ce: hint: write image = "1"\n'
        "ce: warning: common.toml:1: unknown key 'mount' has no effect, did you mean 'mounts'?\n"
        "ce: error: common.toml:2: workdir: expected a string, found the integer 5\n"
        'ce: hint: write workdir = "5"\n'
        "ce: error: b.toml:2: writable: expected true or false, found the integer 1\n"
        "ce: hint: write writable = true\n"
    )


def test_an_escaped_dollar_survives_inheritance(files: Files) -> None:
    files.write("a", '[env]\nA = "$$HOME"\n')
    files.write("b", base("a"))
    files.write("top", base("b"))
    assert files.load("top").env[0].value == "$HOME"


def test_each_file_has_its_own_directory(files: Files) -> None:
    files.write("deep/a", '[env]\nA = "${EDF_DIR}"\n')
    files.write("top", 'base_environment = "${EDF_DIR}/deep/a.toml"\n[env]\nB = "$EDF_DIR"\n')
    values = [entry.value for entry in files.load("top").env]
    assert values == [str(files.directory / "deep"), str(files.directory)]


def test_a_mount_that_hides_one_of_a_base_is_named_with_both_files(files: Files) -> None:
    files.write("a", 'mounts = ["/old:/data", "/data/sub"]\n')
    files.write("top", base("a") + 'mounts = ["/new:/data"]\n')
    assert files.said("top") == (
        "ce: warning: top.toml:2: mounts: '/data' is mounted from '/new' here and from '/old' in "
        "a.toml:1; this one is used\n"
    )
    assert [(m.source, m.target) for m in files.load("top").mounts] == [
        ("/new", "/data"),
        ("/data/sub", "/data/sub"),
    ]


def test_the_flags_of_a_mount_can_be_changed_without_a_warning(files: Files) -> None:
    files.write("a", 'mounts = ["/data"]\n')
    files.write("top", base("a") + 'mounts = ["/data:/data:ro"]\n')
    assert files.said("top") == ""
    assert [mount.options for mount in files.load("top").mounts] == [("ro",)]


def chain(files: Files, levels: int) -> str:
    for level in range(2, levels + 1):
        files.write(f"{level - 1}", base(f"{level}"))
    files.write(f"{levels}", 'image = "x"\n')
    return "1"


def test_ten_levels_are_fine(files: Files) -> None:
    assert files.load(chain(files, 10)).image == "x"


def test_eleven_levels_are_refused_with_the_chain(files: Files) -> None:
    names = " -> ".join(f"{level}.toml" for level in range(1, 12))
    assert files.said(chain(files, 11)) == (
        f"ce: error: 10.toml:1: base_environment[0]: more than 10 levels: {names}\n"
    )


def test_eleven_levels_are_found_even_if_the_last_ones_are_known_already(files: Files) -> None:
    chain(files, 10)
    files.write("top", base("5", "1"))
    numbers = " -> ".join(f"{level}.toml" for level in range(1, 11))
    assert files.said("top") == (
        f"ce: error: 4.toml:1: base_environment[0]: more than 10 levels: top.toml -> {numbers}\n"
    )


def test_a_cycle_is_named(files: Files) -> None:
    files.write("a", base("b"))
    files.write("b", '\nbase_environment = "c"\n')
    files.write("c", base("b"))
    assert files.said("a") == (
        "ce: error: c.toml:1: base_environment[0]: "
        "inherits from itself: b.toml -> c.toml -> b.toml\n"
    )


def test_a_hundred_files_are_fine_and_one_more_is_not(files: Files) -> None:
    names = [f"base{number}" for number in range(99)]
    for name in [*names, "another"]:
        files.write(name, "")
    files.write("half", base(*names[:50]))
    files.write("top", base("half", *names[50:98]))
    assert len(files.load("top").files) == 100
    files.write("top", base("half", *names[50:98], "another"))
    assert files.said("top") == "ce: error: top.toml:1: base_environment[49]: more than 100 files\n"


def test_a_wide_and_deep_family_is_merged_at_once(files: Files) -> None:
    for level in range(9):
        for number in range(10):
            below = [f"{level + 1}-{other}" for other in range(10)] if level < 8 else []
            files.write(f"{level}-{number}", base(*below) + f'startup = ["{level}-{number}"]\n')
    files.write("top", base(*(f"0-{number}" for number in range(10))))
    assert len(files.load("top").startup) == 90


def test_a_base_without_an_image_is_a_valid_environment(files: Files) -> None:
    files.write("partial", '[env]\nA = "1"\n')
    assert '"image"' not in to_json(files.load("partial"))


def test_expansion_comes_before_the_search_for_a_base(files: Files) -> None:
    files.write("user", 'image = "x"\n')
    files.write("top", 'base_environment = "$USER"\n')
    assert files.load("top").image == "x"

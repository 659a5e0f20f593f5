"""The folders of spank_plugin/: what may include what, and what its README lists."""

import re
import subprocess
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "spank_plugin"
_PROGRAMS = ("plugin", "plugin_user", "advise", "guard", "image", "programs", "start")
FOLDERS = (*_PROGRAMS, "common")
README = (SOURCES / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_program_includes_its_own_headers_and_common_ones(folder: str) -> None:
    """The library that the plugin loads takes functions from the plugin, too."""
    others = ("common/", "generated/", *(["plugin/"] if folder == "plugin_user" else []))
    for file in sorted((SOURCES / folder).glob("*.[ch]")):
        for name in re.findall(r'^#include "(.*)"', file.read_text(encoding="utf-8"), re.MULTILINE):
            assert "/" not in name or name.startswith(others), f"{file}: {name}"


def test_no_source_lies_outside_the_folders() -> None:
    found = {path.relative_to(SOURCES).parts[0] for path in SOURCES.rglob("*.[ch]")}
    assert found == {*FOLDERS, "tests"}


def test_no_program_looks_for_a_text_in_a_plan() -> None:
    for folder in FOLDERS:
        for file in sorted((SOURCES / folder).glob("*.c")):
            text = file.read_text(encoding="utf-8")
            keys = re.findall(r'^#define \w+ "\\"\w+\\":', text, re.MULTILINE)
            searched = re.findall(
                r'\b(?:strstr|strcasestr|memmem)\((?:[^;]*\\"|[^,]*\bplan\b)', text
            )
            assert not [*keys, *searched], file


def calls() -> dict[Path, set[Path]]:
    """Return each C file with the others of which it names a function."""
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in SOURCES.glob("*/*.c")
        if path.parent.name in FOLDERS
    }
    defined = r"^(?!static\b)\w[\w *]*?\b(\w+)\((?:[^;{}]*)\)\n\{"
    places = {
        name: path for path in texts for name in re.findall(defined, texts[path], re.MULTILINE)
    }
    return {
        path: {places[word] for word in set(re.findall(r"\w+", text)) & set(places)} - {path}
        for path, text in texts.items()
    }


def test_calls_make_no_circle_of_files() -> None:
    found = calls()
    assert SOURCES / "guard/guard_fail.c" in found[SOURCES / "guard/guard_child.c"]
    TopologicalSorter(found).prepare()


def test_the_readme_lists_each_program_with_files_that_exist() -> None:
    makefile = (SOURCES / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^TARGETS = (.*)", makefile, re.MULTILINE)[0].split()
    links = re.findall(r"ln -sf ce-\w+ \S*/(ce-\w+)", makefile)
    rows = re.findall(r"^\| (`[^|]*)\| `([^`]*)` \|", README, re.MULTILINE)
    assert all((SOURCES / file).exists() for _, file in rows)
    for program in (*targets, *links):
        assert [row for row, _ in rows if row.startswith(f"`{program}`")], program


@pytest.mark.parametrize("stem", sorted({path.stem for path in (SOURCES / "common").iterdir()}))
def test_the_readme_lists_what_programs_share(stem: str) -> None:
    """A header without a source is listed by its whole name."""
    assert re.search(rf"^\| [^|]*`{stem}(\.h)?`", README, re.MULTILINE)


def test_every_program_first_opens_the_streams_that_its_caller_has_closed() -> None:
    mains = {
        path: found[1]
        for path in SOURCES.glob("*/*.c")
        # ce-ask is linked for any libc, with nothing shared; who starts it has opened them
        if path.parent.name in FOLDERS
        and path.name != "ask.c"
        and (found := re.search(r"^int main\(.*\)\n\{\n\t(.*)\n", path.read_text(), re.MULTILINE))
    }
    assert len(mains) > 10
    assert set(mains.values()) == {"ce_open_standard_streams();"}, mains


def test_what_root_links_is_small_and_nothing_is_linked_into_both_parts_of_the_plugin() -> None:
    rule = "print:;@echo $(PLUGIN_SRC):$(PLUGIN_USER_SRC)"
    make = ["make", "-s", "-C", str(SOURCES), "--eval", rule, "print"]
    said = subprocess.run(make, capture_output=True, text=True, check=True).stdout
    root, user = (part.split() for part in said.split(":"))
    assert not set(root) & set(user)
    assert sum(len((SOURCES / name).read_text().splitlines()) for name in root) <= 3000

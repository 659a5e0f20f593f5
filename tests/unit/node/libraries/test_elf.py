"""The reader of libraries, compared with pyelftools, and on damaged files."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection
from hypothesis import given, settings
from hypothesis import strategies as st

from container_engine.node.libraries import elf
from container_engine.node.libraries.elf import c_version, file_version, numbers
from container_engine.node.libraries.trees import Tree
from container_engine.node.pattern import natural

DIRECTORIES = [f"/usr/lib/{os.uname().machine}-linux-gnu", "/usr/bin", "/usr/sbin", "/usr/libexec"]
NODE = Tree()
# pyelftools takes 6 ms for each file: of all files of the machine, test one in so many.
EACH = int(os.environ.get("CE_TEST_ELF_EACH") or "20")


def files() -> Iterator[str]:
    for top in DIRECTORIES:
        for directory, _directories, names in os.walk(top):
            for name in sorted(names):
                path = os.path.join(directory, name)
                if os.path.isfile(path) and not os.path.islink(path):
                    yield path


def is_elf(path: str) -> bool:
    with open(path, "rb") as file:
        head = file.read(18)
    return head[:5] == b"\x7fELF\x02" and head[16:17] in (b"\2", b"\3")


def ours(path: str) -> dict[str, object]:
    library = elf.read(path, NODE)
    return {
        "soname": library.soname,
        "needed": library.needed,
        "path": library.runpath or library.rpath,
        "needs": library.needs,
        "defines": library.defines,
    }


def theirs(path: str) -> dict[str, object]:
    said: dict[str, str] = {}
    needed, needs, defines = [], {}, []
    with open(path, "rb") as stream:
        file = ELFFile(stream)
        for segment in file.iter_segments("PT_DYNAMIC"):
            assert isinstance(segment, DynamicSegment)
            for tag in segment.iter_tags():
                if tag.entry.d_tag == "DT_NEEDED":
                    needed.append(getattr(tag, "needed"))  # noqa: B009  # made at run time
                elif tag.entry.d_tag in ("DT_SONAME", "DT_RPATH", "DT_RUNPATH"):
                    kind = tag.entry.d_tag[3:].lower()
                    said[kind] = getattr(tag, kind)
        for section in file.iter_sections():
            if isinstance(section, GNUVerNeedSection):
                for need, names in section.iter_versions():
                    needs[need.name] = [name.name for name in names]
            elif isinstance(section, GNUVerDefSection):
                found = [
                    (d["vd_flags"], next(iter(names)).name) for d, names in section.iter_versions()
                ]
                defines = [name for flags, name in found if not flags & 1]
    return {
        "soname": said.get("soname", ""),
        "needed": needed,
        "path": said.get("runpath") or said.get("rpath", ""),
        "needs": needs,
        "defines": defines,
    }


def test_libraries_and_programs_of_this_machine_read_as_with_pyelftools() -> None:
    found = [path for path in files() if is_elf(path)][::EACH]
    assert len(found) > 400 // EACH
    different = {path: (ours(path), theirs(path)) for path in found if ours(path) != theirs(path)}
    # A file that is being installed may change between the two readings.
    assert {path: both for path, both in different.items() if ours(path) != theirs(path)} == {}


def test_symbols_are_those_that_pyelftools_sees() -> None:
    path = next(path for path in files() if os.path.basename(path).startswith("libz.so.1."))
    wanted, offered = elf.symbols(path, NODE)
    with open(path, "rb") as stream:
        table = ELFFile(stream).get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        found = [s for s in table.iter_symbols() if s.name]
    assert offered == {s.name for s in found if s["st_shndx"] != "SHN_UNDEF"}
    undefined = [s for s in found if s["st_shndx"] == "SHN_UNDEF"]
    assert wanted == {s.name for s in undefined if s["st_info"]["bind"] != "STB_WEAK"}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("elf") / "libx.so"
    source = "int one(void) { return 1; }"
    script = path.with_suffix(".map")
    script.write_text("V1 { global: one; local: *; }; V2 { } V1;")
    argv = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path), "-Wl,-soname,libx.so.1"]
    flags = ["-Wl,--disable-new-dtags,-rpath,/a:$ORIGIN/b", f"-Wl,--version-script={script}"]
    subprocess.run([*argv, *flags], input=source, text=True, check=True)
    return path


def test_what_a_small_library_says_is_all_there(library: Path) -> None:
    found = elf.read(str(library), NODE)
    assert (found.soname, found.rpath, found.runpath) == ("libx.so.1", "/a:$ORIGIN/b", "")
    assert found.defines == ["V1", "V2"]


def test_a_library_without_section_headers_reads_the_same(library: Path, tmp_path: Path) -> None:
    stripped = tmp_path / "libx.so"
    data = bytearray(library.read_bytes())
    data[40:48] = bytes(8)  # the offset of the section headers
    data[58:64] = bytes(6)
    stripped.write_bytes(data)
    assert ours(str(stripped)) == ours(str(library))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not an ELF file"),
        (b"/* GNU ld script */", "not an ELF file"),
        (b"\x7fELF\x01\x01\x01", "not a 64-bit ELF file"),
        (b"\x7fELF\x02\x01\x01", "damaged"),
        (b"\x7fELF\x02\x01\x01" + bytes(9) + b"\1\0" + bytes(50), "that is not loaded"),
    ],
)
def test_a_file_that_is_not_a_library_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "libx.so"
    path.write_bytes(content)
    with pytest.raises(elf.NotALibraryError, match=why):
        elf.read(str(path), NODE)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_library_is_read_or_refused_and_never_waited_for(
    library: Path, data: st.DataObject
) -> None:
    content = bytearray(library.read_bytes())
    interesting = st.integers(0, min(len(content), 0x600) - 1) | st.integers(0, len(content) - 1)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(interesting)] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    path = library.with_name("damaged.so")
    path.write_bytes(content[: data.draw(st.sampled_from([len(content), 64, 0x400, 0x1000]))])
    for read in (elf.read, elf.symbols):
        with contextlib.suppress(elf.NotALibraryError):
            read(str(path), NODE)


@pytest.mark.parametrize(
    ("text", "version"),
    [("2.36", (2, 36)), ("2.2\N{SUPERSCRIPT TWO}", (2,)), ("2." + "9" * 5000, (2,)), ("", ())],
)
def test_a_version_ends_before_a_part_that_is_not_a_number(
    text: str, version: tuple[int, ...]
) -> None:
    assert numbers(text) == version
    assert c_version([f"GLIBC_{text}"]) == version


@given(st.text(alphabet="0123456789.\u00b2\u0663\u2460xs", max_size=40))
def test_no_name_is_an_error(text: str) -> None:
    numbers(text)
    c_version([f"GLIBC_{text}", text])
    file_version(f"libx.so.{text}")
    natural(text)


def test_numbers_in_names_of_any_length_sort_by_value() -> None:
    names = ["a10", "a9", "a" + "1" * 5000, "a010"]
    assert min(names, key=natural) == "a9"
    assert max(names, key=natural) == names[2]

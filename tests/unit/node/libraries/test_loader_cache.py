"""The loader's cache: read, extended, and checked by ldconfig and the loader itself."""

import os
import subprocess
from pathlib import Path
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container_engine.node.libraries.loader_cache import Cache, flags, order
from container_engine.node.libraries.search import MACHINES

MACHINE = MACHINES[os.uname().machine]
HOST = Path("/etc/ld.so.cache")


def listed(path: Path) -> list[str]:
    """Return name and path of each entry, as ldconfig prints them."""
    argv = ["/sbin/ldconfig", "-p", "-C", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return [line.strip() for line in done.stdout.splitlines() if " => " in line]


def test_the_hosts_libraries_are_found_where_ldconfig_lists_them() -> None:
    cache = Cache(HOST.read_bytes(), MACHINE)
    lines = listed(HOST)
    assert len(cache) == len(lines)
    for line in lines:
        name, _space, rest = line.partition(" ")
        if "x86-64" in rest or "AArch64" in rest:
            assert rest.rpartition(" => ")[2] in cache.find(name)


def test_what_is_added_is_listed_and_the_rest_stays(tmp_path: Path) -> None:
    added = {
        "libc.so.6": "/own/libc.so.6",
        "libzzz.so.1": "/own/z",
        "liba10.so": "/x",
        "liba9.so": "/y",
    }
    new = tmp_path / "cache"
    new.write_bytes(Cache(HOST.read_bytes(), MACHINE).with_entries(added))
    before, after = listed(HOST), listed(new)
    gone = [line for line in before if line not in after]
    assert all(line.startswith("libc.so.6 ") for line in gone)
    assert len(after) == len(before) - len(gone) + len(added)
    again = Cache(new.read_bytes(), MACHINE)
    assert {name: again.find(name) for name in added} == {n: [p] for n, p in added.items()}


def test_entries_stay_in_the_order_that_the_loader_searches() -> None:
    names = [f"lib{stem}.so.{n}" for stem in ("a", "m10", "m9", "z", "_") for n in (1, 2, 10)]
    new = Cache(HOST.read_bytes(), MACHINE).with_entries(dict.fromkeys(names, "/x"))
    cache = Cache(new, MACHINE)
    keys = [order(cache._string(key)) for _flag, key, *_rest in cache._entries]
    assert keys == sorted(keys, reverse=True)


def test_numbers_in_names_count_as_numbers() -> None:
    names = [b"lib.so.9", b"lib.so.10", b"lib.so.a", b"lib.so", b"lib-a.so", b"lib9.so"]
    assert sorted(names, key=order) == [
        b"lib-a.so",
        b"lib.so",
        b"lib.so.a",
        b"lib.so.9",
        b"lib.so.10",
        b"lib9.so",
    ]


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"glibc-ld.so.cache1.1", b"ld.so-1.7.0\0"])
def test_an_invalid_cache_counts_as_empty_and_takes_new_entries(
    tmp_path: Path, content: bytes
) -> None:
    cache = Cache(content, MACHINE)
    assert len(cache) == 0
    assert cache.find("libc.so.6") == []
    new = tmp_path / "cache"
    new.write_bytes(cache.with_entries({"libx.so.1": "/own/libx.so.1"}))
    [line] = listed(new)
    assert line.startswith("libx.so.1 (libc6")
    assert line.endswith(" => /own/libx.so.1")


@given(st.binary(max_size=200), st.sampled_from([b"", b"glibc-ld.so.cache1.1", b"ld.so-1.7.0\0"]))
def test_any_bytes_can_be_read(content: bytes, start: bytes) -> None:
    cache = Cache(start + content, MACHINE)
    cache.find("libc.so.6")
    cache.names("lib")
    Cache(cache.with_entries({"a": "/a"}), MACHINE).find("a")


def old(entries: list[tuple[str, str]], machine_flags: int) -> bytes:
    """Return a cache in the format before 2.2, whose offsets count from the strings."""
    strings, rows = b"", b""
    for name, path in entries:
        rows += Struct("=iII").pack(machine_flags, len(strings), len(strings) + len(name) + 1)
        strings += f"{name}\0{path}\0".encode()
    return Struct("=12sI").pack(b"ld.so-1.7.0", len(entries)) + rows + strings


def test_the_older_format_is_read_where_it_stands_alone() -> None:
    alone = old([("libb.so.1", "/old/libb.so.1"), ("liba.so.1", "/old/liba.so.1")], flags(MACHINE))
    assert Cache(alone, MACHINE).find("liba.so.1") == ["/old/liba.so.1"]


def test_the_newer_format_counts_behind_the_older_one() -> None:
    head = Struct("=12sI").pack(b"ld.so-1.7.0", 1) + Struct("=iII").pack(1, 0, 0)
    newer = Cache(b"", MACHINE).with_entries({"libn.so.1": "/new/libn.so.1"})
    both = Cache(head + bytes(-len(head) % 8) + newer, MACHINE)
    assert both.find("libn.so.1") == ["/new/libn.so.1"]


def test_entries_for_other_processors_keep_their_levels(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/ld.so.conf").write_text("/lib\n")
    for place in ("lib", "lib/glibc-hwcaps/x86-64-v3", "lib/glibc-hwcaps/x86-64-v2"):
        (root / place).mkdir(parents=True, exist_ok=True)
        argv = ["gcc", "-shared", "-fPIC", "-x", "c", "/dev/null", "-Wl,-soname,libh.so.1"]
        subprocess.run([*argv, "-o", str(root / place / "libh.so.1")], check=True)
    subprocess.run(["/sbin/ldconfig", "-r", str(root)], check=True)
    cache = root / "etc/ld.so.cache"
    before = listed(cache)
    new = tmp_path / "new"
    new.write_bytes(Cache(cache.read_bytes(), MACHINE).with_entries({"libx.so.1": "/x"}))
    assert [line for line in listed(new) if "libh" in line] == before
    assert any("x86-64-v3" in line for line in before)


def test_a_name_of_an_image_with_thousands_of_digits_is_a_name() -> None:
    long = f"lib{'7' * 5000}.so"
    made = Cache(Cache(b"", MACHINE).with_entries({long: "/x", "liba.so": "/y"}), MACHINE)
    again = Cache(made.with_entries({"libb.so": "/z"}), MACHINE)
    assert (again.find(long), again.find("liba.so")) == (["/x"], ["/y"])
    assert order(b"lib10") > order(b"lib9")
    assert order(b"lib010") == order(b"lib10")


_HEAD, _ENTRY = Struct("=20sIIB3xI12x"), Struct("=iIIIQ")
_FAR = (1 << 32) - 1
_MADE_UP = {
    "ends in its head": b"ld.so-1.7.0\0" + bytes(4) + b"glibc-ld.so.cache1.1",
    "leads out of itself": _HEAD.pack(b"glibc-ld.so.cache1.1", 1, 0, 2, 0)
    + _ENTRY.pack(flags(MACHINE), _FAR, _FAR, 0, 0),
    "ends in its table of levels": _HEAD.pack(b"glibc-ld.so.cache1.1", 0, 0, 2, 48)
    + Struct("=IIIIII").pack(0xEAA42174, 1, 1, 0, 66, 8),
    "names levels that are nowhere": _HEAD.pack(b"glibc-ld.so.cache1.1", 0, 0, 2, 48)
    + Struct("=IIIIIII").pack(0xEAA42174, 1, 1, 0, 72, 4, _FAR),
    "has an old head only": b"ld.so-1.7.0\0" + b"\xff" * 4,
    "is shorter than a head": b"ld.so-1.7.0\0",
}


def _used(content: bytes) -> bytes:
    cache = Cache(content, MACHINE)
    cache.find("libc.so.6")
    cache.names("lib")
    return cache.with_entries({"libzzz.so.1": "/own/z"})


@pytest.mark.parametrize("kind", _MADE_UP)
def test_a_cache_that_was_made_up_takes_new_entries(kind: str) -> None:
    assert Cache(_used(_MADE_UP[kind]), MACHINE).find("libzzz.so.1") == ["/own/z"]


@given(
    st.sampled_from([b"", b"ld.so-1.7.0\0", b"glibc-ld.so.cache1.1"]),
    st.lists(st.binary(max_size=64) | st.sampled_from([b"\xff" * 4, bytes(4), b"\1\0\0\0"])),
    st.sampled_from([b"", b"glibc-ld.so.cache1.1"]),
)
def test_no_bytes_of_a_cache_are_an_error(head: bytes, parts: list[bytes], middle: bytes) -> None:
    _used(head + b"".join(parts) + middle + b"".join(parts))

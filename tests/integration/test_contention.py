"""Concurrent imports of one image: one process imports it, and its death delays nobody."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from container_engine.images.store import lease
from tests.integration.faulty import BLOBS, Fault, Front, front
from tests.integration.registry import SOURCES, Registry, listing, start
from tests.unit.images.oci import Member

LONG = pytest.mark.soak


@pytest.fixture
def wanted(registry: Registry, tmp_path: Path) -> str:
    content = [Member(f"f{n}", os.urandom(20_000)) for n in range(500)]
    return registry.push(tmp_path / "i", "contention:1", content)


@pytest.fixture
def slow(registry: Registry) -> Iterator[Front]:
    """Yield a registry whose layers stall after one megabyte."""
    with front(registry.address) as server:
        known = Path(registry.env["HOME"]) / ".config/containers/registries.conf.d"
        known.mkdir(exist_ok=True)
        text = f'[[registry]]\nlocation = "{server.address}"\ninsecure = true\n'
        (known / "slow.conf").write_text(text)
        server.faults.append(Fault(BLOBS, after=1_000_000, stalls=True))
        yield server
        (known / "slow.conf").unlink()


def on_another_host(registry: Registry, store: Path, *words: str) -> subprocess.Popen[str]:
    """Start `ce` in a PID namespace of its own, as on another host: it sees no other processes."""
    apart = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    return subprocess.Popen(
        [*apart, sys.executable, "-m", "container_engine", *words],
        env={**registry.env, "EDF_IMAGESTORE": str(store)},
        cwd=SOURCES,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [5, pytest.param(16, marks=LONG)])
def test_of_many_hosts_one_imports(
    registry: Registry, tmp_path: Path, wanted: str, number: int
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can have many process namespaces")
    (tmp_path / "e.toml").write_text(f'image = "{wanted}"')
    words = ("plan", "--json", f"{tmp_path}/e.toml")
    hosts = [on_another_host(registry, tmp_path / "store", *words) for _n in range(number)]
    ended = [host.communicate(timeout=120) for host in hosts]
    said = "".join(stderr for _stdout, stderr in ended)
    assert said.count(": imported, ") == 1, said
    assert re.search(r"being imported by \S+ on \S+ \(process \d+\)", said)
    paths = {json.loads(stdout)["image"]["path"] for stdout, _stderr in ended}
    assert len(paths) == 1
    assert len(listing(paths.pop())) == 500
    assert os.listdir(tmp_path / "store/work") == os.listdir(tmp_path / "store/locks") == []


def test_a_store_needs_neither_flock_nor_hard_links(
    registry: Registry, tmp_path: Path, wanted: str, need_tool: Callable[[str], str]
) -> None:
    """Every program of an import gets the kernel's errors of file systems that have neither."""
    without = ["-e", "inject=flock:error=ENOLCK", "-e", "inject=link,linkat:error=EPERM"]
    log = tmp_path / "log"
    strace = [need_tool("strace"), "-f", "-qq", "-o", str(log), "-e", "trace=flock,link,linkat"]
    imports = [
        subprocess.Popen(
            [*strace, *without, sys.executable, "-m", "container_engine", "pull", wanted],
            env={**registry.env, "EDF_IMAGESTORE": str(tmp_path / "store")},
            cwd=SOURCES,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _n in range(2)
    ]
    ended = [process.communicate(timeout=120) for process in imports]
    said = "".join(stderr for _stdout, stderr in ended)
    assert [process.returncode for process in imports] == [0, 0], said
    assert said.count(": imported, ") == 1, said
    assert "EPERM" in log.read_text()  # the programs got the error
    assert len(listing(ended[0][0].strip())) == 500
    assert os.listdir(tmp_path / "store/locks") == os.listdir(tmp_path / "store/work") == []


def test_a_layer_of_another_member_of_a_group_is_used_though_only_its_owner_may_set_its_time(
    registry: Registry, tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    shared = [Member("base", os.urandom(300_000))]
    names = [
        registry.push(tmp_path / f"{number}", f"group{number}:1", shared, [Member(f"f{number}")])
        for number in (1, 2)
    ]
    store, log = tmp_path / "store", tmp_path / "log"
    start(registry, store, "pull", names[0]).communicate(timeout=120)
    strace = [need_tool("strace"), "-f", "-qq", "-o", str(log), "-e", "trace=utimensat"]
    second = subprocess.run(
        [
            *(*strace, "-e", "inject=utimensat:error=EPERM"),
            *(sys.executable, "-m", "container_engine", "pull", names[1]),
        ],
        env={**registry.env, "EDF_IMAGESTORE": str(store)},
        cwd=SOURCES,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert second.returncode == 0, second.stderr
    assert "EPERM" in log.read_text()
    assert listing(second.stdout.strip()) == {"/base", "/f2"}


def test_who_waits_says_for_whom_and_how_far_and_can_be_ended(
    registry: Registry, tmp_path: Path, wanted: str, slow: Front
) -> None:
    name = wanted.replace(registry.address, slow.address)
    store = tmp_path / "store"
    first = start(registry, store, "pull", name)
    try:
        while not list(store.glob("work/*/arriving-*")):
            assert first.poll() is None
        waiter = start(registry, store, "pull", name)
        assert waiter.stderr is not None
        line = waiter.stderr.readline()
        assert re.fullmatch(
            rf"ce: {name}: being imported by \S+ on \S+ \(process {first.pid}\)(, .* %)?\n", line
        )
        waiter.send_signal(signal.SIGTERM)
        waiter.communicate(timeout=60)
        assert waiter.returncode == -signal.SIGTERM
        assert first.poll() is None
        assert len(list((store / "locks").iterdir())) == 2  # of the name and of the image
    finally:
        first.kill()
        first.communicate()


def holder(store: Path) -> int:
    """Return the process that holds the lock, or 0."""
    for path in store.glob("locks/*-???64"):
        try:
            return int(json.loads(path.read_text()).get("pid", 0))
        except (OSError, ValueError):
            continue
    return 0


def working_below(store: Path) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(store) in words:
            found.append(words)
    return found


@pytest.mark.parametrize("times", [4, pytest.param(20, marks=LONG)])
def test_when_the_importer_is_killed_at_any_moment_another_finishes(
    registry: Registry, tmp_path: Path, wanted: str, times: int
) -> None:
    seed = int(os.environ.get("SEED") or time.time())
    print(f"SEED={seed}")
    moments = random.Random(seed)
    for number in range(times):
        store = tmp_path / f"store{number}"
        importers = [start(registry, store, "pull", wanted) for _n in range(3)]
        while not holder(store):
            assert any(importer.poll() is None for importer in importers)
        time.sleep(moments.uniform(0, 1.5))
        if victim := holder(store):
            os.kill(victim, signal.SIGKILL)
        for importer in importers:
            stdout, stderr = importer.communicate(timeout=60)
            if importer.pid != victim:
                assert importer.returncode == 0, stderr
                assert len(listing(stdout.strip())) == 500
        # The lock of a killed holder stays if nobody wanted it afterwards.
        assert all(lock.is_stale for lock in lease.found_in(f"{store}/locks"))
        repair = start(registry, store, "store", "repair")
        assert repair.communicate(timeout=60)[1] == ""
        assert os.listdir(store / "locks") == os.listdir(store / "work") == []
        deadline = time.monotonic() + 10
        while (left := working_below(store)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left

"""Fixtures and rules for all tests: in CI no test may be skipped."""

import os
import shutil
import signal
import string
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.lock import alone_on


def _take_signals() -> None:
    """Handle signals that nohup or `&` in a script ignores.

    Programs that tests start would also ignore an ignored signal; a handled signal has its usual
    effect on them.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)


_take_signals()


def _leave_out_the_callers_settings() -> None:
    """Give all tests and their programs the same environment and umask, whatever the caller has."""
    lines = (Path(__file__).parents[1] / "sandbox/left-out").read_text().splitlines()
    patterns = [line.replace("%", "*") for line in lines if not line.startswith("#")]
    for name in [*os.environ]:
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            del os.environ[name]
    os.environ["LANG"] = "C.UTF-8"
    tempfile.tempdir = None
    # no `hf_`, which a launch takes for the beginning of a token: its plan would not be cached
    letters = string.ascii_lowercase + string.digits
    tempfile._RandomNameSequence.characters = letters  # type: ignore[attr-defined]
    os.umask(0o022)


_leave_out_the_callers_settings()


def _in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"1", "true"}


# CI judges a change, so it tries the same examples each time; `make unit` and `make fuzz` try new
# ones. No example has a time limit, as a busy machine is not a fault of the code.
def pytest_pycollect_makemodule(module_path: Path) -> None:
    """Choose how examples are made before a module that makes some; others need not wait for it."""
    if b"hypothesis" in module_path.read_bytes():
        from hypothesis import settings

        settings.register_profile("usual", deadline=None)
        settings.register_profile("ci", deadline=None, derandomize=True)
        settings.load_profile("ci" if _in_ci() else "usual")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        metavar="N/OF",
        help="only one part: files, which take about as long each, without the tests of the core",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked = config.getoption("--part")
    if not asked:
        return
    number, parts = map(int, asked.split("/"))
    assert 1 <= number <= parts, f"--part {asked}"
    counts = Counter(item.path for item in items)
    seconds = {str(path): _seconds(path, count) for path, count in counts.items()}
    chosen = part_of(seconds, number, parts)
    core = set((config.rootpath / "tests/systems/core").read_text().splitlines())
    found: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        found[str(item.path) in chosen and not core & names(item.nodeid)].append(item)
    config.hook.pytest_deselected(items=found[False])
    items[:] = found[True]


def names(identity: str) -> set[str]:
    """Return the names that select a test: its own, that of all its cases, that of its file."""
    return {identity, identity.partition("[")[0], identity.partition("::")[0]}


def _seconds(path: Path, count: int) -> float:
    """Return the seconds that a file's tests took when measured, or else one for each test."""
    record = path.parent / "seconds.toml"
    measured = tomllib.loads(record.read_text()) if record.exists() else {}
    return float(measured.get(path.stem, count))


def part_of(files: Mapping[str, float], number: int, parts: int) -> set[str]:
    """Choose the files of one part; `files` has the seconds that each takes."""
    loads, chosen = [0.0] * parts, set()
    for path in sorted(files, key=lambda path: (-files[path], path)):
        lightest = loads.index(min(loads))
        loads[lightest] += files[path]
        if lightest == number - 1:
            chosen.add(path)
    return chosen


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if _in_ci() and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_skip(report)
    return report


@pytest.fixture(scope="session")
def need_tool() -> Callable[[str], str]:
    """Return a function that looks up a program; without it the test is skipped, in CI it fails."""

    def look_up(name: str) -> str:
        found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        if found is None:
            pytest.skip(f"{name} is not installed (make deps)")
        return found

    return look_up


@pytest.fixture(scope="session")
def alone(pytestconfig: pytest.Config) -> Iterator[Path]:
    """Yield the sandbox's directory, locked against other test runs until this one ends."""
    if os.geteuid() != 0:
        pytest.skip("the sandbox needs root")
    directory = Path(os.environ.get("CE_SANDBOX_DIR") or "/var/lib/ce-sandbox").resolve()
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n{line}", flush=True)

    with alone_on(directory, say):
        yield directory

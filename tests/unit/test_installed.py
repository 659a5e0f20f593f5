"""Cluster tests refuse an engine that was not built from the working tree."""

import tomllib
from pathlib import Path

import pytest

from ce_sandbox.installed import is_current, sources
from ce_sandbox.layout import Layout
from tests.installed import require_current

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    for name in (
        *("Makefile", "pyproject.toml", "LICENSE", "docs/manual.py", "packaging/apparmor.in"),
        *("docs/guide/errors/a.md", "docs/guide/topics/b.md", "hooks/h/hook.toml"),
        *(
            "container_engine/cli/verbs/plan.py",
            "spank_plugin/guard/guard.c",
            "spank_plugin/tests/guard/test_a.c",
        ),
    ):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(f"this is {name}\n")
    return tree


@pytest.fixture
def layout(tmp_path: Path, tree: Path) -> Layout:
    """Return a sandbox that has the engine of `tree`."""
    layout = Layout(tmp_path / "sandbox")
    layout.prefix.mkdir(parents=True)
    (layout.prefix / ".sources").write_text(f"{sources(tree)}\n")
    return layout


@pytest.mark.parametrize(
    "name",
    [
        *(
            "container_engine/cli/verbs/plan.py",
            "spank_plugin/guard/guard.c",
            "hooks/h/hook.toml",
            "Makefile",
        ),
        *("docs/guide/errors/new.md", "pyproject.toml"),
    ],
)
def test_an_edited_source_makes_the_installed_engine_stale(
    tree: Path, layout: Layout, name: str
) -> None:
    assert is_current(layout, tree)
    (tree / name).write_text("something else\n")
    assert not is_current(layout, tree)


def test_what_is_not_installed_does_not_count(tree: Path, layout: Layout) -> None:
    cache = tree / "container_engine/cli/__pycache__"
    cache.mkdir()
    for path in (
        cache / "a.pyc",
        tree / "spank_plugin/guard/.guard.c.swp",
        tree / "spank_plugin/a.o",
    ):
        path.write_text("made here\n")
    (tree / "spank_plugin/tests/guard/test_a.c").write_text("another test\n")
    assert is_current(layout, tree)


def test_a_source_that_is_gone_or_may_be_executed_counts(tree: Path, layout: Layout) -> None:
    (tree / "spank_plugin/guard/guard.c").chmod(0o755)
    assert not is_current(layout, tree)
    (tree / "spank_plugin/guard/guard.c").unlink()
    assert not is_current(layout, tree)


def test_a_test_with_a_stale_engine_fails_and_says_what_to_do(layout: Layout) -> None:
    (layout.prefix / ".sources").unlink()
    with pytest.raises(pytest.fail.Exception, match=r"\(make sandbox-engine\)"):
        require_current(layout.dir)


def test_files_that_the_package_needs_beside_its_modules_are_packaged() -> None:
    """An editable tree has them anyway; an installed engine has only what setuptools installs."""
    package = ROOT / "container_engine"
    with (ROOT / "pyproject.toml").open("rb") as file:
        named = tomllib.load(file)["tool"]["setuptools"]["package-data"]["container_engine"]
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    # *_script.py.in are installed by the Makefile
    others = {name for name in found if not name.endswith((".py", "_script.py.in"))}
    assert others <= set(named)

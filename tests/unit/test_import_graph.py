"""The folder list is the architecture: allowed imports between rooms, and pure modules."""

import ast
import re
from collections.abc import Mapping, Sequence
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from container_engine.cli.command_line.verb_table import VERBS

PACKAGE = Path(__file__).parents[2] / "container_engine"
CLI = PACKAGE / "cli"
HOOKS = PACKAGE.parent / "hooks"
MODULES = sorted(PACKAGE.rglob("*.py"))

# Each room of a package may import from itself and from those below it in the package's list.
ROOMS: Mapping[str, Sequence[Sequence[str]]] = {
    "container_engine": (
        ("cli",),
        ("api",),
        ("compat",),
        ("tools", "build"),
        ("printing",),
        ("submit",),
        ("node", "images"),
        ("plan",),
        ("edf", "catalog", "site", "oci"),
        ("faults",),
        ("base",),
    ),
    "container_engine.base": (
        ("slurm", "run_check"),
        ("process", "records", "model", "toml_positions", "hook_code"),
        ("shortage", "answers", "reaper", "sif"),
        ("errors", "variables", "secrecy", "text_layout", "files", "mounts"),
    ),
    "container_engine.cli": (
        ("main",),
        ("verbs",),
        ("completion",),
        ("command_line",),
    ),
    "container_engine.tools": (
        ("replay",),
        ("report", "vet"),
        (
            *("running_steps", "help_pages", "difference"),
            *("podman_storage", "show_hook", "staging", "store_check", "verdicts"),
            "system_install",
        ),
        ("doctor", "lint", "prometheus_text"),
        ("start_records",),
        ("step_traces", "cdi"),
        ("nvidia_driver", "image_reads"),
    ),
    "container_engine.node": (
        ("start",),
        ("job_containers", "hooks"),
        ("devices",),
        ("libraries",),
        ("inside",),
        ("container",),
        ("report",),
        ("node_plan",),
        ("plan_json",),
        (*("pattern", "plan_types", "protocol", "slurm_step", "job_secret"),),
    ),
    "container_engine.images": (
        ("importing", "scanning"),
        ("store", "fetch", "pack"),
        ("describe_image",),
        ("resolve", "lock_file"),
        ("image_files", "squashfs", "policy"),
        ("digests",),
        ("confine",),
        ("reference", "free_space", "listener", "site_program"),
        ("sif_environment", "sif_signature"),
    ),
}
LEVELS = {
    package: {room: level for level, rooms in enumerate(rows) for room in rooms}
    for package, rows in ROOMS.items()
}

# the rooms from submit/ down, which do without the others
CORE = frozenset(name for rooms in ROOMS["container_engine"][-6:] for name in rooms)

# A pure module has no access to processes, files, the environment, the clock or the network.
IMPURE = {"os", "io", "pathlib", "shutil", "subprocess", "tempfile", "time", "socket", "random"}


def room(module: str, of: str = "container_engine") -> str | None:
    """Return the room of <of>.<room>.…, or None for the package and modules outside of it."""
    inside = module.removeprefix(f"{of}.")
    return inside.partition(".")[0] if inside != module else None


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE.parent).with_suffix("")).replace("/", ".")


def docstring(path: Path) -> str:
    return ast.get_docstring(parsed(path)) or ""


def test_imports_go_one_way_only() -> None:
    """Between the rooms of the engine, and between those of the room that has the module."""
    placed = [
        (path, own, levels, package)
        for path in MODULES
        for package, levels in LEVELS.items()
        if (own := room(name_of(path), package)) not in {None, "__init__", "__main__"}
    ]
    assert [f"{own} of {package}" for _, own, levels, package in placed if own not in levels] == []
    assert [
        f"{name_of(path)} imports from {target}"
        for path, own, levels, package in placed
        for target in {room(name, package) for name in imports(path)} - {own}
        if target in levels and levels[target] <= levels[own]
    ] == []


@pytest.mark.parametrize("package", ROOMS)
def test_every_room_of_the_table_is_there(package: str) -> None:
    place = PACKAGE.parent / package.replace(".", "/")
    there = {path.stem for path in place.iterdir()}
    assert [name for name in LEVELS[package] if name not in there] == []


def test_the_listing_of_the_verbs_has_verbs_only() -> None:
    modules = {verb.module for verb in VERBS.values()}
    assert {path.stem for path in (CLI / "verbs").glob("*.py")} == modules | {"__init__"}


def test_a_verb_uses_no_other_verb() -> None:
    """Share what two need in the rooms below, or in one module, as `ce run` and `shell` do."""
    verbs = "container_engine.cli.verbs"
    used = {
        (path.stem, found)
        for path in (CLI / "verbs").glob("*.py")
        for found in (room(name, verbs) for name in imports(path))
        if found is not None
    }
    assert used == set()


def test_a_module_that_says_it_is_pure_imports_nothing_else() -> None:
    pure = [path for path in MODULES if "Pure." in docstring(path)]
    assert [
        f"{name_of(path)} imports {name}"
        for path in pure
        for name in imports(path) - {"os.path"}
        if name.partition(".")[0] in IMPURE
    ] == []


def test_imports_make_no_circle() -> None:
    """Not even for types: of two files that need each other, each can be read only with both."""
    known = {name_of(path): path for path in MODULES}
    needs = {
        module: {found for name in imports(path) if (found := owner(name, known))} - {module}
        for module, path in known.items()
    }
    TopologicalSorter(needs).prepare()


def owner(name: str, known: Mapping[str, Path]) -> str | None:
    """Return the module that `name`, an import, is or is in; None outside of the package."""
    return next((m for m in (name, name.rpartition(".")[0]) if m in known), None)


def test_no_program_imports_types_of_documents() -> None:
    """They cost a launch several milliseconds; only the type checker reads them."""
    for path in MODULES:
        at_run_time = [
            node
            for node in parsed(path).body
            if isinstance(node, ast.ImportFrom)
            and str(node.module).endswith(("plan_types", "oci.runtime", "oci.cdi"))
        ]
        assert not at_run_time, path


def test_the_library_of_prometheus_is_loaded_for_its_text_alone() -> None:
    """Not even the verb loads it before it writes a file; the rooms keep it from starts."""
    users = {
        name_of(path): {
            node
            for node in parsed(path).body
            if isinstance(node, ast.ImportFrom) and "prometheus_client" in str(node.module)
        }
        for path in MODULES
        if any(name.startswith("prometheus_client") for name in imports(path))
    }
    assert users == {"container_engine.tools.prometheus_text": set()}


def test_planning_is_pure() -> None:
    for name in ("plan/build.py", "printing/plan.py", "images/reference.py"):
        assert "Pure." in docstring(PACKAGE / name), name


def test_what_must_start_quickly_imports_nothing_slow() -> None:
    for name in ("__init__.py", "submit/__init__.py", "plan/__init__.py", "base/errors.py"):
        assert not imports(PACKAGE / name), name


def test_the_package_of_a_hook_imports_the_engine_which_does_not_know_it() -> None:
    packages = {path.parent.name for path in HOOKS.glob("*/*/__init__.py")}
    assert packages == {"ce_ssh"}
    for path in HOOKS.glob("*/*/*.py"):
        ours = {name for name in imports(path) if name.startswith(("container_engine.", "ce_"))}
        own = {name for name in ours if name.startswith(f"{path.parent.name}.")}
        assert {room(name) for name in ours - own} <= {*CORE, "printing"} - {None}, path
    for path in MODULES:
        assert not {name.partition(".")[0] for name in imports(path)} & packages, path


def test_the_core_has_no_word_of_the_ssh_hook() -> None:
    """Public keys are a type of parameters, and PAM asks for lines of other servers."""
    word = re.compile(r"\bssh\b|ssh_|_ssh|sshd|dropbear", re.IGNORECASE)
    found = {
        str(path.relative_to(PACKAGE))
        for path in MODULES
        if room(name_of(path)) in CORE and word.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"edf/annotations.py", "node/container/description.py"}

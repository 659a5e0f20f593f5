"""Imports of programs that must start quickly."""

import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import container_engine.catalog.model
import container_engine.site.model
from container_engine.base.model import Model
from tests.unit.edf.cases import DATA
from tests.unit.test_import_graph import LEVELS, room

ROOT = DATA.parents[2]


def loaded_by(program: str) -> set[str]:
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {program}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    return set(done.stdout.decode().split())


def imported_by(module: str) -> set[str]:
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-ISc", program], stdout=subprocess.PIPE, check=True)
    return set(done.stdout.decode().split())


@pytest.mark.parametrize("module", ["errors", "variables", "files", "mounts"])
def test_what_nodes_share_with_the_submit_host_imports_nothing_slow(module: str) -> None:
    slow = {"re", "typing", "dataclasses", "pathlib", "enum", "functools", "collections", "json"}
    assert not imported_by(f"container_engine.base.{module}") & slow


def test_a_first_plan_imports_nothing_that_fetches_images() -> None:
    wanted = "container_engine.cli.main, container_engine.submit.prepare"
    parser = "container_engine.cli.main.build(['plan'])"
    loaded = loaded_by(f"import {wanted}; {parser}")
    assert "container_engine.submit.prepare" in loaded
    rooms = {room(name, "container_engine.images") for name in loaded}
    making = {"importing", "pack", "scanning"}
    assert making <= set(LEVELS["container_engine.images"])
    slow = {"hashlib", "shutil", "socket", "subprocess", "tempfile", "threading", "traceback"}
    assert not rooms & making
    assert not {room(name) for name in loaded} & {"tools", "build"}
    models = loaded_by("import container_engine.base.model")
    assert not (loaded - models) & slow
    assert "importlib.metadata" not in loaded  # for plugins of pydantic


@pytest.mark.parametrize("verb", ["ps", "exec", "help", "version"])
def test_a_verb_that_is_typed_often_imports_nothing_for_other_verbs(verb: str) -> None:
    loaded = loaded_by(f"import container_engine.cli.main as c; c.build(['{verb}'])")
    assert "container_engine.cli.main" in loaded
    assert not loaded & {"statistics", "pathlib", "urllib.parse"}


def test_a_program_is_run_without_a_temporary_file() -> None:
    loaded = imported_by("container_engine.base.process as run; run.output(['/bin/true'], {}, 10)")
    assert not loaded & {"shutil", "tempfile"}


@pytest.mark.parametrize("module", [container_engine.catalog.model, container_engine.site.model])
def test_types_of_what_every_plan_reads_are_no_strings(module: ModuleType) -> None:
    """A type that is a string would be compiled when a document is first read."""
    models = [cls for cls in vars(module).values() if isinstance(cls, type(Model))]
    assert models
    types = [one for cls in models for one in inspect.get_annotations(cls).values()]
    assert not [one for one in types if isinstance(one, str)]


def test_to_recall_a_plan_imports_neither_the_models_nor_what_starts_programs_slowly() -> None:
    loaded = imported_by("container_engine.submit.plan_output")
    assert not loaded & {"container_engine.submit.prepare", "pydantic", "subprocess", "json"}


@pytest.mark.parametrize("verb", ["run", "plan"])
def test_a_verb_that_may_have_a_cached_plan_imports_no_models(verb: str) -> None:
    assert "pydantic" not in imported_by(f"container_engine.cli.verbs.{verb}")


@pytest.mark.parametrize(
    "line",
    [
        *("version", "help", "help mounts", "run --help", "completion bash", "ssh 1"),
        *("trace", "trace 1.0", "ps", "exec 1 true"),
        *(
            "complete ce run x",
            "complete ce plan x",
            "complete ce exec 1",
            "complete ce trace 1",
        ),
    ],
)
def test_a_command_for_which_a_user_waits_loads_no_models(line: str, tmp_path: Path) -> None:
    program = f"import contextlib, sys\nsys.path.insert(0, {str(ROOT)!r})\n"
    program += "from container_engine.cli.main import main\n"
    program += "with contextlib.suppress(SystemExit):\n main(sys.argv[1:])\n"
    program += "print('pydantic' in sys.modules)"
    argv = [sys.executable, "-c", program, *line.split()]
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode().splitlines()[-1] == "False"


def test_to_print_a_cached_plan_loads_no_models() -> None:
    assert "pydantic" not in imported_by("container_engine.printing.plan")

"""OCI hooks of the site: which ones may run, and the report of one that fails."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from container_engine.base.errors import LaunchError
from container_engine.node.container.description import Paths
from container_engine.node.hooks.oci_hooks import OciHooks, applies
from container_engine.oci.runtime import When
from tests.unit.node.plans import container


class Site:
    def __init__(self, directory: Path) -> None:
        self.directory = directory / "hooks.d"
        self.directory.mkdir()
        self.program = directory / "check-licence"
        self.program.write_text("#!/bin/sh\n")
        self.program.chmod(0o755)

    def write(self, *stages: str, name: str = "50-licence.json", path: str = "") -> Path:
        file = self.directory / name
        hook = {"path": path or str(self.program)}
        content = {"version": "1.0.0", "hook": hook, "when": {"always": True}, "stages": stages}
        file.write_text(json.dumps(content))
        return file

    def hooks(self) -> OciHooks:
        return OciHooks([str(self.directory)], [])

    def refusal(self) -> str:
        with pytest.raises(LaunchError) as caught:
            self.hooks()
        return str(caught.value)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def report(said: str = "", number: int = 0, code: int = 3) -> str:
    log = "Error: OCI runtime error: crun: error executing hook `/bin/sh` (exit code: 3)\n"
    return f"podman\n0\npodman failed\n{log}\f{said}container engine: failed: {number} {code}\n"


def test_a_failure_has_name_stage_exit_code_and_last_lines(site: Site) -> None:
    site.write("createRuntime")
    assert str(site.hooks().explain(report("one\ntwo\nthree\nfour\n\n"))) == (
        f"OCI hook '{site.program}' (50-licence.json, createRuntime) failed with exit code 3:"
        " two; three; four"
    )


def test_a_failure_under_podman_and_under_crun_has_the_same_message(site: Site) -> None:
    site.write("createRuntime")
    of_podman, of_crun = report("why\n"), report("why\n").replace("podman\n", "crun\n", 1)
    assert str(site.hooks().explain(of_crun)) == str(site.hooks().explain(of_podman))


def test_a_hook_of_several_stages_is_reported_with_the_stage_that_failed(site: Site) -> None:
    site.write("prestart", "createContainer")
    assert str(site.hooks().explain(report(number=1, code=7))) == (
        f"OCI hook '{site.program}' (50-licence.json, createContainer) failed with exit code 7"
    )


def test_a_hook_that_runs_inside_is_reported_by_its_stage(site: Site) -> None:
    site.write("startContainer", path="/in/the/container")
    failure = site.hooks().explain("container\n0\nthe container's init process ended\n\fno module")
    assert failure.see == "oci-hook-failed"
    assert str(failure) == (
        "OCI hook '/in/the/container' (50-licence.json, startContainer) failed, or the container's"
        " first process did: no module"
    )


def test_failures_of_other_kinds_keep_their_message(site: Site) -> None:
    site.write("createRuntime")
    assert str(site.hooks().explain("overlay\n2\ncannot mount\n\fwords")) == (
        "cannot mount: No such file or directory"
    )


def definitions(hooks: OciHooks) -> list[dict[str, Any]]:
    whole = container(annotations={"a": "b"})
    return [dict(hook) for hook in hooks.definitions(whole, Paths("/s", "/libexec"))]


def test_a_hook_gets_the_state_and_its_arguments_whatever_is_in_them(
    site: Site, tmp_path: Path
) -> None:
    """The wrapper is run as crun runs it."""
    site.program.write_text(f'#!/bin/sh\ncat > {tmp_path}/state\nfor a; do echo "<$a>"; done\n')
    file = site.write("createRuntime")
    content = json.loads(file.read_text())
    content["hook"] |= {"args": ["name", "a b", "$HOME;'\"", ""]}
    file.write_text(json.dumps(content))
    (definition,) = definitions(site.hooks())
    hook, state = definition["hook"], '{"id": "%s \\n $x"}' * 5000
    done = subprocess.run(
        hook["args"], executable=hook["path"], input=state, capture_output=True, text=True, env={}
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "<a b>\n<$HOME;'\">\n<>\n"
    assert (tmp_path / "state").read_text() == state


def test_a_hook_that_reads_no_state_does_not_break_the_pipe(site: Site) -> None:
    site.program.write_text("#!/bin/sh\necho last words >&2\nexit 4\n")
    site.write("createRuntime")
    (definition,) = definitions(site.hooks())
    hook = definition["hook"]
    done = subprocess.run(
        hook["args"], executable=hook["path"], input="x" * 200000, capture_output=True, text=True
    )
    assert done.returncode == 4
    assert done.stderr == "last words\ncontainer engine: failed: 0 4\n"


def test_timeout_and_environment_stay_and_later_directories_count(
    site: Site, tmp_path: Path
) -> None:
    later = tmp_path / "later"
    later.mkdir()
    file = site.write("createRuntime")
    content = json.loads(file.read_text())
    content["hook"] |= {"timeout": 3, "env": ["A=b"]}
    content["when"] = {"annotations": {"^a$": "^b$"}}
    (later / file.name).write_text(json.dumps(content))
    (definition,) = definitions(OciHooks([str(site.directory), str(later)], []))
    assert (definition["hook"]["timeout"], definition["hook"]["env"]) == (3, ["A=b"])


def test_the_state_is_kept_and_noted_where_a_hook_needs_it_afterwards(
    site: Site, tmp_path: Path
) -> None:
    session = Paths(str(tmp_path), "/libexec")
    site.write("createRuntime")
    assert site.hooks().last_operations(session) == []
    site.write("poststop")
    hooks = site.hooks()
    [definition] = hooks.definitions(container(), session)
    keep = definition["hook"]
    state = '{"ociVersion": "1.0", "id": "abc"}'
    subprocess.run(keep["args"], executable=keep["path"], input=state, text=True, check=True)
    ((name, words),) = hooks.last_operations(session)
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert (name, said) == ("more", f"note\x001\x00{state}\x00")
    assert hooks.take_note(state)
    assert not hooks.take_note('{"warning": "x"}')


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ({"always": True}, True),
        ({"always": False}, False),
        ({}, False),
        ({"annotations": {"^org\\.a$": "^1$"}}, True),
        ({"annotations": {"^org\\.a$": "^2$"}}, False),
        ({"annotations": {"a": "1", "b": "1"}}, False),
        ({"commands": ["init$"]}, True),
        ({"commands": ["^/bin/sh$"], "always": True}, False),
        ({"hasBindMounts": True}, True),
    ],
)
def test_conditions_are_judged_as_podman_does(when: When, holds: bool) -> None:
    assert applies(when, {"org.a": "1"}, "/dev/.ce-init") is holds


def test_a_hook_whose_conditions_do_not_hold_is_left_out(site: Site) -> None:
    file = site.write("createRuntime")
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "when": {"annotations": {"^a$": "^c$"}}}))
    assert definitions(site.hooks()) == []


def test_what_is_a_program_of_the_image_stays_as_it_is(site: Site) -> None:
    site.write("startContainer")
    (definition,) = definitions(site.hooks())
    assert definition["hook"] == {"path": str(site.program)}


@pytest.mark.parametrize("stage", ["prestart", "createRuntime", "createContainer", "poststop"])
def test_a_program_that_does_not_exist_is_refused_before_the_start(site: Site, stage: str) -> None:
    site.write(stage, path="/nonexistent")
    assert site.refusal() == (
        f"OCI hook '/nonexistent' (50-licence.json, {stage}): No such file or directory"
    )


@pytest.mark.parametrize("what", ["program", "file", "directory", "above"])
def test_what_others_may_write_is_refused(site: Site, what: str) -> None:
    file = site.write("createRuntime")
    above = site.directory.parent
    path = {"program": site.program, "file": file, "directory": site.directory, "above": above}[
        what
    ]
    path.chmod(0o777)
    assert site.refusal() == f"OCI hooks: '{path}': others than its owner may write it"


@pytest.mark.parametrize("what", ["program", "file", "directory"])
def test_what_somebody_else_owns_is_refused(site: Site, what: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    file = site.write("createRuntime")
    path = {"program": site.program, "file": file, "directory": site.directory}[what]
    os.chown(path, 65534, 65534)
    assert site.refusal() == f"OCI hooks: '{path}': owned by user 65534, not by root"


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"version": "0.1.0"}', '{"hook": {"path": 1}, "stages": []}', "\0"]
)
def test_an_invalid_hook_file_is_named(site: Site, text: str) -> None:
    file = site.directory / "a.json"
    file.write_text(text)
    assert site.refusal().startswith(f"OCI hook file '{file}': not as in oci-hooks(5): ")


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"stages": ["createRuntme"]}, "unknown stage 'createRuntme', it must be one of precreate"),
        ({"stages": []}, "stages must be an array with at least one stage"),
        ({"stages": "prestart"}, "stages must be an array with at least one stage"),
        ({"when": {}}, "when has no condition, so the hook would never run"),
        ({"when": {"alwyas": True}}, "unknown condition 'alwyas', it must be one of always"),
        ({"when": {"commands": ["("]}}, "when: '(' is not a regular expression"),
        ({"when": {"annotations": {"a": "["}}}, "when: '[' is not a regular expression"),
    ],
)
def test_a_hook_that_would_never_run_is_refused(
    site: Site, change: dict[str, object], wanted: str
) -> None:
    file = site.write("createRuntime")
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    assert f"not as in oci-hooks(5): {wanted}" in site.refusal()


def test_other_files_and_absent_directories_have_no_hooks(site: Site) -> None:
    (site.directory / "README").write_text("x")
    assert definitions(site.hooks()) == []
    assert OciHooks(["/nonexistent"], []).last_operations(Paths("/s", "/libexec")) == []

"""OCI hooks of the site: which may run, and what is told of one that fails."""

import json
import os
from pathlib import Path

import pytest

from container_engine.launch.failure import LaunchError
from container_engine.launch.ocihooks import OciHooks


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


def report(site: Site, said: str = "", stage: str = "podman") -> str:
    log = f"Error: OCI runtime error: crun: error executing hook `{site.program}` (exit code: 3)\n"
    return f"{stage}\n0\npodman failed\n{log}" + (f"\f{said}" if said else "")


def test_a_failure_has_name_stage_exit_code_and_last_lines(site: Site) -> None:
    site.write("createRuntime")
    assert site.hooks().explain(report(site, "one\ntwo\nthree\nfour\n\n")) == (
        f"OCI hook '{site.program}' (50-licence.json, createRuntime) failed with exit code 3:"
        " two; three; four"
    )


def test_a_hook_that_says_nothing_has_no_last_lines(site: Site) -> None:
    site.write("createRuntime", "poststop")
    assert site.hooks().explain(report(site)) == (
        f"OCI hook '{site.program}' (50-licence.json, createRuntime) failed with exit code 3"
    )


def test_crun_may_wrap_its_words_in_json(site: Site) -> None:
    site.write("createContainer")
    wrapped = f'Error: crun: {{"msg":"error executing hook `{site.program}` (exit code: 7)"}}'
    assert "createContainer) failed with exit code 7: x" in site.hooks().explain(
        f"podman\n0\nw\n{wrapped}\fx"
    )


def test_what_runs_inside_is_told_by_its_stage(site: Site) -> None:
    site.write("startContainer", path="/in/the/container")
    assert site.hooks().explain(
        "container\n0\nthe container's init process ended\n\fno module"
    ) == (
        "OCI hook '/in/the/container' (50-licence.json, startContainer) failed, or the container's"
        " first process did: no module"
    )


def test_other_failures_are_told_as_ever(site: Site) -> None:
    site.write("createRuntime")
    assert site.hooks().explain("overlay\n2\ncannot mount\n\fwords") == (
        "cannot mount: No such file or directory"
    )


@pytest.mark.parametrize("stage", ["prestart", "createRuntime", "createContainer", "poststop"])
def test_a_program_that_does_not_exist_is_refused_before_the_start(site: Site, stage: str) -> None:
    site.write(stage, path="/nonexistent")
    assert site.refusal() == (
        f"OCI hook '/nonexistent' (50-licence.json, {stage}): No such file or directory"
    )


@pytest.mark.parametrize("what", ["program", "file", "directory"])
def test_what_others_may_write_is_refused(site: Site, what: str) -> None:
    file = site.write("createRuntime")
    path = {"program": site.program, "file": file, "directory": site.directory}[what]
    path.chmod(0o777)
    assert site.refusal() == f"OCI hooks: others than its owner may write '{path}'"


@pytest.mark.parametrize("what", ["program", "file", "directory"])
def test_what_somebody_else_owns_is_refused(site: Site, what: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    file = site.write("createRuntime")
    path = {"program": site.program, "file": file, "directory": site.directory}[what]
    os.chown(path, 65534, 65534)
    assert site.refusal() == f"OCI hooks: '{path}' is owned by user 65534, not by root"


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"hook": {"path": 1}, "stages": []}', "\0"])
def test_a_file_that_is_none_is_named(site: Site, text: str) -> None:
    file = site.directory / "a.json"
    file.write_text(text)
    assert site.refusal().startswith(f"OCI hook file '{file}': not as in oci-hooks(5): ")


def test_other_files_and_absent_directories_have_no_hooks(site: Site) -> None:
    (site.directory / "README").write_text("x")
    site.hooks()
    OciHooks(["/nonexistent"], [])

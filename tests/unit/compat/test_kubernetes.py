"""Environments as pods: what a pod has, and what it does not promise."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container_engine.base.errors import UserError
from container_engine.cli.main import main as ce
from container_engine.compat import kubernetes
from container_engine.node.devices import yaml_text
from tests.unit import squashfs

Capture = pytest.CaptureFixture[str]


def exported(tmp_path: Path, capsys: Capture, edf: str, *words: str) -> tuple[dict[str, Any], str]:
    """Return the pod, and stderr."""
    file = tmp_path / "train.toml"
    file.write_text(edf if "image" in edf else f'image = "ubuntu:24.04"\n{edf}')
    rest = words or ("kubernetes", str(file), "--", "prog", "-x")
    code = ce(["export", *(str(file) if word == "FILE" else word for word in rest)])
    out, err = capsys.readouterr()
    assert code == 0, err
    pod = yaml_text.parse(out)
    assert isinstance(pod, dict)
    return pod, err


def container(pod: dict[str, Any]) -> dict[str, Any]:
    [found] = pod["spec"]["containers"]
    assert isinstance(found, dict)
    return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home without images, on a host that looks for short names in one registry."""
    known = tmp_path / "registries.conf"
    known.write_text('unqualified-search-registries = ["r.example.org"]\n')
    for name, value in {"HOME": tmp_path, "CONTAINERS_REGISTRIES_CONF": known}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("EDF_IMAGESTORE", str(tmp_path / "store"))
    return tmp_path


def test_a_pod_has_the_image_that_a_short_name_means_here(here: Path, capsys: Capture) -> None:
    pod, _err = exported(here, capsys, 'image = "tools:1"')
    assert container(pod)["image"] == "r.example.org/tools:1"


def test_a_pod_has_the_locked_image(here: Path, capsys: Capture) -> None:
    digest = f"sha256:{'ab' * 32}"
    pinned = {arch: {"digest": digest, "size": 1} for arch in ("amd64", "arm64")}
    part = {"image": "tools:1", "name": "r.example.org/tools:1", "images": pinned}
    lock = {"version": 1, "engine": "0", "environment": digest, "hooks": {}, **part}
    (here / "train.lock").write_text(json.dumps(lock))
    pod, _err = exported(here, capsys, 'image = "tools:1"')
    assert container(pod)["image"] == f"r.example.org/tools@{digest}"
    words = ("--image", "r.example.org/x:1", "kubernetes", "FILE", "--", "prog")
    pod, _err = exported(here, capsys, 'image = "tools:1"', *words)
    assert container(pod)["image"] == "r.example.org/x:1"


def test_an_image_that_was_made_here_is_not_promised(
    here: Path, capsys: Capture, need_tool: Callable[[str], str]
) -> None:
    need_tool("mksquashfs")
    assert ce(["import", "-q", str(squashfs.make(here / "x.sqsh", {"a": "b"})), "tools:1"]) == 0
    capsys.readouterr()
    _pod, err = exported(here, capsys, 'image = "tools:1"')
    assert "/train.toml:1: image: docker.io/library/tools:1: made on this host; the pod" in err
    assert ce(["export", "--check", "kubernetes", str(here / "train.toml")]) == 1


def test_a_pod_has_what_the_environment_has(tmp_path: Path, capsys: Capture) -> None:
    edf = """\
workdir = "/w"
writable = false
mounts = ["/data:/set:ro", "tmpfs:/scratch:size=2g"]
devices = ["nvidia.com/gpu=0", "nvidia.com/gpu=1"]
[env]
LANG = "no"
TEXT = 'a "b" $$(HOME) and $$$$'
"""
    pod, _err = exported(tmp_path, capsys, edf)
    found = container(pod)
    assert (pod["kind"], pod["metadata"]) == ("Pod", {"name": "train"})
    assert found["image"] == "docker.io/library/ubuntu:24.04"
    assert (found["command"], found["workingDir"]) == (["prog", "-x"], "/w")
    # Kubernetes makes one of two, and replaces $(HOME) otherwise
    assert found["env"] == [
        {"name": "LANG", "value": "no"},
        {"name": "TEXT", "value": 'a "b" $$(HOME) and $$$$'},
    ]
    assert found["resources"] == {"limits": {"nvidia.com/gpu": 2}}
    assert found["securityContext"]["readOnlyRootFilesystem"] is True
    mounts = {mount["mountPath"]: mount for mount in found["volumeMounts"]}
    volumes = {volume.pop("name"): volume for volume in pod["spec"]["volumes"]}
    assert mounts["/set"]["readOnly"] is True
    assert {path: volumes[mount["name"]] for path, mount in mounts.items()} == {
        "/set": {"hostPath": {"path": "/data"}},
        "/scratch": {"emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}},
        "/dev/shm": {"emptyDir": {"medium": "Memory"}},
    }


def test_the_command_follows_the_entrypoint_where_it_runs(tmp_path: Path, capsys: Capture) -> None:
    pod, err = exported(tmp_path, capsys, "entrypoint = true\n")
    assert container(pod)["args"] == ["prog", "-x"]
    assert "command" not in container(pod)
    assert err == ""


def test_no_secret_is_written(tmp_path: Path, capsys: Capture) -> None:
    edf = '[env]\nHF_TOKEN = "hush"\nMY_PASSWORD = "hush"\n'
    pod, err = exported(tmp_path, capsys, edf)
    variable, _other = container(pod)["env"]
    secret = {"name": "train-secrets", "key": "HF_TOKEN"}
    assert variable == {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": secret}}
    assert "hush" not in err
    words = "--from-literal=HF_TOKEN=… --from-literal=MY_PASSWORD=…"  # a second command would fail
    assert f"kubectl create secret generic train-secrets {words}" in err


def test_a_path_that_kubernetes_refuses_is_left_out(tmp_path: Path, capsys: Capture) -> None:
    pod, err = exported(tmp_path, capsys, 'mounts = ["/a/../b:/c", "/..d:/d"]\n')
    assert {"name": "mount-1", "hostPath": {"path": "/..d"}} in pod["spec"]["volumes"]
    assert "/a/../b: no pod has a path with '..'" in err
    assert "mount-0" not in str(pod)


def test_all_gpus_are_the_number_that_is_given(tmp_path: Path, capsys: Capture) -> None:
    edf = 'devices = ["nvidia.com/gpu=all"]\n'
    words = ("--gpus=4", "kubernetes", "FILE", "--", "prog")
    pod, err = exported(tmp_path, capsys, edf, *words)
    assert (container(pod)["resources"], err) == ({"limits": {"nvidia.com/gpu": 4}}, "")
    pod, err = exported(tmp_path, capsys, edf)
    assert container(pod)["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert "--gpus=NUMBER" in err


GAPS = {
    'workdir = "/w/${SLURM_JOB_ID}"\n': "2: workdir: /w/${SLURM_JOB_ID}: only a node",
    '[env]\nA = ""\n': "3: env.A: a pod cannot remove a variable",
    'mounts = ["/data:/data"]\n': "2: mounts[0]: each node must have /data",
    'mounts = ["/data:/data:noexec"]\n': "2: mounts[0]: no pod has the flags noexec",
    'mounts = ["/data/x.sqsh:/data:sqsh"]\n': "2: mounts[0]: no pod mounts a SquashFS file",
    'mounts = ["tmpfs:/t:size=50%"]\n': "2: mounts[0]: no pod has the option size=50%",
    'devices = ["/dev/fuse"]\n': "2: devices[0]: /dev/fuse: a pod has only devices",
    'startup = ["echo x"]\n': "2: startup: not run before the command: echo x",
    '[[checks]]\nname = "c"\ncommand = ["true"]\n': "2: checks: no pod runs checks",
    '[annotations]\ncom.ce.root_remap = "true"\n': "3: annotations: com.ce.root_remap means",
    '[annotations]\ncom.hooks.cxi.enabled = "true"\n': "3: annotations: no pod has the hook",
}


@pytest.mark.parametrize("edf", GAPS)
def test_a_check_names_the_line_of_what_a_pod_does_not_have(
    tmp_path: Path, capsys: Capture, edf: str
) -> None:
    file = tmp_path / "train.toml"
    file.write_text(f'image = "ubuntu:24.04"\n{edf}')
    assert ce(["export", "--check", "kubernetes", str(file)]) == 1
    out, err = capsys.readouterr()
    assert [line for line in out.splitlines() if f"{file}:{GAPS[edf]}" in line], out + err
    assert err == ""


def test_a_check_of_an_environment_that_a_pod_has_whole_is_silent(
    tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "x.toml").write_text('image = "ubuntu:24.04"\n[env]\nA = "1"\n')
    assert ce(["export", "--check", "kubernetes", str(tmp_path / "x.toml")]) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("image", ["/images/x.sqsh", "ubuntu:24.04 + /images/x.sqsh"])
def test_an_image_that_is_in_no_registry_is_refused(
    tmp_path: Path, capsys: Capture, image: str
) -> None:
    names = ", ".join(f'"{one}"' for one in image.split(" + "))
    (tmp_path / "x.toml").write_text(f"image = [{names}]\n" if "," in names else f"image = {names}")
    words = ["kubernetes", str(tmp_path / "x.toml"), "--", "prog"]
    assert ce(["export", *words]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{tmp_path}/x.toml:1: image: " in err
    assert "ce push" in err
    assert ce(["export", "--image", "reg.io/x:1", *words]) == 0
    assert "reg.io/x:1" in capsys.readouterr()[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "export: COMMAND is missing"),
        (["--"], "export: COMMAND is missing"),
        (["--check"], "write options before the word kubernetes"),
    ],
)
def test_a_command_is_needed_after_two_dashes(
    tmp_path: Path, capsys: Capture, words: list[str], said: str
) -> None:
    (tmp_path / "x.toml").write_text('image = "ubuntu:24.04"\n')
    assert ce(["export", "kubernetes", str(tmp_path / "x.toml"), *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err


def test_another_form_is_refused(capsys: Capture) -> None:
    """Docker's `export CONTAINER` has another meaning."""
    assert ce(["export", "web", "x"]) == 2
    assert "ce save JOB FILE" in capsys.readouterr()[1]


def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(UserError, match="not valid Unicode"):
        kubernetes.to_yaml({"a": "\udcff"})


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), TEXTS | st.lists(TEXTS)))
def test_any_text_is_read_back(document: dict[str, Any]) -> None:
    read = yaml_text.parse(kubernetes.to_yaml({"x": "y", **document}))
    assert read == {"x": "y", **document}

"""`ce build` for compute nodes of another architecture than this host's."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.integration.registry import Registry, listing
from tests.integration.test_push import Pushing
from tests.unit.images import oci
from tests.unit.images.oci import Member

_ARCHS = ("amd64", "arm64")
# the head of a static program for ARM, which no x86 host starts without an emulator
_ARM_PROGRAM = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + b"\x02\0\xb7\0".ljust(48, b"\0")


@pytest.fixture
def me(registry: Registry, tmp_path: Path) -> Pushing:
    return Pushing(registry, tmp_path)


@pytest.fixture
def base(me: Pushing) -> str:
    """Return the name of an image that the registry has for both architectures."""
    where, name = me.root / "index", me.name("base")
    oci.layout_of_several(where, {arch: [[Member(arch, b"x")]] for arch in _ARCHS})
    copy = ["skopeo", "copy", "-q", "--all", f"oci:{where}:latest", f"docker://{name}"]
    subprocess.run(copy, env=me.registry.env, check=True)
    return name


def build(me: Pushing, text: str, *words: str) -> tuple[int, str, str]:
    context = me.root / "context"
    context.mkdir(exist_ok=True)
    (context / "sh").write_bytes(_ARM_PROGRAM)
    (context / "sh").chmod(0o755)
    (context / "Dockerfile").write_text(text)
    return me.done("build", *words, str(context))


def test_each_architecture_has_its_own_base_image(me: Pushing, base: str) -> None:
    for arch in (*_ARCHS, *_ARCHS):
        for fresh in ((), ("--no-cache",)):
            code, path, err = build(me, f"FROM {base}\nCOPY sh /bin/\n", "--platform", arch, *fresh)
            assert code == 0, err
            assert {"/amd64", "/arm64"} & listing(path.strip()) == {f"/{arch}"}, err
            assert path.endswith(f"-{arch}.sqsh\n")
            config = json.loads(Path(f"{path.strip()}.json").read_text())
            assert config["architecture"] == arch


def test_an_image_that_was_built_is_the_base_for_its_own_architecture_only(
    me: Pushing, base: str
) -> None:
    code, path, err = build(me, f"FROM {base}\n", "--platform=linux/arm64", "-t", "mine:1")
    assert code == 0, err
    code, next_, err = build(me, "FROM mine:1\nENV A=b\n", "--platform=linux/arm64")
    assert (code, "/arm64" in listing(next_.strip())) == (0, True), err
    for words in (("inspect", "mine:1"), ("pull", "mine:1"), ("import", "mine:1")):
        assert "'mine:1': made on this host for arm64, amd64 is needed\n" in me.done(*words)[2]
    code, _path, err = build(me, "FROM mine:1\n")
    assert (code, "'mine:1': made on this host for arm64, amd64 is needed\n" in err) == (1, True)
    assert "cannot be reached" in me.done("pull", "localhost:1/mine:1")[2]
    assert me.ce("pull", "--arch=arm64", "mine:1") == path.strip()
    assert me.ce("push", "--arch=arm64", "mine:1", me.name("pushed")).startswith(me.name("pushed"))
    assert "in no store of this host\n" in me.done("push", "mine:1", me.name("pushed"))[2]
    for ending in ("", ".json"):
        (me.root / f"context/base.sqsh{ending}").symlink_to(f"{path.strip()}{ending}")
    code, _path, err = build(me, "FROM ./base.sqsh\n", "--platform=amd64")
    assert code == 1
    assert "'./base.sqsh': made for arm64, amd64 is needed\n" in err


def test_an_image_for_the_wanted_processor_is_not_called_one_for_another(
    me: Pushing, base: str
) -> None:
    away = me.root / "away.conf"
    place = f'prefix = "{me.registry.address}"\nlocation = "127.0.0.1:1"'
    away.write_text(f"[[registry]]\n{place}\ninsecure = true\n")
    assert me.done("pull", "--arch=amd64", base)[0] == 0
    me.env["CONTAINERS_REGISTRIES_CONF"] = str(away)
    for arch, hint in (("amd64", False), ("arm64", True)):
        code, _path, err = me.done("pull", f"--arch={arch}", base)
        assert (code, "it is on this host for amd64, and arm64 is needed" in err) == (1, hint), err
        assert "and amd64 is needed" not in err


def test_a_step_that_this_host_cannot_run_says_what_can(me: Pushing) -> None:
    code, _path, err = build(me, "FROM scratch\nCOPY sh /bin/\nRUN true\n", "--platform=arm64")
    assert code == 1
    assert "ce: error: Dockerfile:3: RUN true: exit code 1: /bin/sh: exec format error\n" in err
    assert "qemu-user-static" in err


def test_a_stage_for_the_hosts_processor_changes_that_of_no_other(me: Pushing, base: str) -> None:
    """It is how compilers are used for another processor; Podman 4.3 takes it for later stages."""
    for start in (f"--platform=$BUILDPLATFORM {base}", f"--platform=linux/amd64 {base}"):
        text = f"FROM {start} AS build\nFROM {base}\nCOPY --from=build /amd64 /made\n"
        code, path, err = build(me, text, "--platform=linux/arm64")
        assert code == 0, err
        assert {"/arm64", "/made"} == listing(path.strip()), err
        assert "BUILDPLATFORM" not in err


def test_a_stage_may_begin_with_an_image_of_this_host_for_its_own_processor(
    me: Pushing, base: str
) -> None:
    for arch in _ARCHS:
        assert build(me, f"FROM {base}\n", f"--platform={arch}", "-t", f"mine:{arch}")[0] == 0
    text = "FROM --platform=$BUILDPLATFORM mine:$BUILDARCH AS build\nFROM mine:$TARGETARCH\n"
    code, path, err = build(me, f"{text}COPY --from=build /amd64 /made\n", "--platform=linux/arm64")
    assert code == 0, err
    assert {"/arm64", "/made"} == listing(path.strip()), err
    assert build(me, f"FROM {base}\n", "--platform=arm64", "-t", "mine:amd64")[0] == 0
    text = "FROM --platform=amd64 mine:amd64 AS build\nFROM scratch\nCOPY --from=build /amd64 /\n"
    code, path, err = build(me, text, "--platform=linux/arm64")
    assert code == 0, err
    assert (listing(path.strip()), path[-12:]) == ({"/amd64"}, "-arm64.sqsh\n"), err
    text = "FROM --platform=amd64 mine:amd64 AS build\nFROM mine:amd64\n"
    code, _path, err = build(me, text, "--platform=linux/arm64")
    assert code == 1
    assert "'mine:amd64': means images of two architectures\n" in err

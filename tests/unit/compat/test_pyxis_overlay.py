"""The options of pyxis become a layer over an environment, or a refusal that names the option."""

import re
from pathlib import Path

import pytest

from container_engine.compat import pyxis_names
from container_engine.compat.pyxis_names import OPTIONS, VARIABLES, VARIABLES_COUNT
from container_engine.compat.pyxis_overlay import of_docker_hub, read
from container_engine.edf.layer import Layer, Overlay, WithOrigin, apply
from container_engine.edf.model import Mount, Origin
from container_engine.edf.names import CONTAINER_SAVE
from container_engine.node import node_plan

HOME = "/home/me"
ENV = {"HOME": HOME, "TOKEN": "a,b=c", "EMPTY": ""}
FILE = Origin("/e.toml", 3)


def overlay(*words: str, env: dict[str, str] | None = None) -> Overlay:
    return read(words, ENV | (env or {}), "/work")


def said(over: Overlay, lower: Layer | None = None) -> str:
    problems = list(over.problems)
    apply(over, lower or Layer(), problems)
    return "".join(problem.text for problem in problems)


def mounts(over: Overlay, lower: Layer | None = None) -> list[str]:
    layer = apply(over, lower or Layer(), [])
    return [
        " ".join([str(one.source), str(one.target), *one.options, f"<{one.origin}>"])
        for one in layer.mounts.values()
    ]


@pytest.mark.parametrize(
    ("value", "image"),
    [
        ("ubuntu", "docker.io/library/ubuntu"),
        ("ubuntu:24.04", "docker.io/library/ubuntu:24.04"),
        ("me/tool:1", "docker.io/me/tool:1"),
        (f"ubuntu@sha256:{'0' * 64}", f"docker.io/library/ubuntu@sha256:{'0' * 64}"),
        ("nvcr.io#nvidia/pytorch:24.05-py3", "nvcr.io#nvidia/pytorch:24.05-py3"),
        ("me@nvcr.io#nvidia/pytorch", "me@nvcr.io#nvidia/pytorch"),
        ("reg.io/x/y", "reg.io/x/y"),
        ("reg:5000/x", "reg:5000/x"),
        ("localhost/x", "localhost/x"),
        ("docker://ubuntu", "docker://ubuntu"),
        ("/images/x.sqsh", "/images/x.sqsh"),
        ("./x.sqsh", "./x.sqsh"),
        ("x.sqsh", "x.sqsh"),
        ("images/x.sqsh", "images/x.sqsh"),
    ],
)
def test_a_short_name_of_an_image_is_always_docker_hubs(value: str, image: str) -> None:
    assert of_docker_hub(value) == image


def test_nodes_know_the_annotations_by_the_same_names() -> None:
    assert node_plan.SAVE == CONTAINER_SAVE
    assert node_plan.ENTRYPOINT_LOG == pyxis_names.ENTRYPOINT_LOG


def test_mounts_are_written_as_for_pyxis() -> None:
    words = "/a,/b:/c:ro+nosuid,./d:./e,../f:/g/../h,data:/data,tmpfs:/t:size=1g,/n:/m:nofail,./o"
    assert mounts(overlay(f"--container-mounts={words}")) == [
        "/a /a <--container-mounts>",
        "/b /c ro nosuid <--container-mounts>",
        "/work/d /e <--container-mounts>",
        "/work/../f /h <--container-mounts>",
        "/work/data /data <--container-mounts>",
        "tmpfs /t size=1g <--container-mounts>",
        "/n /m nofail <--container-mounts>",
        "/work/o /o <--container-mounts>",
    ]


@pytest.mark.parametrize(
    ("given", "workdir"), [("/a/b", "/a/b"), ("./x", "/x"), ("../", "/"), ("x/../..", "/")]
)
def test_a_relative_working_directory_begins_at_the_root(given: str, workdir: str) -> None:
    found = overlay(f"--container-workdir={given}").layer.workdir
    assert found == WithOrigin(workdir, Origin("--container-workdir", 0))


def test_a_dollar_or_a_backslash_in_a_path_is_not_expanded() -> None:
    assert mounts(overlay(r"--container-mounts=/a$HOME:/b\c")) == [
        r"/a$HOME /b\c <--container-mounts>"
    ]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (r"/a\:b:/c", "/a:b /c"),
        (r"/a\,b:/c\:d:ro", "/a,b /c:d ro"),
        (r"./a\:b,/x", "/work/a:b /a:b;/x /x"),
        (r"\:a", "/work/:a /:a"),
        (r"/a\\:/b", "/a\\ /b"),
        (r"/a\\\:b", r"/a\:b /a\:b"),
        ("/a\\", "/a\\ /a\\"),
        (r"tmpfs:/t\:u:size=1g", "tmpfs /t:u size=1g"),
    ],
)
def test_a_backslash_keeps_a_colon_or_a_comma_in_a_path(given: str, found: str) -> None:
    over = overlay("--container-mounts=" + given)
    assert said(over) == ""
    assert [one.rpartition(" <")[0] for one in mounts(over)] == found.split(";")
    over = overlay(VARIABLES_COUNT, "--container-image=x", env={"PYXIS_CONTAINER_MOUNTS": given})
    assert [one.rpartition(" <")[0] for one in mounts(over)] == found.split(";")


def test_a_mount_with_a_colon_in_its_path_can_be_taken_away() -> None:
    lower = Layer(mounts={"/a:b": Mount("bind", "/a:b", "/a:b", (), FILE)})
    over = overlay(r"--container-mounts=umount:/a\:b")
    assert (mounts(over, lower), said(over, lower)) == ([], "")


@pytest.mark.parametrize(
    "given", ["/t/c:d:/opt/s", "/t/c:/d:/opt/s", "/t:c:d:/opt/s:ro", "/s:/t,u:ro"]
)
def test_a_path_that_a_colon_or_comma_tears_gets_a_hint_about_backslashes(given: str) -> None:
    assert said(overlay(f"--container-mounts={given}")).endswith(
        "ce: hint: a colon inside a path is written '\\:', a comma '\\,'\n"
    )


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ("/a:/b:ro,nosuid", "'nosuid': a flag, not a mount", "as SOURCE:DESTINATION:FLAG+nosuid"),
        ("type=bind,source=/a", "'type=bind': a part of Docker's --mount", "write SOURCE:"),
        ("$PWD", "'$PWD': no shell has expanded it", "on a line #SBATCH nothing is expanded"),
        ("/x,~/d:/d:ro", "'~/d:/d:ro': no shell has expanded it", "write the path, or one that"),
    ],
)
def test_a_mount_that_is_written_for_another_tool_is_refused(
    given: str, message: str, hint: str
) -> None:
    found = said(overlay(f"--container-mounts={given}"))
    assert f"--container-mounts: {message}\n" in found
    assert hint in found


def test_lists_given_twice_add_up_and_other_options_replace_each_other() -> None:
    over = overlay(
        *("--container-env=TOKEN", "--container-unshare=net", "--container-env=HOME"),
        *("--container-unshare=ipc,net",),
        *("--container-mounts=/a", "--container-image=x", "--container-mounts=/b"),
        *("--container-image=/y", "--container-writable", "--container-readonly"),
        *("--no-container-entrypoint", "--container-entrypoint"),
    )
    assert len(mounts(over)) == 2
    assert list(over.layer.env) == ["TOKEN", "HOME"]
    assert over.layer.annotations["com.ce.unshare"].value == "net,ipc"
    assert over.layer.image == WithOrigin("/y", Origin("--container-image", 0))
    assert over.layer.writable == WithOrigin(False, Origin("--container-readonly", 0))
    assert over.layer.entrypoint == WithOrigin(True, Origin("--container-entrypoint", 0))


def environment() -> Layer:
    paths = ("/scratch", HOME, "/data")
    return Layer(
        image=WithOrigin("file", FILE),
        mounts={path: Mount("bind", path, path, (), FILE) for path in paths},
    )


def test_a_mount_of_the_environment_can_be_taken_away() -> None:
    over = overlay("--container-mounts=umount:/scratch", "--no-container-mount-home")
    assert mounts(over, environment()) == ["/data /data </e.toml:3>"]
    assert said(overlay("--container-mounts=umount:/none"), environment()) == (
        "ce: error: --container-mounts: umount:/none: the environment mounts nothing there\n"
    )
    assert said(overlay("--container-mounts=umount:/none:nofail"), environment()) == ""


@pytest.mark.parametrize("home", [f"{HOME}/", f"/{HOME}", f"{HOME}/."])
def test_the_home_is_taken_away_however_it_is_written(home: str) -> None:
    over = overlay("--no-container-mount-home", env={"HOME": home})
    assert f"{HOME} {HOME} </e.toml:3>" not in mounts(over, environment())
    assert mounts(overlay("--container-mount-home", env={"HOME": home})) == [
        f"{HOME} {HOME} <--container-mount-home>"
    ]


def test_the_home_that_an_option_mounts_can_be_taken_away() -> None:
    over = overlay("--container-mount-home", "--container-remap-root")
    assert mounts(over) == [f"{HOME} /root <--container-mount-home>"]
    words = ("--container-mount-home", "--container-remap-root", "--container-mounts=umount:/root")
    assert mounts(overlay(*words)) == []
    assert said(overlay(*words)) == ""


def test_the_home_is_mounted_where_root_has_it_if_the_user_is_root() -> None:
    assert mounts(overlay("--container-mount-home")) == [f"{HOME} {HOME} <--container-mount-home>"]
    over = overlay("--container-mount-home", "--container-remap-root")
    assert mounts(over) == [f"{HOME} /root <--container-mount-home>"]
    layer = apply(over, Layer(), [])
    assert layer.env["HOME"].value == "/root"
    assert layer.annotations["com.ce.root_remap"].value == "true"
    assert said(overlay("--container-mount-home", env={"HOME": ""})) == (
        "ce: error: --container-mount-home: HOME is not set to a path\n"
    )


def test_variables_of_the_host_are_taken_where_they_are_set() -> None:
    over = overlay("--container-env=TOKEN,EMPTY,NONE")
    values = {name: entry.value for name, entry in over.layer.env.items()}
    assert values == {"TOKEN": "a,b=c", "EMPTY": ""}


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("--container-save=", "--container-save: its value is empty"),
        ("--container-unshare=net,foo", "--container-unshare: unknown namespace 'foo'"),
        ("--container-env=A=B", "--container-env: 'A=B': expected the name of a variable"),
        ("--container-mounts=/a:/b:r0", "--container-mounts: '/a:/b:r0': unknown flag 'r0'"),
        ("--container-mounts=/a:/proc", "--container-mounts: '/a:/proc': '/proc' cannot be the"),
        ("--container-mounts=/a:b", "--container-mounts: '/a:b': the destination 'b' is not an"),
        ("--container-mounts=/a:../b", "--container-mounts: '/a:../b': the destination '../b'"),
        ("--container-mounts=..", "--container-mounts: '..': the destination '..' leads out"),
        ("--container-mounts=./", "--container-mounts: './': '/' cannot be the destination"),
        ("--container-mounts=umount:/a:r0", "--container-mounts: 'umount:/a:r0': unknown flag"),
        ("--container-save=./x/", "--container-save: './x/' is a directory"),
        ("--container-unshare=net,", "--container-unshare: unknown namespace ''"),
        ("--container-mounts=", "--container-mounts: its value is empty"),
        ("--container-env=A,", "--container-env: 'A,': the name of a variable is empty"),
        ("--container-mounts=:/a", "--container-mounts: ':/a': the source is empty"),
        ("--container-imag=x", "--container-imag=x: unknown option, did you mean"),
        ("--container-image", "--container-image: needs a value"),
        ("--container-writable=1", "--container-writable: takes no value"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_option_named(word: str, message: str) -> None:
    assert said(overlay(word)).startswith(f"ce: error: {message}")


@pytest.mark.parametrize("path", ["./x.sqsh", "x.sqsh", "/work/x.sqsh"])
def test_the_file_of_a_saved_container_is_an_annotation(path: str) -> None:
    found = overlay(f"--container-save={path}").layer.annotations["com.ce.container_save"]
    assert (found.value, str(found.origin)) == ("/work/x.sqsh", "--container-save")


def test_namespaces_of_the_containers_own_are_an_annotation() -> None:
    over = overlay("--container-unshare=net,uts")
    assert over.layer.annotations["com.ce.unshare"].value == "net,uts"
    assert over.problems == ()


def test_variables_count_only_if_the_plugin_says_so_and_options_win() -> None:
    env = {
        "PYXIS_CONTAINER_IMAGE": "/v.sqsh",
        "PYXIS_CONTAINER_MOUNTS": "/v",
        "PYXIS_CONTAINER_WRITABLE": "yes",
        "PYXIS_CONTAINER_ENTRYPOINT": "0",
        "PYXIS_CONTAINER_REMAP_ROOT": "TRUE",
        "PYXIS_CONTAINER_MOUNT_HOME": "maybe",
    }
    assert overlay("--container-image=/i.sqsh", env=env).layer.writable is None
    over = overlay(VARIABLES_COUNT, "--container-mounts=/m", "--no-container-remap-root", env=env)
    assert over.layer.image == WithOrigin("/v.sqsh", Origin("PYXIS_CONTAINER_IMAGE", 0))
    assert over.layer.writable == WithOrigin(True, Origin("PYXIS_CONTAINER_WRITABLE", 0))
    assert over.layer.entrypoint == WithOrigin(False, Origin("PYXIS_CONTAINER_ENTRYPOINT", 0))
    assert over.layer.annotations["com.ce.root_remap"].value == "false"
    assert mounts(over) == ["/m /m <--container-mounts>"]
    assert "PYXIS_CONTAINER_MOUNT_HOME: 'maybe' is ignored" in said(over)


def test_an_image_that_the_plugin_hands_on_for_a_variable_has_the_variables_name() -> None:
    env = {"PYXIS_CONTAINER_IMAGE": "/v.sqsh"}
    over = overlay(VARIABLES_COUNT, "--container-image=/v.sqsh", env=env)
    assert said(over, environment()) == (
        "ce: warning: PYXIS_CONTAINER_IMAGE: '/v.sqsh' replaces 'file' of /e.toml:3\n"
        "ce: hint: unset the variable\n"
    )
    assert said(overlay("--container-image=/v.sqsh"), environment()) == ""


def test_every_option_and_every_variable_of_pyxis_is_known() -> None:
    assert len(OPTIONS) == 16
    assert len(VARIABLES) == 13
    for name, value in OPTIONS.items():
        over = overlay(f"--{name}=/x" if value else f"--{name}")
        assert "unknown option" not in said(over)
        assert over.first == Origin(f"--{name}", 0)


def test_without_options_nothing_changes() -> None:
    assert apply(overlay(), environment(), []) == environment()


def test_the_plugin_registers_the_same_options() -> None:
    source = Path(__file__).parents[3] / "spank_plugin/plugin/options.c"
    rows = re.findall(r'\{ "([a-z-]+)", (?:"([^"]*)"|NULL),', source.read_text(encoding="utf-8"))
    assert dict(rows) == OPTIONS

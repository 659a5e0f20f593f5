"""The environment of the command, and secrecy of its values."""

import json
import os
import select
from pathlib import Path

import pytest

from tests.integration.engine import Engine
from tests.integration.leftovers import command_line


def variables(engine: Engine, edf: Path, env: dict[str, str] | None = None) -> dict[str, str]:
    """Return the variables of the command."""
    printed = engine.output(edf, "cat", "/proc/self/environ", env=env)
    pairs = (entry.partition("=") for entry in printed.split("\0") if entry)
    return {name: value for name, _equals, value in pairs}


def table(values: dict[str, str]) -> str:
    # A JSON string is a TOML string.
    def quoted(value: str) -> str:
        text = json.dumps(value, ensure_ascii=False)
        return text.replace("$", "$$").replace("\x7f", "\\u007f")

    return "[env]\n" + "\n".join(f"{name} = {quoted(value)}" for name, value in values.items())


ODD_VALUES = {
    "EQUALS": "a=b==c",
    "NEWLINE": "first\nsecond\n",
    "QUOTES": "\"double\" 'single' \\back",
    "DOLLAR": "$HOME ${HOME} $(id)",
    "SPACES": "  leading and trailing  ",
    "TAB": "a\tb",
    "UNICODE": "ümläut-日本-\U0001f680",
    "CONTROL": "\x01\x1b[31m\x7f",
    "COMMA": "a,b;c|d&e",
    "TOML": '"""',
}


def test_values_arrive_byte_by_byte(engine: Engine) -> None:
    seen = variables(engine, engine.edf(table(ODD_VALUES)))
    assert {name: seen.get(name) for name in ODD_VALUES} == ODD_VALUES


def test_a_value_of_100_kib_arrives_whole(engine: Engine) -> None:
    seen = variables(engine, engine.edf(table({"BIG": "x" * 100 * 1024})))
    assert len(seen["BIG"]) == 100 * 1024


def test_the_hosts_environment_comes_along(engine: Engine) -> None:
    env = {"MINE": "a=b\nc", "PROJECT": "p"}
    seen = variables(engine, engine.edf(), env)
    assert {name: seen[name] for name in env} == env


def test_bytes_of_the_host_that_are_not_utf_8_survive(engine: Engine) -> None:
    env = {"LATIN": os.fsdecode(b"f\xfcr")}
    printed = engine.output(engine.edf(), "sh", "-c", 'printf "$LATIN" | od -An -tx1', env=env)
    assert printed.split() == ["66", "fc", "72"]


def test_the_hosts_locale_stays_outside_unless_the_edf_names_it(engine: Engine) -> None:
    env = {"LANG": "de_CH.UTF-8", "LC_ALL": "de_CH.UTF-8", "LANGUAGE": "de"}
    seen = variables(engine, engine.edf(), env)
    assert not set(env) & set(seen)
    seen = variables(engine, engine.edf('[env]\nLANG = "C.UTF-8"'), env)
    assert seen["LANG"] == "C.UTF-8"
    assert "LC_ALL" not in seen


def test_an_empty_value_removes_a_variable_whatever_its_source(engine: Engine) -> None:
    image = engine.linked_image({"Env": ["FROM_IMAGE=1", "PATH=/bin"]})
    edf = engine.edf('[env]\nFROM_IMAGE = ""\nFROM_HOST = ""', image)
    assert not {"FROM_IMAGE", "FROM_HOST"} & set(variables(engine, edf, {"FROM_HOST": "1"}))


def test_the_edf_counts_before_the_image_and_that_before_the_host(engine: Engine) -> None:
    image = engine.linked_image({"Env": ["A=image", "B=image", "PATH=/bin"]})
    seen = variables(engine, engine.edf('[env]\nA = "edf"', image), dict.fromkeys("ABC", "host"))
    assert [seen[name] for name in "ABC"] == ["edf", "image", "host"]


def test_the_images_path_finds_the_images_commands(engine: Engine) -> None:
    image = engine.linked_image({"Env": ["PATH=/opt/none:/bin"]})
    assert engine.output(engine.edf("", image), "sh", "-c", "echo $PATH") == "/opt/none:/bin\n"


def test_podmans_own_variables_do_not_appear(engine: Engine) -> None:
    seen = variables(engine, engine.edf(), {"TERM": "mine"})
    assert seen["TERM"] == "mine"
    assert seen["HOME"] == str(engine.user.home)
    assert not {"container", "HOSTNAME"} & set(seen)
    assert not [name for name in seen if "CONTAINERS" in name or name.startswith("_")]


@pytest.mark.parametrize(
    ("key", "image", "wanted"), [('workdir = "/etc"', "/usr", "/etc"), ("", "/usr", "/usr")]
)
def test_the_workdir_is_the_edfs_else_the_images(
    engine: Engine, key: str, image: str, wanted: str
) -> None:
    path = engine.linked_image({"WorkingDir": image, "Env": ["PATH=/bin"]})
    assert engine.output(engine.edf(key, path), "pwd") == f"{wanted}\n"


def test_a_workdir_that_does_not_exist_is_named(engine: Engine) -> None:
    message = engine.refusal(engine.edf('workdir = "/no such/place"'))
    assert "'/no such/place'" in message
    assert "No such file or directory" in message


def all_command_lines() -> set[str]:
    return {command_line(path) for path in Path("/proc").iterdir() if path.name.isdigit()}


def seen_during_a_start(engine: Engine, edf: Path) -> set[str]:
    """Return command lines from the first moment of the start until the command runs."""
    seen: set[str] = set()
    with engine.start(edf, "sh", "-c", "echo ready; read answer") as process:
        assert process.stdout is not None
        while not select.select([process.stdout], [], [], 0)[0]:
            seen |= all_command_lines()
        seen |= all_command_lines()
        process.communicate("\n", 20)
    return seen


@pytest.mark.parametrize("way", ["crun", "podman"])
def test_no_value_is_seen_in_any_command_line(engine: Engine, way: str) -> None:
    secret = "top-secret-value-42"
    edf = engine.edf(f'annotations.com.ce.start = "{way}"\nenv.TOKEN = "{secret}"')
    seen: set[str] = set()
    # crun runs for so short a time that a look at all processes can miss it
    for _ in range(20):
        if not any(line.startswith(way) for line in seen):
            seen |= seen_during_a_start(engine, edf)
    assert any(line.startswith(way) for line in seen)
    assert not [line for line in seen if secret in line]


def test_an_environment_of_podman_on_the_host_changes_nothing(engine: Engine) -> None:
    env = {
        "CONTAINERS_CONF": "/no/such/file",
        "CONTAINERS_STORAGE_CONF": "/no/such/file",
        "CONTAINER_HOST": "unix:///no/such/socket",
        "XDG_RUNTIME_DIR": "/no/such/directory",
        "TMPDIR": "/no/such/directory",
        "STORAGE_DRIVER": "zfs",
    }
    assert engine.output(engine.edf(), "echo", "works", env=env) == "works\n"


def test_the_users_own_podman_configuration_changes_nothing(stranger: Engine) -> None:
    directory = stranger.user.home / ".config" / "containers"
    directory.mkdir(parents=True)
    for name in ("containers.conf", "storage.conf"):
        (directory / name).write_text("not TOML at all")
    assert stranger.output(stranger.edf(), "echo", "works") == "works\n"

"""A container as an OCI configuration: what tests/integration/test_two_ways.py cannot vary."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from container_engine.base.variables import PATH
from container_engine.node.container import crun
from container_engine.node.container.description import (
    INIT_PATH,
    NodeMount,
    Parts,
    Paths,
    Person,
)
from tests.unit.node.plans import container

if TYPE_CHECKING:
    from container_engine.oci.runtime import HookFile

PATHS = Paths("/s", "/libexec")
ME = Person(1000, 1001, "", "", "/home/me", "nid001")
TEXT = st.text(st.characters(blacklist_characters="\0", codec="utf-8"))


def configuration(given_container: Parts, env: dict[str, str] | None = None) -> dict[str, Any]:
    prepare, _create = crun.creation(PATHS, given_container, env or {}, ME)
    [text] = [text for _name, (path, *rest) in prepare for text in rest if path.endswith(".json")]
    found: dict[str, Any] = json.loads(text)
    return found


def mounts(*binds: NodeMount, writable: bool = True) -> dict[str, dict[str, Any]]:
    made = configuration(container(*binds, writable=writable))["mounts"]
    assert len({mount["destination"] for mount in made}) == len(made)
    return {mount["destination"]: mount for mount in made}


@given(st.dictionaries(st.from_regex(r"[A-Z_]+", fullmatch=True), TEXT), TEXT)
def test_values_and_annotations_are_whole(variables: dict[str, str], value: str) -> None:
    found = configuration(container(annotations={"a": value}), variables)
    assert found["annotations"] == {"a": value}
    wanted = {"PATH": PATH, "HOSTNAME": "nid001", **variables}
    assert found["process"]["env"] == [f"{name}={text}" for name, text in wanted.items()]


def test_no_value_is_on_the_command_line() -> None:
    hooked = container(annotations={"a": "s3cret"})
    _prepare, (_name, words) = crun.creation(PATHS, hooked, {"TOKEN": "s3cret"}, ME)
    assert words[0] == "crun"
    assert not [word for word in words if "s3cret" in word]


def test_an_entrypoint_stands_before_our_init() -> None:
    made = configuration(container(entrypoint=("/entry", "a b")))
    assert made["process"]["args"] == ["/entry", "a b", INIT_PATH]


def test_a_directory_is_mounted_before_what_lies_in_it() -> None:
    deep, top = NodeMount("bind", "/1", "/a/b/c", ()), NodeMount("bind", "/2", "/a", ())
    order = list(mounts(deep, top))
    assert order.index("/a") < order.index("/a/b/c")
    assert order.index("/dev") < order.index(INIT_PATH)


def test_the_users_mount_takes_the_place_of_ours() -> None:
    mine = NodeMount("bind", "/mine", "/dev/shm", ())
    assert mounts(mine)["/dev/shm"]["source"] == "/mine"
    assert (
        mounts(NodeMount("bind", "/mine", "/tmp", ()), writable=False)["/tmp"]["source"] == "/mine"
    )


def test_a_device_may_have_another_name_inside() -> None:
    made = {
        m["destination"]: m
        for m in configuration(container(devices=("/dev/a:/b", "/dev/c")))["mounts"]
    }
    assert (made["/b"]["source"], made["/dev/c"]["source"]) == ("/dev/a", "/dev/c")


def test_the_flags_of_the_source_mount_stay() -> None:
    lines = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    flags = {words[4]: set(words[5].split(",")) for words in lines}
    for place in ("/", "/dev/shm"):
        made = mounts(NodeMount("bind", place, "/x", ()))["/x"]["options"]
        wanted = flags.get(place, set()) & {"nosuid", "nodev", "noexec"}
        assert set(made) == {"rw", "rslave", "rbind", *wanted}, place


def test_the_sessions_proc_stays_as_it_is_mounted() -> None:
    made = mounts(NodeMount("bind", "/proc", "/x", ()))["/x"]["options"]
    assert {"nosuid", "nodev", "noexec"} <= set(made)


def test_a_user_may_take_a_flag_away_and_a_source_of_the_session_is_not_looked_at() -> None:
    made = mounts(NodeMount("bind", "/dev/shm", "/x", ("suid", "dev", "exec")))["/x"]["options"]
    assert {"nosuid", "nodev", "noexec"}.isdisjoint(made)
    made = mounts(NodeMount("bind", "/nowhere", "/x", ("ro",)))["/x"]["options"]
    assert made == ["ro", "rslave", "rbind"]


def test_no_file_is_made_in_a_run_that_is_mounted() -> None:
    assert "/run/.containerenv" in mounts()
    assert "/run/.containerenv" not in mounts(NodeMount("bind", "/run", "/run", ()))


def test_a_tmpfs_has_no_two_words_for_one_thing() -> None:
    made = mounts(NodeMount("tmpfs", "", "/t", ("size=1g", "ro", "suid", "noexec")))["/t"][
        "options"
    ]
    assert made == ["size=1g", "ro", "suid", "noexec", "rprivate", "nodev", "tmpcopyup"]


def test_only_a_root_has_capabilities_and_every_container_few_to_gain() -> None:
    made = configuration(container(ids=(0, 0)))["process"]["capabilities"]
    assert made["effective"] == made["permitted"] == made["bounding"]
    assert "CAP_SYS_ADMIN" not in made["bounding"]
    assert set(configuration(container())["process"]["capabilities"]) == {"bounding"}


def test_hooks_keep_their_order_within_a_stage() -> None:
    hooks: list[HookFile] = [
        {"hook": {"path": f"/{stage}{n}"}, "stages": [stage]}
        for n in (2, 1)
        for stage in ("prestart", "poststart")
    ]
    made = configuration(container(oci_hooks=hooks))["hooks"]
    assert made["prestart"] == [{"path": "/prestart2"}, {"path": "/prestart1"}]
    assert made["poststart"] == [{"path": "/poststart2"}, {"path": "/poststart1"}]

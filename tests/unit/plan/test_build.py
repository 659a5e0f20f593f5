"""A plan's content for an EDF, an image and a site."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from container_engine.edf.model import Annotation, Device, Mount, Operator, Origin, Variable
from container_engine.plan.model import Image, LaunchPlan, Part
from container_engine.site.model import SiteConfig
from tests.unit.plan.edfs import HERE, PLAIN, built, edf, entry, variable


def plan(*arguments: object, **values: object) -> LaunchPlan:
    outcome = built(*arguments, **values)  # type: ignore[arg-type]
    assert outcome.plan is not None, outcome.problems
    return outcome.plan


def with_workdir(path: str | None) -> Image:
    return PLAIN.model_copy(update={"workdir": path})


def test_an_images_digest_can_stand_in_a_value_in_the_form_of_file_names() -> None:
    entries = (
        entry("A", "/c/", variable("image:digest")),
        entry("B", variable("image:digest", ":-", "none")),
    )
    registrys = PLAIN.model_copy(update={"digest": "sha256:ab", "content": "sha256:cd"})
    file = PLAIN.model_copy(update={"content": "sha256:cd"})
    stacked = file.model_copy(update={"above": (Part(path="/p", name="p", digest="sha256:ef"),)})
    for image, said in (
        (registrys, "sha256-ab"),
        (file, "sha256-cd"),
        (stacked, "sha256-cd+sha256-ef"),
    ):
        assert [one.value for one in plan(edf(env=entries), image).env] == [f"/c/{said}", said]
    outcome = built(edf(env=entries))
    assert [(str(one), one.hint) for one in outcome.problems] == [
        (
            "/e.toml:3: env.A: ${image:digest}: the image does not define it",
            "ce lock notes that of a file; '${image:digest:-}' is empty where none is known",
        )
    ]
    [value] = plan(edf(env=entries[1:])).env
    assert value.value == "none"


def test_the_workdir_is_the_edfs_before_the_images_before_the_root() -> None:
    named = edf(workdir="/mine", workdir_origin=HERE)
    found = [
        (p.workdir, p.workdir_from)
        for p in (
            plan(named, with_workdir("/its")),
            plan(edf(), with_workdir("/its")),
            plan(edf(), with_workdir(None)),
        )
    ]
    assert found == [("/mine", "/e.toml:3"), ("/its", "the image"), ("/", "default")]


def test_an_empty_variable_is_one_to_unset() -> None:
    env = plan(edf(env=(entry("A", ""), entry("B", "1")))).env
    assert [(e.name, e.value) for e in env] == [("A", None), ("B", "1")]


def test_variables_of_the_image_are_filled_in_and_those_of_the_node_stay() -> None:
    value = entry("P", "/a:", variable("image:PATH"), ":", variable("SLURM_JOB_ID", ":-", "none"))
    assert plan(edf(env=(value,))).env[0].value == (
        "/a:/bin:",
        Variable(var="SLURM_JOB_ID", op=":-", word="none"),
    )


@pytest.mark.parametrize(
    ("op", "word", "value"),
    [
        (":-", "w", "w"),
        ("-", "w", "w"),
        (":+", "w", None),
        ("+", "w", None),
        ("-", "", None),
    ],
)
def test_operators_work_on_a_variable_that_the_image_lacks(
    op: Operator, word: str, value: str | None
) -> None:
    entries = (entry("X", variable("image:NO", op, word)),)
    assert plan(edf(env=entries)).env[0].value == value


def test_the_colon_of_an_operator_makes_empty_count_as_unset() -> None:
    image = PLAIN.model_copy(update={"env": {"E": ""}})
    entries = (
        entry("A", variable("image:E", ":-", "w")),
        entry("B", "x", variable("image:E", "-", "w")),
    )
    assert [e.value for e in plan(edf(env=entries), image).env] == ["w", "x"]


def test_an_image_variable_works_in_the_word_of_a_node_variable() -> None:
    word = (variable("image:PATH"), ":/x")
    entries = (entry("A", Variable("SLURM_X", ":-", word)),)
    assert plan(edf(env=entries)).env[0].value == (
        Variable(var="SLURM_X", op=":-", word="/bin:/x"),
    )


def test_all_undefined_image_variables_are_named_with_their_lines() -> None:
    mount = Mount("bind", (variable("image:M"),), "/m", (), Origin("/b.toml", 9))
    outcome = built(edf(env=(entry("A", variable("image:NO")),), mounts=(mount,)))
    assert outcome.plan is None
    assert [str(problem) for problem in outcome.problems] == [
        "/e.toml:3: env.A: ${image:NO}: the image does not define it",
        "/b.toml:9: mounts: ${image:M}: the image does not define it",
    ]
    assert outcome.problems[0].hint == "'${image:NO:-}' is empty where the image has no NO"


def test_the_users_own_words_are_the_error_of_a_demanded_variable() -> None:
    outcome = built(edf(env=(entry("A", variable("image:NO", ":?", "needs a newer image")),)))
    assert str(outcome.problems[0]) == "/e.toml:3: env.A: ${image:NO}: needs a newer image"


def test_an_unknown_image_configuration_is_reported_with_the_file_that_could_hold_it() -> None:
    unknown = PLAIN.model_copy(update={"source": ""})
    outcome = built(edf(env=(entry("A", variable("image:NO")),)), unknown)
    assert outcome.problems[0].hint == (
        "nothing is known of /i.sqsh but its files, there is no /i.sqsh.json"
    )


@pytest.mark.parametrize(
    ("asked", "site", "runs"),
    [
        (None, False, False),
        (None, True, True),
        (True, False, True),
        (False, True, False),
    ],
)
def test_the_edf_decides_on_the_entrypoint_before_the_site(
    asked: bool | None, site: bool, runs: bool
) -> None:
    image = PLAIN.model_copy(update={"entrypoint": ("/entry", "x")})
    settings = SiteConfig(entrypoint=site)
    found = plan(edf(entrypoint=asked, entrypoint_origin=HERE), image, settings).entrypoint
    assert found == (("/entry", "x") if runs else ())


def test_an_entrypoint_that_the_image_lacks_is_a_warning() -> None:
    outcome = built(edf(entrypoint=True, entrypoint_origin=HERE))
    assert outcome.plan is not None
    assert [str(problem) for problem in outcome.problems] == [
        "/e.toml:3: entrypoint: true, but /i.sqsh has no entrypoint: "
        "nothing is run before the tasks"
    ]


def test_every_part_of_a_plan_says_who_asked_for_it() -> None:
    document = plan(
        edf(
            mounts=(Mount("bind", "/a", "/b", ("ro",), HERE),),
            devices=(Device("/dev/x", is_cdi=False, origin=HERE),),
            env=(entry("A", "1"),),
            startup=(("true", HERE),),
            annotations=(Annotation("k", "v", HERE),),
        )
    ).as_dict()
    for part in ("mounts", "devices", "env", "startup"):
        assert [operation["from"] for operation in document[part]] == ["/e.toml:3"]
    assert document["annotations_from"] == {"k": "/e.toml:3"}
    assert document["image"]["from"] == "/e.toml:1"
    assert document["writable_from"] == document["entrypoint_from"] == "default"


def test_the_sites_settings_travel_with_the_plan() -> None:
    site = SiteConfig(
        start_timeout_s=7,
        tmpfs_size="1g",
        hooks_dirs=("/h",),
        devices_if_there=("/dev/xpmem",),
        trace_dir="/traces",
        root_remap=True,
        unshare=("ipc",),
        batch_script="inside",
        stage="memory",
        stage_nodes=200,
        secret_variables=("SITE*",),
    )
    assert plan(edf(), site=site).settings.as_dict() == {
        "start_timeout_s": 7,
        "podman": "",
        "runtime": "",
        "tracking_tool": (),
        "tmpfs_size": "1g",
        "hooks_dirs": ("/h",),
        "trace_dir": "/traces",
        "cdi_dirs": ("/etc/cdi", "/var/run/cdi"),
        "devices_if_there": ("/dev/xpmem",),
        "user_cdi_dir": "",
        "allowed_devices": ("*",),
        "root_remap": True,
        "unshare": ("ipc",),
        "memory_limit": "",
        "pids_limit": 0,
        "time_limit_s": 0,
        "scope": "step",
        "start": "crun",
        "stage": "memory",
        "stage_nodes": 200,
        "secret_variables": ("SITE*",),
        "batch_script": "inside",
    }


@pytest.mark.parametrize(
    ("limits", "own"),
    [
        ({"time_limit_s": 5}, ("uts", "pid")),
        ({"pids_limit": 5}, ("uts", "pid")),
        ({"memory_limit": "5g"}, ("ipc", "uts", "pid")),
    ],
)
def test_a_limited_container_has_the_namespaces_that_its_limits_need(
    limits: Mapping[str, Any], own: tuple[str, ...]
) -> None:
    made = plan(edf(), site=SiteConfig(unshare=("uts",), **limits))
    assert made.settings.unshare == own


def test_a_plan_survives_its_json() -> None:
    awkward = "a\n\"'\\ ü \udcff =x"
    made = plan(edf(env=(entry("A", awkward, variable("SLURM_X")),)))
    assert LaunchPlan.of(json.loads(made.to_json())) == made
    assert "\n" not in made.to_json()
    made.to_json().encode()


def test_an_image_above_the_base_has_its_origin() -> None:
    above = (("/a.sqsh", Origin("/e.toml", 2)),)
    part = Part(path="/a.sqsh", name="/a.sqsh")
    made = plan(edf(above=above), PLAIN.model_copy(update={"above": (part,)}))
    assert [(one.path, one.origin) for one in made.image.above] == [("/a.sqsh", "/e.toml:2")]

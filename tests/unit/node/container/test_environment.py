"""Precedence in the environment of the tasks."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container_engine.base.errors import LaunchError
from container_engine.base.variables import MAX_VARIABLE
from container_engine.node.container import environment
from container_engine.node.container.checks import edf_settings
from container_engine.node.container.environment import (
    apply,
    encode_records,
    for_container,
    for_tasks,
    of_launchers,
    parse_block,
)
from tests.unit.node.plans import entry, image, plan, variable

HOST = {"PATH": "/host", "LANG": "de_CH.UTF-8", "LC_ALL": "C", "LANGUAGE": "de", "SLURM_X": "1"}
NAMES = st.text(st.characters(blacklist_characters="=\0", codec="utf-8"), min_size=1)
VALUES = st.text(st.characters(blacklist_characters="\0", codec="utf-8"))


def tasks(
    edf: Mapping[str, object] | None = None,
    of_image: Mapping[str, str] | None = None,
    hooks: Mapping[str, str] | None = None,
    host: Mapping[str, str] = HOST,
    entrypoint: bool = False,
) -> dict[str, str]:
    """Return the environment of a task in a container that has started normally."""
    the_plan = plan(
        env=[entry(name, value) for name, value in (edf or {}).items()],
        image=image(**(of_image or {})),
        entrypoint=["/entry"] if entrypoint else [],
    )
    settings = edf_settings(the_plan.env, host)
    given_env = for_container(the_plan.image_env, settings)
    found = {**given_env, "TERM": "xterm", "container": "podman", "HOSTNAME": "n", "HOME": "/"}
    return apply(host, for_tasks(the_plan, settings, given_env, {**found, **(hooks or {})}))


def test_the_edf_counts_before_hooks_before_the_image_before_the_host() -> None:
    everywhere = dict.fromkeys("ABCD", "host")
    seen = tasks(
        edf={"A": "edf"},
        hooks={"A": "hook", "B": "hook"},
        of_image={"A": "image", "B": "image", "C": "image"},
        host=everywhere,
    )
    assert seen == {"A": "edf", "B": "hook", "C": "image", "D": "host"}


def test_an_entrypoint_has_the_last_word() -> None:
    seen = tasks(edf={"A": "edf"}, hooks={"A": "entry"}, entrypoint=True)
    assert seen["A"] == "entry"


def test_what_an_entrypoint_unsets_is_gone_in_the_tasks() -> None:
    the_plan = plan(image=image(PLUGIN="image", KEPT="image"), entrypoint=["/entry"])
    settings = edf_settings(the_plan.env, HOST)
    given_env = {**for_container(the_plan.image_env, settings), "not.a-shells": "x"}
    changes = for_tasks(the_plan, settings, given_env, {"KEPT": "image"})
    assert apply({"PLUGIN": "host"}, changes) == {"KEPT": "image"}
    assert "not.a-shells" not in changes
    # Without an entrypoint, nothing can have removed the variable that is missing.
    without = for_tasks(the_plan.but(entrypoint=[]), settings, given_env, {"KEPT": "image"})
    assert without["PLUGIN"] == "image"


def test_a_task_knows_its_environment_and_image_and_never_those_around_it() -> None:
    of_image = {**image(), "name": "/i.sqsh", "digest": None, "content": "sha256:12"}
    changes = for_tasks(plan(name="torch", image=of_image), {}, {}, {})
    assert apply({"CE_IMAGE": "outer"}, changes) == {
        "CE_ENVIRONMENT_NAME": "torch",
        "CE_IMAGE": "/i.sqsh",
        "CE_IMAGE_DIGEST": "sha256:12",
    }
    kept = plan(image=of_image, kept={"name": "work"})
    assert for_tasks(kept, {}, {}, {})["CE_CONTAINER_NAME"] == "work"
    assert "CE_CONTAINER_NAME" not in apply({"CE_CONTAINER_NAME": "outer"}, changes)
    unknown = for_tasks(plan(name="torch", image={**of_image, "content": ""}), {}, {}, {})
    assert "CE_IMAGE_DIGEST" not in apply({"CE_IMAGE_DIGEST": "outer"}, unknown)
    of_registry = {**of_image, "digest": "sha256:34"}
    assert for_tasks(plan(image=of_registry), {}, {}, {})["CE_IMAGE_DIGEST"] == "sha256:34"
    above = {"name": "/a.sqsh", "content": "sha256:56"}
    stacked = for_tasks(plan(image={**of_registry, "above": [above]}), {}, {}, {})
    assert stacked["CE_IMAGE"] == "/i.sqsh + /a.sqsh"
    assert stacked["CE_IMAGE_DIGEST"] == "sha256:34+sha256:56"


def test_mpichs_mpirun_forks_in_a_step_of_one_node_unless_the_user_chose() -> None:
    one = {"SLURM_STEP_NUM_NODES": "1", "SLURM_NNODES": "1", "I_MPI_HYDRA_BOOTSTRAP": "ssh"}
    assert of_launchers(one) == {"HYDRA_LAUNCHER": "fork"}
    assert of_launchers({**one, "HYDRA_LAUNCHER": "slurm"}) == {"HYDRA_LAUNCHER": "fork"}
    assert of_launchers({**one, "SLURM_NNODES": "2"}) == {}
    assert of_launchers({}) == {}


def test_null_removes_a_variable_whatever_its_source() -> None:
    seen = tasks(
        edf={"A": None, "B": None, "C": None},
        hooks={"A": "hook"},
        of_image={"B": "image"},
        host={"C": "host", "D": "host"},
    )
    assert seen == {"D": "host"}


def test_the_hosts_locale_is_dropped() -> None:
    assert tasks() == {"PATH": "/host", "SLURM_X": "1"}


@pytest.mark.parametrize("source", ["edf", "of_image", "hooks"])
def test_a_locale_that_the_container_sets_stays(source: str) -> None:
    assert tasks(**{source: {"LANG": "C.UTF-8"}})["LANG"] == "C.UTF-8"  # type: ignore[arg-type]


@pytest.mark.parametrize("source", ["edf", "of_image", "hooks"])
@pytest.mark.parametrize(
    "name", ["SLURM_PROCID", "SLURMD_NODENAME", "PMI_RANK", "PMI2_X", "PMIX_ID", "PALS_X"]
)
def test_slurms_variables_keep_slurms_values(source: str, name: str) -> None:
    said = {name: "slurm's"}
    assert tasks(host=said, **{source: {name: "mine"}}) == said  # type: ignore[arg-type]
    assert tasks(host={}, **{source: {name: "mine"}}) == {}  # type: ignore[arg-type]


@pytest.mark.parametrize("source", ["edf", "of_image", "hooks"])
def test_settings_of_the_images_pmix_are_not_slurms(source: str) -> None:
    said = tasks(host={"PMIX_MCA_gds": "x"}, **{source: {"PMIX_MCA_gds": "hash"}})  # type: ignore[arg-type]
    assert said == {"PMIX_MCA_gds": "hash"}


def test_slurms_variables_cannot_be_removed() -> None:
    assert tasks(edf={"SLURM_X": None})["SLURM_X"] == "1"


@pytest.mark.parametrize("name", ["TERM", "HOME", "container", "HOSTNAME"])
def test_podmans_own_variables_are_not_the_tasks(name: str) -> None:
    assert tasks(host={name: "host"}) == {name: "host"}
    assert tasks(host={}) == {}
    assert tasks(host={}, edf={name: "edf"}) == {name: "edf"}


def test_deferred_values_are_the_nodes() -> None:
    seen = tasks(edf={"A": ["/scratch/", variable("SLURM_X")]})
    assert seen["A"] == "/scratch/1"


def test_a_value_that_the_node_cannot_make_names_its_line() -> None:
    with pytest.raises(LaunchError, match=r"^/e\.toml:3: \$\{NONE\}: "):
        tasks(edf={"A": [variable("NONE")]})


def test_nothing_is_removed_from_the_container_that_it_never_had() -> None:
    the_plan = plan(env=[entry("A", None), entry("B", "b")], image=image(A="1", C="2"))
    assert for_container(the_plan.image_env, edf_settings(the_plan.env, {})) == {"B": "b", "C": "2"}


# ---- formats ---------------------------------------------------------------------------------


@given(st.dictionaries(NAMES, VALUES))
def test_records_and_blocks_are_read_alike(variables: dict[str, str]) -> None:
    assert parse_block(encode_records(variables)) == variables


def test_records_set_and_remove() -> None:
    assert encode_records({"A": "x=y\n", "B": None, "C": ""}) == b"A=x=y\n\0B\0C=\0"


def test_bytes_that_are_not_utf_8_survive() -> None:
    block = b"A=\xff\xfe\0"
    assert encode_records(parse_block(block)) == block


def test_a_block_may_end_without_nul_and_have_gaps() -> None:
    assert parse_block(b"A=1\0\0B=2=3") == {"A": "1", "B": "2=3"}
    assert parse_block(b"") == {}


def test_a_variable_that_execve_would_refuse_is_named() -> None:
    environment.check_size("A", "x" * (MAX_VARIABLE - 2))
    with pytest.raises(LaunchError, match=r"^env\.A: has 131072 bytes with its name; Linux allows"):
        environment.check_size("A", "x" * (MAX_VARIABLE - 1))


@pytest.mark.parametrize("name", ["", "=A", "A=B", "A\0B"])
def test_a_name_that_would_be_another_record_is_refused(name: str) -> None:
    for changes, per_task in (({name: "1"}, None), ({}, {name: "SLURM_JOB_ID"})):
        with pytest.raises(LaunchError, match=r"^env: not a valid name or value of a variable: "):
            encode_records(changes, per_task)


def test_a_value_makes_no_further_record() -> None:
    with pytest.raises(LaunchError, match=r"^env: not a valid name or value of a variable: 'A'$"):
        encode_records({"A": "1\0SLURM_PROCID=7"})
    assert encode_records({"A": "1\nB=2", "C": "=D=E"}) == b"A=1\nB=2\0C==D=E\0"


def test_what_a_process_has_without_a_name_is_passed_over() -> None:
    assert parse_block(b"=A=B\0C=D\0\0") == {"C": "D"}


def test_an_entrypoint_sets_nothing_that_is_read_outside() -> None:
    of_image = {"path": "/i", "name": "i", "env": {}}
    the_plan = plan(image=of_image, entrypoint=["/run"])
    changes = for_tasks(the_plan, {}, {}, {"EDF_PATH": "/x", "CE_INHERIT": "no", "MINE": "1"})
    assert {name for name, value in changes.items() if value is not None} >= {"MINE"}
    assert not {"EDF_PATH", "CE_INHERIT"} & changes.keys()

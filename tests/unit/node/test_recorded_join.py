"""Joining a container without Python has the launcher's result, or is left to the launcher."""

import os
import shutil
import subprocess
from collections.abc import Callable
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

from container_engine.node.job_containers import recorded_join
from container_engine.node.node_plan import node_plan
from container_engine.node.start.site_rules import RULES
from tests.recorded import Answer, rewrite
from tests.unit.node.join_stage import Stage


def _named(cases: type) -> dict[str, Callable[[Stage], None]]:
    return {n: c.__func__ for n, c in vars(cases).items() if isinstance(c, staticmethod)}


def test_both_join_in_the_same_way(stage: Stage) -> None:
    found = stage.run_step()
    assert found is not None
    assert found == stage.run_step(by_python=True)
    assert found.texts == ["R/work dir", "", "", "kept", "", ""]
    assert b"FROM_HOOK=1\0" in found.records
    assert found.trace["hooks"] == [{"name": "always", "release": "1", "reason": "enabled"}]
    assert stage.last_packet == b"K"


class Changes:
    """Changes after which both still join, each with its name."""

    @staticmethod
    def without_traces(stage: Stage) -> None:
        stage.plan["settings"]["trace_dir"] = ""

    @staticmethod
    def namespaces(stage: Stage) -> None:
        stage.hands[0] = (b"C", 7)

    @staticmethod
    def array(stage: Stage) -> None:
        stage.node |= {"SLURM_ARRAY_JOB_ID": "6", "SLURM_ARRAY_TASK_ID": "1"}

    @staticmethod
    def second_node(stage: Stage) -> None:
        stage.node |= {"SLURM_NODEID": "1", "SLURM_STEP_NODELIST": "n[0-1]"}

    @staticmethod
    def another_server(stage: Stage) -> None:
        stage.node["SLURM_MPI_TYPE"] = "none"

    @staticmethod
    def no_plan_times(stage: Stage) -> None:
        del stage.node["SLURM_CE_PLANNED"]

    @staticmethod
    def exec_only(stage: Stage) -> None:
        stage.plan["kept"]["mode"] = "exec"

    @staticmethod
    def stale_door(stage: Stage) -> None:
        (stage.place / "door.0.aa").touch()

    @staticmethod
    def site_without_rules(stage: Stage) -> None:
        place = stage.prefix / "etc/container-engine/conf.d"
        place.mkdir(parents=True)
        (place.parent / "config.toml").write_text('trace_dir = "/t"\n')
        (place / "10-x.toml").write_text("[policy]\n")
        (place / "README").mkdir()

    @staticmethod
    def no_root(stage: Stage) -> None:
        del stage.hands[2]

    @staticmethod
    def image_with_figures(stage: Stage) -> None:
        stage.hands[1] = (stage.hands[1][0], 2)

    @staticmethod
    def no_image(stage: Stage) -> None:
        del stage.hands[1]

    @staticmethod
    def secret_elsewhere(stage: Stage) -> None:
        stage.node["MY_TOKEN"] = "another"


@pytest.mark.parametrize("change", _named(Changes).values(), ids=_named(Changes))
def test_both_join_in_the_same_way_after(stage: Stage, change: Callable[[Stage], None]) -> None:
    change(stage)
    stage.record()
    found = stage.run_step()
    assert found is not None
    assert found == stage.run_step(by_python=True)


@pytest.mark.parametrize("name", ["image", "made", "files"])
def test_a_container_with_a_different_record_is_left_to_the_launcher(
    stage: Stage, name: str
) -> None:
    with (stage.place / name).open("a") as file:
        file.write(" ")
    assert stage.run_step() is None


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("file", ["config.toml", "conf.d/10-x.toml"])
def test_a_site_with_a_rule_is_left_to_the_launcher(stage: Stage, rule: str, file: str) -> None:
    place = stage.prefix / "etc/container-engine" / file
    place.parent.mkdir(parents=True)
    place.write_text(f"[policy]\n{rule} = false\n")
    assert stage.run_step() is None


def test_a_configuration_that_cannot_be_read_is_left_to_the_launcher(stage: Stage) -> None:
    place = stage.prefix / "etc/container-engine"
    (place / "conf.d/x.toml").mkdir(parents=True)
    assert stage.run_step() is None
    (place / "conf.d/x.toml").rmdir()
    assert stage.run_step() is not None
    (place / "config.toml").symlink_to("config.toml")
    assert stage.run_step() is None


class Doubts:
    """Changes after which ce-guard leaves the step to the launcher."""

    @staticmethod
    def another_plan_of_the_same_length(stage: Stage) -> None:
        stage.plan["workdir"] = "/work bin"

    @staticmethod
    def another_plan(stage: Stage) -> None:
        stage.plan["workdir"] = "/elsewhere"

    @staticmethod
    def create(stage: Stage) -> None:
        stage.plan["kept"]["mode"] = "create"

    @staticmethod
    def no_exec(stage: Stage) -> None:
        stage.plan["kept"]["mode"] = "no_exec"

    @staticmethod
    def no_container(stage: Stage) -> None:
        stage.plan["kept"] = None

    @staticmethod
    def another_container(stage: Stage) -> None:
        stage.plan["kept"]["key"] = "1" * 16

    @staticmethod
    def another_version_of_the_engine(stage: Stage) -> None:
        rewrite(stage.recorded, lambda a: a._replace(request=b"9" + a.request))

    @staticmethod
    def another_format(stage: Stage) -> None:
        stage.recorded.write_bytes(stage.recorded.read_bytes().replace(b"answer 1", b"answer 0", 1))

    @staticmethod
    def answer_for_another_directory(stage: Stage) -> None:
        place = bytes(stage.place)
        rewrite(
            stage.recorded, lambda a: a._replace(request=a.request.replace(place, place + b"x", 1))
        )

    @staticmethod
    def answers_of_all(stage: Stage) -> None:
        stage.recorded.parent.chmod(0o707)

    @staticmethod
    def code_that_was_overwritten_in_place(stage: Stage) -> None:
        def older(answer: Answer) -> Answer:
            code = f"f{recorded_join.__file__}"
            return answer._replace(witnesses=answer.witnesses | {code: "1 2 100644 3 4 5"})

        rewrite(stage.recorded, older)

    @staticmethod
    def answer_of_all(stage: Stage) -> None:
        stage.recorded.chmod(0o640)

    @staticmethod
    def answer_by_a_link(stage: Stage) -> None:
        recorded = stage.recorded
        recorded.rename(stage.place / "other")
        recorded.symlink_to("../other")

    @staticmethod
    def no_answer(stage: Stage) -> None:
        stage.recorded.unlink()

    @staticmethod
    def directory_of_all(stage: Stage) -> None:
        stage.place.chmod(0o750)

    @staticmethod
    def jobs_directory_of_all(stage: Stage) -> None:
        stage.place.parent.chmod(0o701)

    @staticmethod
    def users_directory_of_all(stage: Stage) -> None:
        stage.place.parent.parent.chmod(0o777)

    @staticmethod
    def directory_by_a_link(stage: Stage) -> None:
        stage.place.rename(stage.short / "other")
        stage.place.symlink_to(stage.short / "other")

    @staticmethod
    def another_job(stage: Stage) -> None:
        stage.node["SLURM_JOB_ID"] = "8"

    @staticmethod
    def no_home(stage: Stage) -> None:
        del stage.node["HOME"]

    @staticmethod
    def no_job(stage: Stage) -> None:
        del stage.node["SLURM_JOB_ID"]

    @staticmethod
    def job_that_is_no_number(stage: Stage) -> None:
        stage.node["SLURM_JOB_ID"] = "7.n1/../7"

    @staticmethod
    def step_that_is_no_number(stage: Stage) -> None:
        stage.node["SLURM_STEP_ID"] = "2/x"

    @staticmethod
    def no_node(stage: Stage) -> None:
        stage.name = None

    @staticmethod
    def another_node(stage: Stage) -> None:
        stage.name = "n2"

    @staticmethod
    def node_with_a_slash(stage: Stage) -> None:
        stage.name = "../7.n1"

    @staticmethod
    def image_replaced(stage: Stage) -> None:
        shutil.copy(stage.image, stage.home / "new")
        (stage.home / "new").rename(stage.image)

    @staticmethod
    def image_written_to(stage: Stage) -> None:
        os.utime(stage.image, ns=(1, 1))

    @staticmethod
    def image_gone(stage: Stage) -> None:
        stage.image.unlink()

    @staticmethod
    def image_that_is_not_known(stage: Stage) -> None:
        stage.hands.insert(1, (b"/other.sqsh", 1))

    @staticmethod
    def environment_of_another_container(stage: Stage) -> None:
        stage.block += b"MORE=1\0"

    @staticmethod
    def no_last_word(stage: Stage) -> None:
        stage.last.clear()

    @staticmethod
    def last_word_with_descriptor(stage: Stage) -> None:
        stage.last[:] = [(b"\0", 1)]

    @staticmethod
    def too_few_descriptors(stage: Stage) -> None:
        stage.hands[0] = (b"C", 4)

    @staticmethod
    def image_without_descriptor(stage: Stage) -> None:
        stage.hands[1] = (stage.hands[1][0], 0)

    @staticmethod
    def image_with_three_descriptors(stage: Stage) -> None:
        stage.hands[1] = (stage.hands[1][0], 3)

    @staticmethod
    def image_with_nul(stage: Stage) -> None:
        stage.hands[1] = (stage.hands[1][0] + b"\0x", 1)

    @staticmethod
    def nothing_but_the_word(stage: Stage) -> None:
        stage.hands.clear()

    @staticmethod
    def no_door(stage: Stage) -> None:
        for door in stage.place.glob("door.*"):
            door.unlink()

    @staticmethod
    def mpi_server(stage: Stage) -> None:
        stage.node["CE_PMIX_DIR"] = "/spool"

    @staticmethod
    def batch_script(stage: Stage) -> None:
        stage.node["CE_BATCH_SCRIPT"] = "/script"

    @staticmethod
    def hook_that_applies(stage: Stage) -> None:
        stage.node["SLURM_MPI_TYPE"] = "pmi2"

    @staticmethod
    def hook_that_may_apply(stage: Stage) -> None:
        stage.node["X"] = "a"

    @staticmethod
    def secret_in_a_mount(stage: Stage) -> None:
        stage.node["my_token"] = "data"

    @staticmethod
    def secret_by_its_last_letters(stage: Stage) -> None:
        stage.node["API_KEY_OF_ME"] = "data"

    @staticmethod
    def name_that_is_not_ascii(stage: Stage) -> None:
        stage.node["tok\u0131en"] = "data"

    @staticmethod
    def traces_in_no_directory(stage: Stage) -> None:
        shutil.rmtree(stage.traces)
        stage.traces.write_text("not a directory")

    @staticmethod
    def value_that_json_escapes(stage: Stage) -> None:
        stage.node["SLURM_STEP_NODELIST"] = 'n1"'

    @staticmethod
    def traces_in_a_place_of_others(stage: Stage) -> None:
        stage.plan["settings"]["trace_dir"] = "/proc"

    @staticmethod
    def job_that_is_a_path(stage: Stage) -> None:
        stage.node["SLURM_JOB_ID"] = "./7"

    @staticmethod
    def node_that_is_a_path(stage: Stage) -> None:
        stage.name = "n1/../7.n1"

    @staticmethod
    def environment_that_is_another(stage: Stage) -> None:
        stage.block = stage.block.replace(b"changed", b"CHANGED")

    @staticmethod
    def namespaces_that_are_too_many(stage: Stage) -> None:
        stage.hands[0] = (b"C", 10)

    @staticmethod
    def plan_that_goes_on(stage: Stage) -> None:
        stage.after = b"\0more"

    @staticmethod
    def guard_that_fails(stage: Stage) -> None:
        stage.guard("fails")

    @staticmethod
    def guard_that_ends(stage: Stage) -> None:
        stage.guard("ends")


@pytest.mark.parametrize("doubt", _named(Doubts).values(), ids=_named(Doubts))
def test_every_doubt_is_left_to_the_launcher(stage: Stage, doubt: Callable[[Stage], None]) -> None:
    assert stage.run_step() is not None
    doubt(stage)
    assert stage.run_step() is None


def test_a_container_that_starts_is_left_to_the_launcher(stage: Stage) -> None:
    lock = os.open(stage.place / "lock", os.O_RDWR)
    # the descriptor that the stage holds is that of the running step
    (stage.place / "lock").unlink()
    other = os.open(stage.place / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    flock(other, LOCK_EX)
    assert stage.run_step() is None
    os.close(lock)
    os.close(other)


@pytest.mark.parametrize("name", ["", "..", "../..", "recorded"])
def test_what_belongs_to_another_user_is_left_to_the_launcher(
    stage: Stage, as_nobody: Callable[[Path], None], name: str
) -> None:
    as_nobody(stage.recorded if name == "recorded" else Path(os.path.normpath(stage.place / name)))
    assert stage.run_step() is None


class Unusual:
    """Properties of plans and steps that ce-guard knows nothing about."""

    @staticmethod
    def hook_that_applies(stage: Stage) -> None:
        stage.node["X"] = "ab"

    @staticmethod
    def mpi_server(stage: Stage) -> None:
        stage.node["CE_PMIX_DIR"] = "/spool"

    @staticmethod
    def no_home(stage: Stage) -> None:
        del stage.node["HOME"]

    @staticmethod
    def create(stage: Stage) -> None:
        stage.plan["kept"]["mode"] = "create"

    @staticmethod
    def of_a_step(stage: Stage) -> None:
        stage.plan["kept"]["name"] = "7.1"

    @staticmethod
    def deferred(stage: Stage) -> None:
        stage.plan["workdir"] = [{"var": "HOME", "op": "", "word": ""}]

    @staticmethod
    def namespaces(stage: Stage) -> None:
        stage.plan["settings"]["unshare"] = ["net"]

    @staticmethod
    def tracking(stage: Stage) -> None:
        stage.plan["settings"]["tracking_tool"] = ["/t"]

    @staticmethod
    def saved(stage: Stage) -> None:
        stage.plan["annotations"]["com.ce.container_save"] = "/x.sqsh"

    @staticmethod
    def condition_with_nul(stage: Stage) -> None:
        stage.plan["hooks"][0]["automatic_when"] = ["A\0B"]

    @staticmethod
    def secret(stage: Stage) -> None:
        stage.plan["mounts"][0]["source"] = "/data?password=x"

    @staticmethod
    def variables_secret(stage: Stage) -> None:
        stage.plan["env"].append({"name": "MY_TOKEN", "value": "data", "from": "e"})


@pytest.mark.parametrize("change", _named(Unusual).values(), ids=_named(Unusual))
def test_nothing_is_recorded_for_a_plan_with(stage: Stage, change: Callable[[Stage], None]) -> None:
    stage.recorded.unlink()
    change(stage)
    stage.record()
    assert not list(stage.place.glob("answers/*"))


def test_ever_new_plans_are_not_all_recorded(stage: Stage) -> None:
    for number in range(30):
        stage.plan["name"] = "n" * number
        stage.record()
    assert len(list(stage.place.glob("answers/*"))) == 16


def test_a_full_disk_leaves_no_half_of_an_answer(
    stage: Stage, as_nobody: Callable[..., None]
) -> None:
    del as_nobody  # only root can mount
    stage.recorded.unlink()
    stage.block = b"A=" + b"x" * (1 << 20) + b"\0"
    directory = stage.home / "small"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(directory)]
    subprocess.run(mount, check=True)
    try:
        for name in ("image", "made", "files"):
            shutil.copy(stage.place / name, directory)
        directory.chmod(0o700)
        given = (node_plan(stage.plan), stage.node, "/p/l/e", str(directory), stage.block)
        recorded_join.record(stage.text, *given)
        assert sorted(os.listdir(directory)) == ["answers", "files", "image", "made"]
        assert os.listdir(directory / "answers") == []
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def test_a_guard_that_waits_for_the_launcher_gets_the_same_specification(own: Stage) -> None:
    found = own.run_step()
    assert found is not None
    assert own.argc == 10
    assert found == own.run_step(by_python=True)
    assert own.last_packet == b"K"


def test_a_guard_that_is_missing_is_explained_by_the_launcher(own: Stage) -> None:
    (own.prefix / "libexec/container-engine/ce-guard").unlink()
    with pytest.raises(AssertionError, match=r"cannot start .*/ce-guard: No such file"):
        own.run_step(by_python=True)


def test_the_report_of_a_guard_that_has_ended_early_is_explained(own: Stage) -> None:
    own.guard("fails")
    own.plan["env"].append({"name": "LONG", "value": "x" * 100_000, "from": "e"})
    with pytest.raises(AssertionError, match="F125"):
        own.run_step()
    own.guard("ends")
    with pytest.raises(AssertionError, match="the process that guards the container ended"):
        own.run_step()


def test_a_guard_ends_with_a_launcher_that_refuses_to_start_anything(own: Stage) -> None:
    own.image.unlink()
    with pytest.raises(AssertionError, match=r"i\.sqsh': No such file"):
        own.run_step()
    assert not (own.prefix / "last_packet").exists()


def test_no_guard_is_started_early_for_a_container_that_lives_with_its_job(stage: Stage) -> None:
    stage.recorded.unlink()
    assert stage.run_step() is None
    assert stage.argc == 7

"""The step that a word of the command line means."""

import json
import os
from pathlib import Path

import pytest

from container_engine.base.errors import UserError
from container_engine.submit.context import Context
from container_engine.tools.running_steps import Step, choose, image_reads, running


def step(number: str, *, traced: bool) -> Step:
    return Step(number, "sh", "n1", "0:01", "", "", traced, number)


RUNNING = [step("7.0", traced=True), step("7.1", traced=True), step("7.2", traced=False)]


def test_a_job_is_its_newest_step_in_a_container() -> None:
    assert choose(RUNNING, "7").id == "7.1"
    assert choose(RUNNING, "7.2").id == "7.2"


def test_a_step_of_an_array_has_the_names_that_slurm_uses_and_its_plain_number() -> None:
    of_array = Step("7_3.0", "sh", "n1", "0:01", "", "", traced=True, plain="9.0")
    for word in ("7_3", "7_3.0", "9", "9.0"):
        assert choose([*RUNNING, of_array], word).plain == "9.0"


def named(number: str, container: str) -> Step:
    return step(number, traced=True)._replace(container=container)


def test_a_step_is_found_by_the_name_of_its_container() -> None:
    steps = [*RUNNING, named("8.0", "work"), named("8.1", "work"), named("9.0", "other")]
    assert choose(steps, "work").id == "8.1"
    assert choose(steps, "8.work").id == "8.1"
    assert choose(steps, "9.other").id == "9.0"
    for word in ("9.work", "8.other"):
        with pytest.raises(UserError, match="no such step runs"):
            choose(steps, word)


def test_a_name_of_several_jobs_is_that_of_the_job_in_which_it_is_typed() -> None:
    steps = [named("8.0", "work"), named("9.0", "work")]
    assert choose(steps, "work", job="8").id == "8.0"
    assert choose(steps, "9.work", job="8").id == "9.0"
    with pytest.raises(UserError, match=r"jobs 8, 9 have containers of this name") as caught:
        choose(steps, "work", job="7")
    assert "8.work or 9.work" in str(caught.value.hint)


def test_the_number_of_a_job_counts_before_a_name() -> None:
    assert choose([*RUNNING, named("8.0", "7")], "7").id == "7.1"


@pytest.fixture
def squeue(tmp_path: Path) -> Context:
    """Return a context whose Slurm has a job, a task of a job array and a heterogeneous job."""
    steps = ["7.0|n1|0:01|sh", "8_3.0|n2|0:02|sh", "8_3.batch|n2|0:02|batch", "12.0|n2|0:03|sh"]
    programs = tmp_path / "slurm"
    programs.mkdir()
    (programs / "squeue").write_text(
        "#!/bin/sh\n"
        'case " $* " in *" --steps "*) printf "%s\\n"'
        + "".join(f" '{one}'" for one in steps)
        + ";;"
        ' *) printf "%s\\n" "7|7" "8_3|9" "11+0|11" "11+1|12";; esac\n'
    )
    (programs / "squeue").chmod(0o755)
    env = {"HOME": str(tmp_path), "PATH": f"{programs}:/usr/bin:/bin"}
    return Context(env, str(tmp_path), os.geteuid(), "/nonexistent", 0)


def test_the_nodes_of_a_step_are_asked_what_they_have_read(squeue: Context) -> None:
    programs = Path(squeue.env["PATH"].partition(":")[0])
    figures = {"reads": 1, "waited_ns": 1, "requests": 1, "lookups": 1, "hits": 1, "misses": 1}
    one = {**figures, "bytes": 9, "size": 10, "shared": False, "path": "/i"}
    said = [json.dumps({"node": node, "image_reads": [one]}) for node in ("n1", "n2")]
    for name, text in (
        ("scontrol", "printf 'n1\\nn2\\n'"),
        ("srun", f"echo \"$*\" > {programs}/asked; printf '%s\\n' noise '{said[0]}' '{said[1]}'"),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    plain = step("9.0", traced=True)
    of_array = plain._replace(id="8_3.0", nodes="n[1-2]", job="9")
    assert image_reads(of_array, squeue) == {"n1": [one], "n2": [one]}
    asked = (programs / "asked").read_text()
    for word in ("--jobid=9", "--nodes=2", "--ntasks=2", "--nodelist=n[1-2]", "ps --here 9.0"):
        assert word in asked


def test_steps_of_arrays_and_heterogeneous_jobs_are_listed(squeue: Context) -> None:
    found = {step.id: (step.plain, step.job) for step in running(squeue)}
    assert found == {"7.0": ("7.0", "7"), "8_3.0": ("9.0", "9"), "12.0": ("11.0", "11+1")}


@pytest.mark.parametrize("word", ["", "train", "-1", ".0"])
def test_an_invalid_step_number_and_a_step_that_does_not_run_have_different_errors(
    word: str,
) -> None:
    with pytest.raises(
        UserError, match=rf"^'{word}': is not JOB, JOB\.STEP or the name of a container"
    ):
        choose(RUNNING, word)
    with pytest.raises(UserError, match=r"^8: no such step runs$"):
        choose(RUNNING, "8")

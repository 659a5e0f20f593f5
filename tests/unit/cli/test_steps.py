"""The step that a word of the command line means."""

import pytest

from container_engine.cli.running_steps import Step, choose
from container_engine.errors import UserError


def step(number: str, *, traced: bool) -> Step:
    return Step(number, "sh", "n1", "0:01", "", "", traced)


RUNNING = [step("7.0", traced=True), step("7.1", traced=True), step("7.2", traced=False)]


def test_a_job_is_its_newest_step_in_a_container() -> None:
    assert choose(RUNNING, "7").id == "7.1"
    assert choose(RUNNING, "7.2").id == "7.2"


@pytest.mark.parametrize("word", ["", "train", "-1", ".0"])
def test_a_word_that_is_no_number_of_a_step_is_told_apart_from_one_that_does_not_run(
    word: str,
) -> None:
    with pytest.raises(UserError, match=rf"^'{word}': is not JOB or JOB\.STEP$"):
        choose(RUNNING, word)
    with pytest.raises(UserError, match=r"^8: no such step runs$"):
        choose(RUNNING, "8")

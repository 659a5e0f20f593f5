"""A container for each task: what is planned, and what is refused."""

import pytest

from container_engine.plan.model import LaunchPlan
from container_engine.submit.prepare import prepare
from container_engine.submit.refused import RefusedError
from tests.unit.plan.conftest import User

_SCOPE = '[annotations]\n"com.ce.scope" = "task"\n'


def _planned(user: User, text: str) -> LaunchPlan:
    user.write(user.first / "each.toml", text)
    plan = prepare("each", user.context()).plan
    assert plan is not None
    return plan


def _configure(user: User, text: str) -> None:
    file = user.prefix / "etc/container-engine/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_a_plan_says_that_each_task_has_a_container(user: User) -> None:
    plan = _planned(user, _SCOPE)
    assert (plan.settings.scope, plan.kept) == ("task", None)
    assert _planned(user, "").settings.scope == "step"


def test_a_name_is_stronger_than_what_the_site_says(user: User) -> None:
    _configure(user, 'scope = "task"\n')
    assert _planned(user, "").settings.scope == "task"
    plan = _planned(user, '[annotations]\n"com.ce.container_name" = "mine"\n')
    assert plan.settings.scope == "step"
    assert plan.kept is not None
    step = _planned(user, '[annotations]\n"com.ce.scope" = "step"\n')
    assert step.settings.scope == "step"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f'startup = ["true"]\n{_SCOPE}', ":2: startup: runs once on a node"),
        (f'{_SCOPE}"com.ce.container_save" = "/tmp/x"\n', "saves the one container of a step"),
        (f'{_SCOPE}"com.ce.container_name" = "a"\n', ":4: annotations.com.ce.container_name"),
        (f'{_SCOPE}"com.ce.start" = "podman"\n', 'needs start = "crun"'),
    ],
    ids=["startup", "save", "name", "podman"],
)
def test_what_there_is_once_for_a_node_is_refused(user: User, text: str, words: str) -> None:
    user.write(user.first / "each.toml", text)
    with pytest.raises(RefusedError) as caught:
        prepare("each", user.context())
    assert words in "".join(problem.text for problem in caught.value.problems)


def test_what_a_site_decides_is_refused_where_an_environment_needs_one_container(
    user: User,
) -> None:
    _configure(user, 'scope = "task"\n')
    user.write(user.first / "each.toml", 'startup = ["true"]\n')
    with pytest.raises(RefusedError) as caught:
        prepare("each", user.context())
    (problem,) = caught.value.problems
    assert (problem.key, problem.see) == ("startup", "scope-task")
    assert problem.hint is not None
    assert 'com.ce.scope = "step"' in problem.hint


def test_an_option_of_a_mount_that_podman_does_not_know_is_a_warning(user: User) -> None:
    user.write(user.first / "each.toml", 'mounts = ["tmpfs:/x:huge=always"]')
    assert prepare("each", user.context()).notices == ""
    _configure(user, 'start = "podman"\n')
    said = prepare("each", user.context()).notices
    assert said.startswith("ce: warning: ")
    assert "each.toml:2: mounts: huge=always has no effect with Podman\n" in said

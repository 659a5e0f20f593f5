"""A plan as a node has it: read once, complete, and fixed."""

from typing import Any

import pytest

from container_engine.base.errors import LaunchError
from container_engine.node.node_plan import NodePlan, node_plan
from container_engine.node.start.container import checked
from tests.unit.node.plans import document, plan


def test_a_plan_does_not_change() -> None:
    found: Any = plan(name="a")
    with pytest.raises(AttributeError, match="name is fixed"):
        found.name = "b"
    assert (found.but(name="b").name, found.name, found.but(name="b").images) == (
        "b",
        "a",
        found.images,
    )


def test_what_follows_from_a_plan_is_there_by_name() -> None:
    found = plan(
        image={
            "path": "/i.sqsh",
            "name": "i",
            "env": {"A": "1"},
            "content": "sha256:1",
            "above": [{"path": "/a.sqsh", "name": "a", "digest": "sha256:2"}],
        },
        entrypoint=["/run"],
        env=[
            {"name": "B", "value": "b", "from": "e:1"},
            {"name": "C", "value": [{"var": "D"}], "from": "e:2"},
        ],
        annotations={"com.ce.container_save": "/s.sqsh", "com.pyxis.entrypoint_log": "true"},
        kept={"name": "k"},
        settings={**document()["settings"], "scope": "task", "start": "crun"},
        secret_variables=["TOKEN"],
    )
    assert found.image_paths == ["/i.sqsh", "/a.sqsh"]
    assert [image.digest for image in found.images] == ["sha256:1", "sha256:2"]
    assert (found.image_env, found.image_workdir) == ({"A": "1"}, "/")
    assert (found.save, found.save_from) == ("/s.sqsh", "--container-save")
    assert (found.container_name, found.shows_entrypoint_output) == ("k", True)
    assert (found.for_each, found.by_podman) == (True, False)
    assert (found.secrets.patterns, list(found.secrets.known)) == (("TOKEN",), [("B", "b")])
    assert found.lacks == []


def test_a_plan_says_nothing_of_what_only_the_node_finds_out() -> None:
    found = node_plan({**document(), "notices": ["x"], "images": ["x"], "lacks": []})
    assert (found.notices, found.image_paths) == ((), ["/i.sqsh"])


@pytest.mark.parametrize("key", ["mounts", "allowed_devices", "image.env"])
def test_a_plan_that_lacks_a_part_starts_nothing(key: str) -> None:
    damaged = document()
    for part in (damaged, damaged["settings"], damaged["image"]):
        part.pop(key.removeprefix("image."), None)
    assert "env" not in damaged or key != "image.env"
    lacks = "env, image.env" if key == "image.env" else key
    with pytest.raises(LaunchError, match=f"^the plan .* is damaged: it lacks {lacks}$"):
        checked(node_plan(damaged), "/libexec")


def test_a_report_of_a_plan_that_did_not_arrive_has_no_secret() -> None:
    assert NodePlan().secrets.known == ()
    assert node_plan({"settings": {"secret_variables": ["A"]}}).secrets.patterns == ("A",)

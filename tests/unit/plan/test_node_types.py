"""The types of the plan on nodes agree with the model."""

from container_engine.plan import node_types


def test_the_types_of_the_plan_on_nodes_are_not_stale() -> None:
    stale = "run: python -m container_engine.plan.node_types"
    assert node_types.TARGET.read_text(encoding="utf-8") == node_types.render(), stale

"""The types of the plan on nodes agree with the model."""

from docs import plan_types


def test_the_types_of_the_plan_on_nodes_are_not_stale() -> None:
    stale = "run: make generated"
    assert plan_types.TARGET.read_text(encoding="utf-8") == plan_types.render(), stale

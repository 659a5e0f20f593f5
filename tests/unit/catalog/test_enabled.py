"""The order in which hooks are applied."""

import pytest

from container_engine.catalog.enabled import in_order
from tests.unit.catalog.sites import Site


@pytest.mark.parametrize("key", ["after", "implies", "requires.hooks"])
def test_a_hook_is_applied_after_those_that_it_names(site: Site, key: str) -> None:
    site.hook("a", f'{key} = ["c"]')
    site.hook("b")
    site.hook("c", 'after = ["d"]')
    site.hook("d")
    hooks = site.load().hooks
    assert in_order(hooks) == ["d", "c", "a", "b"]
    assert in_order({name: hooks[name] for name in "ab"}) == ["a", "b"]


def test_a_circle_which_is_a_fault_of_the_catalog_ends(site: Site) -> None:
    site.hook("a", 'after = ["b"]')
    site.hook("b", 'implies = ["a"]')
    assert in_order(site.load().hooks) == ["b", "a"]

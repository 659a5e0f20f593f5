"""The remedies of the catalogue, in the words for users and for administrators."""

import re

import pytest

from container_engine.faults.catalogue import FAULTS, remedy_of_site

_TO_OTHERS = re.compile(r"ask the|tell the|administrator|report the node")


@pytest.mark.parametrize("code", [code for code, fault in FAULTS.items() if fault.own])
def test_an_administrator_is_not_sent_to_an_administrator(code: str) -> None:
    assert remedy_of_site(code, FAULTS[code].remedy) == FAULTS[code].own
    assert not _TO_OTHERS.search(FAULTS[code].own)
    assert remedy_of_site(code, "did you mean 'x'?") == "did you mean 'x'?"


def test_each_remedy_that_sends_users_to_the_administrator_has_one_for_administrators() -> None:
    asking = {code for code, fault in FAULTS.items() if _TO_OTHERS.search(fault.remedy)}
    # these name the user's own remedy first
    own = {"image-damaged", "launcher-ended", "device-not-offered"}
    assert asking - own == {code for code in asking if FAULTS[code].own}

"""The pages of the site lead back, and say which version they are of and where it comes from."""

import re

import pytest

from docs.build_site import ERRORS, HOME, ROOT, footer, page, repository

ADDRESS = "https://example.org/group/container-engine"


@pytest.mark.parametrize(
    "remote",
    [
        "https://example.org/group/container-engine.git",
        "https://example.org/group/container-engine",
        "git@example.org:group/container-engine.git",
        "ssh://git@example.org/group/container-engine.git",
    ],
)
def test_the_repository_is_the_one_that_the_clone_came_from(remote: str) -> None:
    assert repository(remote) == ADDRESS
    assert footer("1.2.3 (abc)", remote) == (
        f'Container Engine 1.2.3 (abc) · <a href="{ADDRESS}">repository</a>'
    )


@pytest.mark.parametrize("remote", ["", "/srv/git/engine", "../engine", "host:engine"])
def test_a_remote_that_no_browser_opens_is_left_out(remote: str) -> None:
    assert footer("1.2.3", remote) == "Container Engine 1.2.3"


def test_the_page_of_an_error_weighs_less_and_has_its_code_as_the_title() -> None:
    written = page(f"{ERRORS}edf-syntax.md", "# edf-syntax\n")
    assert written == "---\nsearch:\n  boost: 0.4\n---\n# edf-syntax\n"


def test_the_home_page_has_no_menu_of_itself_alone() -> None:
    assert page(HOME, "# Container Engine\n").startswith("---\nhide:\n- navigation\n---\n# ")


def test_words_that_people_search_by_are_hidden_in_the_heading() -> None:
    written = page("docs/a.md", "# Fix MPI\n<!-- words: it hangs -->\n\nText.\n")
    head = '# Fix MPI<span hidden> · it hangs</span> {: #fix-mpi data-toc-label="Fix MPI"}'
    assert written == f"{head}\n\nText.\n"


def test_other_pages_are_as_they_are_written() -> None:
    assert page("docs/howto/gpus.md", "# Use GPUs\n") == "# Use GPUs\n"


def test_code_wraps_in_every_language() -> None:
    css = (ROOT / "docs/site.css").read_text(encoding="utf-8")
    rule = re.search(r"^\.md-typeset pre > code \{(.*?)\}", css, re.MULTILINE | re.DOTALL)
    assert rule
    assert "white-space: pre-wrap" in rule[1]

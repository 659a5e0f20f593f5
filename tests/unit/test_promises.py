"""The pages that list the tests of promises, and of attacks, name tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/design/0010-what-hooks-promise.md"
ATTACKS = ROOT / "docs/admin/security.md"
_TEST = re.compile(r"^def (test_\w+)", re.MULTILINE)


def names(*patterns: str) -> set[str]:
    files = [path for pattern in patterns for path in (ROOT / "tests").glob(pattern)]
    return {name for file in files for name in _TEST.findall(file.read_text())}


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))
    assert len(named) > 60
    assert named - names("**/test_*.py") == set()


def test_the_page_has_every_test_that_was_written_for_it() -> None:
    own = names("slurm/test_hook_specification.py", "slurm/test_hook_attempts.py")
    page = PAGE.read_text()
    assert [name for name in sorted(own) if name not in page] == [
        # shows that the attempts are made against a hook that works
        "test_what_the_hook_is_for_works"
    ]


def test_every_test_and_file_that_the_page_on_security_names_exists() -> None:
    """A file may be named without its folder after a file of the same folder."""
    page = ATTACKS.read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    assert len(named) > 35
    assert named - names("**/test_*.py") == set()
    files = set(re.findall(r"`([\w/]*\btest_\w+\.(?:py|c))`", page))
    assert len(files) > 40
    there = [
        path
        for folder in ("tests", "spank_plugin/tests")
        for path in (ROOT / folder).rglob("test_*")
    ]
    known = {str(path.relative_to(ROOT)) for path in there} | {path.name for path in there}
    assert files - known == set()

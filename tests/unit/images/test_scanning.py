"""Verdicts on images: the site's scanner, and this user's own record of them."""

import os
from pathlib import Path

import pytest

from container_engine.base.errors import SiteError
from container_engine.base.records import from_json
from container_engine.images.policy import Rules
from container_engine.images.scanning import Scanner, Subject, Verdict
from container_engine.site.model import Policy

OTHER = 65534


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    (tmp_path / "i.sqsh").write_text("image")
    return Subject("x", "", str(tmp_path / "i.sqsh"))


@pytest.fixture
def scanner(tmp_path: Path) -> Scanner:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    program, source = tmp_path / "scanner", tmp_path / "config.toml"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    source.touch()
    policy = Policy(scanner=(str(program), "{image}"))
    return Scanner(Rules(policy, str(source)), str(tmp_path / "scans"), os.environ, "/none")


def test_a_verdict_is_cached(scanner: Scanner, subject: Subject) -> None:
    said = scanner.scan(subject)
    assert said.is_good
    assert scanner.recall(subject, said.when + 1) == said


def test_a_verdict_that_another_user_wrote_is_ignored(scanner: Scanner, subject: Subject) -> None:
    said = scanner.scan(subject)
    (file,) = Path(scanner.directory).iterdir()
    assert from_json(Verdict, file.read_bytes()) == said
    os.chown(file, OTHER, OTHER)
    assert scanner.recall(subject, said.when + 1) is None


def test_a_scanner_of_somebody_elses_is_not_run(scanner: Scanner, subject: Subject) -> None:
    program = scanner.rules.policy.scanner[0]
    os.chown(program, OTHER, OTHER)
    with pytest.raises(SiteError, match=rf"'{program}': owned by user {OTHER}, not by root$"):
        scanner.scan(subject)


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_scanner_that_others_may_write_is_not_run(
    scanner: Scanner, subject: Subject, mode: int
) -> None:
    program = scanner.rules.policy.scanner[0]
    os.chmod(program, mode)
    with pytest.raises(SiteError, match=r"others than its owner may write it$"):
        scanner.scan(subject)

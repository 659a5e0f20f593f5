"""The log of an error: bounded, private to the user, without secrets."""

from pathlib import Path

import pytest

from container_engine.node.report.errors import MOST, keep, redacted


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("docker://me:topsecretword@registry/x", "topsecretword"),
        ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("authorization: Bearer abc.def", "abc.def"),
        ("skopeo copy --creds me:pass docker://x", "me:pass"),
        ("HF_TOKEN=abcdefgh", "abcdefgh"),
        ('export MY_PASSWORD="two words"', "two words"),
        ("get https://blobs.example/a?se=1&sp=r&some=s3cr3t: denied", "s3cr3t"),
    ],
)
def test_secrets_do_not_reach_the_log(text: str, secret: str) -> None:
    assert secret not in redacted(f"before {text} after")
    assert redacted(f"before {text}").startswith("before ")


def test_text_without_secrets_stays() -> None:
    text = 'time=1 level=fatal msg="reading manifest 1.0: manifest unknown"\n/tmp/x: denied\n'
    assert redacted(text) == text


def test_the_end_is_kept_for_the_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "a/b"
    path = keep(str(directory), "x.log", "begin " + "x" * MOST + " end")
    assert path == f"{directory}/x.log"
    text = Path(path).read_text()
    assert len(text) == MOST
    assert text.endswith(" end")
    assert Path(path).stat().st_mode & 0o777 == 0o600
    assert directory.stat().st_mode & 0o777 == 0o700


def test_without_text_there_is_no_log(tmp_path: Path) -> None:
    assert keep(str(tmp_path), "x.log", " \n") == ""
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert keep(str(tmp_path), "x.log", "text") == ""
    link = tmp_path / "link"
    (tmp_path / "own").mkdir(0o700)
    link.symlink_to(tmp_path / "own")
    assert keep(str(link), "x.log", "text") == ""


def test_a_link_in_the_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    directory, elsewhere = tmp_path / "own", tmp_path / "elsewhere"
    directory.mkdir(0o700)
    elsewhere.write_text("untouched")
    (directory / "x.log").symlink_to(elsewhere)
    assert keep(str(directory), "x.log", "text") == ""
    assert elsewhere.read_text() == "untouched"


def test_a_place_that_cannot_be_made_is_no_error() -> None:
    assert keep("/proc/none", "x.log", "text") == ""

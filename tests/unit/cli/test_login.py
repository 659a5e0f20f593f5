"""`ce login` and `ce logout` call skopeo, of which a fake records how it was called."""

import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3]
_SKOPEO = """#!/bin/sh
echo "$@" >> {log}
case "$1" in
    login)
        if test -e {given}.refuse; then
            echo 'time="now" level=fatal msg="logging into \\"r\\": invalid username/password"' >&2
            exit 1
        fi
        cat > {given}
        echo Login Succeeded!;;
    logout) test -s "$3" || {{ echo "Error: not logged in" >&2; exit 125; }};;
esac
"""


class Person:
    def __init__(self, home: Path) -> None:
        self.home, self.log, self.given = home, home / "log", home / "given"
        fake = home / "bin/skopeo"
        fake.parent.mkdir()
        fake.write_text(_SKOPEO.format(log=self.log, given=self.given))
        fake.chmod(0o755)
        self.env = {"HOME": str(home), "PATH": f"{fake.parent}:/usr/bin:/bin"}

    def ce(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "container_engine", *words],
            env=self.env,
            cwd=SOURCES,
            input=given,
            capture_output=True,
            text=True,
        )

    def called(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def test_a_login_goes_to_skopeo_with_its_input_and_into_the_home(person: Person) -> None:
    words = ("login", "-u", "ann", "--password-stdin", "registry.example:5000")
    done = person.ce(*words, given="canary-4711\n")
    assert done.returncode == 0, done.stderr
    place = person.home / ".config/containers/auth.json"
    assert person.called() == [
        f"login --authfile {place} --username ann --password-stdin registry.example:5000"
    ]
    assert person.given.read_text() == "canary-4711\n"
    assert done.stdout == "Login Succeeded!\n"
    assert done.stderr == f"ce: the login is saved in {place}, for this host and the nodes\n"
    assert place.parent.stat().st_mode & 0o777 == 0o700


def test_a_refused_login_is_one_error_and_no_login_is_reported(person: Person) -> None:
    person.given.with_name("given.refuse").touch()
    done = person.ce("login", "--password-stdin", "r.example")
    assert (done.returncode, done.stdout) == (1, "")
    error, hint, details, see = done.stderr.splitlines()
    assert error == (
        "ce: error: 'r.example': not logged in: logging into \"r\": invalid username/password"
    )
    assert hint == "ce: hint: check the user name and the password or token"
    assert details.startswith("ce: details: ")
    assert see == "ce: see: ce help registry-login"


def test_a_login_without_a_terminal_is_refused_with_the_way_that_needs_none(
    person: Person,
) -> None:
    done = person.ce("login", "r.example")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "ce: error: 'r.example': not logged in: there is no terminal to type a"
        " password\n"
        "ce: hint: ce login -u USER --password-stdin r.example < FILE\n"
        "ce: see: ce help registry-login\n"
    )
    assert not person.log.exists()


def test_a_login_goes_where_the_user_says(person: Person) -> None:
    person.env["REGISTRY_AUTH_FILE"] = f"{person.home}/mine.json"
    person.ce("login", "--password-stdin", "r.example")
    assert person.called() == [
        f"login --authfile {person.home}/mine.json --password-stdin r.example"
    ]


def test_a_logout_forgets_every_login_and_says_if_there_was_none(person: Person) -> None:
    person.env["XDG_RUNTIME_DIR"] = f"{person.home}/run"
    for place in (".config/containers/auth.json", "run/containers/auth.json"):
        path = person.home / place
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    assert person.ce("logout", "r.example").stdout == "logged out from r.example\n"
    assert len(person.called()) == 2
    for path in person.home.rglob("auth.json"):
        path.write_text("")
    done = person.ce("logout", "r.example")
    assert done.returncode == 1
    assert done.stderr == "ce: error: 'r.example': you are not logged in there\n"


def test_without_skopeo_and_podman_the_remedy_is_named(person: Person) -> None:
    person.env["PATH"] = str(person.home)
    done = person.ce("login", "--password-stdin", "r.example")
    assert done.returncode == 1
    assert "neither skopeo nor podman is installed here" in done.stderr

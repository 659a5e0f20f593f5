"""The logins that Podman finds while it builds: each file where it looks for it, in its order."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.base.errors import SiteError, UserError
from container_engine.build.builder import Builder, Recipe

# in place of Podman: prints the logins in the order in which Podman takes them
_PODMAN = """#!/bin/sh
echo "named: ${REGISTRY_AUTH_FILE:-none}" >&2
cat "$REGISTRY_AUTH_FILE" "$XDG_RUNTIME_DIR/containers/auth.json" \\
    "$HOME/.config/containers/auth.json" "$HOME/.docker/config.json" >&2 2>/dev/null
exit 1
"""


class Person:
    """A user who has logged in with several tools."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {"HOME": str(home), "PATH": f"{home}/bin:{os.environ['PATH']}"}
        self.env |= {"TMPDIR": str(home), "XDG_RUNTIME_DIR": str(home / "run")}
        self.write("bin/podman", _PODMAN).chmod(0o755)
        self.write("context/Containerfile", "FROM scratch\n")

    def write(self, name: str, text: str) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def seen(self, *secrets: tuple[str, str]) -> list[str]:
        """Return what Podman sees: the variable, then the content of the files."""
        context = f"{self.home}/context"
        recipe = Recipe(context, f"{context}/Containerfile", secrets=secrets)
        builder = Builder(self.env, os.getuid(), os.getgid(), 60)
        layout = self.home / "made/oci"
        layout.parent.mkdir(exist_ok=True)
        with pytest.raises(UserError) as caught:
            builder.build(recipe, "sha256:1", str(layout), fresh=False, quiet=True)
        return caught.value.details.partition("named: ")[2].split()


@pytest.fixture
def person(tmp_path: Path, need_tool: Callable[[str], str]) -> Person:
    need_tool("unshare")
    return Person(tmp_path)


def test_podmans_own_login_has_more_weight_than_that_of_ce(person: Person) -> None:
    person.write(".config/containers/auth.json", "of-ce\n")
    person.write(".docker/config.json", "of-docker\n")
    assert person.seen() == ["none", "of-ce", "of-docker"]
    person.write("run/containers/auth.json", "of-podman\n")
    assert person.seen() == ["none", "of-podman", "of-ce", "of-docker"]


def test_a_copy_of_a_secret_that_a_killed_podman_leaves_is_removed(person: Person) -> None:
    script = 'case "$*" in *"build "*) printf %s "$CE_BUILD_SECRET_0" > /var/tmp/buildah1;; esac'
    person.write("bin/podman", f"#!/bin/sh\n{script}\necho mine > /var/tmp/buildah2; kill -9 $$\n")
    (person.home / "bin/podman").chmod(0o755)
    tmp = person.home / f"ce-build-{os.getuid()}/tmp"
    tmp.mkdir(parents=True, mode=0o700)
    tmp.parent.chmod(0o700)
    (tmp / "buildah3").write_text("of a build that was killed an hour ago")
    os.utime(tmp / "buildah3", (0, time.time() - 3600))
    assert person.seen(("token", "geheim")) == []
    assert [path.name for path in tmp.glob("buildah*")] == ["buildah2"]


def test_a_file_that_the_user_names_is_the_only_one(person: Person) -> None:
    person.write("run/containers/auth.json", "of-podman\n")
    named = person.write("own.json", "named\n")
    person.env["REGISTRY_AUTH_FILE"] = str(named)
    assert person.seen() == [str(named), "named"]


@pytest.mark.parametrize("fault", ["writable", "a link", "somebody else's"])
def test_a_place_that_is_not_the_users_alone_is_not_built_in(
    person: Person, as_nobody: Callable[[Path], None], fault: str
) -> None:
    place = person.home / f"ce-build-{os.getuid()}"
    target = person.home / "target"
    (target if fault == "a link" else place).mkdir(mode=0o700)
    if fault == "writable":
        place.chmod(0o770)
    elif fault == "a link":
        place.symlink_to(target)
    else:
        as_nobody(place)
    with pytest.raises(SiteError, match="not a directory that only you can write"):
        person.seen()

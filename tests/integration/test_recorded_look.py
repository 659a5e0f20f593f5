"""A recorded look into an image for hooks: with it, a start makes the same container."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.libraries import Place, build, edf_text
from tests.integration.prepared import LIBRARIES, image
from tests.integration.test_hook_libraries import FABRIC_HOOK, musl_image
from tests.recorded import parsed, rewrite, write

if TYPE_CHECKING:
    from tests.integration.engine import Engine

# Prints all that a task can see of hooks: mounts, the loader's files, and what the loader finds.
SCRIPT = """
while read -r _ _ _ root target flags _; do
    case $target in */lib* | /etc* | /.container*) echo "$root $target $flags" ;; esac
done </proc/self/mountinfo
for file in /etc/ld.so.cache /etc/ld.so.conf.d/000* /etc/ld-musl*.path; do
    [ ! -e "$file" ] || { ls -ln "$file" | cut -c1-10; sha256sum "$file"; }
done
[ ! -e /.container-engine ] || ls -R /.container-engine
echo "$LD_LIBRARY_PATH"
"""
MINE = '[edits.x]\nlibraries = [{{ files = ["{}"] }}]\n'


class Starting:
    """A user without answers who starts containers of one environment."""

    def __init__(self, engine: Engine, place: Place, text: str, file: Path) -> None:
        self.place = Path(f"/var/tmp/ce-answers-{engine.user.uid}")
        shutil.rmtree(self.place, ignore_errors=True)
        self._engine, self._edf = place.engine(engine), engine.edf(text, file)

    def look(self, home: str | None = None) -> tuple[str, str]:
        """Start once; return what the task saw and what the user read."""
        env = {} if home is None else {"HOME": home}
        done = self._engine.run(self._edf, "sh", "-c", SCRIPT, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    @property
    def answers(self) -> list[Path]:
        return sorted(self.place.glob("libraries/*"))

    def mark(self) -> None:
        """Add a warning to the answer that shows whether a start has used it."""
        [recorded] = self.answers
        answer = parsed(recorded)
        steps = [*json.loads(answer.result), ["note", '{"warning":"recorded"}']]
        write(recorded, answer._replace(result=json.dumps(steps).encode()))

    def is_recorded(self) -> bool:
        return "recorded" in self.look()[1]


def settle(*paths: Path) -> None:
    """Wait until these files are old enough for their times to show every change."""
    made = max(path.stat().st_ctime for path in paths)
    time.sleep(max(0, made + 2.1 - time.time()))


@pytest.mark.parametrize("kind", ["none", "older", "newer", "odd", "musl", "musl-with-path"])
def test_a_recorded_look_makes_the_same_container(engine: Engine, place: Place, kind: str) -> None:
    search = "/opt/own" if kind.endswith("path") else ""
    file = musl_image(place, search) if kind.startswith("musl") else image(place, kind)
    text = FABRIC_HOOK
    if search:
        made = build(place.node / "libmine.so.1", "libmine.so.1")
        text = MINE.format(made)
        settle(made)
    place.hook(text)
    settle(file)
    starting = Starting(engine, place, edf_text("fabric"), file)
    first = starting.look()
    assert len(starting.answers) == 1
    assert starting.look() == first
    starting.mark()
    seen, said = starting.look()
    assert seen == first[0]
    assert said == f"{first[1]}ce: warning: recorded\n"


def test_another_library_of_the_node_is_looked_at(engine: Engine, place: Place) -> None:
    """The link leads to a newer file then, at a path where there was none before."""
    here = place.node / "changing"
    made = build(here / "liba.so.1.0", "liba.so.1")
    (here / "liba.so.1").symlink_to(made.name)
    place.hook(MINE.format(f"{here}/liba.so.1"))
    settle(image(place, "none"), made, here)
    starting = Starting(engine, place, edf_text("fabric"), image(place, "none"))
    starting.look()
    starting.mark()
    assert starting.is_recorded()
    build(here / "liba.so.1.1", "liba.so.1")
    (here / "liba.so.1").unlink()
    (here / "liba.so.1").symlink_to("liba.so.1.1")
    assert "liba.so.1.1" in starting.look()[0]
    assert not starting.is_recorded()


def test_another_image_at_the_same_path_is_looked_into(engine: Engine, place: Place) -> None:
    place.hook(FABRIC_HOOK)
    file = place.dir / "replaced.sqsh"
    shutil.copy(image(place, "none"), file)
    settle(file)
    starting = Starting(engine, place, edf_text("fabric"), file)
    before = starting.look()
    starting.mark()
    assert starting.is_recorded()
    shutil.copy(image(place, "older"), file.with_suffix(".new"))
    file.with_suffix(".new").replace(file)
    after = starting.look()
    assert f"/{LIBRARIES}/libfabric.so.1.10.0" in after[0]
    assert after[0] != before[0]
    assert "recorded" not in after[1]


def test_what_has_just_changed_is_not_recorded(engine: Engine, place: Place) -> None:
    made = build(place.node / "young/libyoung.so.1", "libyoung.so.1")
    place.hook(MINE.format(made))
    starting = Starting(engine, place, edf_text("fabric"), image(place, "none"))
    os.utime(made)
    starting.look()
    assert starting.answers == []


@pytest.mark.parametrize("fault", ["mode", "link", "garbage", "version", "fifo"])
def test_an_answer_that_is_not_the_users_own_or_damaged_does_not_count(
    engine: Engine, place: Place, fault: str
) -> None:
    place.hook(FABRIC_HOOK)
    settle(image(place, "none"))
    starting = Starting(engine, place, edf_text("fabric"), image(place, "none"))
    first = starting.look()
    starting.mark()
    [recorded] = starting.answers
    if fault == "mode":
        recorded.chmod(0o640)
    elif fault == "link":
        recorded.rename(recorded.with_name("there"))
        recorded.symlink_to("there")
    elif fault == "garbage":
        write(recorded, parsed(recorded)._replace(result=b"[[]"))
    elif fault == "version":
        rewrite(recorded, lambda a: a._replace(request=b"x" + a.request))
    else:
        recorded.unlink()
        os.mkfifo(recorded)
    assert starting.look() == first


@pytest.mark.parametrize("home", ["", "relative", "/not/there", "/proc/self", "/dev/null"])
def test_without_a_usable_home_the_container_is_the_same(
    engine: Engine, place: Place, home: str
) -> None:
    place.hook(FABRIC_HOOK)
    file = image(place, "none")
    settle(file)
    starting = Starting(engine, place, edf_text("fabric"), file)
    first = starting.look()
    assert [starting.look(home) for _ in range(2)] == [first] * 2
    assert len(starting.answers) == 1


@pytest.mark.parametrize("fault", ["full", "of root", "of all"])
def test_without_a_place_for_answers_the_container_is_the_same(
    engine: Engine, place: Place, fault: str
) -> None:
    place.hook(FABRIC_HOOK)
    file = image(place, "none")
    settle(file)
    starting = Starting(engine, place, edf_text("fabric"), file)
    first = starting.look()
    shutil.rmtree(where := starting.place)
    where.mkdir(mode=0o777 if fault == "of all" else 0o700)
    tmpfs = ["mount", "-t", "tmpfs", "-o", f"size=4k,mode=700,uid={engine.user.uid}", "t"]
    if fault == "full":
        subprocess.run([*tmpfs, str(where)], check=True)
    try:
        assert [starting.look() for _ in range(2)] == [first] * 2
        # neither an answer nor a part of one is left
        assert not [*where.glob("libraries/*"), *where.rglob(".*.*")]
    finally:
        if fault == "full":
            # lazily: a guard that is about to end may still have it open
            subprocess.run(["umount", "-l", str(where)], check=True)
        where.rmdir()

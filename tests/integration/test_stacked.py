"""Images that are stacked on another one: what they add, replace, hide and remove."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.engine import Engine

WAYS = ("crun", "podman")


def packed(tree: Path, config: dict[str, object] | None = None) -> Path:
    """Return a SquashFS file of the directory, with an OCI configuration beside it if given."""
    image = tree.with_name(f"{tree.name}.sqsh")
    argv = ["mksquashfs", str(tree), str(image), "-noappend", "-quiet", "-no-progress"]
    subprocess.run([*argv, "-all-root"], check=True, timeout=60)
    if config is not None:
        image.with_name(f"{image.name}.json").write_text(json.dumps({"config": config}))
    return image


def layer(engine: Engine) -> Path:
    """Return a difference as overlayfs writes it: a file, a whiteout and an opaque directory."""
    tree = engine.scratch / "difference"
    (tree / "etc").mkdir(parents=True)
    (tree / "etc" / "motd").write_text("from above\n")
    os.mknod(tree / "etc" / "os-release", 0o600 | 0o020000, os.makedev(0, 0))
    (tree / "data").mkdir()
    (tree / "data" / "only").write_text("x")
    os.setxattr(tree / "data", "user.overlay.opaque", b"y")
    return packed(tree)


def data(engine: Engine) -> Path:
    tree = engine.scratch / "data"
    (tree / "data").mkdir(parents=True)
    (tree / "data" / "hidden").write_text("x")
    return packed(tree)


def stack(engine: Engine, *images: Path, more: str = "") -> Path:
    edf = engine.edf()
    edf.write_text(f"image = {json.dumps([str(image) for image in images])}\n{more}\n")
    return edf


def ce(engine: Engine, *words: str) -> str:
    """Return the output of `ce WORDS`, which must succeed."""
    with engine.popen([str(engine.prefix / "bin" / "ce"), *words]) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out


@pytest.mark.parametrize("way", WAYS)
def test_what_an_image_removes_is_gone_below_it(engine: Engine, way: str) -> None:
    more = f'annotations.com.ce.start = "{way}"'
    edf = stack(engine, engine.image("busybox"), data(engine), layer(engine), more=more)
    script = "cat /etc/motd; ls /etc/os-release 2>&1; ls /etc | grep os-; ls /data; echo > /data/z"
    said = engine.run(edf, "sh", "-c", script).stdout.splitlines()
    assert said == ["from above", "ls: /etc/os-release: No such file or directory", "only"]


def test_a_directory_may_be_made_again_where_an_image_hides_one(engine: Engine) -> None:
    edf = stack(engine, engine.image("busybox"), layer(engine))
    script = "mkdir /etc/os-release && echo x > /etc/os-release/y && ls /etc/os-release"
    assert engine.output(edf, "sh", "-c", script).strip() == "y"


def test_of_three_images_the_highest_counts(engine: Engine) -> None:
    above = []
    for name in ("second", "third"):
        tree = engine.scratch / name
        tree.mkdir()
        (tree / "which").write_text(name)
        (tree / name).write_text("")
        above.append(packed(tree, {"Env": [f"WHO={name}", f"FROM_{name}=1"], "WorkingDir": "/tmp"}))
    edf = stack(engine, engine.image("busybox"), *above)
    script = "cat /which; ls -d /second /third; echo; echo $WHO $FROM_second $FROM_third; pwd"
    said = engine.output(edf, "sh", "-c", script)
    assert said.split() == ["third/second", "/third", "third", "1", "1", "/tmp"]


def test_an_image_that_lies_above_and_is_missing_is_named(engine: Engine) -> None:
    edf = stack(engine, engine.image("busybox"), engine.scratch / "none.sqsh")
    done = engine.run(edf, "true")
    assert done.returncode == 125
    assert "none.sqsh" in done.stderr


def test_the_plan_shows_each_image(engine: Engine) -> None:
    above = layer(engine)
    edf = stack(engine, engine.image("busybox"), above)
    said = ce(engine, "plan", str(edf))
    assert "image above" in said
    assert str(above) in said


def test_a_policy_judges_each_image(engine: Engine) -> None:
    above = layer(engine)
    site = engine.with_site(f'[policy]\ndenied_images = ["{above}"]\n')
    done = site.run(stack(engine, engine.image("busybox"), above), "true")
    assert done.returncode == 125
    assert f"policy.denied_images: '{above}' forbids '{above}'" in done.stderr


def test_a_lock_pins_each_image(engine: Engine) -> None:
    above = layer(engine)
    edf = stack(engine, engine.image("busybox"), above)
    ce(engine, "lock", str(edf))
    assert engine.run(edf, "true").returncode == 0
    (engine.scratch / "difference" / "etc" / "motd").write_text("changed")
    packed(engine.scratch / "difference")
    done = engine.run(edf, "true")
    assert done.returncode == 125
    assert f"'{above}' is not the file that was locked" in done.stderr


def test_what_a_mode_and_time_say_is_kept(engine: Engine) -> None:
    tree = engine.scratch / "modes"
    tree.mkdir()
    (tree / "program").write_text("#!/bin/sh\necho ran\n")
    (tree / "program").chmod(0o755)
    edf = stack(engine, engine.image("busybox"), packed(tree))
    assert engine.output(edf, "/program") == "ran\n"

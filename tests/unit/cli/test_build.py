"""`ce build` before it starts Podman."""

import pytest

from tests.unit.cli.conftest import Installed


@pytest.mark.parametrize(
    ("base", "why"), [("./none.sqsh", "no such file"), ("./directory", "not a SquashFS file")]
)
def test_a_base_that_is_no_image_of_this_host_is_refused(
    installed: Installed, base: str, why: str
) -> None:
    recipe = installed.home / "recipe"
    (recipe / "directory").mkdir(parents=True)
    (recipe / "Containerfile").write_text(f"FROM {base}\n")
    store = {"EDF_IMAGESTORE": str(installed.home / "store")}
    done = installed.ce("build", "-t", "x:1", str(recipe), env=store)
    assert done.returncode == 1
    assert done.stderr.startswith("ce: error: ")
    assert why in done.stderr
    assert "internal" not in done.stderr


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("--pull", "--no-cache asks the registry for newer images of FROM"),
        ("--platform=linux/arm64", "the image has this host's architecture"),
        ("--push", "skopeo copy brings one to a registry"),
        ("--secret=id=token", "fetch what needs a secret before the build, and COPY it"),
    ],
)
def test_an_option_of_another_tools_build_is_answered_with_what_is_here(
    installed: Installed, option: str, instead: str
) -> None:
    done = installed.ce("build", option, "--rm", "--progress", "plain", ".")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"ce: error: build: {option.partition('=')[0]}: ")
    assert instead in done.stderr

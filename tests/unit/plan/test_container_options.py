"""Options of pyxis in a launch are planned, remembered and limited like the lines of an EDF."""

from pathlib import Path

import pytest

from container_engine.images import lock_file
from container_engine.message_text import of_problems
from container_engine.plan.model import LaunchPlan
from container_engine.submit import plan_memo
from container_engine.submit.environment import load_effective
from container_engine.submit.prepare import prepare
from container_engine.submit.refused import RefusedError
from tests.unit import squashfs
from tests.unit.plan.conftest import User


def planned(user: User, *words: str, name: str | None = None) -> LaunchPlan:
    plan = prepare(name, user.context(), words).plan
    assert plan is not None
    return plan


def refused(user: User, *words: str, name: str | None = None) -> str:
    with pytest.raises(RefusedError) as caught:
        prepare(name, user.context(), words)
    return of_problems(caught.value.problems)


def configure(user: User, text: str) -> Path:
    file = user.prefix / "etc/container-engine/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_an_image_alone_is_read_only_and_without_the_home_as_with_pyxis(user: User) -> None:
    plan = planned(user, f"--container-image={user.image}")
    assert (plan.image.origin, plan.writable, plan.mounts) == ("--container-image", False, ())
    assert plan.files == ()
    plan = planned(user, f"--container-image={user.image}", "--container-writable")
    assert (plan.writable, plan.writable_from) == (True, "--container-writable")


def test_the_site_may_have_other_defaults(user: User) -> None:
    file = configure(user, "pyxis_writable = true\npyxis_mount_home = true\n")
    plan = planned(user, f"--container-image={user.image}")
    assert (plan.writable, plan.writable_from) == (True, f"site: {file}:pyxis_writable")
    assert [mount.target for mount in plan.mounts] == [str(user.home)]
    plan = planned(user, f"--container-image={user.image}", "--no-container-mount-home")
    assert plan.mounts == ()


def test_options_lie_over_an_environment(user: User) -> None:
    other = squashfs.make(user.home / "other.sqsh", {"a": "b"})
    user.write(user.first / "w.toml", 'workdir = "/w"\nmounts = ["/data"]\n[env]\nA = "file"')
    user.env["A"] = "host"
    words = ("--container-mounts=/scratch", "--container-env=A", "--container-workdir=/x")
    plan = planned(user, f"--container-image={other}", *words, name="w")
    assert (plan.image.path, plan.workdir, plan.writable) == (str(other), "/x", True)
    assert [(mount.target, str(mount.origin)) for mount in plan.mounts] == [
        ("/data", f"{user.first}/w.toml:3"),
        ("/scratch", "--container-mounts"),
    ]
    assert [(entry.value, entry.origin) for entry in plan.env] == [("host", "--container-env")]


def test_an_empty_image_leaves_the_environments(user: User) -> None:
    assert planned(user, "--container-image=", name="e").image.path == str(user.image)
    assert prepare(None, user.context(), ["--container-image="]).plan is None


def test_an_image_of_an_option_gives_a_base_its_image(user: User) -> None:
    (user.first / "base.toml").write_text('mounts = ["/data"]\n')
    plan = planned(user, f"--container-image={user.image}", name="base")
    assert [mount.target for mount in plan.mounts] == ["/data"]
    assert "image: missing" in refused(user, "--container-writable", name="base")


def test_options_without_a_container_are_refused(user: User) -> None:
    assert refused(user, "--container-mounts=/a") == (
        "ce: error: --container-mounts: there is no container to apply it to\n"
        "ce: hint: add --container-image=IMAGE or --environment=NAME\n"
    )


def test_the_lock_of_a_file_is_not_for_the_image_of_an_option(user: User) -> None:
    other = squashfs.make(user.home / "other.sqsh", {"a": "b"})
    Path(lock_file.beside(str(user.second / "e.toml"))).write_text("this is no lock")
    assert planned(user, f"--container-image={other}", name="e").image.path == str(other)


@pytest.mark.parametrize(
    ("site", "words", "message"),
    [
        (
            "edf_may_override = []",
            ["--container-remap-root"],
            "--container-remap-root: annotations.com.ce.root_remap: the site decides this",
        ),
        (
            "edf_may_override = []",
            ["--container-entrypoint"],
            "--container-entrypoint: entrypoint: the site decides this",
        ),
        (
            'edf_may_override = []\nmounts = ["/etc:/site"]',
            ["--container-mounts=/tmp:/site"],
            "--container-mounts: mounts: the site decides this",
        ),
        (
            'edf_may_override = []\nenv = {A = "site"}',
            ["--container-env=A"],
            "--container-env: env.A: the site decides this",
        ),
        (
            '[policy]\nmount_sources = ["/nowhere"]',
            ["--container-mounts=/tmp:/x"],
            "--container-mounts: mounts: ",
        ),
        (
            '[policy]\nmount_sources = ["/nowhere"]',
            ["--container-mount-home"],
            "--container-mount-home: mounts: ",
        ),
        (
            '[policy]\ndenied_images = ["/*"]',
            [],
            "--container-image: image: ",
        ),
    ],
)
def test_what_the_site_refuses_a_file_it_refuses_an_option(
    user: User, site: str, words: list[str], message: str
) -> None:
    user.env["A"] = "mine"
    configure(user, site)
    image = f"--container-image={user.image}"
    assert f"ce: error: {message}" in refused(user, image, *words)
    assert f"ce: error: {message}" in refused(user, image, *words, name="e")


def test_a_plan_is_remembered_with_its_options_and_variables(user: User) -> None:
    def recalled(words: list[str], *name: str) -> bool:
        return user.told([*words, "--", *name]) is not None

    words = ["--container-variables", f"--container-image={user.image}"]
    prepare(None, user.context(), words)
    assert recalled(words)
    assert not recalled(words[1:])
    assert not recalled(words, "e")
    assert not recalled(["--container-variables", f"--container-image={user.image}x"])
    user.env["PYXIS_CONTAINER_MOUNTS"] = "/a"
    assert not recalled(words)


def test_no_two_requests_have_the_same_key() -> None:
    keys = {
        plan_memo.key(*request)
        for request in (
            (None, "/", "/p", ["a"]),
            ("", "/", "/p", ["a"]),
            ("-", "/", "/p", ["a"]),
            (None, "/", "/p", ["a", "b"]),
            (None, "/", "/p", ["a1:b"]),
            (None, "/", "/p", []),
        )
    }
    assert len(keys) == 6


def test_an_option_needs_no_file_to_be_validated(user: User) -> None:
    loaded = load_effective(None, user.context(), words=["--container-image=A B"])
    assert "--container-image: image: " in of_problems(loaded.problems)


def test_an_image_with_pytorch_has_its_ranks_as_with_pyxis(user: User) -> None:
    image = squashfs.make(user.home / "torch.sqsh", {"etc/environment": "PYTORCH_VERSION=2\n"})
    key = "com.pyxis.pytorch_remap_vars"
    plan = planned(user, f"--container-image={image}")
    assert plan.annotations == {key: "true"}
    assert plan.annotations_from == {key: "--container-image: PYTORCH_VERSION"}
    assert "pytorch_remap_vars" in [hook.name for hook in plan.hooks]
    (user.first / "t.toml").write_text(f'image = "{image}"\n')
    assert planned(user, "--container-writable", name="t").annotations == {}
    (user.first / "t.toml").write_text(f'[annotations]\n{key} = "false"\n')
    plan = planned(user, f"--container-image={image}", name="t")
    assert plan.annotations == {key: "false"}
    assert planned(user, f"--container-image={user.image}").annotations == {}

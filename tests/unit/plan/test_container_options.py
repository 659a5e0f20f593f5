"""Options of pyxis in a launch are planned, cached and limited like the lines of an EDF."""

from pathlib import Path

import pytest

from container_engine.compat.pyxis_options import PyxisOptions
from container_engine.edf.names import lock_of
from container_engine.plan.model import LaunchPlan
from container_engine.submit import plan_output
from container_engine.submit.environment import load_effective
from container_engine.submit.prepare import prepare
from container_engine.submit.refused import RefusedError
from tests.unit import squashfs
from tests.unit.plan.conftest import User


def planned(user: User, *words: str, name: str | None = None) -> LaunchPlan:
    plan = prepare(name, user.context(), PyxisOptions(words)).plan
    assert plan is not None
    return plan


def refused(user: User, *words: str, name: str | None = None) -> str:
    with pytest.raises(RefusedError) as caught:
        prepare(name, user.context(), PyxisOptions(words))
    return "".join(problem.text for problem in caught.value.problems)


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


@pytest.mark.parametrize("name", [None, "e"])
@pytest.mark.parametrize(
    ("words", "variables", "where"),
    [
        (["--container-image="], {}, "--container-image"),
        (["--container-image=i.sqsh", "--container-image="], {}, "--container-image"),
        (["--container-image=", "--container-name=k"], {}, "--container-image"),
        (["--container-name="], {}, "--container-name"),
        # the plugin hands an empty variable on as an option
        (["--container-variables", "--container-image="], {"IMAGE": ""}, "PYXIS_CONTAINER_IMAGE"),
        (["--container-variables", "--container-name="], {"NAME": ""}, "PYXIS_CONTAINER_NAME"),
        (["--container-variables"], {"IMAGE": ""}, "PYXIS_CONTAINER_IMAGE"),
    ],
)
def test_what_selects_a_container_is_never_empty(
    user: User, name: str | None, words: list[str], variables: dict[str, str], where: str
) -> None:
    user.env |= {f"PYXIS_CONTAINER_{key}": value for key, value in variables.items()}
    assert refused(user, *words, name=name) == (
        f"ce: error: {where}: its value is empty\n"
        "ce: hint: is a variable set to nothing? CE_INHERIT=no srun COMMAND runs on the host\n"
    )


def test_a_variable_set_to_nothing_gives_way_to_an_option(user: User) -> None:
    user.env |= {"PYXIS_CONTAINER_IMAGE": "", "PYXIS_CONTAINER_WORKDIR": ""}
    words = ["--container-variables", "--container-image=", f"--container-image={user.image}"]
    plan = planned(user, *words)
    assert plan.image.path == str(user.image)


def test_the_name_of_a_kept_container_does_not_fill_an_empty_image(user: User) -> None:
    user.env["SLURM_JOB_ID"] = "7"
    planned(user, f"--container-image={user.image}", "--container-name=k")
    assert planned(user, "--container-name=k").image.path == str(user.image)
    said = refused(user, "--container-image=", "--container-name=k")
    assert said.startswith("ce: error: --container-image: its value is empty\n")


def test_a_container_that_the_job_lacks_is_named_without_its_mode(user: User) -> None:
    user.env["SLURM_JOB_ID"] = "7"
    said = refused(user, "--container-name=k:exec")
    assert "--container-name: this job has no container 'k' to continue\n" in said


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
    Path(lock_of(str(user.second / "e.toml"))).write_text("this is no lock")
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


def test_a_plan_is_cached_with_its_options_and_variables(user: User) -> None:
    def recalled(words: list[str], *name: str) -> bool:
        return user.told([*words, "--", *name]) is not None

    words = ["--container-variables", f"--container-image={user.image}"]
    plan_output.new_plan_of(None, user.context(), None, PyxisOptions(words))
    assert recalled(words)
    assert not recalled(words[1:])
    assert not recalled(words, "e")
    assert not recalled(["--container-variables", f"--container-image={user.image}x"])
    user.env["PYXIS_CONTAINER_MOUNTS"] = "/a"
    assert not recalled(words)


def test_no_two_requests_have_the_same_words() -> None:
    keys = {
        plan_output.request(*request)
        for request in (
            (None, "/", ["a"]),
            ("", "/", ["a"]),
            ("-", "/", ["a"]),
            (None, "/", ["a", "b"]),
            (None, "/", ["a1:b"]),
            (None, "/", []),
        )
    }
    assert len(keys) == 6


def test_an_option_needs_no_file_to_be_validated(user: User) -> None:
    loaded = load_effective(None, user.context(), options=PyxisOptions(["--container-image=A B"]))
    assert "--container-image: image: " in "".join(problem.text for problem in loaded.problems)


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

"""The site's part of every environment, and what an EDF may override."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from container_engine.cli.main import main
from container_engine.plan.model import LaunchPlan
from container_engine.printing.plan import show
from container_engine.submit.environment import load_effective
from container_engine.submit.refused import RefusedError
from tests.unit.plan.conftest import User

SITE = """
mounts = ["/scratch/${USER:-nobody}:/scratch", "/opt/site/lib:/opt/site/lib:ro"]
devices = ["site.com/gpu=all"]
[env]
PROXY = "http://proxy"
FROM_IMAGE = "${image:FROM}"
NODE = "${SLURMD_NODENAME}"
"""


class Site:
    """An installation with a configuration, and a user who launches."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.file = user.prefix / "etc/container-engine/config.toml"
        self.file.parent.mkdir(parents=True)

    def plan(self, site: str, edf: str) -> LaunchPlan:
        self.file.write_text(site)
        self.user.write(self.user.second / "e.toml", edf)
        prepared = self.user.prepared()
        assert prepared.plan is not None
        return prepared.plan

    def said(self, site: str, edf: str) -> str:
        """Return the problems as `ce validate` prints them, without directories."""
        self.file.write_text(site)
        self.user.write(self.user.second / "e.toml", edf)
        said = "".join(
            problem.text for problem in load_effective("e", self.user.context()).problems
        )
        return said.replace(f"{self.user.second}/", "").replace(str(self.file), "SITE")


@pytest.fixture
def site(user: User) -> Site:
    return Site(user)


def targets(plan: LaunchPlan) -> dict[object, str]:
    return {mount.target: str(mount.origin) for mount in plan.mounts}


def values(plan: LaunchPlan) -> dict[str, object]:
    return {entry.name: entry.value for entry in plan.env}


def test_every_container_gets_what_the_site_gives(site: Site) -> None:
    plan = site.plan(SITE, 'mounts = ["/data"]\ndevices = ["/dev/mine"]\n[env]\nA = "1"')
    of_site = f"site: {site.file}"
    assert targets(plan) == {
        "/scratch": f"{of_site}:mounts[0]",
        "/opt/site/lib": f"{of_site}:mounts[1]",
        "/data": f"{site.user.second}/e.toml:2",
    }
    assert plan.mounts[0].source == "/scratch/nobody"
    assert [device.name for device in plan.devices] == ["/dev/mine", "site.com/gpu=all"]
    assert values(plan)["FROM_IMAGE"] == "inside"
    assert values(plan)["PROXY"] == "http://proxy"
    assert not isinstance(values(plan)["NODE"], str)
    shown = show(json.loads(plan.to_json()))
    assert f"# {of_site}:env.PROXY\n" in shown


def test_explain_names_the_sites_files(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.plan("entrypoint = true\n" + SITE, 'mounts = ["/x:/scratch"]\n[env]\nPROXY = "mine"')
    for name, value in site.user.env.items():
        monkeypatch.setenv(name, value)
    words = ["--site", str(site.file), "explain", "e"]
    assert main(words) == 0
    said = capsys.readouterr().out
    of_site = f"site: {site.file}"
    assert f'mounts = "/opt/site/lib:/opt/site/lib:ro"\n    {of_site}:mounts[1]\n' in said
    assert f'devices = "site.com/gpu=all"\n    {of_site}:devices[0]\n' in said
    assert f'env.FROM_IMAGE = "${{image:FROM}}"\n    {of_site}:env.FROM_IMAGE\n' in said
    assert "mounts[0]\n" not in said.replace("devices[0]", "")
    assert main([*words, "--env", "PROXY"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == 'PROXY = "mine"'
    assert lines[2] == f'    site: "http://proxy", {site.file}:env.PROXY'


def test_the_edf_counts_before_the_site(site: Site) -> None:
    edf = 'mounts = ["/mine:/scratch"]\n[env]\nPROXY = ""\n[annotations]\ncom.ce.tmpfs_size = "1g"'
    plan = site.plan(SITE + "[policy]\n", f"{edf}\ncom.ce.root_remap = true")
    assert plan.mounts[0].source == "/mine"
    assert values(plan)["PROXY"] is None
    assert (plan.settings.tmpfs_size, plan.settings.root_remap) == ("1g", True)
    assert plan.settings_from["tmpfs_size"] == f"{site.user.second}/e.toml:6"
    assert plan.settings_from["start_timeout_s"] == "default"


def test_a_setting_of_the_site_is_named_by_its_file(site: Site) -> None:
    plan = site.plan('tmpfs_size = "2g"\nentrypoint = true\n', "")
    assert plan.settings_from["tmpfs_size"] == f"site: {site.file}:tmpfs_size"
    assert plan.entrypoint_from == f"site: {site.file}:entrypoint"
    assert "setting      tmpfs_size = 2g" in show(json.loads(plan.to_json()))


@pytest.mark.parametrize(
    ("edf", "where", "name"),
    [
        ("entrypoint = true", "2: entrypoint", "entrypoint"),
        ('mounts = ["/x:/scratch"]', "2: mounts", "mounts"),
        ('mounts = ["/x:/opt/site"]', "2: mounts", "mounts"),
        ('[env]\nPROXY = ""', "3: env.PROXY", "env"),
        (
            '[annotations]\ncom.ce.tmpfs_size = "1g"',
            "3: annotations.com.ce.tmpfs_size",
            "tmpfs_size",
        ),
        ('[annotations]\ncom.ce.pull = "never"', "3: annotations.com.ce.pull", "pull"),
    ],
)
def test_what_the_site_keeps_for_itself_is_refused(
    site: Site, edf: str, where: str, name: str
) -> None:
    assert site.said(SITE, edf) == ""
    assert site.said(f"edf_may_override = []\n{SITE}", edf) == (
        f"ce: error: e.toml:{where}: the site decides this: '{name}' is not in edf_may_override"
        " (SITE:1)\nce: hint: remove the line; 'ce config show' prints the values in effect\n"
    )


@pytest.mark.parametrize(
    "edf",
    [
        "entrypoint = false",
        '[annotations]\ncom.ce.tmpfs_size = "50%"',
        '[env]\nPROXY = "http://proxy"',
        'mounts = ["/x:/scratch2", "/y:/opt/site/lib/below"]',
    ],
)
def test_a_setting_equal_or_unrelated_to_the_sites_is_not_refused(site: Site, edf: str) -> None:
    assert site.said(f"edf_may_override = []\n{SITE}", edf) == ""


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (
            'tmpfs_size = "big"',
            "error: e.toml:3: annotations.com.ce.tmpfs_size: expected a size such as 16g or 50%, "
            "found 'big'",
        ),
        (
            "start_timeout_s = 0",
            "error: e.toml:3: annotations.com.ce.start_timeout_s: expected a number of seconds, "
            "found '0'",
        ),
        (
            'tmpfs_sise = "1g"',
            "error: e.toml:3: unknown annotation 'com.ce.tmpfs_sise', did you mean "
            "'com.ce.tmpfs_size'?",
        ),
    ],
)
def test_an_invalid_setting_is_reported(site: Site, annotation: str, said: str) -> None:
    found = site.said("", f"[annotations.com.ce]\n{annotation}")
    assert found.splitlines()[0] == f"ce: {said}"


CHANGES: dict[str, Callable[[Path], object]] = {
    "a drop-in": lambda file: _write(file.parent / "conf.d/1.toml", "tmpfs_size = '1g'"),
    "another drop-in": lambda file: _write(file.parent / "conf.d/2.toml", ""),
    "the main file": lambda file: _write(file, "tmpfs_size = '1g'"),
    "a variable of the site's mounts": lambda _file: None,
}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("change", CHANGES)
def test_an_answer_ends_with_a_change_of(site: Site, change: str) -> None:
    if change == "another drop-in":
        CHANGES["a drop-in"](site.file)
    site.plan(SITE, "")
    assert site.user.recalled() is not None
    CHANGES[change](site.file)
    if change.startswith("a variable"):
        site.user.env["USER"] = "somebody"
    assert site.user.recalled() is None


# ---- mounts that the site forbids ----------------------------------------------------------------


def refusals(site: Site, policy: str, edf: str, of_site: str = "") -> list[str]:
    with pytest.raises(RefusedError) as refused:
        site.plan(f"{of_site}\n[policy]\n{policy}\n", edf)
    errors = [problem for problem in refused.value.problems if problem.severity == "error"]
    assert {problem.see for problem in errors} == {"mount-policy"}
    return [str(problem).replace(f"{site.user.second}/", "") for problem in errors]


def test_a_mount_from_elsewhere_than_the_site_says_is_refused_with_its_line(site: Site) -> None:
    home = site.user.home
    rule = f'mount_sources = ["{home}/data"]'
    for name in ("data", "other"):
        (home / name).mkdir()
    edf = f'mounts = ["{home}/data:/a",\n"{home}/other:/b",\n"/none:/d"]'
    assert refusals(site, rule, edf) == [
        f"e.toml:3: mounts: {site.file}:3: policy.mount_sources: '{home}/other' matches none of"
        f" '{home}/data'"
    ]
    assert len(site.plan(f"[policy]\n{rule}\n", f'mounts = ["{home}/data:/a"]').mounts) == 1


def test_the_sites_own_mounts_are_under_its_rule(site: Site) -> None:
    [error] = refusals(site, 'mount_sources = ["/scratch"]', "", 'mounts = ["/usr:/host"]')
    assert "policy.mount_sources: '/usr' matches none of '/scratch'" in error


def test_with_images_of_the_site_only_nothing_of_the_users_is_planned_over_them(
    site: Site,
) -> None:
    own = site.user.home / "own"
    own.mkdir(mode=0o777)
    own.chmod(0o777)
    store = f'image_stores = ["{site.user.home}"]'
    edf = f'mounts = ["{own}:/usr/bin", "{own}:/data", "/usr:/usr"]'
    [error] = refusals(site, "site_images_only = true", edf, store)
    assert error == (
        f"e.toml:2: mounts: {site.file}:3: policy.site_images_only: mount destination '/usr/bin' is"
        f" reserved for the image and the site: '{own}': others than its owner may write it"
    )

"""Attempts of a user's EDF that must fail: each is refused, or has no effect."""

import json
from pathlib import Path

import pytest

from container_engine.edf.load import Setting, load
from container_engine.edf.model import Edf, Loaded
from container_engine.plan.build import build
from container_engine.plan.hooks import annotation_rule
from container_engine.plan.site_context import SiteContext
from container_engine.site.model import SiteConfig
from tests.unit.catalog.sites import Site
from tests.unit.plan.edfs import PLAIN, site_context

# A possible hook of a site: service, OCI hook, mount and library, chosen by parameters.
HOOK = """
allow = ["colour"]
[parameters.name]
help = "h"
default = "good"
[parameters.size]
type = "integer"
help = "h"
minimum = 1
maximum = 9
default = "1"
[settings]
base = "/opt/site"
colour = "/opt/green"
program = "/opt/site/bin/serve"
[edits.e]
mounts = [{ source = "{base}/{name}/data", target = "/data" }]
libraries = [{ files = ["{base}/{name}/lib.so"] }]
env.COLOUR = "{colour}"
hooks = [{ hookName = "createRuntime", path = "/opt/site/bin/hook", args = ["hook", "{name}"] }]
[services.s]
command = ["{program}", "--name", "{name}", "--size", "{size}"]
"""
ENABLED = '[annotations]\ncom.hooks.h.enabled = "true"\n'


class Attempt:
    """A site with that hook, against which EDFs are tried."""

    def __init__(self, site: Site, directory: Path) -> None:
        site.hook("h", HOOK)
        self.catalog = site.load()
        assert self.catalog.faults == ()
        self.config = SiteConfig(allowed_devices=("/dev/fuse", "/dev/dri/*", "nvidia.com/*"))
        self._directory = directory

    def loaded(self, text: str, **env: str) -> Loaded:
        file = self._directory / "e.toml"
        file.write_text(f'image = "/i.sqsh"\n{text}')
        hooks = self.catalog.hooks.values()
        setting = Setting(
            env, "/", self.config.is_deferred, lambda: tuple(map(annotation_rule, hooks))
        )
        return load(str(file), setting)[0]

    def problems(self, text: str, **env: str) -> list[str]:
        """Return all errors of the file and of the plan."""
        loaded = self.loaded(text, **env)
        if loaded.edf is None:
            return [str(problem) for problem in loaded.errors]
        built = build(loaded.edf, PLAIN, self._offer(), "0")
        errors = [problem for problem in built.problems if problem.severity == "error"]
        assert bool(errors) == (built.plan is None)
        return [str(problem) for problem in errors]

    def plan(self, text: str, **env: str) -> str:
        """Return the hooks of the plan as the node reads them."""
        edf: Edf | None = self.loaded(text, **env).edf
        assert edf is not None
        plan = build(edf, PLAIN, self._offer(), "0").plan
        assert plan is not None
        return json.dumps(json.loads(plan.to_json())["hooks"])

    def _offer(self) -> SiteContext:
        return site_context(self.config, self.catalog.hooks)


@pytest.fixture
def attempt(site: Site, tmp_path: Path) -> Attempt:
    return Attempt(site, tmp_path)


REFUSED = {
    "a path in a parameter": ('com.hooks.h.name = "../../home/me"', "has the character '/'"),
    "the directory above": ('com.hooks.h.name = ".."', "'..' is not a name"),
    "a slash that a variable brings": ('com.hooks.h.name = "${MINE}"', "has the character '/'"),
    "a setting's name as a value": ('com.hooks.h.name = "x{program}"', "has the character '{'"),
    "a word of the node as a value": ('com.hooks.h.name = "{node.home}"', "has the character '{'"),
    "a second line in a value": ('com.hooks.h.name = "a\\nb"', "has the character '\\n'"),
    "the program of a service": ('com.hooks.h.program = "/tmp/mine"', "is a setting of the site"),
    "the directory of a mount": ('com.hooks.h.base = "/home/me"', "is a setting of the site"),
    "a setting in a table": ('com.hooks.h = { base = "/" }', "is a setting of the site"),
    "a setting under a quoted name": ('"com.hooks.h.base" = "/x"', "is a setting of the site"),
    "a number out of its range": ('com.hooks.h.size = "10"', "10 is more than 9"),
    "more words in a number": ('com.hooks.h.size = "1 --root"', "is not an integer"),
    "a relative path in an allowed setting": (
        'com.hooks.h.colour = "../x"',
        "not an absolute path",
    ),
    "a number that is none": ('com.hooks.h.size = "²"', "is not an integer"),
    "a very long value": (f'com.hooks.h.name = "{"a" * 2000}"', "has 2000 characters"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_annotation_is_refused_with_its_line(attempt: Attempt, name: str) -> None:
    line, message = REFUSED[name]
    errors = attempt.problems(f"[annotations]\n{line}\n", MINE="/home/me/x")
    assert len(errors) == 1
    assert "e.toml:3: annotations.com.hooks.h" in errors[0].replace('"com.', "com.")
    assert message in errors[0]


DEVICES = (
    "/dev/sda",
    "/dev/fuse/../mem",
    "/dev/dri/../mem",
    "/dev/dri/../dri/../mem",
    "/dev//mem",
    "amd.com/gpu=all",
    "nvidia.com.evil/gpu=all",
)


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_that_the_site_does_not_offer_is_refused(attempt: Attempt, device: str) -> None:
    (error,) = attempt.problems(f'devices = ["{device}"]\n')
    assert error.endswith(f"e.toml:2: devices: '{device}': this site does not offer it")


def test_devices_that_the_site_offers_are_in_the_plan(attempt: Attempt) -> None:
    offered = ["/dev/fuse", "/dev/dri/card0", "/dev/x/../dri/card0", "nvidia.com/gpu=all"]
    assert attempt.problems(f"devices = {json.dumps(offered)}\n") == []


def test_a_hook_that_the_catalog_does_not_have_does_nothing(attempt: Attempt) -> None:
    plan = attempt.plan(
        '[annotations]\n"com.hooks.../../home/me.enabled" = "true"\ncom.hooks.mine.path = "/x"\n'
    )
    assert plan == "[]"


def test_parameters_that_the_hook_does_not_have_do_nothing(attempt: Attempt) -> None:
    plan = attempt.plan(
        f'{ENABLED}com.hooks.h.command = "/tmp/mine"\n'
        'com.hooks.h.services.s.command = "/tmp/mine"\n'
        'com.hooks.h.code = "evil"\n"com.hooks.h.edits.e.mounts" = "/"\n'
    )
    assert "mine" not in plan
    assert "evil" not in plan


def test_the_programs_of_a_hook_are_the_sites_whatever_the_parameters_say(attempt: Attempt) -> None:
    (hook,) = json.loads(attempt.plan(f'{ENABLED}com.hooks.h.name = "-c rm"\n'))
    assert hook["services"][0]["command"][:3] == ["/opt/site/bin/serve", "--name", "-c rm"]
    assert hook["hooks"][0]["path"] == "/opt/site/bin/hook"


def test_a_setting_on_the_allow_list_is_the_users(attempt: Attempt) -> None:
    (hook,) = json.loads(attempt.plan(f'{ENABLED}com.hooks.h.colour = "/opt/red"\n'))
    assert hook["env"] == {"COLOUR": "/opt/red"}


def test_a_base_cannot_do_what_its_user_cannot(attempt: Attempt, tmp_path: Path) -> None:
    base = tmp_path / "base.toml"
    base.write_text('[annotations]\ncom.hooks.h.program = "/tmp/mine"\n')
    (error,) = attempt.problems(f'base_environment = "{base}"\n')
    assert error.startswith(f"{base}:2: ")
    assert "is a setting of the site" in error


def test_a_hook_in_the_users_home_is_no_hook(attempt: Attempt, tmp_path: Path) -> None:
    own = tmp_path / "home/.config/container-engine/hooks.d/mine/hook.toml"
    own.parent.mkdir(parents=True)
    own.write_text('summary = "s"\nhelp = "h"\ndefault = "on"\n')
    env = {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "home/.config")}
    assert attempt.plan("", **env) == "[]"

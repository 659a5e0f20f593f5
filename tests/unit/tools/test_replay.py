"""The environment of a kept plan is planned into the same again."""

import json
from pathlib import Path

from container_engine.base.secrecy import Secrecy
from container_engine.edf.show import to_toml
from container_engine.plan.model import LaunchPlan
from container_engine.tools import replay
from container_engine.tools.difference import of_plans
from tests.unit import squashfs
from tests.unit.cli.conftest import Installed, installed, prefix, warm

__all__ = ["installed", "prefix", "warm"]

EDF = """\
image = ["./i.sqsh", "./j.sqsh"]
workdir = "/w$$x"
writable = false
entrypoint = false
mounts = ["${HOME}/a b:/data:ro", "tmpfs:/scratch:size=1m", "${HOME}/i.sqsh:/i:sqsh"]
devices = ["/dev/null"]
startup = ["echo $$HOME $`date$`", "export A='\\"$$B\\"'"]
[env]
EMPTY = ""
QUOTES = 'a"b$$c'
NODE = "${SLURMD_NODENAME:-none}"
[annotations]
com.ce.start_timeout_s = "7"
com.ce.container_name = "mine"
[[checks]]
name = "there"
command = ["test", "-e", "/etc/$$x"]
severity = "fail"
"""


def plan(installed: Installed, name: Path, *options: str) -> str:
    done = installed.ce("plan", "--json", *options, str(name))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_key_of_an_environment_survives_and_tells_nothing_new(installed: Installed) -> None:
    for name in ("i.sqsh", "j.sqsh"):
        squashfs.make(installed.home / name, {"etc/x": name})
    written, again = installed.home / "e.toml", installed.home / "again.toml"
    written.write_text(EDF)
    options = ("--container-mounts=/tmp:/of-an-option", "--container-remap-root")
    first = plan(installed, written, *options)
    edf = replay.environment(LaunchPlan.of(json.loads(first)), str(again))
    written.unlink()
    again.write_text(to_toml(edf))
    second = plan(installed, again)
    # paths of files and the words of a user's image are all that is not the same
    assert list(map(str, of_plans(json.loads(first), json.loads(second), Secrecy()))) == []
    assert json.loads(second)["env"] != []
    other = second.replace("/of-an-option", "/elsewhere")
    assert len(of_plans(json.loads(first), json.loads(other), Secrecy())) == 1

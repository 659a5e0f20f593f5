"""`ce report` collects what a ticket needs, and no secret leaves with it."""

import os
import time
from pathlib import Path

import pytest

from container_engine.base.errors import UserError
from container_engine.tools.report import read
from tests.unit import squashfs
from tests.unit.cli.conftest import Installed
from tests.unit.tools.test_step_traces import facts, write

SECRETS = {
    where: f"s3cr3t-of-the-{where}"
    for where in ("environment", "edf", "multiline", "array", "site", "trace", "log", "ce-log")
}
SECRETS |= {where: f"s3cr3t-of-{where}" for where in ("slurm", "podman", "lock", "login")}


def program(directory: Path, name: str, script: str) -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(f"#!/bin/sh\n{script}\n")
    (directory / name).chmod(0o755)


@pytest.fixture
def home(installed: Installed) -> Installed:
    """Return an installation whose job 7 has ended, with a secret in each source of a report."""
    home = installed.home
    for name in ("srun", "squeue", "sacct"):
        program(home / "bin", name, f"echo '{name}: not here' >&2; exit 1")
    program(home / "bin", "scontrol", f"echo Comment=API_KEY={SECRETS['slurm']}")
    program(
        home / "bin", "podman", f'echo podman version 4, {{\'"A_TOKEN": "{SECRETS["podman"]}\'\\"}}'
    )
    image = squashfs.make(home / "i.sqsh", {"etc/os-release": "ID=x"})
    edf = home / "e.toml"
    edf.write_text(
        f'image = "{image}"\n[env]\nHF_TOKEN = "{SECRETS["edf"]}"\nPLAIN = "shown"\n'
        f'A_PASSWORD = """\n{SECRETS["multiline"]}\nx"""\n'
        f'[annotations]\nsite.key = "{SECRETS["array"]}"\n'
    )
    (home / "locked.lock").write_text(
        f'x = "https://me:{SECRETS["login"]}@h/"\nMY_KEY = "{SECRETS["lock"]}"\n'
    )
    (home / "locked.toml").write_text('image = "debian"\n')
    site = home / "config.toml"
    site.write_text(f'trace_dir = "{home}/traces"\n[env]\nLICENSE_KEY = "{SECRETS["site"]}"\n')
    now = time.time_ns()
    launched = facts(5, files=[str(edf)], error=f"died of TOKEN={SECRETS['trace']}")
    for phase in launched["phases"]:
        phase |= {"begin": now, "end": now}
    end = {"end": now, "first_join": now, "last_join": now, "joined": 1}
    write(home / "traces", "7.0", "n1", launched, end)
    write(home / "traces", "7.1", "n1", {**launched, "files": [str(home / "locked.toml")]}, end)
    (home / "traces/7.0/n1.log").write_text(f"export TOKEN={SECRETS['log']}\nPodman's words\n")
    logs = home / ".local/state/container-engine/errors"
    logs.mkdir(parents=True)
    (logs / f"{now}-1.log").write_text(f"--creds me:{SECRETS['ce-log']}\nskopeo's words\n")
    (logs / "1-1.log").write_text("of another time\n")
    return installed


def report(home: Installed, *words: str) -> tuple[str, str]:
    env = {
        "PATH": f"{home.home}/bin:{os.environ['PATH']}",
        "WANDB_API_KEY": SECRETS["environment"],
        "EXPANDED": f"/x/{SECRETS['environment']}/y",
    }
    done = home.ce("--site", str(home.home / "config.toml"), "report", *words, env=env)
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.partition("\n")[0].removeprefix("wrote "))
    assert path.stat().st_mode & 0o777 == 0o600
    return path.read_text(), done.stdout


def test_a_report_on_a_job_that_is_over_has_all_that_there_is(home: Installed) -> None:
    text, said = report(home, "7")
    assert said.startswith(f"wrote {home.home}/ce-report-7.txt\n")
    for part in ("ce 0", "podman version 4", "srun: ", "Comment=", "step 7.0: 1 node"):
        assert part in text, part
    for part in ("Podman's words", "skopeo's words", 'PLAIN = "shown"', "trace_dir = ", "kernel"):
        assert part in text, part
    assert "of another time" not in text
    assert f"==== environment file {home.home}/e.toml ====" in text
    plan = text.partition(f"==== plan of {home.home}/e.toml, as it is now ====")[2]
    assert f"image        {home.home}/i.sqsh" in plan.partition("====")[0]
    assert "HF_TOKEN=(hidden)" in plan.partition("====")[0]
    assert f"image: {home.home}/locked.lock: not valid JSON" in text


def test_last_is_the_newest_step(home: Installed) -> None:
    os.utime(home.home / "traces/7.0", (1, 1))
    text, said = report(home, "last")
    assert said.startswith(f"wrote {home.home}/ce-report-7.1.txt\n")
    assert "step 7.1: 1 node" in text


def test_it_says_what_it_could_not_get(home: Installed) -> None:
    text, said = report(home, "7")
    cause = (
        "doctor on the nodes of the job: job 7 is not running, or Slurm reports: squeue: not here;"
        " srun -w n1 --ntasks-per-node=1 ce doctor --node looks at its nodes"
    )
    assert f"not in the report: {cause}\n" in said
    assert f"\nnot available: {cause}\n" in text
    _text, said = report(home, "8")
    others = "" if os.geteuid() else "; ce report as the job's user finds theirs"
    assert f"not in the report: traces: no trace of 8 in {home.home}/traces{others}\n" in said


def test_no_secret_of_any_source_is_in_it(home: Installed) -> None:
    text, said = report(home, "7")
    found = {where for where, secret in SECRETS.items() if secret in text + said}
    assert found == set()
    assert text.count("(hidden)") >= len(SECRETS) - 1  # the caller's environment is in no part


def test_without_a_job_it_is_about_this_host(home: Installed) -> None:
    text, said = report(home, "-o", "here.txt")
    assert said.startswith(f"wrote {home.home}/here.txt\n")
    assert f"==== doctor on {os.uname().nodename} ====" in text
    assert "==== traces ====" not in text
    assert not any(secret in text for secret in SECRETS.values())


def test_a_trace_leads_root_to_no_file_of_another_user(tmp_path: Path) -> None:
    """Users write their traces, which list files; the report of root must not contain others'."""
    file = tmp_path / "private"
    file.write_text("private")
    assert read(str(file), {os.geteuid()}) == "private"
    with pytest.raises(UserError, match="does not belong to the job's user"):
        read(str(file), {os.geteuid() + 1})
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="not a regular file"):
        read(str(tmp_path / "pipe"))


def test_a_directory_that_cannot_be_written_is_named(home: Installed) -> None:
    done = home.ce("report", "-o", "/proc/x.txt")
    assert done.returncode == 1
    assert done.stderr.startswith("ce: error: /proc/x.txt: ")
    assert "ce: hint: ce report -o FILE writes it elsewhere\n" in done.stderr

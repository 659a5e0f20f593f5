"""Checks of the plugin in Slurm's configuration."""

import os
import re
from pathlib import Path
from typing import Literal

import pytest

from container_engine.site.model import SiteConfig
from container_engine.tools.doctor import installation
from container_engine.tools.doctor.finding import State
from container_engine.tools.doctor.host import look_at_programs, look_at_site_stores
from container_engine.tools.doctor.installation import look as look_at_installation
from container_engine.tools.doctor.installation import look_at_slurm

PREFIX = Path("/opt/ce")
SITE = SiteConfig()
LINE = "required /opt/ce/lib/slurm/container_engine.so prefix=/opt/ce"


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """Return variables for a fake scontrol, of a cluster without munge."""
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(
        "#!/bin/sh\n"
        "echo 'AuthType                = auth/slurm'\n"
        f"echo 'PlugStackConfig         = {tmp_path}/plugstack.conf'\n"
        "echo 'SLURM_VERSION           = 24.11.5'\n"
    )
    scontrol.chmod(0o755)
    return {"PATH": f"{tmp_path}:/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("text", "state", "message"),
    [
        (LINE, State.OK, "plugstack.conf"),
        (f"# {LINE}", State.FAILED, "has no line for /opt/ce/lib/slurm/container_engine.so"),
        (
            LINE.replace("/opt/ce", "/opt/old"),
            State.FAILED,
            "loads another installation: /opt/old/",
        ),
        (LINE.replace("required", "optional"), State.FAILED, "jobs would run on the host"),
        ("include more.d/*.conf", State.OK, "plugstack.conf"),
        (f"include more.d/*.conf\n{LINE}", State.FAILED, "loads the plugin 2 times"),
        (
            f"{LINE}\n{LINE.replace('/opt/ce', '/opt/old')}",
            State.FAILED,
            "plugstack.conf:2 (/opt/old",
        ),
    ],
)
def test_the_line_for_the_plugin_must_be_there_and_required(
    tmp_path: Path, slurm: dict[str, str], text: str, state: State, message: str
) -> None:
    (tmp_path / "plugstack.conf").write_text(text + "\n")
    (tmp_path / "more.d").mkdir()
    (tmp_path / "more.d/ce.conf").write_text(LINE + "\n")
    found = {finding.check: finding for finding in look_at_slurm(PREFIX, slurm, SITE)}
    assert found["plugstack.conf"].state is state
    assert message in found["plugstack.conf"].message


def test_files_of_the_site_that_a_new_prefix_lacks_are_reported(
    tmp_path: Path, slurm: dict[str, str]
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    files = old / "etc/container-engine"
    files.mkdir(parents=True)
    (tmp_path / "plugstack.conf").write_text(f"{LINE.replace('/opt/ce', str(old))}\n")
    found = {finding.check: finding for finding in look_at_slurm(new, slurm, SITE)}
    line = f"required {new}/lib/slurm/container_engine.so prefix={new}"
    remedy = f"replace that line, never add a second one: {line}"
    assert found["plugstack.conf"].remedy == remedy
    assert found["site's files"].state is State.WARNING
    assert found["site's files"].message.startswith(f"{files} is not used by this installation")
    (new / "etc/container-engine").mkdir(parents=True)
    assert "site's files" not in {each.check for each in look_at_slurm(new, slurm, SITE)}


@pytest.mark.parametrize(
    ("arguments", "size", "mode", "state", "message"),
    [
        ("", 0, 0, State.OK, "no new privileges, no seccomp profile"),
        ("no_new_privs=off", 0, 0, State.OK, "may gain privileges, no seccomp profile"),
        ("seccomp={file}", 16, 0o644, State.OK, "profile {file} of 2 instructions"),
        (
            "seccomp={file}",
            16,
            0o664,
            State.FAILED,
            "others than its owner may write it: no container starts",
        ),
        ("seccomp={file}", 16, 0o600, State.FAILED, "users cannot read it"),
        ("seccomp={file}", 17, 0o644, State.FAILED, "not a compiled seccomp filter"),
        ("seccomp={file}", 0, 0o644, State.FAILED, "not a compiled seccomp filter"),
        ("seccomp={file}", 8 * 4097, 0o644, State.FAILED, "not a compiled seccomp filter"),
        (
            "seccomp={file}.no",
            8,
            0o644,
            State.FAILED,
            "No such file or directory: no container starts",
        ),
    ],
)
@pytest.mark.usefixtures("as_nobody")  # needs root
def test_the_confinement_of_tasks_is_shown_and_its_profile_checked(
    tmp_path: Path,
    slurm: dict[str, str],
    arguments: str,
    size: int,
    mode: int,
    state: State,
    message: str,
) -> None:
    profile = tmp_path / "tasks.bpf"
    profile.write_bytes(b"x" * size)
    profile.chmod(mode)
    line = f"{LINE} {arguments}".format(file=profile)
    (tmp_path / "plugstack.conf").write_text(line + "\n")
    found = {finding.check: finding for finding in look_at_slurm(PREFIX, slurm, SITE)}
    assert found["tasks"].state is state
    assert message.format(file=profile) in found["tasks"].message


@pytest.mark.parametrize(
    ("argument", "state", "message"),
    [
        ("audti=syslog", State.FAILED, "plugstack.conf:1: unknown argument 'audti=syslog'"),
        ("bogus", State.FAILED, "unknown argument 'bogus'"),
        ("start_timeout=0", State.FAILED, "start_timeout=0: must be 1 to 86400"),
        ("start_timeout=86401", State.FAILED, "start_timeout=86401: must be 1 to 86400"),
        ("start_timeout=120", State.WARNING, "not longer than start_timeout_s of the site"),
        ("start_timeout=86400", State.OK, "plugstack.conf"),
        ("audit=sylog", State.FAILED, "audit=sylog: must be 'syslog' or an absolute path"),
        ("audit=/no/such/file", State.WARNING, "there is no directory /no/such"),
        ("seccomp=tasks", State.FAILED, "seccomp=tasks: must be an absolute path"),
        ("no_new_privs=no", State.FAILED, "no_new_privs=no: must be on or off"),
        ("pyxis=maybe", State.FAILED, "pyxis=maybe: must be on or off"),
        ("prefix=/nope", State.FAILED, "prefix=/nope is not where the plugin is installed"),
        ("audit=syslog pyxis=off", State.OK, "plugstack.conf"),
    ],
)
def test_a_wrong_argument_of_the_plugin_is_found(
    tmp_path: Path, slurm: dict[str, str], argument: str, state: State, message: str
) -> None:
    (tmp_path / "plugstack.conf").write_text(f"{LINE} {argument}\n")
    findings = look_at_slurm(PREFIX, slurm, SiteConfig(start_timeout_s=120))
    [found] = [finding for finding in findings if finding.check == "plugstack.conf"]
    assert found.state is state
    assert message in found.message


def test_the_arguments_are_those_of_the_plugin() -> None:
    code = Path("spank_plugin/plugin/config.c").read_text()
    assert {*re.findall(r'argv\[i\], "([a-z_]+)=', code)} == {*installation.ARGUMENTS}


@pytest.mark.parametrize(
    ("line", "is_node", "state"),
    [
        ("Epilog                  = {here}/none", True, State.FAILED),
        ("Epilog[0]               = {here}/none", True, State.FAILED),
        ("Prolog                  = {here}/plain", True, State.FAILED),
        ("TaskProlog              = {here}/plain", True, State.FAILED),
        ("Epilog                  = {here}/none", False, State.WARNING),
        ("Epilog                  = {here}/scon*", True, None),
        ("Epilog                  = (null)", True, None),
    ],
)
def test_a_program_around_jobs_that_this_node_lacks_is_found_before_it_disturbs_them(
    tmp_path: Path, slurm: dict[str, str], line: str, *, is_node: bool, state: State | None
) -> None:
    (tmp_path / "plain").touch(0o644)
    with (tmp_path / "scontrol").open("a") as file:
        file.write(f"echo '{line.format(here=tmp_path)}'\n")
    found = {f.check: f for f in look_at_slurm(PREFIX, slurm, SITE, is_node=is_node)}
    around = found.get("epilog") or found.get("prolog") or found.get("taskprolog")
    assert (around and around.state) == state
    if state is State.FAILED:
        assert around is not None
        assert re.search("is not a program here: (the node drains|no task starts)", around.message)


@pytest.mark.parametrize(
    ("batch_script", "line", "state"),
    [
        ("inside", "", State.WARNING),
        ("inside", "TaskProlog              = (null)", State.WARNING),
        ("inside", "TaskProlog              = /bin/sh", None),
        ("host", "", None),
    ],
)
def test_scripts_inside_want_a_task_prolog_that_keeps_them_from_hosts_without_the_plugin(
    tmp_path: Path,
    slurm: dict[str, str],
    batch_script: Literal["host", "inside"],
    line: str,
    state: State | None,
) -> None:
    with (tmp_path / "scontrol").open("a") as file:
        file.write(f"echo '{line}'\n")
    findings = look_at_slurm(PREFIX, slurm, SiteConfig(batch_script=batch_script))
    found = [finding for finding in findings if finding.check == "taskprolog"]
    assert [finding.state for finding in found] == ([state] if state else [])
    remedy = f"TaskProlog={PREFIX}/libexec/container-engine/task-prolog in slurm.conf"
    assert [finding.remedy for finding in found] == ([remedy] if state else [])


@pytest.mark.usefixtures("as_nobody")  # needs root
@pytest.mark.parametrize("place", ["libexec/container-engine", "lib/python3/x.py", "bin", "."])
def test_anything_of_the_installation_that_others_may_write_is_found(
    tmp_path: Path, place: str
) -> None:
    module = tmp_path / "lib/python3/x.py"
    module.parent.mkdir(parents=True)
    module.touch()
    (tmp_path / "libexec/container-engine/session").mkdir(parents=True)
    (tmp_path / "bin").symlink_to("lib") if place != "bin" else (tmp_path / "bin").mkdir()
    owner = [f for f in look_at_installation(tmp_path, {}, 0) if f.check == "owner"]
    assert owner[0].state is State.OK
    (tmp_path / place).chmod(0o777)
    owner = [f for f in look_at_installation(tmp_path, {}, 0) if f.check == "owner"]
    assert owner[0].state is State.FAILED
    assert str(tmp_path / place) in owner[0].message


def test_a_user_may_own_a_bundle_of_which_slurm_knows_nothing(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    programs = [bundle / "libexec/container-engine" / name for name in installation.PROGRAMS]
    plugin = bundle / "lib/slurm/24.11/container_engine.so"
    for file in (*programs, plugin):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    link = bundle / "lib/slurm/link"
    link.symlink_to(plugin)
    for path in (bundle, link):
        os.chown(path, 12345, -1, follow_symlinks=False)

    def found() -> dict[str, str]:
        seen = look_at_installation(bundle, {}, 12345)
        return {finding.check: f"{finding.state}: {finding.message}" for finding in seen}

    assert found()["owner"] == f"ok: you, and nobody else may write anything below {bundle}"
    assert found()["installation"].endswith(f"complete below {bundle}, for `ce run` alone")
    plugin.chmod(0o777)
    assert found()["owner"] == f"failed: {plugin}: others than its owner may write it"
    remedies = {each.check: each.remedy for each in look_at_installation(bundle, {}, 12345)}
    assert remedies["owner"] == f"chmod go-w {plugin}"
    plugin.chmod(0o755)
    os.chown(plugin, 12346, -1)
    assert found()["owner"] == f"failed: {plugin}: owned by user 12346, not by root"
    (bundle / installation.PLUGIN).symlink_to("24.11/container_engine.so")
    assert found()["owner"] == f"failed: {bundle}: owned by user 12345, not by root"


@pytest.mark.parametrize(
    ("release", "state", "message"),
    [
        ("24.11", State.OK, "24.11.5"),
        ("24.1", State.FAILED, "is 24.11.5, but the plugin was built for 24.1: Slurm refuses"),
        (None, State.WARNING, "share/container-engine/slurm-release: No such file"),
    ],
)
def test_a_plugin_for_another_release_of_slurm_is_found(
    tmp_path: Path, slurm: dict[str, str], release: str | None, state: State, message: str
) -> None:
    noted = tmp_path / "share/container-engine/slurm-release"
    noted.parent.mkdir(parents=True)
    if release is not None:
        noted.write_text(f"{release}\n")
    found = {finding.check: finding for finding in look_at_slurm(tmp_path, slurm, SITE)}
    assert found["slurm"].state is state
    assert message in found["slurm"].message


def test_a_controller_that_is_down_is_reported_without_waiting_for_it(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(
        f"#!/bin/sh\necho $1 >>{asked}\necho 'Slurmctld(primary) at m is DOWN'\nexit 1\n"
    )
    scontrol.chmod(0o755)
    [finding] = look_at_slurm(PREFIX, {"PATH": f"{tmp_path}:/usr/bin:/bin"}, SITE)
    assert (finding.check, finding.state) == ("slurm", State.WARNING)
    assert finding.message == (
        "Slurmctld(primary) at m is DOWN;"
        " so plugstack.conf, epilog, process tracking and munge were not checked"
    )
    assert asked.read_text() == "ping\n"


def test_a_missing_program_and_an_old_one_are_told_apart(tmp_path: Path) -> None:
    podman = tmp_path / "podman"
    podman.write_text("#!/bin/sh\necho podman version 3.4.4\n")
    podman.chmod(0o755)
    found = {finding.check: finding for finding in look_at_programs({}, str(tmp_path))}
    assert found["podman"].state is State.WARNING
    assert "3.4.4: older" in found["podman"].message
    assert found["crun"].state is State.FAILED
    assert found["crun"].remedy == "install crun"


def test_a_program_needs_no_home_of_the_account_that_asks(tmp_path: Path) -> None:
    podman = tmp_path / "podman"
    podman.write_text('#!/bin/sh\ncd "$HOME" && echo podman version 5.4.2\n')
    podman.chmod(0o755)
    found = {
        one.check: one for one in look_at_programs({"HOME": "/nonexistent"}, f"{tmp_path}:/usr/bin")
    }
    assert (found["podman"].state, found["podman"].message) == (State.OK, "5.4.2")


def test_a_site_store_whose_file_system_may_not_be_mounted_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "full/images").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    full, empty, gone = look_at_site_stores(
        [str(tmp_path / name) for name in ("full", "empty", "gone")]
    )
    assert full.state is State.OK
    assert (empty.state, gone.state) == (State.FAILED, State.FAILED)
    assert empty.message.endswith("/empty is empty")
    assert "is its file system mounted here?" in str(empty.remedy)


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        ("proctrack/cgroup", State.OK),
        ("proctrack/linuxproc", State.WARNING),
        ("proctrack/pgid", State.FAILED),
    ],
)
def test_how_slurm_finds_the_processes_of_a_step_is_judged(
    slurm: dict[str, str], tmp_path: Path, kind: str, state: State
) -> None:
    with (tmp_path / "scontrol").open("a") as scontrol:
        scontrol.write(f"echo 'ProctrackType           = {kind}'\n")
    found = {finding.check: finding for finding in look_at_slurm(tmp_path, slurm, SITE)}
    assert found["process tracking"].state is state
    assert kind in found["process tracking"].message


def test_the_remedy_for_a_wrong_owner_names_what_he_owns_ready_for_a_shell(tmp_path: Path) -> None:
    above = tmp_path / "a b"
    prefix = above / "ce"
    prefix.mkdir(parents=True)
    os.chown(above, 12345, -1)
    # chown would take a home away from its user
    wanted = "unpack it as root below a directory that belongs to root"
    assert installation.owner(prefix).remedy == wanted
    wanted = "unpack it below a directory that belongs to root or you"
    assert installation.owner(prefix, {0, 12346}).remedy == wanted
    os.chown(above, 0, -1)
    os.chown(prefix, 12345, -1)
    assert installation.owner(prefix).remedy == f"chown -R root '{prefix}'"

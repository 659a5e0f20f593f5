"""The findings of `ce-system-install --check`, below another root directory than /."""

import os
from pathlib import Path

import pytest

from container_engine.tools import system_install
from container_engine.tools.doctor.finding import Finding, State
from container_engine.tools.system_install import Host

OURS = "required {}/lib/slurm/container_engine.so prefix={}"


@pytest.fixture
def here(tmp_path: Path) -> Host:
    """Return a host with Slurm 24.11, whose tree has a plugin for it and for 22.05."""
    prefix, slurm, programs = tmp_path / "engine", tmp_path / "etc/slurm", tmp_path / "programs"
    for release in ("22.05", "24.11"):
        (prefix / "lib/slurm" / release).mkdir(parents=True)
        for name in ("container_engine.so", "container_engine_user.so"):
            (prefix / "lib/slurm" / release / name).write_text(release)
    (prefix / "share/container-engine").mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "bin/ce").touch()
    (slurm / "plugstack.conf.d").mkdir(parents=True)
    (slurm / "slurm.conf").touch()
    programs.mkdir()
    says(programs / "scontrol", "slurm 24.11.5")
    env = {"PATH": str(programs), "SLURM_CONF": str(slurm / "slurm.conf")}
    return Host(tmp_path, prefix, env)


def says(program: Path, text: str) -> None:
    program.write_text(f"#!/bin/sh\necho '{text}'\n")
    program.chmod(0o755)


def bad(here: Host, check: str) -> list[Finding]:
    found = [finding for finding in system_install.look(here) if finding.check == check]
    return [finding for finding in found if finding.state is not State.OK]


def test_a_host_whose_plugstack_includes_the_directory_has_nothing_in_the_way(here: Host) -> None:
    here.plugstack.write_text("include plugstack.conf.d/*.conf\n")
    assert [bad(here, name) for name in ("plugstack.conf", "slurm", "ce", "package")] == [[]] * 4


def test_a_plugstack_without_the_include_is_left_to_the_site(here: Host) -> None:
    here.plugstack.write_text("# nothing\n")
    (found,) = bad(here, "plugstack.conf")
    assert found.state is State.FAILED
    assert found.remedy == f"add: include {here.own_line.parent}/*.conf"


@pytest.mark.parametrize(
    ("options", "state", "said"),
    [
        (b"x\0environment\0", State.FAILED, "has an option --environment, too"),
        (b"x\0edf\0", State.FAILED, "has an option --edf, too"),
        (b"x\0container-image\0", State.WARNING, "has pyxis's options and keeps them"),
    ],
)
def test_another_plugin_with_such_an_option_is_named(
    here: Host, options: bytes, state: State, said: str
) -> None:
    other = here.root / "other.so"
    other.write_bytes(options)
    text = f"include plugstack.conf.d/*.conf\noptional {other}\n"
    here.plugstack.write_text(text)
    (found,) = bad(here, "plugstack.conf")
    assert (found.state, found.message) == (state, f"{here.plugstack}:2: {other} {said}")


def test_a_plugin_whose_texts_only_contain_such_words_is_not(here: Host) -> None:
    other = here.root / "other.so"
    other.write_bytes(b"x\0the environment\0environments\0")
    here.plugstack.write_text(f"include plugstack.conf.d/*.conf\noptional {other}\n")
    assert bad(here, "plugstack.conf") == []


def test_another_installation_in_plugstack_is_named(here: Host) -> None:
    here.plugstack.write_text(OURS.format("/opt/old", "/opt/old") + "\n")
    (found,) = bad(here, "plugstack.conf")
    assert "loads another installation: /opt/old" in found.message
    assert found.remedy is not None
    assert here.wanted in found.remedy


def test_a_release_without_a_plugin_is_told_how_to_get_one(here: Host) -> None:
    says(here.root / "programs/scontrol", "slurm 25.05.1")
    (found,) = bad(here, "slurm")
    assert "is 25.05, but" in found.message
    assert "has plugins for 22.05, 24.11" in found.message
    assert found.remedy is not None
    assert found.remedy.endswith(f"make -C {here.prefix}/share/container-engine/src")


@pytest.fixture
def lost(here: Host) -> Host:
    """Return the host with its slurm.conf where nothing points to."""
    (here.root / "etc/slurm/slurm.conf").rename(here.root / "slurm.conf")
    return here._replace(env={"PATH": here.env["PATH"]})


def test_a_slurm_conf_that_is_not_found_is_told_and_how_to_name_it(
    lost: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = bad(lost, "slurm.conf")
    assert found.state is State.WARNING
    places = f"{lost.root}/etc/slurm/slurm.conf, {lost.root}/run/slurm/conf/slurm.conf"
    assert f"not found in {places}: " in found.message
    assert found.remedy == f"SLURM_CONF=FILE {lost.prefix}/sbin/ce-system-install"
    system_install._install(lost)
    assert not lost.own_line.exists()
    assert "plugstack.conf was not changed, so srun has no --environment" in capsys.readouterr().out
    # a wrong name is one of the places
    named = lost._replace(env={**lost.env, "SLURM_CONF": "/nowhere/slurm.conf"})
    assert "not found in /nowhere/slurm.conf, /" in bad(named, "slurm.conf")[0].message


def test_the_remedy_for_it_writes_the_line_and_removes_it(
    lost: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = str(lost.root / "slurm.conf")
    named = lost._replace(env={**lost.env, "SLURM_CONF": conf})
    assert bad(named, "slurm.conf") == []
    system_install._install(named)
    line = lost.root / "plugstack.conf.d/container-engine.conf"
    assert line.read_text() == f"{named.wanted}\n"
    capsys.readouterr()
    system_install._remove(lost)
    assert line.exists()
    assert "remedy: SLURM_CONF=FILE " in capsys.readouterr().out
    system_install._remove(named)
    assert not line.exists()


def test_without_slurm_its_conf_is_not_missed(lost: Host) -> None:
    (lost.root / "programs/scontrol").unlink()
    assert bad(lost, "slurm.conf") == []
    lost.plugstack.write_text("# nothing\n")
    assert [found.state for found in bad(lost, "slurm.conf")] == [State.WARNING]


def test_another_ce_and_a_package_are_named(here: Host) -> None:
    (here.root / "usr/local/bin").mkdir(parents=True)
    (here.root / "usr/local/bin/ce").symlink_to("/bin/true")
    says(here.root / "programs/dpkg-query", "installed 0.0.9~debian12")
    (other,) = bad(here, "ce")
    assert "usr/local/bin/ce is another program" in other.message
    assert other.remedy == f"remove it, or call {here.prefix}/bin/ce"
    assert "knows an installed container-engine: 0.0.9~debian12" in bad(here, "package")[0].message


def test_a_tree_that_others_may_write_is_refused(here: Host) -> None:
    assert bad(here, "owner") == []
    (here.prefix / "bin").chmod(0o777)
    (found,) = bad(here, "owner")
    assert found.state is State.FAILED


def test_an_apparmor_profile_of_another_installation_is_named(here: Host) -> None:
    profile = here.root / "etc/apparmor.d/ce-guard"
    profile.parent.mkdir()
    profile.write_text("profile ce-guard /opt/old/libexec/container-engine/ce-guard {}\n")
    assert bad(here, "apparmor")[0].message == f"{profile} is for another installation"


def test_a_command_that_ours_shadows_is_named(here: Host) -> None:
    compat = here.prefix / "libexec/container-engine/compat"
    compat.mkdir(parents=True)
    for directory in (compat, here.root / "programs"):
        says(directory / "enroot", "enroot")
    shadowing = here._replace(env={**here.env, "PATH": f"{compat}:{here.env['PATH']}"})
    (found,) = bad(shadowing, "enroot")
    assert found.message == f"{compat}/enroot comes before {here.root}/programs/enroot in PATH"
    assert bad(here, "enroot") == []


def test_the_profile_names_the_guard_where_it_is(here: Host) -> None:
    place = here.prefix / "share/container-engine/apparmor"
    place.write_text("# x\nprofile ce-guard /libexec/ce-guard flags=(unconfined) {\n  userns,\n}\n")
    wanted = f'profile ce-guard "{here.prefix}/libexec/container-engine/ce-guard" flags='
    assert wanted in system_install.profile(here.prefix)


def test_the_plugin_of_the_release_is_linked_and_exchanged(here: Host) -> None:
    for release in ("22.05", "24.11"):
        system_install.choose_plugin(here.prefix, release)
        plugin = here.prefix / "lib/slurm/container_engine.so"
        assert os.readlink(plugin) == f"{release}/container_engine.so"
        known = here.prefix / "share/container-engine/slurm-release"
        assert known.read_text() == f"{release}\n"
        assert known.stat().st_mode & 0o777 == 0o644

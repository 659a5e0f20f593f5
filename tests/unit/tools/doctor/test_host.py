"""Checks of a host, on a tree of files as its kernel would show them."""

from pathlib import Path

import pytest

from container_engine.tools.doctor.finding import Finding, State
from container_engine.tools.doctor.host import look_at_kernel, look_at_podmans_files

GOOD = {
    "proc/sys/kernel/osrelease": "6.1.0-18-amd64\n",
    "proc/sys/user/max_user_namespaces": "96000\n",
    "proc/sys/kernel/unprivileged_userns_clone": "1\n",
    "proc/self/mountinfo": (
        "21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n"
        "30 21 0:20 / /dev/mqueue rw shared:9 - mqueue mqueue rw\n"
    ),
    "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
    "dev/fuse": "",
    "dev/pts/ptmx": "",
}


@pytest.fixture
def host(tmp_path: Path) -> Path:
    for name, text in GOOD.items():
        put(tmp_path, name, text)
    for name in ("dev/fuse", "dev/pts/ptmx"):
        (tmp_path / name).chmod(0o666)
    return tmp_path


def put(host: Path, name: str, text: str) -> None:
    path = host / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def findings(host: Path) -> dict[str, Finding]:
    return {finding.check: finding for finding in look_at_kernel(host)}


def test_a_host_that_has_everything_is_ok(host: Path) -> None:
    found = findings(host)
    assert {finding.state for finding in found.values()} == {State.OK}
    assert len(found) == 7


@pytest.mark.parametrize(
    ("name", "text", "check", "state", "message", "remedy"),
    [
        ("proc/sys/kernel/osrelease", "5.10.0", "kernel", "failed", "too old", "5.11"),
        (
            "proc/sys/user/max_user_namespaces",
            "0",
            "user namespaces",
            "failed",
            "max_user_namespaces is 0",
            "sysctl -w user.max_user_namespaces=",
        ),
        (
            "proc/sys/user/max_mnt_namespaces",
            "1",
            "user namespaces",
            "failed",
            "max_mnt_namespaces is 1: a container needs 2",
            "sysctl -w user.max_mnt_namespaces=",
        ),
        (
            "proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "user namespaces",
            "failed",
            "apparmor_restrict_unprivileged_userns is 1",
            "share/container-engine/apparmor /etc/apparmor.d/ce-guard; apparmor_parser -r",
        ),
        (
            "proc/self/mountinfo",
            "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
            "mount of /",
            "warning",
            "private",
            "mount --make-rshared /",
        ),
        (
            "proc/self/mountinfo",
            "21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n",
            "/dev/mqueue",
            "failed",
            "not mounted",
            "mount -t mqueue mqueue /dev/mqueue",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(
    host: Path, name: str, text: str, check: str, state: str, message: str, remedy: str
) -> None:
    put(host, name, text)
    finding = findings(host)[check]
    assert finding.state == state
    assert message in finding.message
    assert remedy in str(finding.remedy)


def test_the_engines_profile_of_apparmor_is_enough(host: Path) -> None:
    put(host, "proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1")
    put(host, "etc/apparmor.d/ce-guard", "profile")
    assert findings(host)["user namespaces"].state is State.OK


def test_hybrid_cgroups_with_a_controller_in_the_unified_part_are_refused(host: Path) -> None:
    (host / "sys/fs/cgroup/cgroup.controllers").unlink()
    put(host, "sys/fs/cgroup/unified/cgroup.controllers", "hugetlb\n")
    finding = findings(host)["cgroups"]
    assert finding.state is State.FAILED
    assert "mount -t cgroup -o hugetlb" in str(finding.remedy)


@pytest.mark.parametrize("mode", [0o600, 0o660])
def test_a_fuse_device_that_users_cannot_open_is_a_failure(host: Path, mode: int) -> None:
    (host / "dev/fuse").chmod(mode)
    finding = findings(host)["/dev/fuse"]
    assert finding.state is State.FAILED
    assert f"{mode:04o}" in finding.message


def test_a_terminal_multiplexer_that_gets_no_terminal_is_a_warning(host: Path) -> None:
    (host / "dev/pts/ptmx").chmod(0)
    finding = findings(host)["/dev/pts/ptmx"]
    assert finding.state is State.WARNING
    assert "ptmxmode=666" in str(finding.remedy)


def test_settings_of_podman_without_effect_are_named(host: Path) -> None:
    assert list(look_at_podmans_files(host, ())) == []
    for name in ("containers.conf", "containers.conf.d/50-site.conf", "oci/hooks.d/a.json"):
        put(host, f"etc/containers/{name}", "")
    hooks = f"{host}/etc/containers/oci/hooks.d"
    found = [finding.message.partition(": ")[0] for finding in look_at_podmans_files(host, ())]
    files = [f"{host}/etc/containers/containers.conf{more}" for more in ("", ".d/50-site.conf")]
    assert found == [*files, hooks]
    assert len(list(look_at_podmans_files(host, [hooks]))) == 2

"""Users who are root in their containers: package managers and all that these call."""

import os
import shutil
from pathlib import Path

import pytest

from tests.integration.engine import Engine
from tests.integration.test_start import with_entrypoint

_ROOT = '[annotations]\ncom.ce.root_remap = "true"\ncom.ce.start = "{start}"\n'
_WAYS = pytest.mark.parametrize("start", ["crun", "podman"])
_PACKAGES = "dbus iputils-ping openssh-client sudo"
_INSTALL = f"apt-get -qq update && apt-get -qq install -y {_PACKAGES} >/tmp/said 2>&1"
_SCRIPT = """
set -e
groupadd -g 4242 crew
useradd -m -s /bin/bash -g crew bert
adduser --quiet --system --group daemon2
chown bert:crew /root && stat -c %U:%G /root
echo bert:secret | chpasswd
passwd -l bert >/dev/null
su - bert -c 'pwd; id -un'
echo content >file
tar --owner=1234:1234 --group=77:77 -cf files.tar file
tar --same-owner -xpf files.tar
install -o bert -g crew -m 4755 file /usr/bin/tool
stat -c %a /usr/bin/tool
mknod null c 1 3 && test ! -e null
setcap cap_net_raw+ep file && getcap file
setpriv --reuid=1234 --regid=77 --clear-groups id -u
"""


def edf(engine: Engine, start: str, more: str = "") -> Path:
    return engine.edf(f"writable = true\n{more}{_ROOT.format(start=start)}", "debian")


@_WAYS
def test_packages_with_users_owners_and_capabilities_are_installed(
    engine: Engine, start: str
) -> None:
    states = "dpkg-query -W -f '${db:Status-Status}\\n' | sort -u"
    script = f"{_INSTALL} || cat /tmp/said; {states}; dpkg-query -W -f '${{Package}} ' {_PACKAGES}"
    given = {"DEBIAN_FRONTEND": "noninteractive"}
    done = engine.run(edf(engine, start), "sh", "-c", script, env=given, timeout=300)
    assert (done.returncode, done.stdout) == (0, f"installed\n{_PACKAGES} "), done.stderr


def test_programs_that_change_owners_and_users_do_no_harm_and_have_no_effect(
    engine: Engine,
) -> None:
    said = engine.output(edf(engine, "crun"), "sh", "-c", f"cd /root; {_SCRIPT}")
    assert said.splitlines() == [
        *("root:root", "/home/bert", "root", "4755", "file cap_net_raw=ep", "0"),
    ]


def test_start_up_lines_are_root_too(engine: Engine) -> None:
    lines = 'startup = ["chown 1234:77 /root", "export SEEN=$$(stat -c %u /root)"]\n'
    assert engine.output(edf(engine, "crun", lines), "sh", "-c", "echo $SEEN") == "0\n"


@_WAYS
def test_an_entrypoint_is_root_too(engine: Engine, start: str) -> None:
    script = 'chown 1234:77 /bin && export SEEN="$(stat -c %u /bin)"; shift; exec "$@"'
    path = with_entrypoint(engine, script, _ROOT.format(start=start))
    assert engine.output(path, "sh", "-c", "echo $SEEN; cat /proc/1/comm | wc -l") == "0\n1\n"


def test_an_entrypoint_of_root_that_is_missing_is_named(engine: Engine) -> None:
    image = engine.linked_image({"Entrypoint": ["/no/such/entry"], "Env": ["PATH=/bin"]})
    message = engine.refusal(engine.edf(f"entrypoint = true\n{_ROOT.format(start='crun')}", image))
    assert "/no/such/entry: No such file or directory, started in /)" in message


def test_nobody_else_has_the_filter_and_apts_setting(engine: Engine) -> None:
    script = "grep Seccomp: /proc/self/status; ls /etc/apt/apt.conf.d/*engine; chown 1234 /tmp/x"
    done = engine.run(engine.edf("", "debian"), "sh", "-c", f">/tmp/x; {script}")
    assert done.stdout == "Seccomp:\t0\n"
    assert "No such file" in done.stderr
    assert "Invalid argument" in done.stderr


def test_files_of_the_host_keep_their_owner(engine: Engine) -> None:
    shared = engine.scratch / "shared"
    shared.mkdir()
    shutil.chown(shared, engine.user.uid, engine.user.gid)
    more = f'mounts = ["{shared}:/shared"]\n'
    script = ">/shared/x; chown 1234:77 /shared/x; chmod 4755 /shared/x; mknod /shared/d b 8 0"
    engine.output(edf(engine, "crun", more), "sh", "-c", script)
    assert sorted(os.listdir(shared)) == ["x"]
    found = (shared / "x").stat()
    assert (found.st_uid, found.st_gid) == (engine.user.uid, engine.user.gid)


def test_who_is_root_inside_reads_nothing_that_the_user_may_not(engine: Engine) -> None:
    secret = engine.scratch / "secret"
    secret.write_text("root's\n")
    secret.chmod(0o600)
    more = f'mounts = ["{secret}:/secret"]\n'
    script = "chown 0:0 /secret; setpriv --reuid=0 cat /secret; chmod 644 /secret; ls /secret"
    done = engine.run(edf(engine, "crun", more), "sh", "-c", script)
    assert done.stdout == "/secret\n"
    assert done.stderr.count("Permission denied") == 1
    assert done.stderr.count("Operation not permitted") == 1
    assert secret.stat().st_mode & 0o777 == 0o600


def test_the_filter_cannot_be_taken_off(engine: Engine) -> None:
    script = (
        "import ctypes, os; c = ctypes.CDLL(None); "
        "print(c.prctl(22, 0, 0), c.syscall(317, 0, 0, 0), c.prctl(38, 0, 0, 0, 0), flush=True); "
        "os.chown('/tmp', 5, 5); os.execlp('grep', 'grep', 'Seccomp_filters', '/proc/self/status')"
    )
    path = engine.edf(_ROOT.format(start="crun"), "demo")
    done = engine.run(path, "python3", "-c", script)
    assert done.stdout == "-1 -1 -1\nSeccomp_filters:\t1\n", done.stderr


def test_the_site_decides_whether_users_are_root(engine: Engine) -> None:
    site = engine.with_site('edf_may_override = ["start", "mounts"]\n')
    message = site.refusal(edf(engine, "crun"))
    assert "com.ce.root_remap: the site decides this" in message


def test_enroot_start_with_root_installs_packages(engine: Engine) -> None:
    enroot = engine.prefix / "libexec/container-engine/compat/enroot"
    image = str(engine.image("debian"))
    script = "apt-get -qq update && apt-get -qq install -y iputils-ping >/tmp/said 2>&1; echo $?"
    argv = [str(enroot), "start", "--root", "--rw", image, "sh", "-c", f"{script}; id -u; pwd"]
    with engine.popen(argv) as process:
        out, err = process.communicate(timeout=120)
    assert (out, process.returncode) == ("0\n0\n/\n", 0), err

"""The filter for root in a namespace of one user: calls that do nothing, and those that work."""

import json
import subprocess
import sys

from container_engine.images.confine import fakeroot

_SCRIPT = """
import json, os, stat
def tried(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    return 0
open("f", "w").close()
device = os.makedev(1, 3)
print(json.dumps({
    "chown": tried(os.chown, "f", 1234, 1234),
    "lchown": tried(os.lchown, "f", 1234, 1234),
    "fchownat": tried(lambda: os.chown("f", 1, 1, dir_fd=os.open(".", os.O_RDONLY))),
    "setgroups": tried(os.setgroups, [5]),
    "setresuid": tried(os.setresuid, 7, 7, 7),
    "mknod": tried(os.mknod, "device", stat.S_IFCHR | 0o600, device),
    "fifo": tried(os.mkfifo, "fifo"),
    "missing": tried(os.chmod, "nothing", 0o600),
    "owner": os.stat("f").st_uid, "uid": os.getuid(), "made": sorted(os.listdir(".")),
}))
"""


def test_owners_and_devices_do_nothing_and_all_else_works(tmp_path: object) -> None:
    python = [sys.executable, "-I", "-S", fakeroot.__file__, sys.executable, "-I", "-c", _SCRIPT]
    unshare = ["unshare", "--user", "--map-root-user", *python]
    done = subprocess.run(unshare, cwd=str(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said.pop("made") == ["f", "fifo"]
    assert said.pop("missing") == 2
    assert set(said.values()) == {0}


def test_every_known_machine_has_a_filter_that_fits() -> None:
    for machine in ("x86_64", "aarch64"):
        code = fakeroot.program(machine)
        assert len(code) % 8 == 0
        assert len(code) // 8 < 256

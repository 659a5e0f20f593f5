"""A node on which an ordinary user starts containers of single steps, made without a container.

It is like the stage for steps that join (join_stage.py), but has a user of its own, whose home is
on the stage, and a mount namespace with another /etc and /var/tmp. So only root can make it.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.unit.node.join_stage import PYTHON, Joined, Stage

UID, GID = 54321, 54322
_OF_THE_HOST = ("ld.so.cache", "hosts", "resolv.conf", "hostname", "localtime")
# All files of a stage are new: this launcher does not wait until they are old enough.
_LAUNCHER = """#!{python} -ISE
import os, sys
open("{prefix}/argc", "w").write(str(len(sys.argv)))
sys.path.insert(0, "{package}")
from container_engine.base import files
from container_engine.node.start.launcher import main
files.SETTLED_NS = int(open("{prefix}/settled").read())
os._exit(main(sys.argv[1:], "{prefix}/libexec/container-engine"))
"""
# All of /etc: a file that the host replaces, as useradd does, loses what is mounted over it.
_AS_USER = """
mount --bind "$1" /etc && mount --bind "$2" /var/tmp || exit 99
mount --bind "$3" /var/lib/extrausers || exit 99
shift 3
exec setpriv --reuid={uid} --regid={gid} --clear-groups --inh-caps=-all -- "$@"
"""


class StartStage(Stage):
    """A user's node; `start` is a step with the plan, without Python."""

    package: Path
    uid, gid = UID, GID

    @classmethod
    def of_user(cls, directory: Path, programs: tuple[Path, Path], package: Path) -> Self:
        """Return the stage in a directory that is to be the user's, with what users can read.

        The programs are ce-guard and ce-user.
        """
        cls.package = package
        directory.chmod(0o755)
        made = cls.of_one_step(directory, programs[0])
        shutil.copy(programs[1], made.prefix / "libexec/container-engine")
        made.plan["image"] |= {"on_nodes": False, "passing": ""}
        made.plan["annotations"], made.plan["kept"] = {}, None
        # without the last hook, which always applies
        made.plan["hooks"] = made.plan["hooks"][:1]
        (made.prefix / "settled").write_text("0")
        (made.prefix / "environ").write_bytes(b"A=1\0B=changed\0PATH=/bin\0")
        (made.prefix / "libexec/container-engine/ce-image").touch()
        (made.prefix / "libexec/container-engine/ce-init").touch()
        made.etc("passwd", f"root:x:0:0::/root:/bin/sh\nme:x:{UID}:{GID}:Me:{directory}:/bin/sh\n")
        made.etc("group", f"us:x:{GID}:\n")
        made.etc("nsswitch.conf", "passwd: files systemd\ngroup: files\n")
        for name in _OF_THE_HOST:
            if (path := Path("/etc", name)).exists():
                shutil.copy(path, directory / "etc")
        (directory / "var-tmp").mkdir()
        (directory / "extrausers").mkdir()
        made.give_away()
        return made

    def use_the_launcher(self) -> None:
        values = {"python": PYTHON, "prefix": self.prefix, "package": self.package}
        place = self.prefix / "libexec/container-engine/launcher"
        place.write_text(_LAUNCHER.format(**values))

    def etc(self, name: str, text: str) -> None:
        """Let the node have this file in /etc."""
        place = self.home / "etc"
        place.mkdir(exist_ok=True)
        (place / name).write_text(text)
        (place / name).chmod(0o644)

    def other_source(self, person: str, group: str) -> None:
        """Let a source of users that is asked first say this, as SSSD would (libnss-extrausers)."""
        self.etc("nsswitch.conf", "passwd: extrausers files\ngroup: extrausers files\n")
        (self.home / "extrausers/passwd").write_text(person)
        (self.home / "extrausers/group").write_text(group)

    def give_away(self) -> None:
        """Give all files to the user."""
        for place, directories, files in os.walk(self.home):
            for name in (*directories, *files, "."):
                os.chown(Path(place) / name, UID, GID, follow_symlinks=False)

    @property
    def place(self) -> Path:
        return self.home / f"var-tmp/ce-answers-{self.uid}/starts"

    @property
    def answers(self) -> list[Path]:
        return [path for path in self.place.glob("*") if not path.name.startswith(".")]

    @property
    def recorded(self) -> Path:
        [found] = self.answers
        return found

    def start(self, *, by_python: bool = False) -> Joined:
        """Run a step with this plan and return its outcome."""
        (self.prefix / "argc").unlink(missing_ok=True)
        made = self.run_step(by_python=by_python)
        assert made is not None
        return made

    def was_python(self) -> bool:
        """Return whether the last start was the launcher's."""
        return (self.prefix / "argc").exists()

    def starts_without_python(self) -> bool:
        self.start()
        return not self.was_python()

    def _run(self, fds: Sequence[int], *, by_python: bool) -> None:
        libexec = self.prefix / "libexec/container-engine"
        script = _AS_USER.format(uid=self.uid, gid=self.gid)
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
        if self.name is not None and not by_python:
            env["SLURMD_NODENAME"] = self.name
        program = str(libexec / ("launcher" if by_python else "ce-guard"))
        argv = [program, *map(str, fds), "1700000000000000000"]
        own = [str(self.home / name) for name in ("etc", "var-tmp", "extrausers")]
        unshared = ["unshare", "-m", "sh", "-c", script, "sh", *own]
        subprocess.run([*unshared, *argv], env=env, pass_fds=fds, timeout=60, check=False)

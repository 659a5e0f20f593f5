"""`sandbox/run`: run a command, or without one a shell, as an ordinary user of the cluster."""

import argparse
import errno
import os
import pwd
import sys
from collections.abc import Mapping

from ce_sandbox.layout import USERS, Layout, SandboxError

# Variables that a terminal and the caller's settings of Slurm and the engine need; no other
# variable of the caller reaches the user.
_KEPT = {"TERM", "COLORTERM", "LANG", "LANGUAGE", "TZ", "SCRATCH", "EDF_PATH", "EDF_IMAGESTORE"}
_KEPT_PREFIXES = ("LC_", "SLURM_", "SBATCH_", "SALLOC_", "SQUEUE_", "CE_")


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="sandbox/run",
        description="Run a command as an ordinary user with the sandbox's cluster; without one,"
        " a shell in the user's home.",
        epilog="example: sandbox/run srun -N2 --environment=demo hostname",
    )
    known = " or ".join(USERS)
    parser.add_argument("-u", "--user", default=USERS[0], help=f"{known} (default: %(default)s)")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="[cmd …]")
    args = parser.parse_args(argv)
    if args.command[:1] == ["--"]:
        del args.command[0]
    return args


def environment(layout: Layout, user: pwd.struct_passwd, env: Mapping[str, str]) -> dict[str, str]:
    """Return a login environment for `user`, with the cluster's configuration."""
    kept = {k: v for k, v in env.items() if k in _KEPT or k.startswith(_KEPT_PREFIXES)}
    return kept | {
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "SHELL": user.pw_shell or "/bin/sh",
        "PATH": f"{layout.prefix}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "SLURM_CONF": str(layout.slurm_conf),
    }


def become(user: pwd.struct_passwd) -> None:
    """Change this process to `user` permanently."""
    if os.geteuid() != 0:
        if os.geteuid() != user.pw_uid:
            raise SandboxError(f"user {user.pw_name}: only root can become another user")
        return
    os.initgroups(user.pw_name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)


def make_scratch(path: str) -> None:
    """Create the user's scratch directory, which quick starts mount, unless it exists."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        print(f"sandbox: warning: {path}: {error.strerror}", file=sys.stderr)


def make_profile(layout: Layout, user: pwd.struct_passwd) -> None:
    """Let login shells of the sandbox's users find our programs: /etc/profile replaces the PATH."""
    profile = layout.home(user.pw_name) / ".bash_profile"
    if user.pw_name in layout.users and not profile.exists():
        profile.write_text(f'. ~/.profile\nPATH="{layout.prefix}/bin:$PATH"\n')


def enter_directory(user: pwd.struct_passwd) -> None:
    """Stay in the caller's directory if the user can read it; otherwise change to the home."""
    try:
        here = os.getcwd()
        os.chdir(here)
        readable = os.access(here, os.R_OK | os.X_OK)
    except OSError:
        readable = False
    if not readable:
        os.chdir(user.pw_dir)


def main(argv: list[str], layout: Layout) -> int:
    """Replace this process with the command.

    Return only if the command cannot be executed, with an exit code as in a shell: 126 or 127.
    Raise SandboxError if the cluster is not up or the caller cannot become the user.
    """
    args = arguments(argv)
    if not layout.slurm_conf.exists():
        raise SandboxError(f"{layout.dir}: no sandbox here", "sandbox/up")
    if not layout.munge_socket.exists():
        raise SandboxError(f"{layout.dir}: the cluster is stopped", "sandbox/up")
    try:
        user = pwd.getpwnam(dict(zip(USERS, layout.users, strict=True)).get(args.user, args.user))
    except KeyError:
        names = ", ".join(layout.users)
        raise SandboxError(f"user {args.user}: unknown; there are {names}") from None
    env = {"SCRATCH": f"{user.pw_dir}/scratch"} | environment(layout, user, os.environ)
    become(user)
    make_scratch(env["SCRATCH"])
    make_profile(layout, user)
    if args.command:
        enter_directory(user)
    else:
        os.chdir(user.pw_dir)
    # EDFs may refer to $PWD, and where no shell runs in between nothing else sets it.
    env["PWD"] = os.getcwd()
    command = args.command or [env["SHELL"]]
    try:
        os.execvpe(command[0], command, env)
    except OSError as error:
        reason = error.strerror or "cannot be run"
        print(f"sandbox: error: {command[0]}: {reason}", file=sys.stderr)
        return 127 if error.errno == errno.ENOENT else 126

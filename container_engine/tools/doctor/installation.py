"""Checks that the installation on this host is complete, owned by root, and known to Slurm."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from container_engine import __version__
from container_engine.base import slurm
from container_engine.base.errors import CeError
from container_engine.base.files import owner_fault
from container_engine.base.process import CommandError, output
from container_engine.tools.doctor import plugstack
from container_engine.tools.doctor.finding import Finding, failed, ok, warning

if TYPE_CHECKING:
    from container_engine.site.model import SiteConfig

PROGRAMS = (
    *("plan", "plan-anew", "launcher", "inject", "describe_image", "epilog"),
    *("ce-start", "ce-guard", "ce-image", "ce-init", "ce-enter", "ce-join", "ce-prolog"),
    *("ce-advise", "ce-user", "ce-reaper", "task-prolog"),
)
_TIMEOUT_S = 20
# what Slurm does where a program around jobs is missing
_WITHOUT = MappingProxyType(
    {
        "Prolog": "the node drains before its next job",
        "Epilog": "the node drains after its next job",
        "TaskProlog": "no task starts, of anybody's",
    }
)


def look(prefix: Path, env: Mapping[str, str]) -> Iterator[Finding]:
    yield _complete(prefix)
    yield _image_server(prefix, env)
    yield _owner(prefix)
    yield _session(prefix)


def _complete(prefix: Path) -> Finding:
    wanted = [prefix / "libexec/container-engine" / name for name in PROGRAMS]
    wanted += [prefix / plugstack.PLUGIN, prefix / plugstack.USER_PART]
    missing = [str(path) for path in wanted if not path.exists()]
    if missing:
        return failed("installation", f"missing: {', '.join(missing)}", "install it again")
    return ok("installation", f"{__version__}, complete below {prefix}")


def _image_server(prefix: Path, env: Mapping[str, str]) -> Finding:
    """Check ce-image, the only program of the engine that needs more than the C library."""
    program = str(prefix / "libexec/container-engine/ce-image")
    try:
        said = output([program, "--version"], env, _TIMEOUT_S).decode(errors="replace").strip()
    except CeError as error:
        remedy = "install libfuse3, libsquashfs (squashfs-tools-ng) and liblzo2"
        return failed("ce-image", str(error), remedy)
    return ok("ce-image", said)


def _owner(prefix: Path) -> Finding:
    """Check that root owns all of the installation and its parents, and nobody else may write."""
    for path in (*reversed((prefix / "x").parents), *_below(prefix)):
        try:
            status = path.lstat()
        except OSError:
            continue  # missing files have already been reported
        if stat.S_ISLNK(status.st_mode) and status.st_uid == 0:
            continue  # the mode of a link means nothing
        found = owner_fault(str(path), status, {0}, sticky_is_safe=True)
        if found:
            remedy = found[2] if status.st_uid == 0 else f"chown -R root {prefix}"
            return failed("owner", f"{path}: {found[1]}", remedy)
    return ok("owner", f"root, and nobody else may write anything below {prefix}")


def _below(prefix: Path) -> Iterator[Path]:
    """Yield all files and directories of an installation, except where sessions are mounted."""
    for directory, names, files in os.walk(prefix):
        names[:] = sorted(name for name in names if name != "session")
        yield from (Path(directory, name) for name in (*names, *sorted(files)))


def _session(prefix: Path) -> Finding:
    directory = prefix / "libexec/container-engine/session"
    try:
        left = os.listdir(directory)
    except OSError as error:
        text = f"{directory}: {error.strerror}"
        return failed("session directory", text, f"mkdir -m 0755 {directory}")
    if left:
        text = f"{directory} has entries of its own: {', '.join(sorted(left)[:3])}"
        return warning("session directory", text, "remove them: sessions are mounted over it")
    return ok("session directory", "exists and is empty")


def look_at_slurm(
    prefix: Path, env: Mapping[str, str], site: SiteConfig, *, is_node: bool = True
) -> Iterator[Finding]:
    """Check Slurm: its release, the plugin's line, programs around jobs, process tracking, munge.

    `is_node` says whether jobs run on this host. If Slurm does not answer, one finding says so.
    """
    remedy = "is slurmctld up (scontrol ping), munged here, and SLURM_CONF right?"
    try:
        if down := _down(env):
            raise CeError(down)
        settings = slurm.settings(env, _TIMEOUT_S)
    except CeError as error:
        unseen = "so plugstack.conf, epilog, process tracking and munge were not checked"
        yield warning("slurm", f"{error}; {unseen}", remedy)
        return
    yield _release(prefix, settings.get("SLURM_VERSION", ""))
    yield from plugstack.look(prefix, settings, site.start_timeout_s)
    yield from _programs_around_jobs(settings, is_node=is_node)
    if site.batch_script == "inside":
        yield from _before_scripts(prefix, settings)
    yield _tracking(settings.get("ProctrackType", ""))
    yield _munge(settings, env)


def _down(env: Mapping[str, str]) -> str:
    """Return the output of `scontrol ping` if no controller is up, else "".

    Other scontrol commands would then wait a long time before they fail.
    """
    try:
        output(["scontrol", "ping"], env, _TIMEOUT_S)
    except CommandError as error:
        said = error.stdout.decode(errors="replace").splitlines()
        return "; ".join(said) if not any(line.endswith(" is UP") for line in said) else ""
    return ""


def _release(prefix: Path, version: str) -> Finding:
    """Check Slurm's release: it refuses a plugin that was built for another one."""
    try:
        release = (prefix / "share/container-engine/slurm-release").read_text().strip()
    except OSError as error:
        return warning("slurm", f"{error.filename}: {error.strerror}", "make install again")
    if not version.startswith(f"{release}."):
        text = f"is {version}, but the plugin was built for {release}: Slurm refuses to load it"
        return failed("slurm", text, "build and install the engine with this Slurm's headers")
    return ok("slurm", version)


def _programs_around_jobs(settings: Mapping[str, str], *, is_node: bool) -> Iterator[Finding]:
    """Report programs that Slurm would run around jobs and tasks but that are missing."""
    for name, value in settings.items():
        kind = name.partition("[")[0]  # Slurm 24.11 numbers them
        if kind not in _WITHOUT or not value.startswith("/") or _is_there(value):
            continue
        text = f"{kind}={value} is not a program here: {_WITHOUT[kind]}"
        remedy = f"install it here, or take {kind} out of slurm.conf until all nodes have it"
        if is_node:
            yield failed(kind.lower(), text, remedy)
        else:
            text = f"{kind}={value} is not a program here: compute nodes need it"
            yield warning(kind.lower(), text, remedy)


def _before_scripts(prefix: Path, settings: Mapping[str, str]) -> Iterator[Finding]:
    """Warn if no TaskProlog keeps batch scripts from a host that does not load the plugin."""
    if settings.get("TaskProlog", "(null)") not in ("", "(null)"):
        return
    text = 'batch_script = "inside", but a script runs on a host that does not load the plugin'
    program = prefix / "libexec/container-engine/task-prolog"
    yield warning("taskprolog", text, f"TaskProlog={program} in slurm.conf")


def _is_there(pattern: str) -> bool:
    """Check whether all files that `pattern` matches are programs.

    Files that this user may not see are assumed to be.
    """
    try:
        found = glob.glob(pattern) or [pattern]
        return all(os.stat(path).st_mode & 0o111 for path in found)
    except PermissionError:
        return True
    except OSError:
        return False


def _tracking(kind: str) -> Finding:
    """Check how Slurm finds the processes of a step, which include all of a container's."""
    name = "process tracking"
    if kind == "proctrack/cgroup":
        return ok(name, kind)
    if kind == "proctrack/linuxproc":
        text = f"{kind}: processes that become daemons may outlive their job"
        return warning(name, text, "ProctrackType=proctrack/cgroup in slurm.conf")
    text = f"{kind or 'unknown'}: Slurm does not find all processes of a step"
    return failed(name, text, "ProctrackType=proctrack/cgroup in slurm.conf")


def _munge(settings: Mapping[str, str], env: Mapping[str, str]) -> Finding:
    if settings.get("AuthType") != "auth/munge":
        return ok("munge", f"not used: AuthType is {settings.get('AuthType', 'unknown')}")
    socket = re.search(r"socket=([^,\s]+)", settings.get("AuthInfo", ""))
    option = [f"--socket={socket[1]}"] if socket else []
    try:
        output(["munge", "--no-input", *option], env, _TIMEOUT_S)
    except CeError as error:
        remedy = "is munged running here, with the cluster's key and the right time?"
        return failed("munge", str(error), remedy)
    return ok("munge", "signs")

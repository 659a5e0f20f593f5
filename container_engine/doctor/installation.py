"""Checks that the installation on this host is complete, owned by root, and known to Slurm."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from container_engine import __version__
from container_engine.doctor.finding import Finding, failed, ok, warning
from container_engine.errors import CeError
from container_engine.ownership import fault
from container_engine.process import CommandError, output

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PROGRAMS = (
    *("plan", "plan-anew", "node", "inject", "epilog"),
    *("ce-start", "ce-guard", "ce-image", "ce-init", "ce-exec", "ce-join"),
    *("ce-attend", "ce-sweep", "ce-keep"),
)
_PLUGIN = "lib/slurm/container_engine.so"
_TIMEOUT_S = 20
_INSTRUCTION, _MOST_INSTRUCTIONS = 8, 4096  # of classic BPF: bytes, and how many Linux takes
_PROFILE = "write one with seccomp_export_bpf, see the administrator's page on installing"
_INCLUDES = 8  # largest depth of nested includes in plugstack.conf


def look(prefix: Path, env: Mapping[str, str]) -> Iterator[Finding]:
    yield _complete(prefix)
    yield _image_server(prefix, env)
    yield _owner(prefix)
    yield _session(prefix)


def _complete(prefix: Path) -> Finding:
    wanted = [prefix / "libexec/container-engine" / name for name in PROGRAMS]
    wanted.append(prefix / _PLUGIN)
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
    """Check that root owns the programs, some of which run near root, and their parents."""
    libexec = prefix / "libexec/container-engine"
    for path in (*reversed(libexec.parents), *_files(libexec), prefix / _PLUGIN):
        try:
            status = path.stat()
        except OSError:
            continue  # missing files have already been reported
        found = fault(str(path), status, {0}, sticky_is_safe=True)
        if found:
            remedy = found[2] if status.st_uid == 0 else f"chown -R root {prefix}"
            return failed("owner", f"{path}: {found[1]}", remedy)
    return ok("owner", "root, and nobody else may write")


def _files(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.name != "session")
    except OSError:
        return []


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
    return ok("session directory", "there and empty")


def look_at_slurm(prefix: Path, env: Mapping[str, str]) -> Iterator[Finding]:
    """Check that Slurm answers, loads the plugin and can sign messages."""
    remedy = "is slurmctld up (scontrol ping), munged here, and SLURM_CONF right?"
    try:
        if down := _down(env):
            raise CeError(down)
        text = output(["scontrol", "show", "config"], env, _TIMEOUT_S).decode(errors="replace")
    except CeError as error:
        yield warning("slurm", str(error), remedy)
        return
    settings = dict(re.findall(r"^(\S+)\s+= (.*)$", text, re.MULTILINE))
    yield _release(prefix, settings.get("SLURM_VERSION", ""))
    yield from _plugstack(prefix, settings)
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


def _plugstack(prefix: Path, settings: Mapping[str, str]) -> Iterator[Finding]:
    default = str(
        Path(settings.get("SLURM_CONF", "/etc/slurm/slurm.conf")).parent / "plugstack.conf"
    )
    path = settings.get("PlugStackConfig", "(null)")
    path = default if path == "(null)" else path
    plugin = str(prefix / _PLUGIN)
    lines = [line for line in _plugstack_lines(Path(path), _INCLUDES) if _names(line, plugin)]
    wanted = f"required {plugin} prefix={prefix}"
    if not lines:
        yield failed("plugstack.conf", f"{path} has no line for {plugin}", f"add: {wanted}")
    elif len(lines) > 1:
        text = f"{path} loads the plugin {len(lines)} times: no job with an environment starts"
        yield failed("plugstack.conf", text, "have one line for it, in one included file")
    elif lines[0].split()[0] != "required":
        text = f"{path}: '{lines[0].split()[0]}': without it, jobs would run on the host"
        yield failed("plugstack.conf", text, f"write: {wanted}")
    else:
        yield ok("plugstack.conf", path)
        yield _confinement(lines[0].split()[2:])


def _confinement(arguments: Sequence[str]) -> Finding:
    """Check what the plugin's arguments make of tasks: privileges and a seccomp profile."""
    gains = "may gain privileges" if "no_new_privs=off" in arguments else "no new privileges"
    named = [word.partition("=")[2] for word in arguments if word.startswith("seccomp=")]
    if not named:
        return ok("tasks", f"{gains}, no seccomp profile")
    path = named[-1]
    try:
        status = os.stat(path)
    except OSError as error:
        return failed("tasks", f"seccomp={path}: {error.strerror}: none starts", _PROFILE)
    count, rest = divmod(status.st_size, _INSTRUCTION)
    if found := fault(path, status, (0,)):
        _path, why, remedy = found
        return failed("tasks", f"seccomp={path}: {why}: none starts", remedy)
    if rest or not 0 < count <= _MOST_INSTRUCTIONS or not stat.S_ISREG(status.st_mode):
        text = f"seccomp={path}: not a compiled seccomp filter: none starts"
        return failed("tasks", text, _PROFILE)
    if not os.access(path, os.R_OK) or not status.st_mode & stat.S_IROTH:
        return failed("tasks", f"seccomp={path}: users cannot read it", f"chmod a+r {path}")
    return ok("tasks", f"{gains}, seccomp profile {path} of {count} instructions")


def _names(line: str, plugin: str) -> bool:
    """Check whether a line loads this plugin, under any path."""
    return any(os.path.realpath(word) == os.path.realpath(plugin) for word in line.split()[1:2])


def _plugstack_lines(path: Path, depth: int) -> Iterator[str]:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return
    for line in filter(None, (line.partition("#")[0].strip() for line in text.splitlines())):
        word, _space, rest = line.partition(" ")
        if word != "include":
            yield line
        elif depth > 0:
            pattern = Path(path.parent / rest.strip())
            for included in sorted(pattern.parent.glob(pattern.name)):
                yield from _plugstack_lines(included, depth - 1)


def _tracking(kind: str) -> Finding:
    """Check how Slurm finds the processes of a step, which include all of a container's."""
    name = "process tracking"
    if kind == "proctrack/cgroup":
        return ok(name, kind)
    if kind == "proctrack/linuxproc":
        text = f"{kind}: what makes itself nobody's child may outlive its job"
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

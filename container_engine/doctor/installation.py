"""Checks that the installation on this host is complete, owned by root, and known to Slurm."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from container_engine import __version__
from container_engine.doctor.finding import Finding, failed, ok, warning
from container_engine.errors import CeError
from container_engine.ownership import fault
from container_engine.process import CommandError, output

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PROGRAMS = (
    *("plan", "plan-anew", "node", "inject", "epilog"),
    *("ce-start", "ce-guard", "ce-image", "ce-init", "ce-exec", "ce-join"),
    *("ce-attend", "ce-sweep", "ce-keep"),
)
_PLUGIN = "lib/slurm/container_engine.so"
_TIMEOUT_S = 20
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
    yield _plugstack(prefix, settings)
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


def _plugstack(prefix: Path, settings: Mapping[str, str]) -> Finding:
    default = str(
        Path(settings.get("SLURM_CONF", "/etc/slurm/slurm.conf")).parent / "plugstack.conf"
    )
    path = settings.get("PlugStackConfig", "(null)")
    path = default if path == "(null)" else path
    plugin = str(prefix / _PLUGIN)
    lines = [line for line in _plugstack_lines(Path(path), _INCLUDES) if _names(line, plugin)]
    wanted = f"required {plugin} prefix={prefix}"
    if not lines:
        return failed("plugstack.conf", f"{path} has no line for {plugin}", f"add: {wanted}")
    if len(lines) > 1:
        text = f"{path} loads the plugin {len(lines)} times: no job with an environment starts"
        return failed("plugstack.conf", text, "have one line for it, in one included file")
    if lines[0].split()[0] != "required":
        text = f"{path}: '{lines[0].split()[0]}': without it, jobs would run on the host"
        return failed("plugstack.conf", text, f"write: {wanted}")
    return ok("plugstack.conf", path)


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

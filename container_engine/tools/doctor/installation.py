"""Checks that the installation is complete, owned by root, and known to Slurm by its plugin's line.

The plugin refuses every step with a container for a wrong argument (`ce_config_read` in
spank_plugin/plugin/config.c). A test compares ARGUMENTS with those that it accepts.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from container_engine import __version__
from container_engine.base import slurm
from container_engine.base.errors import CeError
from container_engine.base.files import owner_fault
from container_engine.base.process import CommandError, output
from container_engine.base.text_layout import nearest
from container_engine.tools.doctor.finding import Finding, failed, ok, warning

if TYPE_CHECKING:
    from container_engine.site.model import SiteConfig

PROGRAMS = (
    *("plan", "plan-anew", "launcher", "inject", "describe_image", "check_venv", "epilog"),
    *("ce-start", "ce-guard", "ce-image", "ce-init", "ce-enter", "ce-join", "ce-prolog"),
    *("ce-advise", "ce-ask", "ce-user", "ce-reaper", "task-prolog"),
)
_TIMEOUT_S = 20
# what Slurm does where a program around jobs is missing
_WITHOUT = MappingProxyType(
    {
        "Prolog": "the node drains before its next job",
        "Epilog": "the node drains after its next job",
        "TaskProlog": "no task starts, for any user",
    }
)


def look(prefix: Path, env: Mapping[str, str], uid: int) -> Iterator[Finding]:
    mine = is_for_one_user(prefix, uid)
    yield _complete(prefix, mine=mine)
    yield _image_server(prefix, env)
    yield owner(prefix, {0, uid} if mine else {0})
    yield _session(prefix)


def is_for_one_user(prefix: Path, uid: int) -> bool:
    """Check whether this user has unpacked a bundle: steps of Slurm cannot use it."""
    return uid == prefix.stat().st_uid != 0 and not (prefix / PLUGIN).exists()


def _complete(prefix: Path, *, mine: bool) -> Finding:
    wanted = [prefix / "libexec/container-engine" / name for name in PROGRAMS]
    wanted += [prefix / PLUGIN, prefix / USER_PART]
    missing = [str(path) for path in wanted if not path.exists()]
    if missing == [str(path) for path in wanted[-2:]] and any(prefix.glob(f"lib/slurm/*/{_NAME}")):
        if mine:
            return ok("installation", f"{__version__}, complete below {prefix}, for `ce run` alone")
        text = "complete, but its plugin for this Slurm has not been chosen: `ce run` alone works"
        return warning("installation", text, f"as root: {prefix}/sbin/ce-system-install")
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


def owner(prefix: Path, owners: Collection[int] = (0,)) -> Finding:
    """Check that these own all of the installation and its parents, and nobody else may write."""
    for path in (*reversed((prefix / "x").parents), *_below(prefix)):
        try:
            status = path.lstat()
        except OSError:
            continue  # missing files have already been reported
        if stat.S_ISLNK(status.st_mode) and status.st_uid in owners:
            continue  # the mode of a link means nothing
        found = owner_fault(str(path), status, owners, sticky_is_safe=True)
        if found:
            if status.st_uid in owners:
                remedy = found[2]
            elif path not in prefix.parents:
                remedy = f"chown -R root {shlex.quote(str(prefix))}"
            else:
                # such as a home, which must stay its user's
                as_root, or_you = ("", " or you") if len(owners) > 1 else (" as root", "")
                remedy = f"unpack it{as_root} below a directory that belongs to root{or_you}"
            return failed("owner", f"{path}: {found[1]}", remedy)
    who = "root" if len(owners) == 1 else "you"
    return ok("owner", f"{who}, and nobody else may write anything below {prefix}")


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
    yield from look_at_plugstack(prefix, settings, site.start_timeout_s)
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


PLUGIN = "lib/slurm/container_engine.so"
USER_PART = "lib/slurm/container_engine_user.so"
_NAME = os.path.basename(PLUGIN)
_CHECK = "plugstack.conf"
_INCLUDES = 8  # largest depth of nested includes in plugstack.conf
_INSTRUCTION, _MOST_INSTRUCTIONS = 8, 4096  # of classic BPF: in bytes, and how many Linux loads
_DEFAULT_PREFIX = "/opt/container-engine"
_OWN_FILES = "etc/container-engine"  # the site's files below a prefix, which override those in /etc
_PROFILES = f"{_OWN_FILES}/tasks.bpf"  # as in spank_plugin/common/seccomp.c
_PROFILE = "write one with seccomp_export_bpf, see the administrator's page on installing"
_DEFAULT_TIMEOUT_S = 300
# each argument, the form of its value as a pattern, and the form in words
ARGUMENTS = {
    "prefix": (r"/.*", "an absolute path"),
    "start_timeout": (r"0*([1-9]\d{0,3}|[1-7]\d{4}|8[0-5]\d{3}|86[0-3]\d\d|86400)", "1 to 86400"),
    "audit": (r"syslog|/.*", "'syslog' or an absolute path"),
    "seccomp": (r"/.*", "an absolute path"),
    "no_new_privs": (r"on|off", "on or off"),
    "pyxis": (r"on|off", "on or off"),
}


class _Line(NamedTuple):
    place: str  # file and number
    text: str


def look_at_plugstack(
    prefix: Path, settings: Mapping[str, str], start_limit_s: float
) -> Iterator[Finding]:
    """Check this installation's line in plugstack.conf; a start may take `start_limit_s`."""
    default = Path(settings.get("SLURM_CONF", "/etc/slurm/slurm.conf")).parent / "plugstack.conf"
    path = settings.get("PlugStackConfig", "(null)")
    path = str(default) if path == "(null)" else path
    plugin = str(prefix / PLUGIN)
    loaded = [line for line in lines(Path(path)) if is_plugin(line.text)]
    own = [line for line in loaded if names(line.text, plugin)]
    wanted = f"required {plugin} prefix={prefix}"
    if loaded and not own:
        yield from _other(loaded[0], prefix, wanted)
    elif not own:
        yield failed(_CHECK, f"{path} has no line for {plugin}", f"add: {wanted}")
    elif len(loaded) > 1:
        places = ", ".join(f"{line.place} ({line.text.split()[1]})" for line in loaded)
        text = f"{path} loads the plugin {len(loaded)} times: no container starts: {places}"
        yield failed(_CHECK, text, "have one line for it, in one included file")
    elif own[0].text.split()[0] != "required":
        text = f"{path}: '{own[0].text.split()[0]}': without it, jobs would run on the host"
        yield failed(_CHECK, text, f"write: {wanted}")
    else:
        words = own[0].text.split()[2:]
        if wrong := list(_arguments(own[0].place, words, prefix, start_limit_s)):
            yield from wrong
        else:
            yield ok(_CHECK, f"{path}: {' '.join(words)}" if words else path)
        yield _confinement(words, prefix)


def _other(line: _Line, prefix: Path, wanted: str) -> Iterator[Finding]:
    """Report that Slurm uses another installation, and warn if only that has the site's files."""
    loaded, *arguments = line.text.split()[1:]
    text = f"{line.place} loads another installation: {loaded}"
    yield failed(_CHECK, text, f"replace that line, never add a second one: {wanted}")
    named = [word.partition("=")[2] for word in arguments if word.startswith("prefix=")]
    other = Path(named[-1] if named else _DEFAULT_PREFIX)
    if (other / _OWN_FILES).is_dir() and not (prefix / _OWN_FILES).is_dir():
        text = f"{other / _OWN_FILES} is not used by this installation, which has no such directory"
        remedy = f"copy it to {prefix}/etc: otherwise its settings and rules no longer apply"
        yield warning("site's files", text, remedy)


def _arguments(
    place: str, words: Sequence[str], prefix: Path, start_limit_s: float
) -> Iterator[Finding]:
    for word in words:
        name, _equals, value = word.partition("=")
        if name not in ARGUMENTS or "=" not in word:
            meant = nearest(name, list(ARGUMENTS))
            remedy = f"did you mean '{meant}='?" if meant else f"known: {', '.join(ARGUMENTS)}"
            text = f"{place}: unknown argument '{word}': no container starts"
            yield failed(_CHECK, text, remedy)
            continue
        form, words_for_it = ARGUMENTS[name]
        if not re.fullmatch(form, value):
            text = f"{place}: {word}: must be {words_for_it}: no container starts"
            yield failed(_CHECK, text, f"correct {name}=")
    values = dict(word.split("=", 1) for word in words if "=" in word)
    own = values.get("prefix", _DEFAULT_PREFIX)
    if own.startswith("/") and os.path.realpath(own) != os.path.realpath(prefix):
        text = f"{place}: prefix={own} is not where the plugin is installed"
        yield failed(_CHECK, text, f"write: prefix={prefix}")
    waits = values.get("start_timeout", str(_DEFAULT_TIMEOUT_S))
    if waits.isdigit() and 0 < int(waits) <= start_limit_s:
        text = f"{place}: start_timeout={waits} is not longer than start_timeout_s of the site"
        yield warning(
            _CHECK, text, f"more than {start_limit_s:g}, so that the cause of a failure is known"
        )
    directory = os.path.dirname(values.get("audit", ""))
    if directory and not os.path.isdir(directory):
        text = f"{place}: audit={values['audit']}: there is no directory {directory}"
        yield warning(_CHECK, text, "create it: until then no audit line is written")


def _confinement(arguments: Sequence[str], prefix: Path) -> Finding:
    """Check how the plugin's arguments confine tasks: by no_new_privs and a seccomp profile.

    Without the argument `seccomp`, a file beside the site's configuration is the profile, if any.
    """
    gains = "may gain privileges" if "no_new_privs=off" in arguments else "no new privileges"
    named = [word.partition("=")[2] for word in arguments if word.startswith("seccomp=")]
    places = (*named[-1:], str(prefix / _PROFILES), f"/{_PROFILES}")
    path = named[-1] if named else next(filter(os.path.lexists, places), "")
    if not path:
        return ok("tasks", f"{gains}, no seccomp profile")
    try:
        status = os.stat(path)
    except OSError as error:
        return failed("tasks", f"seccomp={path}: {error.strerror}: no container starts", _PROFILE)
    count, rest = divmod(status.st_size, _INSTRUCTION)
    if found := owner_fault(path, status, (0,)):
        _path, why, remedy = found
        return failed("tasks", f"seccomp={path}: {why}: no container starts", remedy)
    if rest or not 0 < count <= _MOST_INSTRUCTIONS or not stat.S_ISREG(status.st_mode):
        text = f"seccomp={path}: not a compiled seccomp filter: no container starts"
        return failed("tasks", text, _PROFILE)
    if not os.access(path, os.R_OK) or not status.st_mode & stat.S_IROTH:
        return failed("tasks", f"seccomp={path}: users cannot read it", f"chmod a+r {path}")
    return ok("tasks", f"{gains}, seccomp profile {path} of {count} instructions")


def is_plugin(line: str) -> bool:
    """Check whether a line loads the plugin of this or another installation."""
    words = line.split()[1:2]
    return any(_NAME in map(os.path.basename, (word, os.path.realpath(word))) for word in words)


def names(line: str, plugin: str) -> bool:
    """Check whether a line loads this installation's plugin, under any path."""
    return any(os.path.realpath(word) == os.path.realpath(plugin) for word in line.split()[1:2])


def lines(path: Path, depth: int = _INCLUDES) -> Iterator[_Line]:
    """Yield the lines of plugstack.conf and of what it includes."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()  # noqa: PLW2901
        word, _space, rest = line.partition(" ")
        if not line:
            continue
        if word != "include":
            yield _Line(f"{path}:{number}", line)
        elif depth > 0:
            pattern = Path(path.parent / rest.strip())
            for included in sorted(pattern.parent.glob(pattern.name)):
                yield from lines(included, depth - 1)

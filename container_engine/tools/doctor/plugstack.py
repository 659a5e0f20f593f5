"""Checks the plugin's line in plugstack.conf, and its arguments as the plugin reads them.

The plugin refuses every step with a container for a wrong argument (`ce_config_read` in
spank_plugin/plugin/config.c). A test compares ARGUMENTS with those that it accepts.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from container_engine.base.files import owner_fault
from container_engine.base.text_layout import nearest
from container_engine.tools.doctor.finding import Finding, failed, ok, warning

PLUGIN = "lib/slurm/container_engine.so"
USER_PART = "lib/slurm/container_engine_user.so"
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


def look(prefix: Path, settings: Mapping[str, str], start_limit_s: float) -> Iterator[Finding]:
    """Check this installation's line in plugstack.conf; a start may take `start_limit_s`."""
    default = Path(settings.get("SLURM_CONF", "/etc/slurm/slurm.conf")).parent / "plugstack.conf"
    path = settings.get("PlugStackConfig", "(null)")
    path = str(default) if path == "(null)" else path
    plugin = str(prefix / PLUGIN)
    loaded = [line for line in _lines(Path(path), _INCLUDES) if _is_plugin(line.text)]
    lines = [line for line in loaded if _names(line.text, plugin)]
    wanted = f"required {plugin} prefix={prefix}"
    if loaded and not lines:
        yield from _other(loaded[0], prefix, wanted)
    elif not lines:
        yield failed(_CHECK, f"{path} has no line for {plugin}", f"add: {wanted}")
    elif len(loaded) > 1:
        places = ", ".join(f"{line.place} ({line.text.split()[1]})" for line in loaded)
        text = f"{path} loads the plugin {len(loaded)} times: no container starts: {places}"
        yield failed(_CHECK, text, "have one line for it, in one included file")
    elif lines[0].text.split()[0] != "required":
        text = f"{path}: '{lines[0].text.split()[0]}': without it, jobs would run on the host"
        yield failed(_CHECK, text, f"write: {wanted}")
    else:
        words = lines[0].text.split()[2:]
        if wrong := list(_arguments(lines[0].place, words, prefix, start_limit_s)):
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


def _is_plugin(line: str) -> bool:
    """Check whether a line loads the plugin of this or another installation."""
    words = line.split()[1:2]
    return any(
        os.path.basename(PLUGIN) in map(os.path.basename, (word, os.path.realpath(word)))
        for word in words
    )


def _names(line: str, plugin: str) -> bool:
    """Check whether a line loads this installation's plugin, under any path."""
    return any(os.path.realpath(word) == os.path.realpath(plugin) for word in line.split()[1:2])


def _lines(path: Path, depth: int) -> Iterator[_Line]:
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
                yield from _lines(included, depth - 1)

"""`ce-system-install`: tell this host of an installation, and before that, what is in its way.

What a package does when it is installed, for a tree that was unpacked or copied: the plugin for
this Slurm, its line for plugstack.conf, the command `ce`, and the AppArmor profile where the kernel
needs it. Nothing is written if a check has failed, and existing files of the site stay.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from container_engine import __version__
from container_engine.base import slurm
from container_engine.base.errors import CeError, SiteError
from container_engine.base.process import find, output
from container_engine.base.variables import PATH
from container_engine.printing import messages
from container_engine.printing import output as printed
from container_engine.tools.doctor import host, installation
from container_engine.tools.doctor.finding import Finding, State, failed, ok, warning

_TIMEOUT_S = 20
_RELEASE = "share/container-engine/slurm-release"
_SOURCES = "share/container-engine/src"
_PROFILE = "etc/apparmor.d/ce-guard"
_OWN_LINE = "plugstack.conf.d/container-engine.conf"
_FAILED = 1
# the options of the plugin, and what it means if another plugin has them
_OURS = ("environment", "edf")
_OF_PYXIS = "container-image"
_SHADOWED = ("enroot", "apptainer", "singularity")


class Host(NamedTuple):
    """A host, its files below `root`, and where the engine is."""

    root: Path
    prefix: Path
    env: Mapping[str, str]

    @property
    def conf(self) -> Path | None:
        """Return slurm.conf, None without one."""
        return next((place for place in self.conf_places if place.is_file()), None)

    @property
    def conf_places(self) -> list[Path]:
        """Return where slurm.conf may be: where the environment says, then the usual places."""
        named = self.env.get("SLURM_CONF")
        usual = [self.root / place.lstrip("/") for place in slurm.conf_places({})]
        return [Path(named), *usual] if named else usual

    @property
    def plugstack(self) -> Path:
        """Return plugstack.conf, which may be missing, and so may Slurm."""
        if self.conf is None:
            return self.root / "etc/slurm/plugstack.conf"
        chosen = slurm.conf_value(str(self.conf), "PlugStackConfig")
        return Path(chosen) if chosen else self.conf.parent / "plugstack.conf"

    @property
    def own_line(self) -> Path:
        return self.plugstack.parent / _OWN_LINE

    @property
    def wanted(self) -> str:
        return f"required {self.prefix / installation.PLUGIN} prefix={self.prefix}"


def main(argv: Sequence[str], prefix: str) -> int:
    """Check or change this host. Return the exit code: 1 if a check has failed."""
    parser = argparse.ArgumentParser(
        "ce-system-install",
        description="Tell this host of the engine that this program is part of.",
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument(
        "--check",
        action="store_true",
        help="change nothing; print what is in the way, and exit with 1 if anything is",
    )
    only.add_argument("--remove", action="store_true", help="remove what this program has written")
    chosen = parser.parse_args(argv)
    here = Host(Path("/"), Path(prefix), {**os.environ, "PATH": f"{os.environ['PATH']}:{PATH}"})
    try:
        if not chosen.check and os.geteuid() != 0:
            raise SiteError("ce-system-install: needs root", "--check runs as any user")
        if chosen.remove:
            return _remove(here)
        found = [*look(here)]
        _say(found, whole=chosen.check)
        if any(finding.state is State.FAILED for finding in found):
            return _FAILED
        if not chosen.check:
            _install(here)
    except CeError as error:
        messages.say(messages.of_error(error))
        return _FAILED
    except OSError as error:
        text = f"{error.filename}: {error.strerror}"
        messages.say(messages.of_error(SiteError(text, "nothing after it was done")))
        return _FAILED
    return 0


def _say(found: Sequence[Finding], *, whole: bool) -> None:
    """Print each finding that asks for something in one line, and how many there are."""
    told = [finding for finding in found if finding.state is not State.OK]
    for finding in told:
        text = f"{finding.state:<8} {finding.check}: {finding.message}"
        printed.line(f"{text}; remedy: {finding.remedy}")
    if whole:
        bad = sum(finding.state is State.FAILED for finding in told)
        fine = len(found) - len(told)
        printed.line(
            f"{fine} ok, {len(told) - bad} with a warning, {bad} failed; nothing was changed"
        )


def look(here: Host) -> Iterator[Finding]:
    """Check the host and the tree, the owner of the tree first."""
    yield installation.owner(here.prefix)
    yield from host.look_at_kernel(here.root)
    yield _plugin(here)
    yield _slurm_conf(here)
    yield from _plugstack(here)
    yield from _commands(here)
    yield _profile(here)
    yield from _packages(here)


# ---- the checks --------------------------------------------------------------------------------


def _release(env: Mapping[str, str]) -> str | None:
    """Return the release of this host's Slurm, as 24.11; None without one."""
    for program in ("scontrol", "slurmd", "srun"):
        if find(program, env["PATH"]) is None:
            continue
        try:
            said = output([program, "-V"], env, _TIMEOUT_S).decode(errors="replace")
        except CeError:
            continue
        if number := re.search(r"(\d+)\.(\d+)", said):
            return f"{number[1]}.{number[2]}"
    return None


def _built_for(prefix: Path) -> list[str]:
    """Return the releases of Slurm that the tree has a plugin for."""
    places = prefix.glob(f"lib/slurm/*/{os.path.basename(installation.PLUGIN)}")
    found = {path.parent.name for path in places}
    if (prefix / installation.PLUGIN).exists() and (prefix / _RELEASE).exists():
        found.add((prefix / _RELEASE).read_text().strip())
    return sorted(found)


def _plugin(here: Host) -> Finding:
    release, known = _release(here.env), _built_for(here.prefix)
    if release is None:
        return ok("slurm", "none on this host: `ce run` alone")
    if release not in known:
        sources = here.prefix / _SOURCES
        text = f"is {release}, but {here.prefix}/lib/slurm has plugins for {', '.join(known)}"
        remedy = f"with a C compiler and the headers of that Slurm: make -C {sources}"
        return failed("slurm", text, remedy)
    return ok("slurm", f"{release}: there is a plugin for it")


def _slurm_conf(here: Host) -> Finding:
    """Warn of a Slurm whose slurm.conf, and so plugstack.conf, is in none of the known places."""
    check = "slurm.conf"
    if here.conf is not None:
        return ok(check, str(here.conf))
    if _release(here.env) is None and not here.plugstack.exists():
        return ok(check, "none, as there is no Slurm on this host")
    places = ", ".join(map(str, here.conf_places))
    text = f"not found in {places}: without it plugstack.conf is not changed"
    return warning(check, text, f"SLURM_CONF=FILE {here.prefix}/sbin/ce-system-install")


def _plugstack(here: Host) -> Iterator[Finding]:
    check, own = "plugstack.conf", here.prefix / installation.PLUGIN
    for line in installation.lines(here.plugstack):
        words = line.text.split()
        path = Path(words[1]) if len(words) > 1 else Path()
        if installation.is_plugin(line.text):
            if not installation.names(line.text, str(own)):
                text = f"{line.place} loads another installation: {path}"
                yield failed(check, text, f"replace that line, never add one: {here.wanted}")
            continue
        has = _options_of(path)
        for option in (name for name in _OURS if name in has):
            text = f"{line.place}: {path} has an option --{option}, too"
            yield failed(check, text, "remove that line: srun refuses an option of two plugins")
        if _OF_PYXIS in has:
            text = f"{line.place}: {path} has pyxis's options and keeps them"
            yield warning(check, text, "none is needed: docs/admin/beside-pyxis.md")
    if here.conf is not None and not _is_read(here):
        text = f"{here.plugstack} does not include {here.own_line}"
        yield failed(check, text, f"add: include {here.own_line.parent}/*.conf")


def _is_read(here: Host) -> bool:
    """Check whether plugstack.conf is missing, and so may be written, or includes our file."""
    if not here.plugstack.exists():
        return True
    wanted = here.own_line
    patterns = [
        Path(here.plugstack.parent / line.partition("include")[2].strip())
        for line in here.plugstack.read_text(errors="replace").splitlines()
        if line.strip().startswith("include")
    ]
    known = [line.text for line in installation.lines(here.plugstack)]
    loads = any(installation.is_plugin(text) for text in known)
    return loads or any(
        pattern.parent == wanted.parent and wanted.match(pattern.name) for pattern in patterns
    )


def _options_of(path: Path) -> set[str]:
    """Return which of the options in question a plugin's file names, as whole strings."""
    try:
        content = path.read_bytes()
    except OSError:
        return set()
    return {name for name in (*_OURS, _OF_PYXIS) if b"\0%s\0" % name.encode() in content}


def _commands(here: Host) -> Iterator[Finding]:
    own = here.prefix / "bin/ce"
    for path in (here.root / "usr/local/bin/ce", here.root / "usr/bin/ce"):
        if os.path.lexists(path) and os.path.realpath(path) != os.path.realpath(own):
            yield failed("ce", f"{path} is another program", f"remove it, or call {own}")
    compat = str(here.prefix / "libexec/container-engine/compat")
    places = here.env["PATH"].split(":")
    rest = ":".join(place for place in places if place != compat)
    for name in _SHADOWED if compat in places else ():
        found, other = find(name, here.env["PATH"]), find(name, rest)
        if found is not None and other is not None and os.path.dirname(found) == compat:
            text = f"{found} comes before {other} in PATH"
            yield warning(name, text, f"put {compat} last in PATH, or remove it from there")


def _profile(here: Host) -> Finding:
    path = here.root / _PROFILE
    try:
        content = path.read_text(errors="replace")
    except OSError:
        return ok("apparmor", f"no {path}")
    if f"{here.prefix}/" not in content:
        text = f"{path} is for another installation"
        return failed("apparmor", text, f"remove it, and apparmor_parser -R it: rm {path}")
    return ok("apparmor", f"{path} is for this installation")


def _packages(here: Host) -> Iterator[Finding]:
    queries: tuple[tuple[str, ...], ...] = (
        ("dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", "container-engine"),
        ("rpm", "-q", "container-engine"),
    )
    for argv in queries:
        if find(argv[0], here.env["PATH"]) is None:
            continue
        try:
            said = output(argv, here.env, _TIMEOUT_S).decode(errors="replace").strip()
        except CeError:
            continue  # not installed
        if argv[0] == "rpm" or said.startswith("installed"):
            text = f"{argv[0]} knows an installed container-engine: {said.split()[-1]}"
            yield failed("package", text, "remove that package, or upgrade it instead")


# ---- what is written ---------------------------------------------------------------------------


def _install(here: Host) -> None:
    """Write what is missing, in an order in which each part may be the last. Raise OSError."""
    os.umask(0o022)  # users' programs read all of it
    release = _release(here.env)
    if release is not None:
        choose_plugin(here.prefix, release)
    _link(here.root / "usr/local/bin/ce", str(here.prefix / "bin/ce"))
    if (here.root / "proc/sys/kernel" / host.APPARMOR).exists():
        _write(here.root / _PROFILE, profile(here.prefix))
        output(["apparmor_parser", "-r", str(here.root / _PROFILE)], here.env, _TIMEOUT_S)
    if here.conf is not None:
        # the line comes last: without the plugin's file no step would start
        _write(here.own_line, f"{here.wanted}\n")
        if not here.plugstack.exists():
            _write(here.plugstack, f"include {here.own_line.parent}/*.conf\n")
        epilog = here.prefix / "libexec/container-engine/epilog"
        printed.line(
            f"when all nodes have it: Epilog={epilog} in {here.conf}, scontrol reconfigure"
        )
    known = "; ce doctor starts a container"
    if _slurm_conf(here).state is not State.OK:
        known = " for ce run alone: plugstack.conf was not changed, so srun has no --environment"
    printed.line(f"installed: {__version__} below {here.prefix}{known}")


def profile(prefix: Path) -> str:
    """Return the AppArmor profile for the engine in `prefix`."""
    text = (prefix / "share/container-engine/apparmor").read_text()
    guard = prefix / "libexec/container-engine/ce-guard"
    return re.sub(r"(?m)^profile ce-guard \S+", f'profile ce-guard "{guard}"', text)


def choose_plugin(prefix: Path, release: str) -> None:
    """Link the plugin for this release to where all looks for it, unless it is there."""
    known = prefix / _RELEASE
    if known.exists() and known.read_text().strip() == release:
        return
    for part in (installation.PLUGIN, installation.USER_PART):
        path = prefix / part
        _replace(path, partial(_linked, f"{release}/{path.name}"))
    _replace(known, lambda draft: _written(draft, f"{release}\n"))
    printed.line(f"plugin for Slurm {release}: {prefix / installation.PLUGIN}")


def _linked(target: str, draft: Path) -> None:
    draft.symlink_to(target)


def _written(draft: Path, text: str) -> None:
    draft.write_text(text)
    draft.chmod(0o644)


def _replace(path: Path, make: Callable[[Path], None]) -> None:
    """Make a file beside `path` and rename it: who looks for it finds the old or the new one."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    make(draft)
    draft.replace(path)


def _write(path: Path, text: str) -> None:
    """Write a file that is not there; a file of the site's stays as it is."""
    if path.exists():
        printed.line(f"stays: {path}")
        return
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    _replace(path, lambda draft: _written(draft, text))
    printed.line(f"written: {path}")


def _link(path: Path, target: str) -> None:
    if os.path.realpath(path) == os.path.realpath(target):
        return
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.symlink_to(target)
    printed.line(f"written: {path}")


def _remove(here: Host) -> int:
    """Remove this installation's line first, then its link; a site's changes to the line go too."""
    own = str(here.prefix / installation.PLUGIN)
    conf = _slurm_conf(here)
    if conf.state is not State.OK:
        _say([conf._replace(remedy=f"{conf.remedy} --remove")], whole=False)
    lines = [line.text for line in installation.lines(here.own_line)]
    if any(installation.names(text, own) for text in lines):
        here.own_line.unlink()
        printed.line(f"removed: {here.own_line}")
    if f'"{here.prefix}/' in (_read(here.root / _PROFILE)):
        output(["apparmor_parser", "-R", str(here.root / _PROFILE)], here.env, _TIMEOUT_S)
        (here.root / _PROFILE).unlink()
        printed.line(f"removed: {here.root / _PROFILE}")
    link = here.root / "usr/local/bin/ce"
    if link.is_symlink() and os.path.realpath(link) == os.path.realpath(here.prefix / "bin/ce"):
        link.unlink()
        printed.line(f"removed: {link}")
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""

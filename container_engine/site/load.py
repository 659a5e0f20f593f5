"""Reads the site's configuration; later files win.

They are config.toml, conf.d/*.toml and, for the cluster of this host, clusters.d/CLUSTER.toml.
"""

from __future__ import annotations

import errno
import os
import tomllib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from container_engine import ownership, slurm_conf
from container_engine.model import MisfitError
from container_engine.process import reason
from container_engine.site.model import READ_ON_NODES, SiteConfig
from container_engine.validation_text import Fault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SYSTEM_DIRECTORY = "/etc/container-engine"
MAIN, DROP_INS, CLUSTERS = "config.toml", "conf.d", "clusters.d"
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
_TOML = 'a line is KEY = "TEXT", KEY = ["TEXT", "TEXT"], KEY = true or KEY = 60'
# Arrays of these keys are joined across files, and tables merged key by key. For all other keys
# the value of the last file counts.
_APPENDED = ("devices", "devices_if_there", "mounts")


class Configuration(NamedTuple):
    """The effective settings, and where they were written.

    `origins` maps each key set in a file to that file, with one entry per item of a joined array
    ("mounts[1]") and per key of a table ("env.NAME"). `files` were read in this order; `probed`
    are all paths examined, existing or not; `variables` are the names of the environment variables
    on which the result depends. A value with a fault is left out of the settings.
    """

    settings: SiteConfig
    origins: Mapping[str, str]
    files: tuple[str, ...]
    probed: tuple[str, ...]
    faults: tuple[Fault, ...] = ()
    variables: tuple[str, ...] = ()

    def origin(self, key: str) -> str:
        """Return the origin of a key, as plans and messages show it."""
        file = self.origins.get(key)
        return f"site: {file}:{key}" if file else "default"

    def place(self, key: str) -> str:
        """Return FILE:LINE of a key, for an error; without a line if no file sets the key."""
        from container_engine.toml_positions import place_of

        file = self.origins.get(key)
        return place_of(file, tuple(key.split("."))) if file else "the site's configuration"


def directories(prefix: str) -> tuple[str, ...]:
    """Return the possible directories for an installation below `prefix`.

    Only the first that contains any file counts.
    """
    return (f"{prefix}/etc/container-engine", SYSTEM_DIRECTORY)


def load(
    prefix: str, uid: int, file: str | None = None, env: Mapping[str, str] = NO_VARIABLES
) -> Configuration:
    """Return the site's configuration, or that of `file` alone; `env` leads to slurm.conf.

    Root, `uid` or the owner of the engine's code must own every file, and nobody else may write
    it. Raise SiteError with every fault and its line, in one line.
    """
    found = read(prefix, uid, file, env)
    if found.faults:
        from container_engine.site.lines import FaultsError

        raise FaultsError(found.faults, found.origins)
    return found


def read(
    prefix: str, uid: int, file: str | None = None, env: Mapping[str, str] = NO_VARIABLES
) -> Configuration:
    """Read as `load` does, but return the faults instead of raising SiteError."""
    looked = _Looked([], [], [])
    files = [file] if file else _files(prefix, uid, looked)
    if files and not file:
        files += _of_cluster(files, uid, env, looked)
    merged = _Merged()
    for path in files:
        content = _content(path, uid, looked.faults)
        if content is not None:
            merged.add(path, content, looked.faults)
    settings = SiteConfig.of(merged.values)
    probed, faults, variables = looked
    return Configuration(
        settings,
        merged.origins,
        tuple(files),
        (*probed, *files),
        tuple(faults),
        tuple(variables),
    )


class _Looked(NamedTuple):
    """All paths examined so far, their faults, and the names of the variables consulted."""

    probed: list[str]
    faults: list[Fault]
    variables: list[str]


def of_clusters(files: Sequence[str]) -> list[str]:
    """Return the files of all clusters, which are in clusters.d of the configuration's directory.

    `files` are those of the configuration; if there are none, clusters have none either.
    """
    return _in_clusters(_above(files), []) if files else []


def _above(files: Sequence[str]) -> str:
    """Return the directory of a configuration whose only files may be in conf.d."""
    return os.path.dirname(files[0]).removesuffix(f"/{DROP_INS}")


def _in_clusters(directory: str, faults: list[Fault]) -> list[str]:
    """Return the files of all clusters; any error but their absence is a fault."""
    clusters = f"{directory}/{CLUSTERS}"
    try:
        names = sorted(os.listdir(clusters))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        faults.append(Fault(clusters, reason(error)))
        return []
    return [f"{clusters}/{name}" for name in names if name.endswith(".toml")]


def _of_cluster(
    files: Sequence[str], uid: int, env: Mapping[str, str], looked: _Looked
) -> list[str]:
    """Return the file of this host's cluster if there is one."""
    every = _in_clusters(_above(files), looked.faults)
    if not every:
        return []
    directory = os.path.dirname(every[0])
    _check_owner(directory, os.stat(directory), uid, looked.faults)
    looked.variables.append("SLURM_CONF")
    looked.probed.extend(slurm_conf.places(env))
    configuration = slurm_conf.find(env)
    name = slurm_conf.value(configuration, "ClusterName", looked.probed) if configuration else ""
    if not name:
        why = "cannot tell which of these applies: this host has no slurm.conf with a ClusterName"
        looked.faults.append(
            Fault(directory, why, "set SLURM_CONF to the path of slurm.conf if it is elsewhere")
        )
    file = f"{directory}/{name.lower()}.toml"
    return [file] if file in every else []


def _files(prefix: str, uid: int, looked: _Looked) -> list[str]:
    probed, faults, _variables = looked
    for directory in directories(prefix):
        main, drop_ins = f"{directory}/{MAIN}", f"{directory}/{DROP_INS}"
        probed += [main, drop_ins, f"{directory}/{CLUSTERS}"]
        try:
            names = sorted(os.listdir(drop_ins))
            _check_owner(drop_ins, os.stat(drop_ins), uid, faults)
        except OSError as error:
            names = []
            if error.errno != errno.ENOENT:
                faults.append(Fault(drop_ins, reason(error)))
        files = [main] if _is_there(main, faults) else []
        files += [
            f"{drop_ins}/{name}"
            for name in names
            if name.endswith(".toml") and not name.startswith(".")
        ]
        if files:
            return files
        for path in _in_clusters(directory, faults):
            faults.append(Fault(path, f"has no {MAIN} above it", f"an empty {main} will do"))
    return []


def _is_there(path: str, faults: list[Fault]) -> bool:
    """Check whether a file exists; any error but its absence is a fault.

    An unreachable file system must not look like a site without rules.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        faults.append(Fault(path, reason(error)))
        return False
    return True


def _content(path: str, uid: int, faults: list[Fault]) -> dict[str, Any] | None:
    try:
        with open(path, "rb") as file:
            if not _check_owner(path, os.fstat(file.fileno()), uid, faults):
                return None
            return tomllib.load(file)
    except PermissionError as error:
        faults.append(
            Fault(path, reason(error), f"users must be able to read it: chmod a+r {path}")
        )
    except OSError as error:
        faults.append(Fault(path, reason(error)))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        faults.append(Fault(path, f"not valid TOML: {error}", _TOML))
    return None


def _check_owner(path: str, status: os.stat_result, uid: int, faults: list[Fault]) -> bool:
    # The owner of the engine's code has as much power anyway. In a container's user namespace,
    # where root's files appear as nobody's, this check is what accepts the installation.
    found = ownership.fault(path, status, {uid, *ownership.of_engine()})
    if found:
        faults.append(Fault(path, *found[1:]))
    return not found


class _Merged:
    """The content of the files so far, merged."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[str, str] = {}

    def add(self, path: str, content: dict[str, Any], faults: list[Fault]) -> None:
        """Merge one file; keys with a fault are left out and added to `faults`."""
        for key, value in content.items():
            problems = _problems(path, key, value) or _of_nodes(path, key, value)
            faults.extend(problems)
            if problems:
                continue
            if key in _APPENDED:
                items = self.values.setdefault(key, [])
                self.origins |= {f"{key}[{len(items) + i}]": path for i in range(len(value))}
                items.extend(value)
            elif isinstance(value, dict):
                self.values.setdefault(key, {}).update(value)
                self.origins |= {f"{key}.{name}": path for name in value}
            else:
                self.values[key] = value
                self.origins[key] = path


def _of_nodes(path: str, key: str, value: object) -> list[Fault]:
    """Return a fault for each key of a cluster's file that nodes read from other files only."""
    if os.path.basename(os.path.dirname(path)) != CLUSTERS:
        return []
    keys = [f"{key}.{name}" for name in value] if isinstance(value, dict) else [key]
    why = "nodes read this key again, in config.toml and conf.d only: write it there"
    return [Fault(path, why, key=one) for one in keys if one in READ_ON_NODES]


def _problems(path: str, key: str, value: object) -> list[Fault]:
    try:
        SiteConfig.of({key: value})
    except MisfitError as error:
        return [
            Fault(path, misfit.message, misfit.example or _of_unknown(misfit.message), misfit.key)
            for misfit in error.misfits
        ]
    return []


def _of_unknown(message: str) -> str | None:
    """Return a hint for an unknown key, unless the message suggests another one."""
    name = message.partition("unknown key '")[2].partition("'")[0].rpartition(".")[2]
    if f".{name}'" in message and name in SiteConfig.__struct_fields__:
        return "it is a key of the top level: write it above the first [table]"
    is_alone = name != "" and message.endswith(f"{name}'") and "did you mean" not in message
    return "'ce config show' prints all keys that there are" if is_alone else None

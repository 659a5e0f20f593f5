"""`ce config show|check`: print the site's settings and their origin, or check them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from container_engine.base.errors import SiteError
from container_engine.base.process import reason
from container_engine.base.text_layout import with_origins
from container_engine.base.toml_positions import Fault
from container_engine.cli.command_line.options import add_show_secrets, secrecy
from container_engine.images import site_program
from container_engine.plan.site_context import sitewide
from container_engine.printing import output
from container_engine.site.load import (
    Configuration,
    FaultsError,
    directories,
    line_of,
    located,
    of_clusters,
)
from container_engine.submit.context import Context, with_faults
from container_engine.tools.doctor import site
from container_engine.tools.doctor.site import site_files

if TYPE_CHECKING:
    from container_engine.base.secrecy import Secrecy

_DEFAULT = "default"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        metavar="ACTION",
        nargs="?",
        default="show",
        choices=("show", "check"),
        help="show, the default: each value and the file it comes from; check: what is wrong, exit"
        " code 1",
    )
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="look at this file in place of the site's"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_show_secrets(parser)


def execute(arguments: argparse.Namespace, context: Context) -> int:
    if arguments.file is not None:
        context = context._replace(site_file=os.path.join(context.cwd, arguments.file))
    config = with_faults(context)
    if arguments.action == "check":
        return _check(config, context, as_json=arguments.json)
    if config.faults:
        hint = "'ce config check' lists all errors"
        raise SiteError(located(config.faults[0], config.origins), hint, "site-configuration")
    rows = list(_rows(config, secrecy(arguments, context, config.settings.secret_variables)))
    if arguments.json:
        document = {key: {"value": value, "from": origin} for key, value, origin in rows}
        output.document({"files": config.files, "settings": document})
        return 0
    shown = [("", f"{key} = {_toml(value)}", origin) for key, value, origin in rows]
    for line in with_origins(shown, output.columns(), 4):
        output.line(line)
    return 0


def _rows(config: Configuration, hidden: Secrecy) -> Iterator[tuple[str, object, str]]:
    """Yield key, value and origin of each setting; settings merged from files, item by item."""
    for key, value in config.settings.as_dict().items():
        items: dict[str, object] = {key: value}
        if key == "env":
            value = {name: hidden.value(name, text) for name, text in value.items()}  # noqa: PLW2901
        if isinstance(value, dict) and value:
            items = {f"{key}.{name}": item for name, item in value.items()}
        elif isinstance(value, tuple) and f"{key}[0]" in config.origins:
            items = {f"{key}[{index}]": item for index, item in enumerate(value)}
        yield from ((name, items[name], config.origins.get(name, _DEFAULT)) for name in items)


def _toml(value: object) -> str:
    if value is None:
        return '""'
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml(item)}' for key, item in value.items())} }}"
    # strings, arrays of strings and booleans look alike in TOML and JSON
    return json.dumps(value, ensure_ascii=False)


def _check(config: Configuration, context: Context, *, as_json: bool) -> int:
    more, notes = site.look_at_values(config)
    faults = [*config.faults, *_semantic(config, context), *more]
    faults += _of_other_clusters(config, context)
    if as_json:
        document = {
            "files": config.files,
            "faults": [_document(fault, config) for fault in faults],
            "notes": [_document(note, config) for note in notes],
        }
        output.document({"valid": not faults, **document})
    else:
        for fault in faults:
            output.line(located(fault, config.origins))
            if fault.hint:
                output.line(f"    {fault.hint}")
        if not faults:
            _say_fine(config, context)
        for note in notes:
            output.line(f"note: {located(note, config.origins)}")
    sys.stdout.flush()
    return int(bool(faults))


def _of_other_clusters(config: Configuration, context: Context) -> Iterator[Fault]:
    """Yield what is wrong with the files that only launches on other clusters read."""
    for file in of_clusters(config.files):
        if file not in config.files:
            yield from with_faults(context._replace(site_file=file)).faults


def _document(fault: Fault, config: Configuration) -> dict[str, object]:
    return {**fault._asdict(), "line": line_of(fault, config.origins)}


def _say_fine(config: Configuration, context: Context) -> None:
    for file in config.files:
        output.line(f"{file}: nothing is wrong")
    if not config.files:
        places = " and ".join(directories(context.prefix))
        output.line(f"no file in {places}: all settings have their defaults")


def _semantic(config: Configuration, context: Context) -> Iterator[Fault]:
    """Yield faults that types cannot express: missing files, malformed mounts."""
    if not config.faults:
        try:
            sitewide(config, context.env)
        except FaultsError as error:
            yield from error.faults
    for key in ("edf_dir", "edf_dirs", "image_store", "image_stores", "hooks_dirs", "hook_catalog"):
        if key not in config.origins:
            continue  # a default directory need not exist
        value = getattr(config.settings, key)
        for path in value if isinstance(value, tuple) else (value,):
            yield from _directory(config.origins[key], key, path)
    yield from _programs(config)


def _programs(config: Configuration) -> Iterator[Fault]:
    """Yield faults of programs that launches run, and of what names signers."""
    policy = config.settings.policy
    programs = {
        "policy.scanner": policy.scanner,
        "store_layout": config.settings.store_layout,
        "importer": tuple(filter(None, [config.settings.importer])),
    }
    for name, words in programs.items():
        if not words:
            continue
        file = config.origins[name]
        try:
            site_program.check(words[0], file, name)
        except SiteError as error:
            yield Fault(file, f"'{words[0]}': {error.reason}", error.hint, name)
    signers = {"signature_policy": policy.signature_policy, "sif_keys": policy.sif_keys}
    for name, path in signers.items():
        if path and not os.access(path, os.R_OK):
            key = f"policy.{name}"
            yield Fault(config.origins[key], f"'{path}' cannot be read", key=key)
    if not all(map(os.path.isdir, config.settings.hooks_dirs)):
        return  # reported as a fault of its own
    for kind, _number, fault in site_files(config.settings):
        if kind == "OCI hooks" and fault is not None:
            yield fault


def _directory(file: str, key: str, path: str) -> Iterator[Fault]:
    if not path.startswith("/"):
        yield Fault(file, f"'{path}' is not an absolute path", key=key)
        return
    try:
        os.listdir(path)
    except OSError as error:
        yield Fault(file, f"'{path}': {reason(error)}", key=key)

"""Pages of the documentation that are generated from the models and the command line."""

from __future__ import annotations

import argparse
import inspect
import json
import re
from types import FunctionType
from typing import TYPE_CHECKING, Any

from container_engine import api
from container_engine.base.model import schema_text
from container_engine.cli.command_line.parser import build
from container_engine.cli.command_line.verb_table import examples_of, verbs
from container_engine.edf.document import Document
from container_engine.site.model import Policy, SiteConfig
from container_engine.site.places import READ_ON_NODES

if TYPE_CHECKING:
    from container_engine.base.model import Model


def pages() -> dict[str, str]:
    """Return the text of each page by path."""
    return {
        "docs/reference/edf.md": _EDF + keys(Document),
        "docs/reference/configuration.md": _CONFIGURATION + readers() + keys(SiteConfig),
        "docs/reference/commands.md": commands(),
        "docs/reference/api.md": python(),
    }


_EDF = """\
# Keys of an EDF

Generated from the model that reads EDFs; [the guide](../guide/edf.md) explains how the keys work
together. All are optional. In every string variables are expanded.

"""
_CONFIGURATION = """\
# Keys of the site's configuration

Generated from the model that reads `config.toml`, `conf.d/*.toml` and `clusters.d/*.toml`; how the
files go together is in [the site's configuration](../admin/configuration.md). All are optional.

"""
_API = """\
# container_engine.api

Generated from the module; [a page](../howto/python-api.md) shows how it is used. A `path` is a
string or a `Path`. Names, arguments and fields stay as they are within a version: this is version
1, `api.VERSION`.
"""
# These keys name something that has to be on the nodes.
MEANT_FOR_NODES = (
    *("mounts", "devices", "devices_if_there", "image_store", "image_stores", "passing_dir"),
    *("tmpfs_size", "hooks_dirs", "podman", "runtime", "hook_catalog", "trace_dir"),
    *("tracking_tool", "cdi_dirs", "user_cdi_dir", "kept_dir"),
)
_BOTH, _SUBMIT = "submit host, and again each node", "submit host"
_TABLE = """\
Submit hosts read all keys, and what a launch needs travels with it; nodes read some
again, in their own files. What a key marked here names must be there on the nodes.

| key | read on | names something on the nodes |
|---|---|---|
"""


def readers() -> str:
    """Return a table of the hosts that read each key of the configuration."""
    rows = []
    for name in SiteConfig.model_fields:
        below = [f"policy.{one}" for one in Policy.model_fields] if name == "policy" else [name]
        for key in below:
            where = _BOTH if key in READ_ON_NODES else _SUBMIT
            rows.append(f"| `{key}` | {where} | {'yes' if key in MEANT_FOR_NODES else ''} |\n")
    return f"{_TABLE}{''.join(rows)}\n"


def keys(model: type[Model]) -> str:
    """Return a section for each key."""
    schema = json.loads(schema_text(model))
    return "\n".join(_key(schema, name, key) for name, key in schema["properties"].items())


def _key(schema: dict[str, Any], name: str, key: dict[str, Any]) -> str:
    if "$ref" in key:
        inner = schema["$defs"][key["$ref"].rpartition("/")[2]]
        text = f"## `[{name}]`\n\n{_sentence(key['description'])}\n\n"
        return text + "\n".join(
            _key(schema, f"{name}.{below}", value) for below, value in inner["properties"].items()
        )
    facts = [f"Type: {type_of(key)}"]
    if "default" in key:
        facts.append(
            f"default: `{toml(key['default'])}`" if key["default"] != "" else "default: empty"
        )
    facts.append(f"since {key['since']}")
    text = f"## `{name}`\n\n{_sentence(key['description'])}\n\n{'; '.join(facts)}.\n"
    last = name.rpartition(".")[2]
    for example in key.get("examples", [])[:1]:
        text += f"\n```text\n{last} = {toml(example)}\n```\n"
    return text


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].removesuffix('.')}."


def type_of(key: dict[str, Any]) -> str:
    """Return the type of a key in TOML's terms."""
    if "anyOf" in key:
        return " or ".join(type_of(kind) for kind in key["anyOf"] if kind.get("type") != "null")
    if "enum" in key:
        return "one of " + ", ".join(f"`{value or 'empty'}`" for value in key["enum"])
    if "const" in key:
        return f"`{key['const']}`"
    kind = key.get("type", "table")
    if kind == "array":
        inner = type_of(key.get("items", {}))
        return f"array of {inner}s" if inner.isalpha() else f"array, each {inner}"
    if kind == "object":
        inner = key.get("additionalProperties", {})
        return f"table of {inner['type']}s" if "type" in inner else "table"
    return str(kind)


def toml(value: object) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{_name(name)} = {toml(item)}" for name, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False)


def _name(name: str) -> str:
    return name if name.replace("_", "").isalnum() else json.dumps(name)


def commands() -> str:
    """Return a section for each verb: usage, options and examples, as `--help` has them.

    Options are rows of a table, because a phone would wrap the columns of `--help`.
    """
    text = (
        "# Commands\n\nGenerated from the command line's own parser; `ce VERB --help` prints the"
        " same.\n"
    )
    for verb, parser in parsers().items():
        usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
        text += (
            f"\n## `ce {verb}`\n\n{_purpose(parser)}\n\n```text\n{usage}\n```\n{_options(parser)}"
        )
        if examples := examples_of(verb):
            shown = "".join(f"$ {example}\n" for example in examples)
            text += f"\n```console\n{shown}```\n"
    return text


def python() -> str:
    """Return a section for each public name of container_engine.api, from its description."""
    names = (name for name in api.__all__ if name != "VERSION")
    return _API + "".join(_public(name, getattr(api, name)) for name in names)


_FIELDS = ("_fields", "__dataclass_fields__", "model_fields")  # of a named tuple, and so on


def _public(name: str, what: object) -> str:
    text = f"\n## `{name}`\n\n{_described(what)}\n"
    if not inspect.isclass(what):
        return f"{text}\n```text\n{name}{_signature(what)}\n```\n"
    below = [
        f"- `{inner}{_signature(found)}`: {_described(found).splitlines()[0]}\n"
        for inner, found in inspect.getmembers(what)
        if not inner.startswith(("_", "model_")) and _is_own(what, inner)
    ]
    names = next(filter(None, (getattr(what, one, ()) for one in _FIELDS)), ())
    fields = f"\nFields: {', '.join(f'`{one}`' for one in names)}.\n" if names else ""
    return text + fields + ("\n" if below else "") + "".join(below)


def _is_own(what: type, name: str) -> bool:
    """Check whether a class has a method or property of its own that has a description."""
    found = what.__dict__.get(name)
    return isinstance(found, property | classmethod | FunctionType) and bool(found.__doc__)


def _described(what: object) -> str:
    """Return the description, its list of lines joined to paragraphs."""
    paragraphs = (inspect.getdoc(what) or "").split("\n\n")
    return "\n\n".join(" ".join(one.split()) for one in paragraphs)


def _signature(what: object) -> str:
    if not callable(what):
        return ""
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(what)))
    return text.replace("str | os.PathLike[str]", "path")


def _purpose(parser: argparse.ArgumentParser) -> str:
    """Return the description; lines of it that are columns become a list."""
    lines = (parser.description or "").splitlines()
    if len(lines) < 2:
        return "".join(lines)
    parts = [re.split(r" {2,}|(?<=\]) ", line, maxsplit=1) for line in lines]
    return "\n".join(f"- `{name}`: {what[0] if what else ''}" for name, *what in parts)


def _options(parser: argparse.ArgumentParser) -> str:
    rows = [_option(action) for action in parser._actions if _is_shown(action)]  # noqa: SLF001
    return "\n| option | what it does |\n|---|---|\n" + "".join(rows) if rows else ""


def _is_shown(action: argparse.Action) -> bool:
    hidden = action.help == argparse.SUPPRESS or isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
    return not hidden and action.dest != "help"


def _option(action: argparse.Action) -> str:
    value = str(action.metavar or "|".join(map(str, action.choices or ())) or action.dest.upper())
    name = ", ".join(action.option_strings)
    if not name or action.nargs != 0:
        name += f"{' ' if name else ''}{value}"
    # A bar would end the cell. Within code, as in the name, the site's Markdown does not do that.
    text = (action.help or "").strip().replace("|", "\\|")
    return f"| `{name}` | {text} |\n"


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each verb, and of each action of a verb with parsers of its own."""
    whole = build(verbs())
    action = next(a for a in whole._actions if isinstance(a, argparse._SubParsersAction))  # noqa: SLF001
    found: dict[str, argparse.ArgumentParser] = {}
    for verb, parser in action.choices.items():
        found[verb] = parser
        for below in parser._actions:  # noqa: SLF001
            if isinstance(below, argparse._SubParsersAction):  # noqa: SLF001
                found |= {f"{verb} {name}": inner for name, inner in below.choices.items()}
    return found

"""`python docs/manual.py DIRECTORY`: write a manual page per command and file format.

Facts come from the parser and the models. The prose about a command comes from its section of
docs/man/ce.1, that about a format from its page, where a comment marks the place of the keys.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from container_engine import __version__  # noqa: E402 - found through sys.path
from container_engine.base.errors import EXIT_ENGINE  # noqa: E402
from container_engine.base.model import schema_text  # noqa: E402
from container_engine.catalog.model import HookFile  # noqa: E402
from container_engine.cli.command_line.verb_table import examples_of, verbs  # noqa: E402
from container_engine.edf.document import Document  # noqa: E402
from container_engine.site.model import SiteConfig  # noqa: E402
from docs.reference import parsers, toml, type_of  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from container_engine.base.model import Model

MODELS: dict[str, type[Model]] = {
    "container-engine-config.5": SiteConfig,
    "container-engine-edf.5": Document,
    "container-engine-hook.5": HookFile,
}
_HERE = '.\\" KEYS\n'
OVERVIEW = (ROOT / "docs/man/ce.1").read_text(encoding="utf-8")


def pages() -> dict[str, str]:
    """Return the text of each page by file name."""
    known = parsers()
    found = {"ce.1": OVERVIEW}
    found |= {f"ce-{verb}.1": command(verb, known[verb]) for verb in verbs()}
    for page in sorted((ROOT / "docs/man").glob("container-engine-*.[58]")):
        text = page.read_text(encoding="utf-8")
        model = MODELS.get(page.name)
        found[page.name] = text if model is None else text.replace(_HERE, keys(model))
    return found


def command(verb: str, parser: argparse.ArgumentParser) -> str:
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    code = parser.get_default("failure")
    return "".join(
        [
            _title(f"CE-{verb.upper()}", 1, "User Commands"),
            f".SH NAME\nce\\-{verb} \\- {_text(verbs()[verb].help)}\n",
            f".SH SYNOPSIS\n.nh\n{_synopsis(usage)}\n.hy\n",
            f".SH DESCRIPTION\n{_description(verb, parser)}",
            *_arguments(parser),
            ".SH EXIT STATUS\n",
            _EXIT.get(code, _EXIT[1]),
            _examples(verb),
            _see("ce", 1, "edf", "config"),
        ]
    )


def _examples(verb: str) -> str:
    lines = "".join(f"{_text(example)}\n" for example in examples_of(verb))
    return f".SH EXAMPLES\n.nf\n{lines}.fi\n" if lines else ""


_EXIT = {
    1: "0 on success; 1 for a problem, which is on stderr; 2 for a command line that was not"
    " understood.\n",
    2: "0 if both mean the same, 1 if not, 2 for a problem, which is on stderr.\n",
    EXIT_ENGINE: "That of the command. 125: no container, and the command has not run; 126: the"
    " command cannot be\nexecuted; 127: there is no such command in the container.\n",
}


def _title(name: str, section: int, manual: str) -> str:
    return f'.TH {name} {section} "" "Container Engine {__version__}" "{manual}"\n'


def _see(first: str, section: int, *formats: str) -> str:
    names = [f".BR {_text(first)} ({section})"]
    names += [f".BR container\\-engine\\-{name} (5)" for name in formats]
    return ".SH SEE ALSO\n" + ",\n".join(names) + "\n"


def _synopsis(usage: str) -> str:
    """Format words of the program in bold, values of the user in italics."""
    words = re.sub(r"(?<![\w-])(-{1,2}[a-z][a-z-]*|ce)(?![\w-])", r"\\fB\1\\fR", usage)
    words = re.sub(r"(?<![\w\\])([A-Z][A-Z.]*[A-Z]|[A-Z]{2,})(?![\w-])", r"\\fI\1\\fR", words)
    return words.replace("-", "\\-")


def _description(verb: str, parser: argparse.ArgumentParser) -> str:
    """Return the prose of the verb's section in ce.1, up to its options."""
    found = re.search(
        rf"^\.SS (?:ce )?{verb}\b.*\n((?:(?!\.S[SH]|\.TP).*\n)*)", OVERVIEW, re.MULTILINE
    )
    return found[1] if found and found[1] else f"{_text(parser.description or '')}\n"


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    actions = [a for a in parser._actions if a.help != argparse.SUPPRESS]  # noqa: SLF001
    for title, chosen in (
        ("ARGUMENTS", [a for a in actions if not a.option_strings]),
        ("OPTIONS", [a for a in actions if a.option_strings]),
    ):
        if chosen:
            yield f".SH {title}\n"
            yield from map(_argument, chosen)


def _argument(action: argparse.Action) -> str:
    value = str(action.metavar or action.dest.upper())
    names = ", ".join(f"\\fB{_text(name)}\\fR" for name in action.option_strings)
    if not names or action.nargs != 0:
        names += f"{' ' if names else ''}\\fI{_text(value)}\\fR"
    text = _text((action.help or "").strip())
    if action.choices and not all(str(choice) in text for choice in action.choices):
        text += f" ({', '.join(map(str, action.choices))})"
    return f".TP\n{names}\n{text}\n"


# ---- formats ---------------------------------------------------------------------------------


def keys(model: type[Model]) -> str:
    """Return a section with the keys of a file, and one for each kind of table in it."""
    schema = json.loads(schema_text(model))
    return ".SH KEYS\n" + "".join(_keys(schema, "", schema["properties"]))


def _keys(schema: dict[str, Any], above: str, properties: dict[str, Any]) -> Iterator[str]:
    below: list[str] = []
    for name, key in properties.items():
        table, suffix = _table(key)
        inner = schema["$defs"].get(table, {}).get("properties") if table else None
        facts = f"{'array of ' if suffix == '[]' else ''}table" if inner else _facts(key)
        examples = key.get("examples") or [None]
        example = "" if examples[0] is None else f"{name} = {toml(examples[0])}"
        yield _key(above + name, key["description"], facts, example)
        if inner:
            path = f"{above}{name}{suffix}"
            below += [f".SS [{_text(path)}]\n", *_keys(schema, f"{path}.", inner)]
    yield from below


def _table(key: dict[str, Any]) -> tuple[str, str]:
    """Return the kind of table that a key holds, and the suffix of the key's name in titles."""
    places = [(key, ""), (key.get("items", {}), "[]"), (key.get("additionalProperties"), ".NAME")]
    places += [(place, ".NAME") for place in key.get("patternProperties", {}).values()]
    for place, suffix in places:
        if isinstance(place, dict) and "$ref" in place:
            return place["$ref"].rpartition("/")[2], suffix
    return "", ""


def _facts(key: dict[str, Any]) -> str:
    facts = type_of(key).replace("`", "")
    default = key.get("default")
    return (
        facts
        if default is None
        else f"{facts}; default: {toml(default) if default != '' else 'empty'}"
    )


def _key(name: str, about: str, facts: str, example: str) -> str:
    sentence = f"{about[0].upper()}{about[1:].removesuffix('.')}."
    text = f".TP\n\\fB{_text(name)}\\fR ({_text(facts)})\n{_text(sentence)}\n"
    return f"{text}.br\n{_text(example)}\n" if example else text


def _text(text: str) -> str:
    """Escape text so that roff prints it literally."""
    safe = text.replace("\\", "\\e").replace("-", "\\-")
    safe = safe.replace("…", "...").replace("'", "\\(aq")
    return f"\\&{safe}" if safe.startswith(".") else safe


def main(arguments: list[str]) -> int:
    (directory,) = map(Path, arguments)
    for name, text in pages().items():
        path = directory / f"man{name[-1]}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

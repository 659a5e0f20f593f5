"""`ce help [CODE…]`: print an overview, or the page about an error, a topic or a verb."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from container_engine.cli import output, verbs
from container_engine.cli.page_text import plain
from container_engine.did_you_mean import nearest
from container_engine.errors import SiteError, UserError
from container_engine.faults.catalogue import FAULTS
from container_engine.text_layout import wrap

if TYPE_CHECKING:
    import argparse

    from container_engine.submit.context import Context

# Failures of other programs, which have no error code: a page for each in docs/guide/topics.
TOPICS = {
    "host-libraries": "libraries and packages of your shell's modules in place of the image's",
    "mpi": "ranks that do not find one another, a PMIx that does not fit",
    "pyxis": "the options --container-… and what each of them does here",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "codes",
        metavar="CODE",
        nargs="*",
        help="of an error, as in the line 'ce: see:', a topic (host-libraries, mpi, pyxis), a verb,"
        " or errors for all codes; without it an overview",
    )


def execute(arguments: argparse.Namespace, context: Context) -> int:
    texts = [_about(code, context) for code in arguments.codes] or [_overview()]
    output.exact("\n".join(texts).encode())
    return 0


def _overview() -> str:
    columns = output.columns()
    # the second column of a line begins after its last wide gap
    lines = [
        wrapped
        for line in verbs.summary().splitlines()
        for wrapped in wrap(line, columns, line.rfind("  ") + 2)
    ]
    return "\n".join(lines) + "\n"


def codes(columns: int | None = None) -> str:
    """Return a line for each error and topic, wrapped to `columns`."""
    width = max(map(len, FAULTS)) + 2
    known = {code: fault.what for code, fault in FAULTS.items()} | TOPICS
    lines = [
        line for c, what in known.items() for line in wrap(f"{c:<{width}}{what}", columns, width)
    ]
    return "\n".join(lines) + "\n\n'ce help CODE' shows what to do about one of them.\n"


def _about(code: str, context: Context) -> str:
    if code == "errors":
        return codes(output.columns())
    if code in verbs.VERBS:
        from container_engine.cli.parser import help_of

        return help_of(code)
    if code in TOPICS:
        return _topic(code, context)
    if code not in FAULTS:
        known = [*FAULTS, *TOPICS, *verbs.VERBS, "errors"]
        longer = [name for name in known if name.startswith(f"{code}-")]
        meant = longer[0] if len(longer) == 1 else nearest(code, known)
        hint = f"did you mean '{meant}'?" if meant else "'ce help errors' lists all codes"
        raise UserError("no error, topic or verb has this name", hint, name=code)
    return _page(code, context)


def _page(code: str, context: Context) -> str:
    try:
        return _read("errors", code, context)
    except FileNotFoundError:
        # an installation without its pages still has the catalogue
        fault = FAULTS[code]
        return f"{code}\n\n{fault.what}\n\nWhat to do: {fault.remedy}\n"


def _topic(name: str, context: Context) -> str:
    try:
        return _read("topics", name, context)
    except FileNotFoundError:
        raise SiteError(f"the page '{name}' is not installed: {TOPICS[name]}") from None


def _read(kind: str, name: str, context: Context) -> str:
    directory = os.path.join(os.path.dirname(__file__), f"../../docs/guide/{kind}")
    if not os.path.isdir(directory):
        directory = f"{context.prefix}/share/container-engine/{kind}"
    with open(f"{directory}/{name}.md", encoding="utf-8") as file:
        return plain(file.read(), output.columns())

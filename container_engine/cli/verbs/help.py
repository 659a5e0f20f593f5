"""`ce help [WORD…]`: print an overview, a page, or which pages are about the words."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping

from container_engine.base.errors import SiteError, UserError
from container_engine.base.text_layout import nearest, wrap, wrap_lines
from container_engine.cli.command_line import verb_table
from container_engine.compat.foreign import FOREIGN_VERBS
from container_engine.faults.catalogue import FAULTS
from container_engine.printing import output
from container_engine.submit.context import Context
from container_engine.tools import help_pages
from container_engine.tools.help_pages import TOPICS, Page, plain


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "asked",
        metavar="WORD",
        nargs="*",
        help="a verb, the code of an error as in its line 'ce: see:', a page, or any words, which"
        " are looked up in all pages; errors lists all codes; without it an overview",
    )


def execute(arguments: argparse.Namespace, context: Context) -> int:
    known = help_pages.read(context.prefix, verb_table.verbs())
    asked = arguments.asked
    summary = wrap_lines(verb_table.summary(), output.columns())
    texts = [_about(word, known) for word in asked] or [summary]
    # several words are a question, also if each is the name of a verb
    if None in texts or (len(asked) > 1 and any(word in verb_table.verbs() for word in asked)):
        texts = [_found(" ".join(arguments.asked), known)]
    _show("\n".join(text for text in texts if text is not None))
    return 0


def _show(text: str) -> None:
    """Print a text; on a terminal that it is too long for, by the user's pager."""
    rows = output.rows()
    pager = os.environ.get("PAGER", "less")
    words = shlex.split(pager) if rows is not None and text.count("\n") >= rows else []
    if not words or shutil.which(words[0]) is None:
        output.exact(text.encode())
        return
    # less ends by itself at a text that fits, keeps colours, and leaves the text on the screen
    env = {"LESS": "-FRX", **os.environ}
    subprocess.run(words, input=text.encode(), env=env, check=False)


def codes(columns: int | None = None) -> str:
    """Return a line for each error and topic, wrapped to `columns`."""
    width = max(map(len, FAULTS)) + 2
    known = {code: fault.what for code, fault in FAULTS.items()} | TOPICS
    lines = [
        line for c, what in known.items() for line in wrap(f"{c:<{width}}{what}", columns, width)
    ]
    return "\n".join(lines) + "\n\n'ce help CODE' shows what to do about one of them.\n"


def _about(word: str, known: Mapping[str, Page]) -> str | None:
    """Return the page of this name, or None."""
    if word == "errors":
        return codes(output.columns())
    if word in verb_table.verbs():
        from container_engine.cli.command_line.parser import help_of

        return help_of(word)
    # a page refers to another by its directory and name, for example howto/docker
    page = known.get(word) or known.get(word.rpartition("/")[2])
    if page is not None:
        return plain(page.text, output.columns(), lambda target: _named(target, page, known))
    if word in FAULTS:
        # an installation without its pages still has the catalogue
        fault = FAULTS[word]
        return f"{word}\n\n{fault.what}\n\nWhat to do: {fault.remedy}\n"
    if word in TOPICS:
        raise SiteError(f"the page '{word}' is not installed: {TOPICS[word]}")
    return None


def _named(target: str, page: Page, known: Mapping[str, Page]) -> str:
    """Return the name of the page to which a link in `page` leads, "" if it is none of these."""
    names = (f"{page.kind}/{target}", target, target.rpartition("/")[2])
    return next((name for name in names if name in known), "")


def _found(words: str, known: dict[str, Page]) -> str:
    """Return the names of the pages about `words`, each with its title."""
    instead = FOREIGN_VERBS.get(words)
    # words that look like an error's code are a misspelt one
    found = [] if "-" in words and nearest(words, FAULTS) else help_pages.search(words, known)
    if not found and instead is None:
        names = [*FAULTS, *TOPICS, *known, *verb_table.verbs(), "errors"]
        meant = nearest(words, names)
        hint = f"did you mean '{meant}'?" if meant else "'ce help errors' lists all codes"
        raise UserError("no page, error or verb is about this", hint, name=words)
    lines = [] if instead is None else [f"ce has no verb '{words}': {instead}", ""]
    width = max((len(page.name) for page in found), default=0) + 2
    for page in found:
        start = f"  ce help {page.name:<{width}}"
        lines += wrap(f"{start}{page.title}", output.columns(), len(start))
    return "\n".join(lines).rstrip() + "\n"

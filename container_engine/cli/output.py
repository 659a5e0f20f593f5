"""How `ce` speaks on stdout: images, registries and other users' files must not move the cursor,
change colours or make up lines of their own. All of `ce` prints through this module."""

from __future__ import annotations

import json
import sys

from container_engine.message_text import one_line


def line(content: object = "", colour: str = "", before: str = "") -> None:
    """Print one line, whatever the content has in it; `before` alone has the colour, if given."""
    shown, before = one_line(str(content)), one_line(before)
    if colour and before:
        before = f"\033[{colour}m{before}\033[0m"
    elif colour:
        shown = f"\033[{colour}m{shown}\033[0m"
    sys.stdout.write(f"{before}{shown}\n")


def text(content: str) -> None:
    """Print text of several lines, of which each is escaped by itself."""
    for each in content.removesuffix("\n").split("\n") if content else ():
        line(each.expandtabs())


def document(value: object) -> None:
    """Print JSON. It is ASCII: no terminal takes a part of it for a command."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def exact(content: bytes) -> None:
    """Print bytes for programs, or what we have written ourselves."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()

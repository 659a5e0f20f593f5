"""All output of `ce` on stdout.

Text from images, registries and other users' files must not move the cursor, change colours or
add lines of its own.
"""

from __future__ import annotations

import json
import sys

from container_engine.message_text import one_line


def line(content: object = "", colour: str = "", before: str = "") -> None:
    """Print one line, escaping control characters; only `before` is coloured if it is given."""
    shown, before = one_line(str(content)), one_line(before)
    if colour and before:
        before = f"\033[{colour}m{before}\033[0m"
    elif colour:
        shown = f"\033[{colour}m{shown}\033[0m"
    sys.stdout.write(f"{before}{shown}\n")


def text(content: str) -> None:
    """Print text of several lines, escaping each of them separately."""
    for each in content.removesuffix("\n").split("\n") if content else ():
        line(each.expandtabs())


def document(value: object) -> None:
    """Print JSON. It is ASCII, so no terminal takes a part of it for a command."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def exact(content: bytes) -> None:
    """Print bytes unescaped, for programs or for text of our own."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()

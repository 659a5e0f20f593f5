"""Finds placeholders that the author of an example left for the user to replace."""

from __future__ import annotations

_PAIRS = (("{{", "}}"), ("<", ">"), ("{", "}"), ("[", "]"))
_LONGEST = 40
_WORDS = ("USER", "USERNAME", "YOUR_USERNAME", "YOUR_USER", "your_username", "yourusername")
_PATHS = ("/path/to/", "/your/path/", "/PATH/TO/", "path/to/", "your/path/")


def find_placeholder(text: str) -> str | None:
    """Return a part of a text that looks like `<USER>`, `{{user}}` or `/path/to/`, or None."""
    return _find(text, _PAIRS)


def find_path_placeholder(text: str) -> str | None:
    """Return a placeholder in a text with a "/", except one in single `{}` or `[]`, or None.

    In a text that need not be a path, these may be a format.
    """
    return _find(text, _PAIRS[:2]) if "/" in text else None


def _find(text: str, pairs: tuple[tuple[str, str], ...]) -> str | None:
    for opening, closing in pairs:
        start = text.find(opening)
        while start >= 0:
            first = start + len(opening)
            end = text.find(closing, first, first + _LONGEST + len(closing))
            # the braces of ${VAR} are a variable and not a placeholder
            if end > 0 and text[start - 1 : start] != "$" and _is_word(text[first:end]):
                return text[start : end + len(closing)]
            start = text.find(opening, first)
    if "/" in text:
        for word in _WORDS:
            if word in text.split("/"):
                return word
    return next((path for path in _PATHS if text.startswith(path)), None)


def advice(placeholder: str) -> str:
    """Return a hint on the value to write in place of the placeholder."""
    if "user" in placeholder.lower():
        return "write ${USER} for your own user name"
    return "put your own value in its place"


def _is_word(inner: str) -> bool:
    name = inner.strip().replace("_", "").replace("-", "").replace(" ", "").replace(".", "")
    # {node.home} is a field of hooks; a user who writes it gets another error
    is_of_hook = inner.startswith("node.")
    return len(name) > 1 and name.isalnum() and not name.isdigit() and not is_of_hook

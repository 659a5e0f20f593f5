"""`make generated`: update the pages of errors from the catalogue.

The head of a page comes from container_engine/faults/catalogue.py and docs/error_examples.toml; the
rest is written by hand and kept. A code without a page gets a page with a head only.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from container_engine.base.errors import EXIT_ENGINE  # noqa: E402 - found through sys.path
from container_engine.faults.catalogue import FAULTS  # noqa: E402 - found through sys.path

DIRECTORY = ROOT / "docs/guide/errors"
INDEX = ROOT / "docs/guide/errors.md"
EXAMPLES: dict[str, dict[str, str]] = tomllib.loads(
    (ROOT / "docs/error_examples.toml").read_text(encoding="utf-8")
)
END = "<!-- the lines above are made by docs/errors.py -->\n"


def head(code: str) -> str:
    fault = FAULTS[code]
    meaning = " (your command did not run)" if fault.code == EXIT_ENGINE else ""
    remedy = fault.remedy if fault.remedy.endswith("?") else f"{fault.remedy}."
    return (
        f"# {code}\n\n"
        f"{_sentence(fault.what)}\n\n"
        f"**Who can fix it:** {fault.who}. **Exit code of a launch:** {fault.code}{meaning}.\n\n"
        f"**What to do:** {remedy}\n\n{_example(code)}{END}"
    )


def _example(code: str) -> str:
    """Return the table of what a user wrote, sees and should write; "" for faults of others."""
    found = EXAMPLES.get(code)
    if found is None:
        return ""
    row = f"| `{found['wrote']}` | `{found['see']}` | {found['write']} |"
    return f"| you wrote | you see | write |\n|---|---|---|\n{row}\n\n"


def index() -> str:
    rows = "".join(
        f"| [{code}](errors/{code}.md) | {fault.what} | {fault.who} | {fault.code} |\n"
        for code, fault in FAULTS.items()
    )
    return (
        "# Errors\n\n"
        "One page for each code in the last line of an error, `ce: see: ce help CODE`;"
        " that command\nprints the same page. Made by `docs/errors.py` from the engine's catalogue."
        " [Error messages](troubleshooting.md)\nsays how to read an error, and lists messages"
        " by their words.\n\n"
        "| code | what went wrong | who can fix it | exit code |\n|---|---|---|---|\n" + rows
    )


def body(code: str) -> str:
    """Return the handwritten part of the page of a code; empty if there is no page."""
    path = DIRECTORY / f"{code}.md"
    return path.read_text(encoding="utf-8").partition(END)[2] if path.exists() else ""


def pages() -> dict[Path, str]:
    found = {DIRECTORY / f"{code}.md": head(code) + body(code) for code in FAULTS}
    return {INDEX: index(), **found}


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def main() -> int:
    DIRECTORY.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.c_lines`: find lines of C that end beyond column 110, with tabs of 8 columns.

Part of `make lint`.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
COLUMNS = 110
TAB = 8


def too_long(source: str) -> Iterator[tuple[int, int]]:
    """Yield the number of each such line, from 1, and its columns."""
    for number, line in enumerate(source.splitlines(), 1):
        columns = len(line.expandtabs(TAB))
        if columns > COLUMNS:
            yield number, columns


def main() -> int:
    """Return 1 if a tracked or new C file has such a line."""
    argv = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.c", "*.h"]
    names = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = [
        f"{name}:{number}: {columns} columns, more than {COLUMNS}"
        for name in sorted(names.splitlines())
        if (ROOT / name).is_file()
        for number, columns in too_long((ROOT / name).read_text(encoding="utf-8"))
    ]
    print("\n".join(found), end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())

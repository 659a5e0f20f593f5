"""Comments, docstrings and the pages for developers name files of the repository that exist."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LISTED = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
    cwd=ROOT, capture_output=True, text=True, check=True,
).stdout.splitlines()  # fmt: skip
FILES = {name for name in LISTED if (ROOT / name).is_file()}
FOLDERS = sorted({name.partition("/")[0] for name in FILES if "/" in name})
# A path from the root, or from a folder of the same name below it.
PATH = re.compile(
    rf"(?<![\w./*$-])(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]*[\w-]\.(?:py|c|h|md|toml)\b"
)
# A part in capitals stands for several names.
PLACEHOLDER = re.compile(r"[A-Z]{4}")
# In Python, strings that name a test count, too; other strings name files that tests make.
COMMENTS = {
    ".py": re.compile(r'"""[\s\S]*?"""|#.*|"tests/[\w./-]*"'),
    ".c": re.compile(r"/\*[\s\S]*?\*/"),
    ".h": re.compile(r"/\*[\s\S]*?\*/"),
    "": re.compile(r"^\s*#.*", re.MULTILINE),
    ".md": re.compile(r"`[^`\n]+`"),
}
READ = sorted(
    name
    for name in FILES
    if Path(name).suffix in COMMENTS
    and not name.startswith("tests/data/")
    and name != "tests/unit/test_named_files.py"
    and (not name.endswith(".md") or name.startswith("docs/design/") or name.count("/") < 2)
)


def missing(text: str, suffix: str) -> set[str]:
    """Return the paths in comments, or in code of a page, that no file of the repository has."""
    found = {path for part in COMMENTS[suffix].findall(text) for path in PATH.findall(part)}
    return {path for path in found if not (PLACEHOLDER.search(path) or exists(path))}


def exists(path: str) -> bool:
    return path in FILES or any(name.endswith(f"/{path}") for name in FILES)


def test_every_file_that_is_named_exists() -> None:
    wrong = {}
    for name in READ:
        path = ROOT / name
        if paths := missing(path.read_text(encoding="utf-8", errors="replace"), path.suffix):
            wrong[name] = paths
    assert wrong == {}


@pytest.mark.parametrize("suffix", [".py", ".c", ".md", ""])
def test_a_name_of_no_file_is_found(suffix: str) -> None:
    text = {
        ".py": '"""See container_engine/gone.py."""\n',
        ".c": "/* as container_engine/gone.py does */\n",
        ".md": "What `container_engine/gone.py` does.\n",
        "": "# made by container_engine/gone.py\n",
    }[suffix]
    assert missing(text, suffix) == {"container_engine/gone.py"}
    assert missing(text.replace("gone", "base/errors"), suffix) == set()


def test_a_string_that_names_no_test_is_found() -> None:
    assert missing('run("tests/unit/gone.py")\n', ".py") == {"tests/unit/gone.py"}
    assert missing('run("tests/unit/base/test_errors.py")\n', ".py") == set()

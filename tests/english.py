"""`python -m tests.english`: find comments and docstrings that a native writer would put otherwise.

Part of `make lint`. Ruff's D401 has the mood of functions' docstrings; here are the habits that it
does not know, such as "shall" and "is no file that", and docstrings that begin as a clause.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
HABITS = {
    re.compile(r"\bshall\b"): "write 'must', or say what happens",
    re.compile(r"\bis no [a-z]+ that\b"): "write 'is not a … that'",
    re.compile(r"\bwhoever\b", re.IGNORECASE): "name the user, the caller or the process",
    re.compile(r"\bbehind (it|its|these|the (last|first|command|name))\b"): "write 'after'",
    re.compile(r"\bstands? (before|behind|below|beside|between|there|in it)\b"): "write 'is'",
    re.compile(r"(?<!-)\b(anew|for ever)\b"): "write 'again', 'new' or 'forever'",
    re.compile(r"\bin good order\b"): "write 'cleanly'",
    re.compile(r"\b(of|for|to|by|from) who\b"): "name the user, the caller or the process",
    re.compile(r"\bis (told|said) (of|to)\b"): "write 'is reported', 'is printed' or 'is passed'",
    re.compile(r"(\A|\A/\*\s*|\A#\s*)Of (?!course)"): "begin with the subject of the sentence",
    re.compile(r"\b(still|never) is\b"): "write 'is still', 'is never'",
}
CLAUSE = re.compile(r"(What|Whether|Which|Who|Whose|Where|That|How) ")
QUOTED = re.compile(r'"[^"\n]*"')
C_COMMENT = re.compile(r"/\*.*?\*/|\"(?:\\.|[^\"\\])*\"", re.DOTALL)


def of_python(source: str) -> Iterator[tuple[int, str]]:
    """Yield line numbers and advice for a Python source."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from _habits(token.start[0], token.string)
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        text = ast.get_docstring(node)
        # of a model, the class's docstring is a description in a schema, for users
        if text is None or (isinstance(node, ast.ClassDef) and node.bases):
            continue
        line = node.body[0].lineno
        yield from _habits(line, text)
        # A property may say "Whether": it is a value.
        if CLAUSE.match(text) and not _is_property(node):
            yield line, f"a docstring begins with a verb or a noun, not with {text.split()[0]!r}"


def of_c(source: str) -> Iterator[tuple[int, str]]:
    """Yield line numbers and advice for a C source."""
    for found in C_COMMENT.finditer(source):
        if found[0].startswith("/*"):
            yield from _habits(source.count("\n", 0, found.start()) + 1, found[0])


def _is_property(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and any(
        isinstance(each, ast.Name) and each.id.endswith("property") for each in node.decorator_list
    )


def _habits(line: int, text: str) -> Iterator[tuple[int, str]]:
    text = QUOTED.sub(lambda found: " " * len(found[0]), text)
    for habit, advice in HABITS.items():
        for found in habit.finditer(text):
            yield line + text.count("\n", 0, found.start()), f"'{found[0]}': {advice}"


def main() -> int:
    """Return 1 if a tracked or new file has such a text."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    count = 0
    for name in sorted(filter(None, names.split("\0"))):
        path = ROOT / name
        reader = {".py": of_python, ".c": of_c, ".h": of_c}.get(path.suffix)
        if reader is None or not path.is_file():
            continue
        for line, advice in reader(path.read_text(encoding="utf-8")):
            print(f"{name}:{line}: {advice}")
            count += 1
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())

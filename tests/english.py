"""`python -m tests.english`: find texts that a native writer would put otherwise.

Comments and docstrings everywhere, in the engine also the strings, of which messages consist, and
the pages of the documentation. In pages, messages and help, sentences have at most 28 words,
and cells of tables at most 30.
Part of `make lint`. Ruff's D401 checks the mood of functions' docstrings; here are the habits that
it does not know, such as "shall" and "is no file that", and docstrings that begin as a clause.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

Reader = Callable[[str], Iterator[tuple[int, str]]]
Habits = Mapping[re.Pattern[str], str]

ROOT = Path(__file__).parents[1]
# beside those in docs
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "hooks/README.md")
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
    re.compile(r"(\A|\n|[.:] )Raises (?=[A-Z])"): "write 'Raise', in the mood of the first line",
}
# Words that a native writer would not use in texts for users, either.
OF_MESSAGES = {
    re.compile(r"\blies? (above|below|beside|in|on)\b"): "write 'is'",
    re.compile(
        r"\bstands? (for|here|in(?! for)|on|before|below)\b"
    ): "write 'means', 'matches' or 'is'",
    re.compile(r"\bcan(not)? be had\b"): "write 'is (not) available' or 'cannot be created'",
    re.compile(r"(?<!-)\b(anew|for ever|in good order)\b"): "write 'again', 'forever' or 'cleanly'",
    re.compile(r"\bcounts?(?! as\b)[;,.]|\bwhat counts\b"): "write 'is used' or 'takes precedence'",
    re.compile(r"\bsays nothing\b"): "write 'is not set' or 'sets nothing'",
    re.compile(r"\b(hook|image|node) brings\b"): "write 'provides' or 'has'",
    re.compile(r"\b(is|are) made (of|for)\b"): "write 'created from' or 'built for'",
    re.compile(r"\b(come|comes|coming|brought) along\b"): "write 'are added', 'are passed on'",
    re.compile(r"\bas ever\b"): "write 'as usual'",
    re.compile(r"\b(is|are|was|were) told\b"): "write 'is set', 'is reported' or name the reader",
    re.compile(r"\bof (anybody's|ours)\b"): "write 'of any user', 'of the engine'",
    re.compile(r"\bhas it that\b"): "write 'says'",
    re.compile(r"\bis none of yours\b|, no (file|directory)\b"): "write 'which is not …'",
    re.compile(r"\bspeaks? (PMI|of)"): "write 'supports' or 'is for'",
    re.compile(r"\bbelongs? into\b"): "write 'belongs in'",
    re.compile(r"\b(so|So) (do|does|is|are) (they|it)\b"): "name what it does",
    re.compile(
        r"\b(is|are) the (image|job|node|site|step|user)'s[.,;)]"
    ): "write 'comes from' or 'belongs to'",
    re.compile(r"\bwhoever\b", re.IGNORECASE): "name the user, the caller or the process",
    re.compile(
        r"\bof (the )?\w+'s(?=[.,;)]| (and|or|that|in|by|to|alone|if)\b)"
    ): "write 'of root', a noun, or begin with the owner",
}
# Habits of pages: 'What is gone then is the file' has its subject at the end.
OF_PAGES = {
    re.compile(
        r"(?:(?<=[.:] )|(?<=\n\n)|\A)What (?!is |are |was )(?:[\w'`,-]+ ){1,8}"
        r"(?:is|are|was|were|goes|stays|stay|comes)\b(?![^.\n]*\?)"
    ): "begin with the subject: 'Files that …'",
}
CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
CLAUSE = re.compile(r"(What|Whether|Which|Who|Whose|Where|That|How) ")
# A colon or a semicolon ends a sentence, too; a span of code is one word.
MOST_WORDS = 28
MOST_WORDS_OF_A_CELL = 30
SENTENCE = re.compile(r"(?<=[.!?:;])[)\"*_]*\s+")
BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.) ?)|(?<!\\)\|")
CELL = re.compile(r"(?<!\\)\|")
LINK = re.compile(r"\]\([^)]*\)")
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
        # A model's docstring is a description in a schema, for users.
        if text is None or (isinstance(node, ast.ClassDef) and node.bases):
            continue
        line = node.body[0].lineno
        yield from _habits(line, text)
        # A property may say "Whether": it is a value.
        if CLAUSE.match(text) and not _is_property(node):
            yield line, f"a docstring begins with a verb or a noun, not with {text.split()[0]!r}"


def messages_of_python(source: str) -> Iterator[tuple[int, str]]:
    """Yield line numbers and advice for the strings of a Python source that are not docstrings."""
    tree = ast.parse(source)
    silent = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in silent
        ):
            yield from _found(OF_MESSAGES, node.lineno, node.value)
            lines = node.value.replace("\n", "\n\n")
            yield from ((node.lineno, advice) for _line, advice in long_sentences(lines))


def messages_of_c(source: str) -> Iterator[tuple[int, str]]:
    """Yield line numbers and advice for the strings of a C source."""
    for found in C_COMMENT.finditer(source):
        if found[0].startswith('"'):
            yield from _found(OF_MESSAGES, source.count("\n", 0, found.start()) + 1, found[0])


def messages_of_markdown(source: str) -> Iterator[tuple[int, str]]:
    """Yield line numbers and advice for the prose of a page, without code."""
    prose = CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source)
    yield from _found(OF_MESSAGES | OF_PAGES, 1, prose)


def long_sentences(source: str) -> Iterator[tuple[int, str]]:
    """Yield line numbers and advice for sentences of a page that have too many words."""
    text = _prose(source)
    at = 0
    for end in [*(found.end() for found in BLOCK.finditer(text)), len(text)]:
        start = at
        for sentence in SENTENCE.split(text[at:end]):
            words = _words(sentence)
            if len(words) > MOST_WORDS:
                line = text.count("\n", 0, text.index(sentence, start)) + 1
                begins = " ".join(words[:4])
                yield (
                    line,
                    f"'{begins} …' has {len(words)} words, more than {MOST_WORDS}: divide it",
                )
        at = end


def long_cells(source: str) -> Iterator[tuple[int, str]]:
    """Yield line numbers and advice for cells of a page's tables that have too many words."""
    for line, row in enumerate(_prose(source).split("\n"), 1):
        for cell in CELL.split(row) if row.lstrip().startswith("|") else ():
            words = _words(cell)
            if len(words) > MOST_WORDS_OF_A_CELL:
                begins = " ".join(words[:4])
                yield (
                    line,
                    f"the cell '{begins} …' has {len(words)} words, more than"
                    f" {MOST_WORDS_OF_A_CELL}: write a paragraph below the table",
                )


def _words(text: str) -> list[str]:
    return [word for word in text.split() if re.search(r"\w", word)]


def _prose(source: str) -> str:
    """Return a page with a word for each span of code, without blocks and targets of links."""
    return LINK.sub(lambda found: "]" + "\n" * found[0].count("\n"), CODE.sub(_one_word, source))


def _one_word(code: re.Match[str]) -> str:
    """Return a word in place of a span of code, with its newlines; nothing for a block."""
    return ("" if code[0].lstrip().startswith("```") else "code") + "\n" * code[0].count("\n")


def of_c(source: str) -> Iterator[tuple[int, str]]:
    """Yield line numbers and advice for a C source."""
    for found in C_COMMENT.finditer(source):
        if found[0].startswith("/*"):
            line = source.count("\n", 0, found.start()) + 1
            yield from _habits(line, found[0])
            if clause := CLAUSE.match(found[0].removeprefix("/*").lstrip(" *\n\t")):
                yield line, f"a comment begins with a verb or a noun, not with {clause[1]!r}"


def _is_property(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and any(
        isinstance(each, ast.Name) and each.id.endswith("property") for each in node.decorator_list
    )


def _habits(line: int, text: str) -> Iterator[tuple[int, str]]:
    yield from _found(HABITS, line, QUOTED.sub(lambda found: " " * len(found[0]), text))


def _found(habits: Habits, line: int, text: str) -> Iterator[tuple[int, str]]:
    for habit, advice in habits.items():
        for found in habit.finditer(text):
            yield line + text.count("\n", 0, found.start()), f"'{found[0]}': {advice}"


def _readers(name: str) -> list[Reader]:
    """Return what reads a file: comments everywhere, texts for users where the engine has them."""
    suffix = Path(name).suffix
    if suffix == ".md":
        is_page = name.startswith("docs/") or name in PAGES
        is_record = name.startswith(("docs/design/", "docs/benchmarks"))
        of_text = [] if is_record else [messages_of_markdown, long_sentences]
        return [long_cells, *of_text] if is_page else []
    comments: dict[str, Reader] = {".py": of_python, ".c": of_c, ".h": of_c}
    texts: dict[str, Reader] = {
        ".py": messages_of_python,
        ".c": messages_of_c,
        ".h": messages_of_c,
    }
    engine = name.startswith(("container_engine/", "spank_plugin/")) and "/tests/" not in name
    kinds = (comments, texts) if engine else (comments,)
    return [kind[suffix] for kind in kinds if suffix in kind]


def main() -> int:
    """Return 1 if a tracked or new file has such a text."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    count = 0
    for name in sorted(filter(None, names.split("\0"))):
        path = ROOT / name
        for reader in _readers(name) if path.is_file() else ():
            for line, advice in reader(path.read_text(encoding="utf-8")):
                print(f"{name}:{line}: {advice}")
                count += 1
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())

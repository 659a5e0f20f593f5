"""The check of comments, docstrings and messages finds the habits that it names."""

import pytest

from tests import english

PYTHON = '''
def f():
    """{docstring}"""
    # {comment}
'''


@pytest.mark.parametrize(
    ("docstring", "comment", "found"),
    [
        ("Return it.", "It must stay.", []),
        ("What it is.", "It must stay.", [3]),
        ("Return it.", "It shall stay.", [4]),
        ("Return it.", "Of a file that is gone, it reads nothing.", [4]),
        ("Return it.", "It ends in good order, of course.", [4]),
        ("Return 0 for who is not root.", "Of course it is.", [3]),
        ("Return what is no file that lasts.", 'The word "shall" is quoted.', [3]),
        ("Return it.\n\n    Whoever calls.\n    ", "", [5]),
        ("Return the word behind it.", "It is plan-anew, which stays behind.", [3]),
        ("Return it.", "A file that still is there is made anew.", [4, 4]),
    ],
)
def test_a_habit_is_found_where_it_stands(docstring: str, comment: str, found: list[int]) -> None:
    source = PYTHON.format(docstring=docstring, comment=comment)
    assert [line for line, _advice in english.of_python(source)] == found


def test_a_property_may_be_a_clause() -> None:
    source = 'class C:\n    @property\n    def p(self):\n        """Whether it is."""\n'
    assert list(english.of_python(source)) == []


def test_strings_of_c_are_no_comments() -> None:
    source = 'char *a = "/* shall */"; // b\n/* one\n * shall */\n'
    assert [line for line, _advice in english.of_c(source)] == [3]


@pytest.mark.parametrize("begins", ["Where", "How", "What", "Who"])
def test_a_comment_of_c_does_not_begin_as_a_clause(begins: str) -> None:
    source = (
        f"int a;\n/*\n * {begins} it is found. */\n/* Return where. */\n/* {begins}abouts. */\n"
    )
    assert [line for line, _advice in english.of_c(source)] == [2]


@pytest.mark.parametrize(
    ("page", "found"),
    [
        (f"{'word ' * 28}.", []),
        (f"# Title\n\nShort. {'word ' * 28}\nend.\n", [3]),
        (f"{'word ' * 20}: {'word ' * 20}; {'word ' * 20}", []),
        (
            f"{'word ' * 20}\n\n{'word ' * 20}\n- {'word ' * 20}\n| {'word ' * 20} | {'w ' * 20} |",
            [],
        ),
        (f"a\nb\n| c | {'word ' * 29} |", [3]),
        (f"```sh\n{'word ' * 40}\n```\n`{'word ' * 40}` [a](b c d) {'word ' * 26}", []),
    ],
)
def test_a_long_sentence_of_a_page_is_found(page: str, found: list[int]) -> None:
    assert [line for line, _advice in english.long_sentences(page)] == found


@pytest.mark.parametrize(
    ("page", "found"),
    [
        (f"| a | b |\n|---|---|\n| c | {'word ' * 30} |\n", []),
        (f"| a | b |\n|---|---|\n| c | {'word ' * 20}. {'word ' * 11} |\n", [3]),
        (f"| a | `{'word ' * 40}` [b](c d e) {'word ' * 28} |", []),
        (f"{'word ' * 31}", []),
        (f"```text\n| {'word ' * 31} |\n```\n| {'word ' * 31} |\n", [4]),
    ],
)
def test_a_long_cell_of_a_table_is_found(page: str, found: list[int]) -> None:
    assert [line for line, _advice in english.long_cells(page)] == found


def test_cells_of_design_notes_are_checked_but_not_their_sentences() -> None:
    assert english._readers("docs/design/README.md") == [english.long_cells]


def test_a_long_sentence_of_a_message_is_found() -> None:
    source = f"a = '{'word ' * 20}\\n{'word ' * 20}'\nb = '{'word ' * 29}'\n"
    assert [line for line, _advice in english.messages_of_python(source)] == [2]


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("# T\n\nWhat users write there is gone.\n", [3]),
        ("It ends. What tasks have left stays.\n", [1]),
        ("What is gone? What the file says is in the page?\n", []),
        ("What was tried: nothing. It says what users write is gone.\n", []),
    ],
)
def test_a_clause_is_not_the_subject_of_a_sentence(page: str, found: list[int]) -> None:
    assert [line for line, _advice in english.messages_of_markdown(page)] == found


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("the image store is below SCRATCH", []),
        ("the image store lies below SCRATCH", [2]),
        ("none of them can be had; the last one", [2]),
        ("ce config show says what counts", [2]),
        ("it counts as started", []),
        ("no hook brings it", [2]),
        ("the port is the node's; choose another", [2]),
        ("it is the node's port", []),
        ("the image is made for another processor", [2]),
        ("variables come along", [2]),
        ("jobs run as ever, of anybody's", [2, 2]),
    ],
)
def test_a_habit_is_found_in_what_users_read(message: str, found: list[int]) -> None:
    python = f'''"""It lies below."""\nraise Error(f"{message} {{path}}")\n'''
    assert [line for line, _advice in english.messages_of_python(python)] == found
    c = f'/* it lies below */\nce_fail(err, "{message} %s", path);\n'
    assert [line for line, _advice in english.messages_of_c(c)] == found
    page = f"`it lies in code`\n{message}\n```text\nit lies in a block\n```\n"
    assert [line for line, _advice in english.messages_of_markdown(page)] == found

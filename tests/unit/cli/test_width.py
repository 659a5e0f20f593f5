"""Lines that `ce` prints fit the terminal: they are wrapped at words, and never in a pipe."""

import os
import pty
import subprocess
from pathlib import Path

import pytest

from container_engine.base.text_layout import table, with_origins, wrap
from container_engine.tools.help_pages import plain
from tests.unit import squashfs
from tests.unit.cli.conftest import Installed

PAGE = """\
# Title

Some **bold** words, and a [link
to](../../admin/install.md#node).

- one item that
  goes on
- `two`

| what | why |
|---|---|
| a \\| b | because of a long story |

```console
$ code   stays    as it is, however long the line is
```
"""


def on_a_terminal(home: Installed, columns: int, *words: str, pager: str = "") -> list[str]:
    """Run `ce` with a terminal for its stdout and return the lines that it printed."""
    ours, its = pty.openpty()
    env = {
        "HOME": str(home.home),
        "PATH": os.environ["PATH"],
        "COLUMNS": str(columns),
        "PAGER": pager,
    }
    argv = [str(home.prefix / "bin/ce"), *words]
    with subprocess.Popen(argv, stdout=its, env=env, cwd=home.home) as process:
        os.close(its)
        said = b""
        while True:
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:  # EIO: the other end is closed
                break
            if not piece:
                break
            said += piece
    os.close(ours)
    assert process.returncode == 0
    return said.decode().replace("\r\n", "\n").splitlines()


@pytest.fixture
def home(installed: Installed) -> Installed:
    squashfs.make(installed.home / "i.sqsh", {"etc/os-release": "ID=x"})
    (installed.home / "e.toml").write_text('image = "./i.sqsh"\n[env]\nA = "two words"\n')
    return installed


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize(
    "words",
    [
        *(("hooks", "show", "aws_ofi_nccl"), ("hooks", "show", "slurm")),
        *(
            (),
            ("--help",),
            ("devices",),
            ("help",),
            ("help", "mpi"),
            ("help", "user-namespaces"),
            ("help", "edf-syntax"),
        ),
        *(("plan", "./e.toml"), ("hooks", "list"), ("config", "show")),
        *(("explain", "./e.toml"), ("explain", "./e.toml", "--env", "PATH")),
    ],
    ids=" ".join,
)
def test_lines_end_where_the_terminal_does_and_no_word_is_cut(
    home: Installed, columns: int, words: tuple[str, ...]
) -> None:
    lines = on_a_terminal(home, columns, *words)
    piped = home.ce(*words).stdout
    for line in lines:
        longest = max(map(len, line.split()), default=0)
        assert len(line) <= columns or longest > columns - 20, line
    assert set(" ".join(lines).split()) == set(piped.split())


@pytest.mark.parametrize("columns", [40, 60, 80])
@pytest.mark.parametrize("verb", ["list", "images"])
def test_a_table_of_names_fits_and_has_each_of_them(
    home: Installed, columns: int, verb: str
) -> None:
    folder = home.home / ".edf"
    folder.mkdir()
    for name in ("a-name-of-many-letters", "short"):
        (folder / f"{name}.toml").write_text(f'image = "registry.example.org/a/b/{name}:1"\n')
    for name in ("registry.example.org/a/b/name-of-many-letters:1", "x:1"):
        assert home.ce("import", "-q", "./i.sqsh", name).returncode == 0
    lines = on_a_terminal(home, columns, verb)
    words = [word for line in lines for word in line.split()]
    assert max(map(len, lines)) <= max(columns, *map(len, words))
    if verb == "images":
        assert {"NAME", "x:1", "USED"} <= set(words)
    else:
        assert {"NAME", "a-name-of-many-letters", "short", "~/.edf/short.toml"} <= set(words)


def test_columns_stand_in_line_while_they_have_room_and_rows_are_paragraphs_else() -> None:
    rows = [("NAME", "KIND", "WHAT"), ("first", "a-kind", "some words that are wrapped")]
    assert list(table(rows, 34)) == [
        "NAME   KIND    WHAT",
        "first  a-kind  some words that are",
        "               wrapped",
    ]
    assert list(table(rows, 28)) == [
        "NAME   KIND    WHAT",
        "first  a-kind",
        "    some words that are",
        "    wrapped",
    ]
    assert list(table(rows[1:], 12)) == [
        "first",
        "    a-kind",
        "    some",
        "    words",
        "    that are",
        "    wrapped",
    ]
    paths = [("second", "b", "/a/path/that/is/long"), ("3", "c", "/a")]
    assert list(table(paths, 26)) == ["second  b", "    /a/path/that/is/long", "3       c  /a"]
    assert list(table(paths[:1], 33)) == ["second  b  /a/path/that/is/long"]


def test_one_column_may_be_cut_to_keep_the_others_in_line() -> None:
    rows = [("NAME", "SIZE"), ("a/long/name:tag", "5 MiB")]
    assert list(table(rows, 18, right=(1,), shorten=(0, 8))) == [
        "NAME          SIZE",
        "a/lon…e:tag  5 MiB",
    ]
    assert list(table(rows[1:], 12, shorten=(0, 8))) == ["a/l…:tag", "    5 MiB"]


def test_in_a_pipe_no_line_is_wrapped(home: Installed) -> None:
    shown = home.ce("config", "show", env={"COLUMNS": "40"}).stdout
    assert max(map(len, shown.splitlines())) > 80


def test_a_page_is_text_without_markup() -> None:
    assert plain(PAGE, 30) == (
        "Title\n\n"
        "Some bold words, and a link to\n(admin/install).\n\n"
        "- one item that goes on\n- `two`\n\n"
        "a | b\n    why: because of a long\n         story\n\n"
        "    $ code   stays    as it is, however long the line is\n"
    )
    assert "Some bold words, and a link\nto (admin/install).\n" in plain(PAGE)


def test_a_long_word_is_left_whole() -> None:
    path = f"/{'x' * 40}"
    assert wrap(f"image        {path} and more", 30, 13) == [
        f"image        {path}",
        f"{'':13}and more",
    ]
    assert wrap("a b", None) == ["a b"]
    rows = [("mount        ", "/a on /b", "/e.toml:3")]
    assert list(with_origins(rows, 30, 13)) == [
        "mount        /a on /b",
        f"{'':15}# /e.toml:3",
    ]


def test_no_page_has_a_table_that_is_printed_raw() -> None:
    for path in (Path(__file__).parents[3] / "docs/guide/topics").glob("*.md"):
        assert not [line for line in plain(path.read_text()).splitlines() if line.startswith("|")]


def test_a_long_page_goes_through_the_pager_and_a_short_text_does_not(home: Installed) -> None:
    pager = home.home / "pager"
    pager.write_text("#!/bin/sh\necho paged; exec cat\n")
    pager.chmod(0o755)
    assert on_a_terminal(home, 80, "help", "guide/edf", pager=str(pager))[0] == "paged"
    short = on_a_terminal(home, 80, "help", "docker", "compose", pager=str(pager))
    assert "paged" not in short


def test_a_link_is_the_command_that_prints_its_page(home: Installed) -> None:
    said = home.ce("help", "guide/edf").stdout
    assert "An editor (ce help editor) can complete" in said
    assert "(ce help migration)" in said

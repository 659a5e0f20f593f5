"""Completion of `ce` in bash, zsh and fish, tested with the real shells."""

import os
import pty
import re
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from container_engine.cli.command_line.verb_table import verbs
from container_engine.cli.verbs.completion import SHELLS
from container_engine.cli.verbs.schema import FORMATS
from tests.unit.cli.conftest import Installed

NeedTool = Callable[[str], str]
# A command line up to the cursor, and all words that may come next.
CASES = [
    ("ce plan --pull ", {"age", "always", "missing", "never"}),
    ("ce plan --pull m", {"missing"}),
    ("ce vali", {"validate"}),
    ("ce schema ", set(FORMATS)),
    ("ce config s", {"show"}),
    ("ce completion ", {"bash", "zsh", "fish"}),
    ("ce validate --strict tr", {"train", "train/large"}),
    ("ce diff train/large ot", {"other"}),
    ("ce explain --e", {"--env"}),
    ("ce lint na", {"name space"}),
    ("ce shell oth", {"other"}),
    ("ce hooks show pmi", {"pmix", "pmi2"}),
    ("ce hooks explain oth", {"other"}),
    ("ce help mpirun-i", {"mpirun-inside"}),
]


@pytest.fixture
def home(installed: Installed) -> Installed:
    for name in ("train", "train/large", "other"):
        file = installed.home / f".edf/{name}.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('image = "ubuntu:24.04"\n')
    (installed.home / ".edf/.hidden.toml").touch()
    # Completion must not run these names: other users may make such files in a directory.
    for name in ("name space", "evil$(touch pwned)", "evil`touch pwned`", "evil;touch pwned;"):
        (installed.home / f".edf/{name}.toml").touch()
    return installed


def script(home: Installed, shell: str) -> Path:
    path = home.home / f"completion.{shell}"
    path.write_text(home.ce("completion", shell).stdout)
    return path


def offered_to(home: Installed, *words: str) -> tuple[str, dict[str, str]]:
    """Return which files a shell adds for the last word, and what it offers, with what it is."""
    files, *lines = home.ce("complete", *words).stdout.splitlines()
    return files, {line.partition("\t")[0]: line.partition("\t")[2] for line in lines}


def environment(home: Installed) -> dict[str, str]:
    path = f"{home.prefix}/bin:{os.environ['PATH']}"
    return {"HOME": str(home.home), "PATH": path, "TERM": "dumb", "LC_ALL": "C.UTF-8"}


def ask(home: Installed, *argv: str) -> set[str]:
    done = subprocess.run(
        argv, env=environment(home), cwd=home.home, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    return {line.partition("\t")[0] for line in done.stdout.splitlines() if line}


@pytest.mark.parametrize(("line", "offered"), CASES)
def test_bash_offers(home: Installed, need_tool: NeedTool, line: str, offered: set[str]) -> None:
    words = line.split(" ")
    asking = f"""
        source {script(home, "bash")}
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        compopt() {{ :; }}
        _ce; printf '%s\\n' "${{COMPREPLY[@]}}" """
    found = ask(home, need_tool("bash"), "-c", asking, "bash", *words)
    assert found == {word.replace(" ", "\\ ") for word in offered}


def test_bash_quotes_a_name_instead_of_running_it(home: Installed, need_tool: NeedTool) -> None:
    asking = f"""
        source {script(home, "bash")}
        COMP_WORDS=(ce plan evil) COMP_CWORD=2
        _ce; printf '%s\\n' "${{COMPREPLY[@]}}" """
    found = ask(home, need_tool("bash"), "-c", asking)
    assert found == {r"evil\$\(touch\ pwned\)", r"evil\`touch\ pwned\`", r"evil\;touch\ pwned\;"}
    assert not (home.home / "pwned").exists()


@pytest.mark.parametrize(("word", "offered"), [("", False), (".", True)])
def test_bash_offers_hidden_directories_where_a_dot_is_typed(
    home: Installed, need_tool: NeedTool, word: str, *, offered: bool
) -> None:
    asking = f"""
        source {script(home, "bash")}
        COMP_WORDS=(ce plan '{word}') COMP_CWORD=2
        _ce; printf '%s\\n' "${{COMPREPLY[@]}}" """
    assert (".edf/" in ask(home, need_tool("bash"), "-c", asking)) is offered


def test_fish_runs_no_name(home: Installed, need_tool: NeedTool) -> None:
    asking = f"source {script(home, 'fish')}; complete -C 'ce plan ev'"
    assert len(ask(home, need_tool("fish"), "--no-config", "-c", asking)) == 3
    assert not (home.home / "pwned").exists()


@pytest.mark.parametrize(("line", "offered"), CASES)
def test_fish_offers(home: Installed, need_tool: NeedTool, line: str, offered: set[str]) -> None:
    asking = f"source {script(home, 'fish')}; complete -C '{line}'"
    assert ask(home, need_tool("fish"), "--no-config", "-c", asking) == offered


_ZSHRC = """
PS1='ready>' LISTMAX=0 COLUMNS=200
unsetopt zle_bracketed_paste prompt_sp
autoload -Uz compinit; compinit -u -D
source {}
"""


_BASHRC = """
PS1='ready>' COLUMNS=200
bind 'set enable-bracketed-paste off'
bind 'set show-all-if-ambiguous on'
"""


class Terminal:
    """An interactive shell at a terminal, the only way to test all of its completion."""

    def __init__(self, home: Installed, argv: list[str], start: str) -> None:
        (home.home / ".zshrc").write_text(start)
        self._screen = ""
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.chdir(home.home)
            os.execve(argv[0], argv, environment(home))
        self.until(r"(ready>)")  # earlier keys may be lost

    def completed(self, line: str) -> str:
        """Return the line, quoted, after a tab at its end."""
        self.type(f"{line}\t\x01printf '%s\\n' 'it is: \x05.'\n")
        return self.until(r"\nit is: (.*)\.\r\n(?s:.*)ready>")

    def type(self, keys: str) -> None:
        self._screen = ""
        os.write(self._fd, keys.encode())

    def until(self, pattern: str) -> str:
        """Return the group of the pattern once it is on the screen."""
        deadline = time.monotonic() + 30
        while not (found := re.search(pattern, self._screen)):
            assert time.monotonic() < deadline, self._screen
            if select.select([self._fd], [], [], 1)[0]:
                self._screen += os.read(self._fd, 65536).decode(errors="replace")
        # The order of a list is not reliable, but a line of output ends all that was before it.
        if found[0].startswith("\n"):
            self._screen = self._screen[found.end() :]
        return found[1]

    def close(self) -> None:
        os.close(self._fd)
        os.waitpid(self._pid, 0)


@pytest.fixture
def bash(home: Installed, need_tool: NeedTool) -> Iterator[Terminal]:
    rc = home.home / "rc"
    rc.write_text(f"{_BASHRC}source {script(home, 'bash')}\n")
    shell = Terminal(home, [need_tool("bash"), "--noprofile", "--rcfile", str(rc), "-i"], "")
    yield shell
    shell.close()


@pytest.fixture
def zsh(home: Installed, need_tool: NeedTool) -> Iterator[Terminal]:
    shell = Terminal(home, [need_tool("zsh"), "-d", "-i"], _ZSHRC.format(script(home, "zsh")))
    yield shell
    shell.close()


def test_zsh_offers_the_same(zsh: Terminal) -> None:
    """A tab inserts the only candidate; ^D lists several."""
    for line, offered in CASES:
        if len(offered) == 1:
            # The completed line is quoted and printed.
            seen = zsh.completed(line).rstrip()
            (word,) = offered
            quoted = word.replace(" ", "\\ ")
            assert seen == f"{line.rpartition(' ')[0]} {quoted}"
        else:
            zsh.type(f"{line}\x04")
            for word in sorted(offered):
                zsh.until(rf"(?<![\w/-])({word})(?![\w/-])")
            zsh.type("\x15")


# What users type, and the whole line after a tab.
TYPED = [
    ("ce run --pull=al", "ce run --pull=always"),
    ("ce run --pull=never oth", "ce run --pull=never other"),
    ("ce run --environment=oth", "ce run --environment=other"),
    ("ce run --environment=fil", "ce run --environment=file.toml"),
    ("ce run other python3 file-", "ce run other python3 file-of-mine"),
    ("ce run other -- cat file-", "ce run other -- cat file-of-mine"),
    ("ce build -t name con", "ce build -t name context/"),
    ("ce validate ~/.edf/oth", "ce validate ~/.edf/other.toml"),
    ("srun --environment=fil", "srun --environment=file.toml"),
]


@pytest.fixture
def files(home: Installed) -> Installed:
    (home.home / "file-of-mine").touch()
    (home.home / "file.toml").touch()
    (home.home / "context").mkdir()
    return home


@pytest.mark.usefixtures("files")
def test_bash_completes_what_is_typed(bash: Terminal) -> None:
    for line, wanted in TYPED:
        assert bash.completed(line).rstrip() == wanted
    # no files, where a running step is meant
    assert bash.completed("ce exec fil") == "ce exec fil"


@pytest.mark.usefixtures("files")
def test_zsh_completes_what_is_typed(zsh: Terminal) -> None:
    for line, wanted in TYPED:
        # zsh takes the / back at the next key
        assert zsh.completed(line).rstrip() == wanted.rstrip("/")


@pytest.mark.parametrize(("line", "wanted"), TYPED)
def test_fish_completes_what_is_typed(
    files: Installed, need_tool: NeedTool, line: str, wanted: str
) -> None:
    asking = f"source {script(files, 'fish')}; complete -C '{line}'"
    assert ask(files, need_tool("fish"), "--no-config", "-c", asking) == {
        wanted.rsplit(" ", maxsplit=1)[-1]
    }


def test_zsh_runs_no_name(zsh: Terminal, home: Installed) -> None:
    zsh.type("ce plan evil\x04")
    zsh.until(r"(evil\\;touch\\ pwned\\;)")
    zsh.type("\x15print -r -- 'it is: done.'\n")
    assert zsh.until(r"\nit is: (.*)\.\r") == "done"
    assert not (home.home / "pwned").exists()


def test_nothing_in_the_scripts_is_wrong(home: Installed, need_tool: NeedTool) -> None:
    for shell in ("bash", "zsh", "fish"):
        path = script(home, shell)
        done = subprocess.run([need_tool(shell), "-n", path], capture_output=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, b"")
    checker = shutil.which("shellcheck")
    if checker:
        subprocess.run([checker, "-s", "bash", script(home, "bash")], check=True, timeout=60)


def test_bash_is_the_usual_shell(home: Installed) -> None:
    assert home.ce("completion").stdout == home.ce("completion", "bash").stdout


def test_every_verb_and_option_is_offered_with_what_it_is(home: Installed) -> None:
    for verb, described in verbs().items():
        assert offered_to(home, "")[1][verb] == described.help
        files, options = offered_to(home, verb, "-")
        assert files == "names"
        # hidden ones are in neither
        shown = re.findall(r"^  (-.*?)(?:  |$)", home.ce(verb, "--help").stdout, re.MULTILINE)
        assert set(options) == set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", " ".join(shown)))


# ---- srun, sbatch and salloc beside the site's own completion ---------------------------------

_SITE_BASH = """
_srun() { mapfile -t COMPREPLY < <(compgen -W '--partition= --exact' -- "$2"); }
"""
# how the site's completion comes: before ours, or later, when it is needed
_BASH_ORDERS = {
    "before": "complete -o nospace -F _srun srun; source {}",
    "later": "__load_completion() {{ complete -o nospace -F _srun srun sinfo; }}; source {}",
    "with another": "__load_completion() {{ complete -o nospace -F _srun srun sinfo; }}; source {}",
}


@pytest.mark.parametrize("order", _BASH_ORDERS)
def test_bash_completes_environments_beside_the_sites_completion(
    home: Installed, need_tool: NeedTool, order: str
) -> None:
    (home.home / "file-of-mine").touch()
    source = _BASH_ORDERS[order].format(script(home, "bash"))
    rc = home.home / "rc"
    rc.write_text(f"{_BASHRC}{_SITE_BASH}{source}\n")
    bash = Terminal(home, [need_tool("bash"), "--noprofile", "--rcfile", str(rc), "-i"], "")
    if order == "with another":
        assert bash.completed("sinfo --par") == "sinfo --partition="
    for line, wanted in (
        ("srun --par", "srun --partition="),
        ("srun --environment=oth", "srun --environment=other "),
        ("srun -N2 --edf train/l", "srun -N2 --edf train/large "),
        ("srun --envi", "srun --environment="),
        ("srun --ex", "srun --exact"),
        ("sbatch --environment=na", "sbatch --environment=name\\ space "),
        ("salloc fil", "salloc file-of-mine "),
        ("sbatch fil", "sbatch file-of-mine "),
    ):
        assert bash.completed(line) == wanted
    bash.type("srun --environment=evil\t")
    bash.until(r"(touch\\ pwned\\;)")
    bash.type("\x15\n")
    assert not (home.home / "pwned").exists()
    bash.close()


def test_zsh_completes_environments_beside_the_sites_completion(
    home: Installed, need_tool: NeedTool
) -> None:
    (home.home / "file-of-mine").touch()
    site = "_srun() { compadd -S '' -- --partition= --exact }; compdef _srun srun\n"
    start = _ZSHRC.format(script(home, "zsh")) + site
    zsh = Terminal(home, [need_tool("zsh"), "-d", "-i"], start)
    for line, wanted in (
        ("srun --par", "srun --partition="),
        ("srun --environment=oth", "srun --environment=other "),
        ("srun -N2 --edf train/l", "srun -N2 --edf train/large "),
        ("srun --envi", "srun --environment="),
        ("srun --exa", "srun --exact"),
        ("salloc fil", "salloc file-of-mine "),
    ):
        assert zsh.completed(line).rstrip() == wanted.rstrip()
    zsh.close()


def test_fish_completes_environments_beside_the_sites_completion(
    home: Installed, need_tool: NeedTool
) -> None:
    site = "complete -c srun -l partition -x"
    for line, offered in (
        ("srun --par", {"--partition"}),
        ("srun --environment=oth", {"--environment=other"}),
        ("srun -N2 --edf train/l", {"train/large"}),
        ("sbatch --envi", {"--environment"}),
    ):
        asking = f"{site}; source {script(home, 'fish')}; complete -C '{line}'"
        assert ask(home, need_tool("fish"), "--no-config", "-c", asking) == offered


@pytest.mark.parametrize("shell", SHELLS)
def test_the_part_for_slurm_stands_alone(home: Installed, need_tool: NeedTool, shell: str) -> None:
    path = home.home / "part"
    path.write_text(home.ce("completion", shell, "--slurm").stdout)
    done = subprocess.run([need_tool(shell), "-n", path], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "sbatch" in path.read_text()


# ---- what ce lists ----------------------------------------------------------------------------


def test_each_argument_offers_what_it_names(home: Installed) -> None:
    environments = {"train", "train/large", "other"}
    for words in (["explain"], ["hooks", "explain"], ["inspect"], ["run"], ["diff", "a"]):
        files, names = offered_to(home, *words, "")
        assert (files, environments <= set(names)) == ("environments", True), words
    assert {"pmix", "ssh", "cxi"} <= set(offered_to(home, "hooks", "show", "")[1])
    for words in (["hooks", "check"], ["hooks", "list"]):
        assert offered_to(home, *words, "") == ("environments", {})
    for words in (["pull"], ["rmi"], ["run", "--image"]):
        assert offered_to(home, *words, "") == ("names", {})
    assert {"mpi", "python-packages", "docker"} <= set(offered_to(home, "help", "")[1])


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("import", "files"),
        ("build -t", "anything"),
        ("build", "files"),
        ("run other", "files"),
        ("run other --", "files"),
        ("exec 1 cat", "files"),
        ("diff a b", "names"),
        ("trace last", "names"),
    ],
)
def test_files_are_offered_where_they_may_stand(home: Installed, line: str, files: str) -> None:
    assert offered_to(home, *line.split(), "")[0] == files


@pytest.mark.parametrize("apart", [["--pull=a"], ["--pull", "=", "a"], ["--pull", "a"]])
def test_a_value_is_offered_however_it_is_written(home: Installed, apart: list[str]) -> None:
    assert set(offered_to(home, "run", *apart)[1]) == {"age", "always", "missing", "never"}

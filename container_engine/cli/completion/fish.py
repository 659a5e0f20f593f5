"""The completion script for fish. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.cli.completion.model import FILES, LISTED, SLURM

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from container_engine.cli.completion.model import Command, Value

_LIST = """\
# KIND: what ce lists, and files where they may be meant
function __ce_list
    set -l words (commandline -opc)
    ce completion --list "$argv[1]:$words[3]" 2>/dev/null
    contains $argv[1] %s; and __fish_complete_suffix .toml
end
"""
_ALL = """\
# Completion of ce for fish, made by 'ce completion fish'.
%s
complete -c ce -f
complete -c ce -n __fish_use_subcommand -s h -l help -d 'show help'
complete -c ce -n __fish_use_subcommand -l version -d 'print the version'
"""


def of_ce(commands: Sequence[Command]) -> str:
    """Return a script for `ce completion fish | source` or share/fish/vendor_completions.d."""
    lines = "".join(line for c in commands for line in _lines(c))
    return _ALL % _listing() + lines + _options()


def of_slurm() -> str:
    """Return the part for Slurm's programs, for a file that fish reads at its start."""
    return _listing() + _options()


def _listing() -> str:
    return _LIST % " ".join(FILES)


def _options() -> str:
    """Return the environment for each of Slurm's programs, beside what fish knows of them."""
    return "".join(
        f"complete -c {program} -l {name} -x -a '(__ce_list environment)' -d 'an environment'\n"
        for program in SLURM
        for name in ("environment", "edf")
    )


def _lines(command: Command) -> Iterator[str]:
    about = _quoted(command.about)
    yield f"complete -c ce -n __fish_use_subcommand -a {command.name} -d {about}\n"
    seen = f"complete -c ce -n '__fish_seen_subcommand_from {command.name}'"
    for option in command.options:
        names = " ".join(
            f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
        )
        value = "" if option.value is None else f" -r {_value(option.value)}"
        yield f"{seen} {names}{value} -d {_quoted(option.about)}\n"
    for word in dict.fromkeys(command.words):
        if word.kind != "any":
            yield f"{seen} {_value(word)}\n"


def _value(value: Value) -> str:
    if value.kind == "words":
        return f"-f -a {_quoted(' '.join(value.words))}"
    if value.kind in LISTED:
        return f"-f -a '(__ce_list {value.kind})'"
    return "-F" if value.kind == "file" else "-f"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

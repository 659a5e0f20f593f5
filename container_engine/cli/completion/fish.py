"""The completion script for fish. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.cli.completion.model import ANY_FILE, FILES, LISTED, SLURM

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from container_engine.cli.completion.model import Command, Value

_LIST = """\
# KIND: what ce lists, and files where they may be meant
function __ce_list
    set -l words (commandline -opc) (commandline -ct)
    ce completion --list "$argv[1]:$words[3]" 2>/dev/null
    contains $argv[1] %s; or return
    # not by __fish_complete_suffix, which repeats --environment= and offers every file
    set -l word (string replace -r -- '^--[^=]*=' '' (commandline -ct))
    complete -C "__fish_command_without_completions $word" | string match -r -- '^.*(?:\\.toml|/)$'
end
"""
_PLACE = """\

# VERB [VALUED PLACE [more]]: is the cursor behind this verb, at its argument of that place?
# VALUED are its options that take a word.
function __ce_at
    set -l words (commandline -opc)
    test "$words[2]" = $argv[1]; or return
    set -q argv[3]; or return 0
    set -l place 0
    set -l before
    for word in $words[3..-1]
        contains -- "$before" (string split , -- $argv[2]); or string match -q -- '-*' $word
        or set place (math $place + 1)
        set before $word
    end
    test $place -eq $argv[3]; and return
    set -q argv[4]; and test $place -gt $argv[3]
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
    return _ALL % (_listing() + _PLACE) + lines + _options()


def of_slurm() -> str:
    """Return the part for Slurm's programs, for a file that fish reads at its start."""
    return _listing() + _options()


def _listing() -> str:
    return _LIST % " ".join(FILES)


def _options() -> str:
    """Return lines that add the option of an environment to fish's completion of Slurm."""
    return "".join(
        f"complete -c {program} -l {name} -x -a '(__ce_list environment)' -d 'an environment'\n"
        for program in SLURM
        for name in ("environment", "edf")
    )


def _lines(command: Command) -> Iterator[str]:
    about = _quoted(command.about)
    yield f"complete -c ce -n __fish_use_subcommand -a {command.name} -d {about}\n"
    seen = f"complete -c ce -n '__ce_at {command.name}'"
    for option in command.options:
        names = " ".join(
            f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
        )
        value = "" if option.value is None else f" -r {_value(option.value)}"
        yield f"{seen} {names}{value} -d {_quoted(option.about)}\n"
    valued = ",".join(n for option in command.options if option.value for n in option.names)
    for place, word in enumerate(command.words):
        if word.kind != "any":
            more = " more" if command.repeats and place == len(command.words) - 1 else ""
            here = f"__ce_at {command.name} {valued or '-'} {place}{more}"
            yield f"complete -c ce -n '{here}' {_value(word)}\n"


def _value(value: Value) -> str:
    if value.kind == "words":
        return f"-f -a {_quoted(' '.join(value.words))}"
    if value.kind == ANY_FILE:
        return f"-F -a '(__ce_list {value.kind})'"
    if value.kind in LISTED:
        return f"-f -a '(__ce_list {value.kind})'"
    return "-F" if value.kind == "file" else "-f"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

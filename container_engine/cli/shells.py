"""Completion scripts for bash, zsh and fish, from a description of the command line. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ASK = "ce completion --environments 2>/dev/null"


class Value(NamedTuple):
    """The possible values of an argument: `words`, environments, files, or anything."""

    kind: Literal["words", "environment", "file", "any"]
    words: tuple[str, ...] = ()


class Option(NamedTuple):
    """An option of a verb; `value` is None for a switch."""

    names: tuple[str, ...]
    about: str
    value: Value | None


class Command(NamedTuple):
    """A verb and its arguments, `words`, the last of which may occur many times if `repeats`."""

    name: str
    about: str
    options: tuple[Option, ...]
    words: tuple[Value, ...]
    repeats: bool


# ---- bash ------------------------------------------------------------------------------------

_BASH = """\
# Completion of ce for bash, made by 'ce completion bash'.
_ce_environments() {
    local name
    # not by compgen -W, which would run a $(command) in the name of a file
    while IFS= read -r name; do
        [[ $name != "$1"* ]] || COMPREPLY+=("$(printf %%q "$name")")
    done < <(
        %(ask)s
        compgen -f -X '!*.toml' -- "$1"
        compgen -d -S / -- "$1"
    )
    [[ ${COMPREPLY[0]} != */ ]] || compopt -o nospace
}

_ce() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} verb= place=0 i word
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $word == -- ]]; then return; fi
        if [[ $word == -* ]]; then continue; fi
        if [[ -z $verb ]]; then verb=$word; continue; fi
        case "$verb ${COMP_WORDS[i - 1]}" in
        %(valued)s) ;;
        *) place=$((place + 1)) ;;
        esac
    done
    case "$verb $prev" in
%(values)s
    esac
    if [[ $cur == -* ]]; then
        case $verb in
%(options)s
        esac
        return
    fi
    case "$verb $place" in
    ' 0') mapfile -t COMPREPLY < <(compgen -W '%(verbs)s' -- "$cur") ;;
%(words)s
    esac
}
complete -o bashdefault -o default -F _ce ce
"""


def bash(commands: Sequence[Command]) -> str:
    """Return a script for `source <(ce completion bash)` or share/bash-completion/completions."""
    valued = [(c, o) for c in commands for o in c.options if o.value is not None]
    all_valued = "|".join(f"'{c.name} {name}'" for c, o in valued for name in o.names)
    options = (
        f"        {c.name}) {_offer(' '.join(n for o in c.options for n in o.names))} ;;"
        for c in commands
    )
    words = (
        f"    '{c.name} '{_place(i, c)}) {_bash_value(value)} ;;"
        for c in commands
        for i, value in enumerate(c.words)
        if value.kind != "any"
    )
    values = (_bash_option(command, option) for command, option in valued)
    return _BASH % {
        "ask": _ASK,
        "verbs": " ".join(c.name for c in commands),
        "valued": all_valued,
        "values": "\n".join(values),
        "options": "\n".join(options),
        "words": "\n".join(words),
    }


def _bash_option(command: Command, option: Option) -> str:
    cases = "|".join(f"'{command.name} {name}'" for name in option.names)
    return f"    {cases}) {_bash_value(option.value or Value('any'))}; return ;;"


def _place(index: int, command: Command) -> str:
    return "*" if command.repeats and index == len(command.words) - 1 else str(index)


def _offer(words: str) -> str:
    return f"""mapfile -t COMPREPLY < <(compgen -W '{words}' -- "$cur")"""


def _bash_value(value: Value) -> str:
    if value.kind == "words":
        return _offer(" ".join(value.words))
    return '_ce_environments "$cur"' if value.kind == "environment" else ":"


# ---- zsh -------------------------------------------------------------------------------------

_ZSH = """\
#compdef ce
# Completion of ce for zsh, made by 'ce completion zsh'.
_ce_environments() {
    local -a found
    found=(${(f)"$(%s)"})
    # as an array: in a specification the names would be evaluated
    compadd -a found
    _files -g '*.toml'
}

_ce() {
    local curcontext=$curcontext state line
    typeset -A opt_args
    _arguments -C '(-h --help)'{-h,--help}'[say how to use it]' '--version[print the version]' \\
        '1:verb:->verb' '*::argument:->arguments'
    case $state in
    verb)
        local -a verbs
        verbs=(
%s
        )
        _describe verb verbs
        ;;
    arguments)
        case $words[1] in
%s
        esac
        ;;
    esac
}

if [[ $funcstack[1] == _ce ]]; then _ce "$@"; else compdef _ce ce; fi
"""


def zsh(commands: Sequence[Command]) -> str:
    """Return a script for `source <(ce completion zsh)` after compinit, or a file _ce in fpath."""
    verbs = "\n".join(f"            {_quoted(f'{c.name}:{c.about}')}" for c in commands)
    cases = "\n".join(
        f"        {c.name}) _arguments {' '.join(_zsh_words(c))} ;;" for c in commands
    )
    return _ZSH % (_ASK, verbs, cases)


def _zsh_words(command: Command) -> list[str]:
    words = [_quoted(text) for option in command.options for text in _zsh_option(option)]
    for index, value in enumerate(command.words, start=1):
        last = command.repeats and index == len(command.words)
        words.append(_quoted(f"{'*' if last else index}:argument:{_zsh_value(value)}"))
    return words


def _zsh_option(option: Option) -> list[str]:
    about = option.about.replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    others = f"({' '.join(option.names)})" if len(option.names) > 1 else ""
    what = ""
    if option.value is not None:
        what = f":{option.names[-1].strip('-')}:{_zsh_value(option.value)}"
    return [f"{others}{name}[{about}]{what}" for name in option.names]


def _zsh_value(value: Value) -> str:
    if value.kind == "words":
        return f"({' '.join(value.words)})"
    return {"environment": "_ce_environments", "file": "_files"}.get(value.kind, "")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# ---- fish ------------------------------------------------------------------------------------

_FISH = """\
# Completion of ce for fish, made by 'ce completion fish'.
function __ce_environments
    %s
    __fish_complete_suffix .toml
end
complete -c ce -f
complete -c ce -n __fish_use_subcommand -s h -l help -d 'say how to use it'
complete -c ce -n __fish_use_subcommand -l version -d 'print the version'
"""


def fish(commands: Sequence[Command]) -> str:
    """Return a script for `ce completion fish | source` or share/fish/vendor_completions.d."""
    return _FISH % _ASK + "".join(line for c in commands for line in _fish_lines(c))


def _fish_lines(command: Command) -> Iterator[str]:
    about = _fish(command.about)
    yield f"complete -c ce -n __fish_use_subcommand -a {command.name} -d {about}\n"
    seen = f"complete -c ce -n '__fish_seen_subcommand_from {command.name}'"
    for option in command.options:
        names = " ".join(
            f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
        )
        value = "" if option.value is None else f" -r {_fish_value(option.value)}"
        yield f"{seen} {names}{value} -d {_fish(option.about)}\n"
    for word in dict.fromkeys(command.words):
        if word.kind != "any":
            yield f"{seen} {_fish_value(word)}\n"


def _fish_value(value: Value) -> str:
    if value.kind == "words":
        return f"-f -a {_fish(' '.join(value.words))}"
    return {"environment": "-f -a '(__ce_environments)'", "file": "-F"}.get(value.kind, "-f")


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

"""Completion scripts for bash, zsh and fish, from a description of the command line. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# what `ce completion --list KIND` prints at the time of completion; "named" are environments and
# images, "trace" are steps that have one
Kind = Literal["environment", "hook", "image", "named", "step", "trace"]
LISTED: tuple[Kind, ...] = ("environment", "hook", "image", "named", "step", "trace")
# these may also be files
_FILES = ("environment", "hook", "named")
# a colon in a name of these makes several words of it in bash
_COLONS = ("image", "named")
_SLURM = ("srun", "sbatch", "salloc")
_SLURMS_OTHERS = (
    *("sacct", "sacctmgr", "sattach", "sbcast", "scancel", "scontrol", "sdiag", "sinfo", "sprio"),
    *("squeue", "sreport", "sshare", "sstat", "strigger"),
)


class Value(NamedTuple):
    """The possible values of an argument: `words`, files, anything, or what ce lists."""

    kind: Literal["words", "file", "any"] | Kind
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

_BASH_LIST = """\
# KIND WORD: what ce lists, and files where they may be meant
_ce_list() {
    local name whole=$2 done=
    if [[ ,%(colons)s, == *",$1,"* && $COMP_WORDBREAKS == *:* ]]; then
        # a colon begins a new word, of which only the last is replaced
        whole=${COMP_LINE:0:COMP_POINT}
        whole=${whole##*[[:space:]]}
        [[ $whole != *:* ]] || done=${whole%%"${whole##*:}"}
    fi
    # not by compgen -W, which would run a $(command) in the name of a file
    while IFS= read -r name; do
        [[ $name != "$whole"* ]] || COMPREPLY+=("$(printf %%q "${name#"$done"}")")
    done < <(
        ce completion --list "$1:${COMP_WORDS[2]}" 2>/dev/null
        if [[ ,%(files)s, == *",$1,"* ]]; then
            compgen -f -X '!*.toml' -- "$2"
            compgen -d -S / -- "$2"
        fi
    )
    if [[ ${COMPREPLY[0]} == */ ]]; then compopt -o nospace; else compopt +o nospace; fi
} 2>/dev/null
"""
_BASH_SLURM = """
# Of %(programs)s only the environment; the rest is the site's own completion, if there is one.
declare -gA _ce_site
_ce_adopt() {
    local spec name
    spec=$(complete -p "$1" 2>/dev/null)
    name=${spec#* -F }
    name=${name%%%% *}
    case $spec in
    '') complete -o bashdefault -o default -F _ce_slurm "$1" ;;
    *' -F _ce_slurm '*) ;;
    *' -F '*)
        _ce_site[$1]=$name
        eval "${spec/ -F $name / -F _ce_slurm }"
        ;;
    esac
}

# bash-completion reads a site's completion only when it is needed, and then often all of Slurm's
_ce_load() {
    local loader command
    for loader in _comp_load __load_completion; do
        declare -F "$loader" >/dev/null || continue
        complete -r "$1"
        "$loader" "$1"
        for command in %(programs)s; do _ce_adopt "$command"; done
        return
    done
} &>/dev/null

_ce_other() {
    _ce_load "$1"
    return 124
}

_ce_slurm() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${1##*/} option
    # in most shells = begins a new word: --environment = NAME
    if [[ $cur == = ]]; then cur=; elif ((COMP_CWORD > 1)) && [[ $prev == = ]]; then
        prev=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    COMPREPLY=()
    for option in --environment --edf; do
        case $cur in
        "$option="*)
            _ce_list environment "${cur#*=}"
            COMPREPLY=("${COMPREPLY[@]/#/$option=}")
            return
            ;;
        esac
        if [[ $prev == "$option" ]]; then
            _ce_list environment "$cur"
            return
        fi
    done
    if [[ -z ${_ce_site[$command]+known} ]]; then
        _ce_site[$command]=
        _ce_load "$command"
        # 124: once more, with the options of the site's completion
        [[ -z ${_ce_site[$command]} ]] || return 124
    fi
    [[ -z ${_ce_site[$command]} ]] || "${_ce_site[$command]}" "$@"
    for option in --environment= --edf=; do
        if [[ $cur == --* && $option == "$cur"* ]]; then
            COMPREPLY+=("$option")
            compopt -o nospace
        fi
    done
}
for _ce_command in %(programs)s; do _ce_adopt "$_ce_command"; done
for _ce_command in %(others)s; do
    complete -p "$_ce_command" &>/dev/null || complete -F _ce_other "$_ce_command"
done
unset -v _ce_command
"""
_BASH = """\
# Completion of ce for bash, made by 'ce completion bash'.
%(list)s
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
%(slurm)s"""


def bash(commands: Sequence[Command]) -> str:
    """Return a script for `source <(ce completion bash)` or share/bash-completion/completions."""
    valued = [(c, o) for c in commands for o in c.options if o.value is not None]
    all_valued = "|".join(f"'{c.name} {name}'" for c, o in valued for name in o.names)
    options = (
        f"        {c.name}) {_offer(' '.join(n for o in c.options for n in o.names))} ;;"
        for c in commands
    )
    words = (
        f"    '{c.name} '{'*' if value.kind in _COLONS else _place(i, c)}) {_bash_value(value)} ;;"
        for c in commands
        for i, value in enumerate(c.words)
        if value.kind != "any"
    )
    values = (_bash_option(command, option) for command, option in valued)
    return _BASH % {
        "list": _bash_list(),
        "slurm": _bash_slurm(),
        "verbs": " ".join(c.name for c in commands),
        "valued": all_valued,
        "values": "\n".join(values),
        "options": "\n".join(options),
        "words": "\n".join(words),
    }


def _bash_list() -> str:
    return _BASH_LIST % {"colons": ",".join(_COLONS), "files": ",".join(_FILES)}


def bash_slurm() -> str:
    """Return the part for Slurm's programs, for a file that bash reads at its start."""
    return _bash_list() + _bash_slurm()


def _bash_slurm() -> str:
    return _BASH_SLURM % {"programs": " ".join(_SLURM), "others": " ".join(_SLURMS_OTHERS)}


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
    return f'_ce_list {value.kind} "$cur"' if value.kind in LISTED else ":"


# ---- zsh -------------------------------------------------------------------------------------

_ZSH_LIST = """\
# KIND: what ce lists, and files where they may be meant
_ce_list() {
    local -a found
    found=(${(f)"$(ce completion --list "$1:$words[2]" 2>/dev/null)"})
    # as an array: in a specification the names would be evaluated
    compadd -a found
    [[ ,%s, != *,$1,* ]] || _files -g '*.toml'
}
"""
_ZSH_SLURM = """
# Of %(programs)s only the environment; the site's own completion follows for all else.
_ce_slurm() {
    if [[ $PREFIX == --(environment|edf)=* ]]; then
        compset -P '*='
    elif [[ $words[CURRENT-1] != --(environment|edf) ]]; then
        [[ $PREFIX != --e* ]] || compadd -S '' -- --environment= --edf=
        return 1
    fi
    _compskip=all
    _ce_list environment
}
"""
_ZSH = """\
#compdef ce
# Completion of ce for zsh, made by 'ce completion zsh'.
%(list)s
_ce() {
    local curcontext=$curcontext state line
    typeset -A opt_args
    _arguments -C '(-h --help)'{-h,--help}'[say how to use it]' '--version[print the version]' \\
        '1:verb:->verb' '*::argument:->arguments'
    case $state in
    verb)
        local -a verbs
        verbs=(
%(verbs)s
        )
        _describe verb verbs
        ;;
    arguments)
        case $words[1] in
%(cases)s
        esac
        ;;
    esac
}

%(slurm)s
if [[ $funcstack[1] == _ce ]]; then
    _ce "$@"
else
    compdef _ce ce
    compdef -p _ce_slurm '%(pattern)s'
fi
"""
_ZSH_PATTERN = f"(*/|)({'|'.join(_SLURM)})"


def zsh(commands: Sequence[Command]) -> str:
    """Return a script for `source <(ce completion zsh)` after compinit, or a file _ce in fpath."""
    verbs = "\n".join(f"            {_quoted(f'{c.name}:{c.about}')}" for c in commands)
    cases = "\n".join(
        f"        {c.name}) _arguments {' '.join(_zsh_words(c))} ;;" for c in commands
    )
    return _ZSH % {**_zsh_parts(), "verbs": verbs, "cases": cases}


def _zsh_parts() -> dict[str, str]:
    return {
        "list": _ZSH_LIST % ",".join(_FILES),
        "slurm": _ZSH_SLURM % {"programs": " ".join(_SLURM)},
        "pattern": _ZSH_PATTERN,
    }


def zsh_slurm() -> str:
    """Return the part for Slurm's programs, a file _ce_slurm in fpath."""
    parts = _zsh_parts()
    return f'#compdef -p {_ZSH_PATTERN}\n{parts["list"]}{parts["slurm"]}\n_ce_slurm "$@"\n'


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
    if value.kind in LISTED:
        return f"{{_ce_list {value.kind}}}"
    return "_files" if value.kind == "file" else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# ---- fish ------------------------------------------------------------------------------------

_FISH_LIST = """\
# KIND: what ce lists, and files where they may be meant
function __ce_list
    set -l words (commandline -opc)
    ce completion --list "$argv[1]:$words[3]" 2>/dev/null
    contains $argv[1] %s; and __fish_complete_suffix .toml
end
"""
_FISH = """\
# Completion of ce for fish, made by 'ce completion fish'.
%s
complete -c ce -f
complete -c ce -n __fish_use_subcommand -s h -l help -d 'say how to use it'
complete -c ce -n __fish_use_subcommand -l version -d 'print the version'
"""


def fish(commands: Sequence[Command]) -> str:
    """Return a script for `ce completion fish | source` or share/fish/vendor_completions.d."""
    lines = "".join(line for c in commands for line in _fish_lines(c))
    return _FISH % _fish_list() + lines + _fish_options()


def fish_slurm() -> str:
    """Return the part for Slurm's programs, for a file that fish reads at its start."""
    return _fish_list() + _fish_options()


def _fish_list() -> str:
    return _FISH_LIST % " ".join(_FILES)


def _fish_options() -> str:
    """Return the environment for each of Slurm's programs, beside what fish knows of them."""
    return "".join(
        f"complete -c {program} -l {name} -x -a '(__ce_list environment)' -d 'an environment'\n"
        for program in _SLURM
        for name in ("environment", "edf")
    )


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
    if value.kind in LISTED:
        return f"-f -a '(__ce_list {value.kind})'"
    return "-F" if value.kind == "file" else "-f"


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

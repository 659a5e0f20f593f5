"""The completion script for bash. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.cli.completion.model import ANY_FILE, FILES, LISTED, SLURM, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from container_engine.cli.completion.model import Command, Option

# kinds of names that may contain a colon, at which bash splits a word
_COLONS = ("image", "named", ANY_FILE)
_OTHERS_OF_SLURM = (
    *("sacct", "sacctmgr", "sattach", "sbcast", "scancel", "scontrol", "sdiag", "sinfo", "sprio"),
    *("squeue", "sreport", "sshare", "sstat", "strigger"),
)
_LIST = """\
# KIND WORD: what ce lists, and files where they may be meant
_ce_list() {
    local name whole=$2 done= hidden=
    # hidden directories only where a dot is typed
    [[ ${2##*/} == .* ]] || hidden="${2%%"${2##*/}"}.*"
    if [[ ,%(colons)s, == *",$1,"* && $COMP_WORDBREAKS == *:* ]]; then
        # a colon begins a new word, of which only the last is replaced
        whole=${COMP_LINE:0:COMP_POINT}
        whole=${whole##*[[:space:]]}
        [[ $whole != *:* ]] || done=${whole%%"${whole##*:}"}
    fi
    # not by compgen -W, which would run a $(command) in the name of a file
    while IFS= read -r name; do
        [[ $name == "$whole"* ]] || continue
        name=$(printf %%q "${name#"$done"}")
        COMPREPLY+=("${name/#\\\\~/\\~}")
    done < <(
        ce completion --list "$1:${COMP_WORDS[2]}" 2>/dev/null
        if [[ ,%(files)s, == *",$1,"* ]]; then
            compgen -f -X '!*.toml' -- "$2"
            compgen -d -S / -X "$hidden" -- "$2"
        fi
    )
    [[ ,%(files)s,%(any_file)s, == *",$1,"* ]] || compopt +o default +o bashdefault
    if [[ ${COMPREPLY[0]} == */ ]]; then compopt -o nospace; else compopt +o nospace; fi
} 2>/dev/null
"""
_OF_SLURM = """
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
_ALL = """\
# Completion of ce for bash, made by 'ce completion bash'.
%(list)s
_ce() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} verb= place=0 i word
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $word == -- ]]; then return; fi
        # in most shells = begins a new word: --pull = always
        if [[ $word == = || ${COMP_WORDS[i - 1]} == = ]]; then continue; fi
        if [[ $word == -* ]]; then continue; fi
        if [[ -z $verb ]]; then verb=$word; continue; fi
        case "$verb ${COMP_WORDS[i - 1]}" in
        %(valued)s) ;;
        *) place=$((place + 1)) ;;
        esac
    done
    if [[ $cur == = ]]; then cur=; elif ((COMP_CWORD > 1)) && [[ $prev == = ]]; then
        prev=${COMP_WORDS[COMP_CWORD - 2]}
    fi
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


def of_ce(commands: Sequence[Command]) -> str:
    """Return a script for `source <(ce completion bash)` or share/bash-completion/completions."""
    valued = [(c, o) for c in commands for o in c.options if o.value is not None]
    all_valued = "|".join(f"'{c.name} {name}'" for c, o in valued for name in o.names)
    options = (
        f"        {c.name}) {_offer(' '.join(n for o in c.options for n in o.names))} ;;"
        for c in commands
    )
    words = (
        f"    '{c.name} '{'*' if value.kind in _COLONS else _place(i, c)}) {_value(value)} ;;"
        for c in commands
        for i, value in enumerate(c.words)
        if value.kind != "any"
    )
    values = (_option(command, option) for command, option in valued)
    return _ALL % {
        "list": _listing(),
        "slurm": _slurms(),
        "verbs": " ".join(c.name for c in commands),
        "valued": all_valued,
        "values": "\n".join(values),
        "options": "\n".join(options),
        "words": "\n".join(words),
    }


def _listing() -> str:
    return _LIST % {"colons": ",".join(_COLONS), "files": ",".join(FILES), "any_file": ANY_FILE}


def of_slurm() -> str:
    """Return the part for Slurm's programs, for a file that bash reads at its start."""
    return _listing() + _slurms()


def _slurms() -> str:
    return _OF_SLURM % {"programs": " ".join(SLURM), "others": " ".join(_OTHERS_OF_SLURM)}


def _option(command: Command, option: Option) -> str:
    cases = "|".join(f"'{command.name} {name}'" for name in option.names)
    return f"    {cases}) {_value(option.value or Value('any'))}; return ;;"


def _place(index: int, command: Command) -> str:
    return "*" if command.repeats and index == len(command.words) - 1 else str(index)


def _offer(words: str) -> str:
    return f"""mapfile -t COMPREPLY < <(compgen -W '{words}' -- "$cur")"""


def _value(value: Value) -> str:
    if value.kind == "words":
        return _offer(" ".join(value.words))
    return f'_ce_list {value.kind} "$cur"' if value.kind in LISTED else ":"

# Completion of ce, srun, sbatch and salloc for bash, made by 'ce completion bash'.

# WORD...: what ce offers for the last one, which is being typed, and files where they may be meant
_ce_offer() {
    local name word=${*: -1} line=${COMP_LINE:0:COMP_POINT} whole done= hidden= offered
    mapfile -t offered < <(ce complete "$@" 2>/dev/null)
    word=${word#--*=}
    [[ $word != = ]] || word=
    whole=$word
    line=${line##*[[:space:]]}
    line=${line#--*=}
    if [[ $line == *:* && $COMP_WORDBREAKS == *:* ]]; then
        # a colon begins a new word, of which only the last is replaced
        whole=$line done=${line%"${line##*:}"}
    fi
    if [[ ${offered[0]} == environments ]]; then
        # hidden directories only where a dot is typed
        [[ ${word##*/} == .* ]] || hidden="${word%"${word##*/}"}.*"
        mapfile -t -O ${#offered[@]} offered < <(
            compgen -f -X '!*.toml' -- "$word"
            compgen -d -S / -X "$hidden" -- "$word"
        )
    fi
    # not by compgen -W, which would run a $(command) in the name of a file
    for name in "${offered[@]:1}"; do
        name=${name%%$'\t'*}
        [[ $name == "$whole"* ]] || continue
        name=$(printf %q "${name#"$done"}")
        COMPREPLY+=("${name/#\\~/\~}")
    done
    [[ ${offered[0]} == @(files|anything) ]] || compopt +o default +o bashdefault
    if [[ ${COMPREPLY[0]} == */ ]]; then compopt -o nospace; else compopt +o nospace; fi
} 2>/dev/null

_ce() {
    COMPREPLY=()
    _ce_offer "${COMP_WORDS[@]:1:COMP_CWORD}"
}
complete -o bashdefault -o default -F _ce ce

# Of Slurm's programs only the environment; the rest is the site's own completion, if there is one.
declare -gA _ce_site
_ce_adopt() {
    local spec name
    spec=$(complete -p "$1" 2>/dev/null)
    name=${spec#* -F }
    name=${name%% *}
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
        for command in srun sbatch salloc; do _ce_adopt "$command"; done
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
            _ce_offer plan "${cur#*=}"
            COMPREPLY=("${COMPREPLY[@]/#/$option=}")
            return
            ;;
        esac
        if [[ $prev == "$option" ]]; then
            _ce_offer plan "$cur"
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
for _ce_command in srun sbatch salloc; do _ce_adopt "$_ce_command"; done
for _ce_command in sacct sacctmgr sattach sbcast scancel scontrol sdiag sinfo sprio \
    squeue sreport sshare sstat strigger; do
    complete -p "$_ce_command" &>/dev/null || complete -F _ce_other "$_ce_command"
done
unset -v _ce_command

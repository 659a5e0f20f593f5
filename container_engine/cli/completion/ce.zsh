#compdef ce
# Completion of ce, srun, sbatch and salloc for zsh, made by 'ce completion zsh'.

# WORD...: what ce offers for the last one, which is being typed, and files where they may be meant
_ce_offer() {
    local -a offered names
    offered=("${(@f)$(ce complete "$@" 2>/dev/null)}")
    names=("${(@)offered[2,-1]%%$'\t'*}")
    offered=("$offered[1]" "${(@)offered[2,-1]/$'\t'/  -- }")
    [[ $PREFIX != --*=* ]] || compset -P '*='
    # as an array: in a specification the names would be evaluated
    (( ! $#names )) || compadd ${${(M)offered:#*  -- *}:+-l} -d "offered[2,-1]" -a names
    case $offered[1] in
    environments) _files -g '*.toml' ;;
    files) _files ;;
    esac
}

_ce() {
    _ce_offer "${(@Q)words[2,CURRENT-1]}" "$PREFIX"
}

# Of Slurm's programs only the environment; the site's own completion follows for all else.
_ce_slurm() {
    if [[ $PREFIX == --(environment|edf)=* ]]; then
        compset -P '*='
    elif [[ $words[CURRENT-1] != --(environment|edf) ]]; then
        [[ $PREFIX != --e* ]] || compadd -S '' -- --environment= --edf=
        return 1
    fi
    _compskip=all
    _ce_offer plan "$PREFIX"
}

case $funcstack[1] in
_ce) _ce "$@" ;;
_ce_slurm) _ce_slurm "$@" ;;
*)
    compdef _ce ce
    compdef -p _ce_slurm '(*/|)(srun|sbatch|salloc)'
    ;;
esac

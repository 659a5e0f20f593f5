"""The completion script for zsh. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from container_engine.cli.completion.model import ANY_FILE, FILES, LISTED, SLURM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from container_engine.cli.completion.model import Command, Option, Value

_LIST = """\
# KIND: what ce lists, and files where they may be meant
_ce_list() {
    local -a found
    found=(${(f)"$(ce completion --list "$1:$words[2]" 2>/dev/null)"})
    # as an array: in a specification the names would be evaluated
    compadd -a found
    [[ ,%s, != *,$1,* ]] || _files -g '*.toml'
    [[ $1 != %s || $PREFIX == podman* ]] || _files
}
"""
_OF_SLURM = """
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
_ALL = """\
#compdef ce
# Completion of ce for zsh, made by 'ce completion zsh'.
%(list)s
_ce() {
    local curcontext=$curcontext state line
    typeset -A opt_args
    _arguments -C '(-h --help)'{-h,--help}'[show help]' '--version[print the version]' \\
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
_PATTERN = f"(*/|)({'|'.join(SLURM)})"


def of_ce(commands: Sequence[Command]) -> str:
    """Return a script for `source <(ce completion zsh)` after compinit, or a file _ce in fpath."""
    verbs = "\n".join(f"            {_quoted(f'{c.name}:{c.about}')}" for c in commands)
    cases = "\n".join(f"        {c.name}) _arguments {' '.join(_words(c))} ;;" for c in commands)
    return _ALL % {**_parts(), "verbs": verbs, "cases": cases}


def _parts() -> dict[str, str]:
    return {
        "list": _LIST % (",".join(FILES), ANY_FILE),
        "slurm": _OF_SLURM % {"programs": " ".join(SLURM)},
        "pattern": _PATTERN,
    }


def of_slurm() -> str:
    """Return the part for Slurm's programs, a file _ce_slurm in fpath."""
    parts = _parts()
    return f'#compdef -p {_PATTERN}\n{parts["list"]}{parts["slurm"]}\n_ce_slurm "$@"\n'


def _words(command: Command) -> list[str]:
    words = [_quoted(text) for option in command.options for text in _option(option)]
    for index, value in enumerate(command.words, start=1):
        last = command.repeats and index == len(command.words)
        words.append(_quoted(f"{'*' if last else index}:argument:{_value(value)}"))
    return words


def _option(option: Option) -> list[str]:
    about = option.about.replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    others = f"({' '.join(option.names)})" if len(option.names) > 1 else ""
    if option.value is None:
        return [f"{others}{name}[{about}]" for name in option.names]
    what = f":{option.names[-1].strip('-')}:{_value(option.value)}"
    # with = or + the value may be in the same word, too
    return [
        f"{others}{name}{'=' if name.startswith('--') else '+'}[{about}]{what}"
        for name in option.names
    ]


def _value(value: Value) -> str:
    if value.kind == "words":
        return f"({' '.join(value.words)})"
    if value.kind in LISTED:
        return f"{{_ce_list {value.kind}}}"
    return "_files" if value.kind == "file" else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"

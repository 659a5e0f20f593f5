# Completion of ce, srun, sbatch and salloc for fish, made by 'ce completion fish'.

# WORD...: what ce offers for the last one, which is being typed, and files where they may be meant
function __ce_offer
    set -l offered (ce complete $argv 2>/dev/null)
    set -l word (string replace -r -- '^--[^=]*=' '' $argv[-1])
    printf '%s\n' $offered[2..-1]
    # not by __fish_complete_suffix, which repeats --environment= and offers every file
    switch "$offered[1]"
        case environments
            complete -C "__fish_command_without_completions $word" | string match -r -- '^.*(?:\.toml|/)$'
        case files
            complete -C "__fish_command_without_completions $word"
    end
end

function __ce
    set -l word (commandline -ct)
    set -l words (commandline -opc) $word
    set -l option (string match -r -- '^--[^=]*=' $word)
    __ce_offer $words[2..-1] | string replace -r -- '^' "$option"
end

complete -c ce -f -a '(__ce)'
for program in srun sbatch salloc
    for option in environment edf
        complete -c $program -l $option -x -d 'an environment' \
            -a '(__ce_offer plan (string replace -r -- "^--[^=]*=" "" (commandline -ct)))'
    end
end

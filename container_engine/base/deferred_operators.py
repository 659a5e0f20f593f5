"""Decide what an expansion `${NAME<op>word}` stands for, on the submit host and on nodes. Pure."""

VALUE, WORD, NOTHING, MISSING = "value", "word", "nothing", "missing"

# slurmstepd sets these for each task; until then they have the values of srun's own environment.
OF_TASKS = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_GTIDS", "SLURM_TASK_PID")
TOO_EARLY = (
    "Slurm sets the variable for each task, after the container has started: use it in the task"
    " itself"
)


def replacement_kind(operator: str, value: str | None) -> str:
    """Return what takes the place of the expansion: VALUE, WORD or NOTHING; else MISSING.

    MISSING is an error: the variable is unset (`value` is None) and there is no word to use.
    """
    # the colon of an operator makes an empty value count as unset
    present = bool(value) if operator.startswith(":") else value is not None
    kind = operator[-1:]
    if kind == "+":
        return WORD if present else NOTHING
    if present:
        return VALUE
    return WORD if kind == "-" else MISSING

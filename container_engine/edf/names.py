"""Names that the engine gives: its annotations with the effect of options, and JOB.STEP.

Imports nothing, so that nodes start quickly.
"""

# node/container/description.py repeats the second, because a launch must not wait for this import;
# a test compares them.
CONTAINER_NAME, CONTAINER_SAVE = "com.ce.container_name", "com.ce.container_save"
ROOT_REMAP, UNSHARE = "com.ce.root_remap", "com.ce.unshare"


def is_step(name: str) -> bool:
    """Check whether a container's name is JOB.STEP, that of a step that gave it no name."""
    job, _dot, step = name.partition(".")
    return job.isdigit() and step.isdigit()

"""Names that say by themselves what they are: annotations of the engine, JOB.STEP, image files.

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


SQUASHFS_SUFFIXES = (".sqsh", ".squashfs", ".sqfs")


def looks_like_file(text: str) -> bool:
    """Check whether `text` may be meant as a file, though it does not begin as a path does."""
    return text.endswith(SQUASHFS_SUFFIXES) and not text.startswith(("docker://", "/", "."))

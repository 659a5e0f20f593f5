"""Names that users misspell, misplace or know from other tools."""

from __future__ import annotations

# Annotations below `com.pyxis.` that have the same effect here as in Pyxis.
PYXIS = ("entrypoint_log", "pytorch_remap_vars")

# Keys of container tools and job launchers that mean one of ours but are not similar to it.
FOREIGN_KEYS: dict[str, str] = {
    "base": "base_environment",
    "bind": "mounts",
    "binds": "mounts",
    "com": "annotations.com",
    "container_image": "image",
    "container_mounts": "mounts",
    "container_workdir": "workdir",
    "container_writable": "writable",
    "cwd": "workdir",
    "environment": "env",
    "extends": "base_environment",
    "from": "image",
    "hooks": "annotations.com.hooks",
    "inherit": "base_environment",
    "inherits": "base_environment",
    "variables": "env",
    "volume": "mounts",
    "volumes": "mounts",
    "working_dir": "workdir",
}

# How other tools spell the flags of a mount.
FOREIGN_FLAGS: dict[str, str] = {"r": "ro", "read-only": "ro", "readonly": "ro", "w": "rw"}

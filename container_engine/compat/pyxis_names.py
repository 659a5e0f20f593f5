"""The names of pyxis's options, and of the variables that have the same effect.

Imports nothing, so that `ce run` starts quickly. `spank_plugin/plugin/options.c` has the same
names; a test compares them.
"""

# each option of srun, and the placeholder of its value, "" for a switch
OPTIONS = {
    "container-image": "[USER@][REGISTRY#]IMAGE[:TAG]|PATH",
    "container-mounts": "SRC:DST[:FLAGS][,SRC:DST...]",
    "container-workdir": "PATH",
    "container-name": "NAME",
    "container-save": "PATH",
    "container-mount-home": "",
    "no-container-mount-home": "",
    "container-remap-root": "",
    "no-container-remap-root": "",
    "container-entrypoint": "",
    "no-container-entrypoint": "",
    "container-entrypoint-log": "",
    "container-writable": "",
    "container-readonly": "",
    "container-env": "NAME[,NAME...]",
    "container-unshare": "NS[,NS...]",
}
# Given more than once, the values of these add up; of the others the last takes effect.
LISTS = ("container-mounts", "container-env", "container-unshare")
# The plugin puts this word before the options if the variables below take effect, too.
VARIABLES_COUNT = "--container-variables"
# PYXIS_CONTAINER_… for each option with a value, and for each pair of switches
VARIABLES = (
    "IMAGE",
    "MOUNTS",
    "WORKDIR",
    "NAME",
    "SAVE",
    "MOUNT_HOME",
    "REMAP_ROOT",
    "ENTRYPOINT",
    "ENTRYPOINT_LOG",
    "WRITABLE",
    "READONLY",
    "ENV",
    "UNSHARE",
)
PREFIX = "PYXIS_CONTAINER_"
# The annotations of pyxis with the same effect as options. node/node_plan.py repeats
# the first, because a launch must not wait for this import; a test compares them.
ENTRYPOINT_LOG, PYTORCH = "com.pyxis.entrypoint_log", "com.pyxis.pytorch_remap_vars"

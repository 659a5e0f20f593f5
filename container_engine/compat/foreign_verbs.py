"""Verbs and actions of other tools, and the counterpart of each in `ce`."""

from __future__ import annotations

_ROOM = "ce images shows how much your images take, ce gc removes unused ones"
_ENDS = "a container ends with its command or its step"
_SAVE = "ce save JOB IMAGE.sqsh keeps changes; lasting ones belong in a Dockerfile: ce build"
_REMOVE = f"ce rmi removes an image, rm the file of an environment (ce list shows it); {_ENDS}"
_STOP = f"{_ENDS}; ce ps lists your steps, scancel JOB.STEP ends one"
_FILE = "an image is one file, which ce images -q shows: copy or rename that"
_CLEAN = "ce gc removes unused images, ce gc --layers what imports have kept"
_OUTPUT = "the output of a job is in Slurm's file, slurm-JOB.out; ce trace shows its launch"
_SIGNED = "the site's policy checks signatures of images: signature_policy in its configuration"
_UPGRADE = "the administrator does that: docs/admin/upgrade.md, or ce help upgrade"
_SERVICES = (
    "one 'srun --overlap -n1 --environment=NAME COMMAND &' for each service in a job script, then"
    " 'wait': ce help docker"
)

_BY_HAND = (
    "settings are changed by hand: as root edit the file that 'ce config show' names, then run"
    " 'ce config check'"
)
_ALL_SHOWN = (
    "'ce config show' prints every setting with its file, 'ce config check FILE' checks a file"
)
_HOOK_KEY = (
    'an environment decides that: com.hooks.NAME.enabled = "true" or "false" in [annotations]'
)

_SHOWS_IMAGE = "ce inspect NAME shows one image, ce rmi NAME removes one"

# Words that users type after a verb that takes an action or no word, with a hint; "" is any other.
FOREIGN_ACTIONS: dict[str, dict[str, str]] = {
    "config": {
        "": _ALL_SHOWN,
        **dict.fromkeys(("add", "edit", "remove", "rm", "set", "unset"), _BY_HAND),
        **dict.fromkeys(("dump", "get", "list", "ls", "print"), _ALL_SHOWN),
        **dict.fromkeys(("lint", "test", "validate", "verify"), "'ce config check' does that"),
    },
    "hooks": {
        **dict.fromkeys(("add", "disable", "enable", "remove", "set"), _HOOK_KEY),
        **dict.fromkeys(("info", "inspect"), "'ce hooks show NAME' does that"),
    },
    "images": {
        "": _SHOWS_IMAGE,
        **dict.fromkeys(("list", "ls"), "without a word ce images lists the images"),
        **dict.fromkeys(("clean", "gc", "prune"), "'ce gc' removes unused images"),
        "pull": "'ce pull IMAGE' gets one",
    },
    "list": {"": "ce explain NAME shows an environment, ce images lists the images"},
    "store": {
        **dict.fromkeys(("list", "ls", "show"), "'ce images' lists the images of the store"),
        **dict.fromkeys(("clean", "gc", "prune"), "'ce gc' removes unused images"),
        **dict.fromkeys(("fix", "mend"), "'ce store repair' does that"),
    },
}

FOREIGN_VERBS: dict[str, str] = {
    "activate": "srun --environment=NAME COMMAND; ce shell NAME opens a shell in a container",
    "attach": "Slurm's sattach JOB.STEP shows the output of a step; ce exec JOB opens a shell",
    "cache": _CLEAN,
    "clean": _CLEAN,
    "commit": _SAVE,
    "compose": _SERVICES,
    "container": "ce ps lists your steps, ce run starts a container",
    "cp": "ce exec JOB -- cat /FILE > FILE copies a file out of a running step; or mount a"
    ' directory: mounts = ["SOURCE:DESTINATION"] in the environment file',
    "create": "ce run and srun create the container; ce init NAME creates an environment file",
    "delete": _REMOVE,
    "df": _ROOM,
    "du": _ROOM,
    "edit": "an environment is a text file: ce list shows where it is; ce validate NAME checks it",
    "enter": "ce exec JOB opens a shell in a running step, ce shell NAME in a new container",
    "env": "ce list shows the environments, ce explain NAME where values come from",
    "events": "ce trace JOB shows what a launch did, step by step",
    "export": f"{_FILE}; ce render prints an environment as one file",
    "history": "ce inspect IMAGE shows the layers of an image",
    "host": "ce doctor checks this host, ce config show prints the site's settings",
    "image": "ce images lists the images, ce inspect shows one, ce rmi removes one",
    "info": "ce doctor checks this host, ce config show prints the site's settings",
    "install": "write RUN lines into a Dockerfile, then ce build -t NAME .",
    "instance": "ce ps lists your steps; services run as steps of a job",
    "key": _SIGNED,
    "kill": _STOP,
    "load": "ce import docker-archive:FILE imports an archive that docker save wrote",
    "log": _OUTPUT,
    "logs": _OUTPUT,
    "ls": "ce list shows the environments, ce images the images, ce ps your running steps",
    "manifest": "ce inspect IMAGE shows what is known of an image",
    "network": "the container has the host's network",
    "new": "ce init NAME --image IMAGE writes an environment to begin with",
    "pause": "scontrol suspend JOB suspends a job",
    "port": "the container has the host's network: every port is open as it is",
    "prune": "ce gc removes unused images",
    "push": "ce only gets images; skopeo copy, or a build service, pushes one to a registry",
    "quota": _ROOM,
    "remote": "ce login REGISTRY logs in to a registry, ce logout logs out",
    "remove": _REMOVE,
    "rename": "an environment has the name of its file: mv",
    "restart": f"{_ENDS}; start it again: srun or ce run",
    "rm": _REMOVE,
    "rollback": _UPGRADE,
    "search": "ce does not search registries; use their web pages, or skopeo list-tags",
    "show": "ce explain NAME shows an environment, ce inspect an image, ce hooks show a hook",
    "sign": _SIGNED,
    "start": "ce run NAME, ce shell NAME, or in a job: srun --environment=NAME COMMAND",
    "stats": "sstat JOB.STEP shows what a step uses",
    "status": "ce ps lists your running steps, ce doctor checks this host",
    "stop": _STOP,
    "system": "ce doctor checks this host, ce gc removes unused images",
    "tag": "images have the names with which they are imported or built: ce build -t NAME",
    "top": "ce exec JOB -- top, or sstat JOB.STEP",
    "uninstall": _UPGRADE,
    "up": _SERVICES,
    "update": "ce pull IMAGE gets the newest image of that name",
    "upgrade": _UPGRADE,
    "use": "srun --environment=NAME COMMAND, or ce run NAME -- COMMAND on this host",
    "verify": "ce validate checks an environment, ce scan an image",
    "volume": 'mount directories: mounts = ["SOURCE:DESTINATION"] in the environment file',
    "wait": "srun waits for its step, sbatch -W for the job",
}

"""Verbs of other container tools, and the counterpart of each in `ce`."""

from __future__ import annotations

_ENDS = "a container ends with its command or its step"
_SAVE = "ce save JOB IMAGE.sqsh keeps changes; lasting ones belong in a Dockerfile: ce build"
_STOP = f"{_ENDS}; ce ps lists your steps, scancel JOB.STEP ends one"
_FILE = "an image is one file, which ce images -q shows: copy or rename that"
_SERVICES = "one srun --environment=NAME for each service, side by side in a job"

FOREIGN_VERBS: dict[str, str] = {
    "attach": "Slurm's sattach JOB.STEP shows the output of a step; ce exec JOB opens a shell",
    "commit": _SAVE,
    "compose": _SERVICES,
    "container": "ce ps lists your steps, ce run starts a container",
    "cp": 'mount a directory instead: mounts = ["SOURCE:DESTINATION"] in the environment file',
    "create": "ce run and srun create the container; ce init NAME creates an environment file",
    "enter": "ce exec JOB opens a shell in a running step, ce shell NAME in a new container",
    "env": "ce list shows the environments, ce explain NAME where values come from",
    "export": f"{_FILE}; ce render prints an environment as one file",
    "history": "ce inspect IMAGE shows the layers of an image",
    "image": "ce images lists the images, ce inspect shows one, ce rmi removes one",
    "info": "ce doctor checks this host, ce config show prints the site's settings",
    "instance": "ce ps lists your steps; services run as steps of a job",
    "kill": _STOP,
    "load": "ce import docker-archive:FILE imports an archive that docker save wrote",
    "logs": "the output of a job is in Slurm's file, slurm-JOB.out; ce trace shows its launch",
    "ls": "ce list shows the environments, ce images the images, ce ps your running steps",
    "network": "the container has the host's network",
    "pause": "scontrol suspend JOB suspends a job",
    "port": "the container has the host's network: every port is open as it is",
    "prune": "ce gc removes unused images",
    "push": "ce only gets images; skopeo copy, or a build service, brings one to a registry",
    "remove": f"{_ENDS}; ce rmi removes images",
    "rename": "an environment has the name of its file: mv",
    "restart": f"{_ENDS}; start it again: srun or ce run",
    "rm": f"{_ENDS}; ce rmi removes images",
    "search": "ce does not search registries; use their web pages, or skopeo list-tags",
    "start": "ce run NAME, ce shell NAME, or in a job: srun --environment=NAME COMMAND",
    "stats": "sstat JOB.STEP shows what a step uses",
    "stop": _STOP,
    "system": "ce doctor checks this host, ce gc removes unused images",
    "tag": "images have the names with which they are imported or built: ce build -t NAME",
    "top": "ce exec JOB -- top, or sstat JOB.STEP",
    "up": _SERVICES,
    "update": "ce pull IMAGE gets the newest image of that name",
    "verify": "ce validate checks an environment, ce scan an image",
    "volume": 'mount directories: mounts = ["SOURCE:DESTINATION"] in the environment file',
    "wait": "srun waits for its step, sbatch -W for the job",
}

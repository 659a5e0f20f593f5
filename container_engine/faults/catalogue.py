"""The catalogue of errors, and the lines below one: the remedy, the details, the page to read.

Each code is a page of the documentation (docs/guide/errors/CODE.md). Imported only after a failure:
a successful start never pays for it. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from container_engine.base.errors import EXIT_ENGINE, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND


class Fault(NamedTuple):
    """A kind of error: `what` is its cause in one sentence, `who` can fix it, `remedy` is how.

    `code` is the exit code of srun and `ce run`; commands that start nothing exit with 1. `own` is
    the remedy in the words for administrators, where `remedy` sends users to them.
    """

    what: str
    who: str
    remedy: str
    code: int = EXIT_ENGINE
    own: str = ""


YOU, SITE, US = "you", "your site", "us"
EITHER = f"{YOU} or {SITE}"

FAULTS = {
    # ---- the environment file
    "environment-not-found": Fault(
        "no environment file has this name",
        YOU,
        "check the name (ce list shows all of them); a path begins with / or ./ or ends in .toml",
    ),
    "environment-unreadable": Fault(
        "the environment file exists but cannot be read",
        YOU,
        "give yourself the right to read it: chmod u+r, and x on the directories above it",
    ),
    "edf-syntax": Fault(
        "the environment file is not valid TOML",
        YOU,
        "correct the line named in the error, then run ce validate on the file",
    ),
    "edf-too-large": Fault(
        "the environment file is too large or nested too deeply",
        YOU,
        "check that it is the right file; put long lists into a mounted file",
    ),
    "edf-value": Fault(
        "a key of the environment file has an invalid value",
        YOU,
        "correct the key named in the error; ce validate reads the file again and starts nothing",
    ),
    "edf-unknown-key": Fault(
        "the environment file has an unknown key, which has no effect",
        YOU,
        "correct its spelling or remove it; ce schema edf prints all keys",
    ),
    "edf-inheritance": Fault(
        "the chain of base environments cannot be resolved",
        YOU,
        "correct base_environment in the file named in the error",
    ),
    "edf-mount": Fault(
        "a mount does not have the form SOURCE:DESTINATION:FLAGS",
        YOU,
        "write SOURCE:DESTINATION[:FLAGS] with absolute paths, or only one path",
    ),
    "edf-annotation": Fault(
        "an annotation has an invalid name or value",
        YOU,
        "correct it; ce hooks show NAME lists what a hook takes",
    ),
    "image-not-named": Fault(
        "the environment has no image",
        YOU,
        'add a line image = "NAME"; ce images lists the images of this host',
    ),
    "image-empty": Fault(
        "the image's name consists of variables that are all empty",
        YOU,
        "set the variable, or write the image's name",
    ),
    "variable-undefined": Fault(
        "the environment file uses a variable that is not set",
        YOU,
        "export the variable before the launch, or write ${NAME:-default}",
    ),
    "variable-form": Fault(
        "the environment file has a form of expansion that is not supported, or a command",
        YOU,
        "use ${NAME} or ${NAME:-word}; nothing in an environment file is ever executed",
    ),
    "variable-too-large": Fault(
        "a variable is longer than Linux allows a process to have",
        YOU,
        "put the value into a file and its path into the variable",
    ),
    "environment-too-large": Fault(
        "the variables of the image and of the environment file are too large for one process",
        YOU,
        "put large values into files",
    ),
    "variable-on-node": Fault(
        "a variable that is expanded on the node is not set there when the container starts",
        YOU,
        "write ${NAME:-default}; what Slurm sets for each task is for the task itself to read",
    ),
    "image-variable": Fault(
        "the image does not define the variable that ${image:NAME} asks for",
        YOU,
        "write ${image:NAME:-default}",
    ),
    "site-decides": Fault(
        "the environment file sets what only the site may set",
        EITHER,
        "remove the line; ce config show prints the values in effect",
    ),
    "container-name": Fault(
        "the job has no container of this name, or not the one that this step asks for",
        YOU,
        "leave out the word after the colon to join or resume it, or choose another name",
    ),
    "container-option": Fault(
        "an option --container-…, or its variable PYXIS_CONTAINER_…, cannot be applied",
        YOU,
        "correct or remove it; ce help pyxis says what each one does here",
    ),
    # ---- images
    "image-file-not-found": Fault(
        "the image file does not exist where you submit",
        YOU,
        "check the path; was it purged from scratch? ce import FROM -o FILE creates it again",
    ),
    "image-file-unreadable": Fault(
        "the image file exists, but you may not read it",
        YOU,
        "ask its owner for read permission, and for x on the directories above it",
    ),
    "untrusted-file": Fault(
        "a file that would decide what runs belongs to another user",
        YOU,
        "remove the file named in the error, or keep images and environments where only you may"
        " write",
    ),
    "image-not-squashfs": Fault(
        "the image file is not a SquashFS file",
        YOU,
        "use a .sqsh or .sif file; ce import FILE -o IMAGE.sqsh makes one of an archive",
    ),
    "image-damaged": Fault(
        "the image is incomplete or its content cannot be read",
        YOU,
        "copy, download or import it again; report the node if good images fail there, too",
    ),
    "image-reference": Fault(
        "the image's name is neither a path nor a registry reference",
        YOU,
        "a path begins with / or ./; a reference is REGISTRY/NAME:TAG",
    ),
    "image-unknown": Fault(
        "the registry has no image of this name and tag, or requires a login",
        YOU,
        "check the name and the tag (without one: latest); ce login REGISTRY for a private image",
    ),
    "registry-login": Fault(
        "the registry requires a login, or rejected yours",
        YOU,
        "ce login REGISTRY; a token may have expired",
    ),
    "registry-unreachable": Fault(
        "the registry could not be reached, or did not answer in time",
        EITHER,
        "this host cannot reach the registry: run ce pull IMAGE on one that does, such as a login"
        " node, or set HTTPS_PROXY",
    ),
    "registry-limit": Fault(
        "the registry allows no more requests for now",
        YOU,
        "wait and try again, or ce login REGISTRY: with a login the limit may be higher; pull once,"
        " and use the file on all nodes",
    ),
    "image-architecture": Fault(
        "the image is built for another processor architecture",
        YOU,
        "choose an image built for this architecture, or nodes that have the image's",
    ),
    "image-format": Fault(
        "the registry, archive or layout contains no image that can be run",
        YOU,
        "name an OCI image or a Docker image of schema 2; ce inspect shows what is there",
    ),
    "image-not-in-store": Fault(
        "the image is not in a store, and this launch may not fetch it",
        YOU,
        "ce pull IMAGE gets it; or launch with pull = missing",
    ),
    "image-policy": Fault(
        "the site's policy does not allow this image",
        SITE,
        "the site decides which images may be used; ask its support",
    ),
    "image-scan": Fault(
        "the site's scanner has found something in the image, or could not be run",
        EITHER,
        "ce scan IMAGE prints the scanner's report",
    ),
    "image-lock": Fault(
        "the environment is locked, and the lock does not match the image or cannot be read",
        YOU,
        "if the change is intended, renew the lock with ce lock",
    ),
    "image-build": Fault(
        "an image could not be built from a Dockerfile",
        YOU,
        "correct the step in the error; the lines above it and the details have its output",
    ),
    # ---- stores
    "store-none": Fault(
        "no directory is set for images",
        YOU,
        "set EDF_IMAGESTORE or SCRATCH to a directory of yours on a shared file system",
    ),
    "store-unusable": Fault(
        "a file or directory of the image store cannot be used",
        EITHER,
        "check its owner and mode, and that its file system is mounted and writable",
    ),
    "store-full": Fault(
        "the image store has no room for the image",
        YOU,
        "make room: ce gc --layers, ce gc --unused DAYS; or another place: EDF_IMAGESTORE",
    ),
    "store-busy": Fault(
        "another import of the same image is taking too long",
        YOU,
        "end the process named in the error; if it is gone, remove the lock named there",
    ),
    # ---- nodes
    "image-not-on-node": Fault(
        "the image was not found on the node",
        EITHER,
        "is its file system mounted on the node, and the file still there? keep images on a"
        " file system that all nodes have",
    ),
    "mount-source-missing": Fault(
        "a directory or file that the environment mounts is missing on the node",
        YOU,
        "create it there, or mount a path that exists on every node",
    ),
    "site-mount-missing": Fault(
        "a directory that the site mounts into every container is missing on the node",
        SITE,
        "report the node; until it is repaired, exclude it: srun --exclude=NODE",
        own="create or mount it on this node, or take it out of the site's mounts",
    ),
    "mount-destination": Fault(
        "the destination of a mount cannot be replaced in a container",
        YOU,
        "choose a destination other than /, /proc, /sys and /dev",
    ),
    "image-path": Fault(
        "a file or a link of the image is in the way of a directory or file that containers need",
        YOU,
        "correct the file or link in the image; for HOME, set another path below [env]",
    ),
    "virtual-environment": Fault(
        "a virtual environment of Python would not start in the environment's image",
        YOU,
        "make it again in a container of that image; ce pack --venv DIRECTORY FILE.sqsh --for NAME"
        " checks it",
    ),
    "mount-policy": Fault(
        "the site's policy does not allow this mount",
        SITE,
        "the site decides what may be mounted; ask its support",
    ),
    "device-missing": Fault(
        "a device is missing on the node, is not a device, or you may not open it",
        EITHER,
        "choose nodes that have it (srun --constraint, --gres), or remove the line",
    ),
    "device-not-offered": Fault(
        "the site does not offer this device",
        SITE,
        "ce devices lists the available ones; ask the site for others",
    ),
    "cdi-device-unknown": Fault(
        "no CDI file on the node describes a device of this name",
        SITE,
        "ce devices on the node lists the names; the vendor's generator writes the file",
    ),
    "cdi-file": Fault(
        "a CDI file on the node cannot be used",
        SITE,
        "ask the administrator to correct or remove the file named in the error",
        own="correct or remove the file named in the error",
    ),
    "user-namespaces": Fault(
        "the node does not allow user namespaces",
        SITE,
        "report the node; until it is repaired, exclude it: srun --exclude=NODE",
        own="allow them: the line 'user namespaces' shows which setting does",
    ),
    "fuse-unavailable": Fault(
        "users cannot mount with FUSE on the node, so the image cannot be mounted",
        SITE,
        "report the node; until it is repaired, exclude it: srun --exclude=NODE",
        own="chmod 0666 /dev/fuse, modprobe fuse: see the line '/dev/fuse'",
    ),
    "limit-reached": Fault(
        "a limit of yours or of the host is too low, or a device is full",
        EITHER,
        "ulimit -a shows your limits, which srun passes on; raise the one that is too low",
    ),
    "proc-covered": Fault(
        "the node's kernel refuses mounts of /proc or tmpfs that a container needs",
        SITE,
        "report the node; until it is repaired, exclude it: srun --exclude=NODE",
        own="findmnt -R /proc shows what is mounted over it: take it away, or mount a second /proc",
    ),
    "program-missing": Fault(
        "a program that the engine needs is not installed or cannot be run",
        SITE,
        "ask the administrator to install it; ce doctor lists what is missing",
        own="install it on this node",
    ),
    "program-slow": Fault(
        "a program that the engine started took too long",
        EITHER,
        "try again; is a registry or a file system slow? the details contain the command line",
    ),
    "program-failed": Fault(
        "a program that the engine started failed",
        EITHER,
        "the details contain its output and its command line, ready to paste",
    ),
    "creation-failed": Fault(
        "crun, or Podman, could not start the container",
        EITHER,
        "run srun -w NODE ce doctor --node; the details contain their output, if any",
    ),
    "cgroups-hybrid": Fault(
        "crun refuses the node's hybrid cgroup hierarchy",
        SITE,
        "report the node; docs/admin/node-settings.md says which setting it needs",
        own="the line 'cgroups' shows which setting to change",
    ),
    "container-space": Fault(
        "the container's file system in memory is full",
        EITHER,
        'ask for more with "com.ce.tmpfs_size", mount a directory for large files, or ask Slurm'
        " for more memory",
    ),
    "container-setup": Fault(
        "the container could not be set up on the node",
        EITHER,
        "the line names the step and the kernel's reason; srun -w NODE ce doctor --node looks"
        " at it",
    ),
    "engine-versions": Fault(
        "the node has another version of the engine than the host where you submitted",
        SITE,
        "report it: the same version belongs on all hosts",
        own="install the same version on all hosts",
    ),
    "plan-damaged": Fault(
        "the plan that reached the node differs from the one that the planner made",
        SITE,
        "report it; does something change SLURM_CE_ variables?",
    ),
    "plan-not-arrived": Fault(
        "srun knows --environment, but sent no plan to the node",
        SITE,
        "report it: plugin and engine of the same version belong on all hosts",
        own="install plugin and engine of the same version on all hosts",
    ),
    "launcher-ended": Fault(
        "the program that starts the container on the node was killed before it had finished",
        EITHER,
        "was the step cancelled, or killed for its memory (--mem)? if it keeps happening on one"
        " node, report the node",
    ),
    "start-timeout": Fault(
        "the container did not start in time",
        EITHER,
        "try again; then look for a hanging file system on the node and a service or entrypoint"
        " that does not end",
    ),
    "image-gone": Fault(
        "an image file was removed, replaced or overwritten while a step used it",
        EITHER,
        "never remove, replace or overwrite an image file that steps use; save a new one under a"
        " new name",
        137,
    ),
    "limit-not-kept": Fault(
        "a limit of the container cannot be kept",
        EITHER,
        "remove the limit that the message names, or do what it says; Slurm's own limits (--mem,"
        " --time) hold for a whole job",
    ),
    "container-limit": Fault(
        "a container has reached a limit that its environment or the site has set for it",
        YOU,
        "let the command do with less, or raise the limit; ce explain NAME prints where it is set",
        137,
    ),
    "container-died": Fault(
        "the container terminated while its tasks were running",
        EITHER,
        "was a process killed for exceeding its memory? request more with --mem",
        137,
    ),
    # ---- tasks
    "command-not-found": Fault(
        "the container has no command of this name",
        YOU,
        "commands are looked up in the image, not on the host; for a file of your own, mount its"
        " directory (ce help files)",
        EXIT_NOT_FOUND,
    ),
    "command-not-executable": Fault(
        "the command exists in the container but cannot be executed",
        YOU,
        "is it a directory, not executable (chmod +x), on a noexec mount, or built for another"
        " processor or loader?",
        EXIT_NOT_EXECUTABLE,
    ),
    "mpirun-inside": Fault(
        "the image's mpirun would start its processes with Slurm's srun, which is not in the"
        " container",
        YOU,
        "start the ranks with srun instead: srun --mpi=pmix -n N PROGRAM (--mpi=pmi2 for MPICH)",
    ),
    "pmix-root": Fault(
        "Slurm's PMIx refuses MPI programs of a container in which you are root",
        YOU,
        "leave --container-remap-root out in steps with MPI, or have the site offer another check",
    ),
    "workdir-missing": Fault(
        "the working directory cannot be entered in the container",
        YOU,
        "create it in the image, mount it, or set another workdir",
    ),
    "container-save": Fault(
        "the container cannot be saved at the end of its step, or was not",
        YOU,
        "name a file in a directory that the node has and you can write to, with room in it",
    ),
    "entrypoint-ended": Fault(
        "the image's entrypoint ended instead of executing its arguments",
        YOU,
        "write entrypoint = false in the environment, and the program of the entrypoint as the"
        " command, with its arguments",
    ),
    "startup-failed": Fault(
        "a start-up step of the environment failed",
        YOU,
        "correct the line; the details contain its whole output",
    ),
    "task-join": Fault(
        "a task could not enter its container",
        US,
        "try again; if it keeps happening, report it with the details of ce trace",
    ),
    "task-container": Fault(
        "a task's own container could not be made, although the node's first one could",
        EITHER,
        "start fewer tasks on a node, or raise the limit that the message names (processes, memory,"
        " mounts, namespaces)",
    ),
    "scope-task": Fault(
        "an environment with a container for each task asks for what there is once for a node",
        YOU,
        'remove what the message names, or com.ce.scope = "task"',
    ),
    "plugin-contained": Fault(
        "Slurm is configured to call plugins in processes of their own",
        SITE,
        "ask the administrator to take contain_spank out of slurm.conf",
        own="take contain_spank out of slurm.conf",
    ),
    "pyxis-too": Fault(
        "the step asks both pyxis and this engine for a container",
        YOU,
        "use one of them: --environment, or the options and variables of pyxis",
    ),
    "environment-twice": Fault(
        "a batch script that runs in a container asks for the same container again",
        YOU,
        "leave --environment out of the srun in the script, or name another environment",
    ),
    "container-of-slurm": Fault(
        "srun's option --container, which is for OCI bundles, has the name of an environment",
        YOU,
        "write --environment=NAME for an environment, or --container=./DIRECTORY for an OCI bundle",
    ),
    "environment-not-inherited": Fault(
        "Slurm did not pass the job's environment on to a command in the job",
        US,
        "repeat --environment on this command, and report it",
    ),
    "components-differ": Fault(
        "components of a heterogeneous job or step ask for different environments",
        YOU,
        "name the same environment for each of them, or start steps of their own",
    ),
    "step-async": Fault(
        "srun --async ends too early for what the step asks for",
        YOU,
        "leave --async out; srun ... & in a batch script does not wait either",
    ),
    "task-prolog": Fault(
        "a task prolog takes the place of the check that a step of this kind needs",
        YOU,
        "name it in SLURM_TASK_PROLOG instead of --task-prolog; it runs after the check",
    ),
    # ---- hooks
    "hook-refused": Fault(
        "a hook cannot be used as the environment asks for it",
        YOU,
        "correct the annotation; ce hooks show NAME lists parameters, needs and conflicts",
    ),
    "hook-file-missing": Fault(
        "a hook needs a device, library, file or program that the node does not have",
        EITHER,
        'choose nodes that have it, or leave the hook out: com.hooks.NAME.enabled = "false"'
        " (ce hooks show NAME prints its annotation)",
    ),
    "hook-check": Fault(
        "a check before the start found that the hook would not work in this image or on this node",
        EITHER,
        "ce hooks explain ENVIRONMENT on a node shows what the hook checks",
    ),
    "check-failed": Fault(
        "a program that a hook, the site or the environment wants to pass before the tasks has not",
        EITHER,
        "ce trace shows all checks of the step, on each node",
    ),
    "hook-clash": Fault(
        "two hooks want the same place in the container",
        SITE,
        "leave one of the hooks out and report it",
    ),
    "hook-service": Fault(
        "a program that a hook starts beside the tasks did not start",
        EITHER,
        "the details contain its output; leave the hook out if the job does not need it",
    ),
    "hook-catalog": Fault(
        "the site's catalog of hooks contains an error, so no container starts",
        SITE,
        "ask the administrator to run ce hooks check",
        own="ce hooks check shows the file and its line",
    ),
    "oci-hook-invalid": Fault(
        "an OCI hook of the site cannot be used",
        SITE,
        "ask the administrator to correct the file named in the error",
        own="correct the file named in the error",
    ),
    "oci-hook-failed": Fault(
        "an OCI hook of the site failed while the container was being created",
        SITE,
        "report it with the details, which contain the hook's output",
    ),
    # ---- the site and the engine
    "site-configuration": Fault(
        "the site's configuration of the engine contains an error, so no container starts",
        SITE,
        "ask the administrator to run ce config check",
        own="ce config check shows all of it, with lines",
    ),
    "plugin-configuration": Fault(
        "the plugin's line in plugstack.conf is wrong, or the engine's installation is incomplete",
        SITE,
        "ask the administrator to run ce doctor on this host",
        own="correct the plugin's line in plugstack.conf, or install the engine again",
    ),
    "planner-killed": Fault(
        "the planner was interrupted or killed, so nothing was started",
        YOU,
        "start it again; an import keeps the layers that have arrived",
    ),
    "planner-mute": Fault(
        "the planner did not answer",
        SITE,
        "report it: plugin and engine of the same version belong on all hosts",
        own="install plugin and engine of the same version on all hosts",
    ),
    "current-directory": Fault(
        "the current directory no longer exists",
        YOU,
        "change into another directory",
    ),
    "internal-error": Fault(
        "the engine itself failed",
        US,
        "please report it, with the details",
    ),
}


# the usual error for a key of an environment file
_KEYS = {
    "": "edf-syntax",
    "image": "image-reference",
    "mounts": "edf-mount",
    "base_environment": "edf-inheritance",
    "annotations": "edf-annotation",
    "com": "hook-refused",
}


def code_for(see: str, key: str) -> str:
    """Return `see`, or if empty the code for a key such as `mounts[1]` or `env.HOME`."""
    return see or _KEYS.get(key.partition(".")[0].partition("[")[0], "edf-value")


def remedy(see: str, hint: str | None) -> str:
    """Return the hint given with the error, else the remedy in the catalogue, else ""."""
    if hint:
        return hint
    return FAULTS[see].remedy if see in FAULTS else ""


def remedy_of_site(see: str, hint: str | None) -> str:
    """Return what an administrator can do, for a hint that may be the one for users."""
    fault = FAULTS.get(see)
    if fault is not None and fault.own and hint in {None, "", fault.remedy}:
        return fault.own
    return remedy(see, hint)


def below(see: str, hint: str | None, details: str = "") -> str:
    """Return the lines below an error, each of which begins with "ce: ", without a final newline.

    `details` is the path of a log, or "".
    """
    lines = [
        ("hint", remedy(see, hint)),
        ("details", details),
        ("see", f"ce help {see}" if see in FAULTS else ""),
    ]
    return "\n".join(f"ce: {kind}: {text}" for kind, text in lines if text)

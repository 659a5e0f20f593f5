/* The lines below an error, for `below` of struct ce_error: the remedy and the code of the fault catalogue.
 * Made by docs/errors.py. */
#pragma once

#define CE_HELP(code, remedy) "ce: hint: " remedy "\nce: see: ce help " code

#define CE_HELP_CONTAINER_OPTION \
	CE_HELP("container-option", \
		"correct or remove it; ce help pyxis says what each one does here")
#define CE_HELP_IMAGE_DAMAGED \
	CE_HELP("image-damaged", \
		"copy, download or import it again; report the node if good images fail there, too")
#define CE_HELP_IMAGE_ARCHITECTURE \
	CE_HELP("image-architecture", \
		"choose an image built for this architecture, or nodes that have the image's")
#define CE_HELP_LIMIT_REACHED \
	CE_HELP("limit-reached", \
		"ulimit -a shows your limits, which srun passes on; raise the one that is too low")
#define CE_HELP_CONTAINER_SPACE \
	CE_HELP("container-space", \
		"ask for more with \"com.ce.tmpfs_size\", mount a directory for large files, or ask Slurm " \
		"for more memory")
#define CE_HELP_PLAN_NOT_ARRIVED \
	CE_HELP("plan-not-arrived", \
		"report it: plugin and engine of the same version belong on all hosts")
#define CE_HELP_LAUNCHER_ENDED \
	CE_HELP("launcher-ended", \
		"was the step cancelled, or killed for its memory (--mem)? if it keeps happening on one " \
		"node, report the node")
#define CE_HELP_START_TIMEOUT \
	CE_HELP("start-timeout", \
		"try again; then look for a hanging file system on the node and a service or entrypoint " \
		"that does not end")
#define CE_HELP_IMAGE_GONE \
	CE_HELP("image-gone", \
		"never remove, replace or overwrite an image file that steps use; save a new one under a " \
		"new name")
#define CE_HELP_CONTAINER_DIED \
	CE_HELP("container-died", \
		"was a process killed for exceeding its memory? request more with --mem")
#define CE_HELP_COMMAND_NOT_FOUND \
	CE_HELP("command-not-found", \
		"commands are looked up in the image, not on the host; for a file of your own, mount its " \
		"directory (ce help files)")
#define CE_HELP_COMMAND_NOT_EXECUTABLE \
	CE_HELP("command-not-executable", \
		"is it a directory, not executable (chmod +x), on a noexec mount, or built for another " \
		"processor or loader?")
#define CE_HELP_MPIRUN_INSIDE \
	CE_HELP("mpirun-inside", \
		"start the ranks with srun instead: srun --mpi=pmix -n N PROGRAM (--mpi=pmi2 for MPICH)")
#define CE_HELP_PMIX_ROOT \
	CE_HELP("pmix-root", \
		"leave --container-remap-root out in steps with MPI, or have the site offer another check")
#define CE_HELP_WORKDIR_MISSING \
	CE_HELP("workdir-missing", \
		"create it in the image, mount it, or set another workdir")
#define CE_HELP_CONTAINER_SAVE \
	CE_HELP("container-save", \
		"name a file in a directory that the node has and you can write to, with room in it")
#define CE_HELP_TASK_JOIN \
	CE_HELP("task-join", \
		"try again; if it keeps happening, report it with the details of ce trace")
#define CE_HELP_TASK_CONTAINER \
	CE_HELP("task-container", \
		"start fewer tasks on a node, or raise the limit that the message names (processes, " \
		"memory, mounts, namespaces)")
#define CE_HELP_PLUGIN_CONTAINED \
	CE_HELP("plugin-contained", \
		"ask the administrator to take contain_spank out of slurm.conf")
#define CE_HELP_PYXIS_TOO \
	CE_HELP("pyxis-too", \
		"use one of them: --environment, or the options and variables of pyxis")
#define CE_HELP_ENVIRONMENT_TWICE \
	CE_HELP("environment-twice", \
		"leave --environment out of the srun in the script, or name another environment")
#define CE_HELP_CONTAINER_OF_SLURM \
	CE_HELP("container-of-slurm", \
		"write --environment=NAME for an environment, or --container=./DIRECTORY for an OCI " \
		"bundle")
#define CE_HELP_ENVIRONMENT_NOT_INHERITED \
	CE_HELP("environment-not-inherited", \
		"repeat --environment on this command, and report it")
#define CE_HELP_COMPONENTS_DIFFER \
	CE_HELP("components-differ", \
		"name the same environment for each of them, or start steps of their own")
#define CE_HELP_STEP_ASYNC \
	CE_HELP("step-async", \
		"leave --async out; srun ... & in a batch script does not wait either")
#define CE_HELP_TASK_PROLOG \
	CE_HELP("task-prolog", \
		"name it in SLURM_TASK_PROLOG instead of --task-prolog; it runs behind the check")
#define CE_HELP_PLUGIN_CONFIGURATION \
	CE_HELP("plugin-configuration", \
		"ask the administrator to run ce doctor on this host")
#define CE_HELP_PLANNER_KILLED \
	CE_HELP("planner-killed", \
		"start it again; an import keeps the layers that have arrived")
#define CE_HELP_PLANNER_MUTE \
	CE_HELP("planner-mute", \
		"report it: plugin and engine of the same version belong on all hosts")

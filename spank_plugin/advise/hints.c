#define _GNU_SOURCE
#include "advise.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/words.h"
#include "generated/help.h"

#define NOT_FOUND(hint) "ce: hint: " hint "\nce: see: ce help command-not-found"
#define OWN_FILES "mounts = [\"${PWD}\"] and workdir = \"${PWD}\""
#define PACKAGES                                                                                   \
	NOT_FOUND("packages are installed when an image is built: write the command into a "       \
		  "Dockerfile, after RUN, and use ce build")
#define SLURM                                                                                      \
	NOT_FOUND("Slurm's programs are on the host; com.hooks.slurm.enabled = \"true\" in "       \
		  "[annotations] adds them to the container")
#define ENGINE                                                                                     \
	NOT_FOUND("this is a container already; ce init NAME --image IMAGE writes an environment " \
		  "for another image")
#define BUILTIN NOT_FOUND("it is a command of the shell: srun sh -c 'COMMANDS'")
#define COMPILERS                                                                                  \
	NOT_FOUND("the image has no compiler: use one with development files (…-devel), or install a "  \
		  "compiler in a Dockerfile (RUN …) and use ce build")
#define MPI                                                                                        \
	NOT_FOUND("the image has no MPI launcher; srun starts the ranks: srun --mpi=pmix -n N "    \
		  "PROGRAM (ce help mpi)")

#define NODE_TOOLS "the image has no such tool; the node's shows the container's processes, too: "

static const char node_tools[] = NOT_FOUND(NODE_TOOLS "srun --overlap --jobid=JOB COMMAND");

static const struct {
	const char *commands, *help; /* the commands with a blank on each side */
} special[] = {
	{ " apt apt-get yum dnf microdnf zypper apk pacman ", PACKAGES },
	{ " pip pip3 ", NOT_FOUND("try python3 -m pip; if the image has no pip, install packages in a "
				  "Dockerfile (RUN …) and use ce build") },
	{ " conda mamba micromamba uv ", NOT_FOUND("the host's installation is not in the image: use an "
						   "image that has it, or install it in a Dockerfile") },
	{ " python ", NOT_FOUND("is it called python3 in this image? The host's Python is not in it") },
	{ " sudo su doas ", NOT_FOUND("you are the same user as on the host; be root in the container to "
				      "install packages (ce help install-packages), or use a Dockerfile") },
	{ " gdb strace ltrace perf ", NOT_FOUND("the image has no such tool; attach with the host's: "
						"ce help interactive") },
	{ " ps top htop free vmstat ", node_tools },
	{ " taskset numactl hwloc-bind ", NOT_FOUND("the image has no such tool; Slurm binds tasks: "
						    "srun --cpu-bind=… --mem-bind=…") },
	{ " vim vi nano emacs less git curl wget tmux rsync tree file lstopo ",
	  NOT_FOUND("the image has no such tool: run it on the host, or install it in a Dockerfile (RUN …) "
		    "and use ce build") },
	{ " torchrun accelerate deepspeed ", NOT_FOUND("is PyTorch in this image? With the hook pytorch "
						       "no launcher is needed: ce help pytorch") },
	{ " jupyter jupyter-lab tensorboard ", NOT_FOUND("the image has no such server: install it in a "
							 "Dockerfile (RUN …): ce help jupyter") },
	{ " nvidia-smi ", NOT_FOUND("the node's driver is added by devices = [\"nvidia.com/gpu=all\"] in "
				    "the environment; srun --gpus=1 ce devices lists what a node has") },
	{ " module ml ", NOT_FOUND("modules are the host's; use an image that has the software") },
	{ " srun sbatch salloc squeue scancel scontrol sinfo sacct ", SLURM },
	{ " docker podman apptainer singularity enroot ", ENGINE },
	{ " mpirun mpiexec orterun ", MPI },
	{ " mpicc mpicxx mpif90 mpifort gcc g++ cc gfortran clang make cmake nvcc ", COMPILERS },
	{ " cd export source alias ulimit ", BUILTIN },
};

const char ce_no_permission_help[] =
	"ce: hint: chmod +x FILE; or name the program that reads it: bash FILE, python3 FILE\n"
	"ce: see: ce help command-not-executable";
const char ce_returns_help[] = "ce: hint: sed -i 's/\\r$//' FILE removes them, as does dos2unix\n"
			       "ce: see: ce help command-not-executable";

const char ce_out_of_reach_help[] =
	"ce: hint: an image that expects root works with \"com.ce.root_remap\" = \"true\" in [annotations]; "
	"or have it built with a chmod -R a+rX\n"
	"ce: see: ce help command-not-executable";

const char ce_interpreter_help[] =
	"ce: hint: correct its first line, name another program that reads it (python3 FILE), or use an "
	"image that has it\n"
	"ce: see: ce help command-not-executable";

/* Return whether the text begins with NAME=, the name of a variable. */
static int is_assignment(const char *text)
{
	size_t length = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");

	return length > 0 && text[length] == '=' && (text[0] < '0' || text[0] > '9');
}

/* Return the lines for a word that is not a command but an assignment, a mount, or a command together with
 * its arguments; NULL for any other. */
static const char *help_for_no_command(const char *command)
{
	if (is_assignment(command))
		return NOT_FOUND("a variable is set before srun (NAME=VALUE srun …), or below [env] in the "
				 "environment file");
	if (command[0] == '/' && strstr(command, ":/") != NULL)
		return NOT_FOUND("srun's -v means --verbose; a mount is a line of the environment file: "
				 "mounts = [\"SOURCE:DESTINATION\"]");
	if (strchr(command, ' ') != NULL)
		return NOT_FOUND("if this is a command with its arguments, leave out the quotes around all "
				 "of it, or write sh -c before them");
	return NULL;
}

/* Return the lines for a relative path. They name the directory in which it was looked for, if that can be
 * printed. */
static const char *help_for_relative(void)
{
	static char help[512];
	char here[256];
	int is_printed = getcwd(here, sizeof here) != NULL;

	for (const char *c = here; is_printed && *c != '\0'; c++)
		is_printed = (unsigned char)*c >= ' ' && *c != 127;
	if (!is_printed)
		return NOT_FOUND("a relative path begins where the task starts; "
				 "for your own files write " OWN_FILES);
	snprintf(help, sizeof help,
		 NOT_FOUND("it is looked for in '%s', where the task starts; for your own files write "
			   OWN_FILES),
		 here);
	return help;
}

/* Return whether the word is a file in the current directory, where commands without a slash are not looked
 * for. */
static int is_file_here(const char *command)
{
	struct stat st;

	return strchr(command, '/') == NULL && stat(command, &st) == 0 && S_ISREG(st.st_mode);
}

const char *ce_not_found_help(const char *command)
{
	const char *other = help_for_no_command(command);
	char word[32];

	if (other != NULL)
		return other;
	if (strchr(command, '/') != NULL)
		return command[0] == '/' ? CE_HELP_COMMAND_NOT_FOUND : help_for_relative();
	/* a name that does not fit is longer than all of these */
	if (command[0] != '\0' &&
	    snprintf(word, sizeof word, " %s ", command) < (int)sizeof word) {
		for (size_t i = 0; i < sizeof special / sizeof special[0]; i++) {
			if (strstr(special[i].commands, word) != NULL)
				return special[i].help;
		}
	}
	if (is_file_here(command))
		return NOT_FOUND("it is a file of the directory where the task starts: write ./ before it, "
				 "or name the program that reads it: bash FILE, python3 FILE");
	return CE_HELP_COMMAND_NOT_FOUND;
}

/* Write the words of a command, or only the first one if a shell would not take all of them as they are. */
static void write_command(char *const *argv, char *text, size_t size)
{
	size_t length = 0;

	for (size_t i = 0; argv[i] != NULL; i++) {
		size_t more = strlen(argv[i]);
		if (more == 0 || strspn(argv[i], CE_SHELL_PLAIN) != more || length + more + 2 > size) {
			snprintf(text, size, "%s", argv[0]);
			return;
		}
		length += (size_t)snprintf(text + length, size - length, "%s%s", i > 0 ? " " : "", argv[i]);
	}
}

const char *ce_help_in_job(const char *help, const char *job, char *const *argv)
{
	static char whole[512];
	char command[200];

	if (help != node_tools || job == NULL || strlen(job) > 20 || job[strspn(job, "0123456789")] != '\0')
		return help;
	write_command(argv, command, sizeof command);
	snprintf(whole, sizeof whole, NOT_FOUND(NODE_TOOLS "srun --overlap --jobid=%s %s"), job, command);
	return whole;
}

static int is_interpreter(const char *command)
{
	static const char *const names[] = { "bash", "sh", "perl", "Rscript", "julia", "node", "ruby" };
	const char *slash = strrchr(command, '/'), *name = slash != NULL ? slash + 1 : command;

	/* python, python3, python3.11 */
	if (strncmp(name, "python", 6) == 0)
		return name[6 + strspn(name + 6, "0123456789.")] == '\0';
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		if (strcmp(name, names[i]) == 0)
			return 1;
	}
	return 0;
}

/* Return the script of a command line, a relative path of a file in the directory; NULL for none. */
static const char *script_in(int directory, int argc, char **argv)
{
	struct stat st;

	if (argc < 2 || !is_interpreter(argv[0]))
		return NULL;
	for (int i = 1; i < argc; i++) {
		/* -c and -e take text, -m a module; other options are skipped */
		if (strcmp(argv[i], "-c") == 0 || strcmp(argv[i], "-m") == 0 ||
		    strcmp(argv[i], "-e") == 0)
			return NULL;
		if (argv[i][0] == '-')
			continue;
		return argv[i][0] != '/' && fstatat(directory, argv[i], &st, 0) == 0 && S_ISREG(st.st_mode) ?
			       argv[i] : NULL;
	}
	return NULL;
}

int ce_script_is_elsewhere(int argc, char **argv, int directory, const char *named,
			   char line[CE_SCRIPT_LINE])
{
	const char *script = script_in(directory, argc, argv);
	char here[CE_SCRIPT_LINE / 4];
	struct stat st;

	if (script == NULL || strlen(named) >= sizeof here || stat(script, &st) == 0 || errno != ENOENT ||
	    getcwd(here, sizeof here) == NULL)
		return 0;
	snprintf(line, CE_SCRIPT_LINE,
		 "'%.200s' is in '%s' on the host, but not in '%s', where the task starts in the container: "
		 "write " OWN_FILES " into the environment",
		 script, named, here);
	return 1;
}

#define _GNU_SOURCE
#include "advise.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advise.h"
#include "common/io.h"
#include "common/program.h"
#include "common/uses_mpi.h"
#include "common/words.h"
#include "generated/help.h"

#define INSTEAD "srun --mpi=pmix -n N PROGRAM (--mpi=pmi2 for MPICH: ce help mpi)"
#define OF_THE_HOST                                                                                \
	"mpirun calls Slurm's srun, which waits for what this step holds, and starts processes "   \
	"outside this container: start the ranks with " INSTEAD
#define NO_SRUN                                                                                    \
	"mpirun looks for Slurm's srun, which is not in the container, and then waits or ends: "   \
	"start the ranks with " INSTEAD
#define NOT_MY_NAME                                                                                \
	"Open MPI's mpirun may not recognise this node, whose name in Slurm is not its host name, " \
	"and then looks for Slurm's srun: start the ranks with " INSTEAD

enum kind { UNKNOWN, HYDRA, OPEN_MPI };

static int is_mpirun(const char *command)
{
	return ce_is_in(CE_MPIRUNS, ce_base_name(command));
}

/* Return whether an option chooses another launcher, or only asks for information, or there are no arguments
 * at all. */
static int has_choice(enum kind kind, int argc, char **argv)
{
	static const char any[] =
		" -launcher --launcher -launcher-exec -bootstrap --bootstrap -bootstrap-exec -rmk --rmk plm "
		"ras -h -help --help -V -version --version -info ";
	/* Open MPI starts a daemon on these nodes only; Hydra calls srun all the same. */
	static const char hosts[] = " -H -host --host -hostfile --hostfile -machinefile --machinefile ";

	for (int i = 1; i < argc; i++) {
		if (ce_is_in(any, argv[i]) || (kind == OPEN_MPI && ce_is_in(hosts, argv[i])))
			return 1;
	}
	return argc < 2;
}

/* Return whether a variable chooses another launcher. Slurm itself may set some of them to "slurm"; in a step
 * of one node, the node's launcher sets some to "fork". */
static int is_chosen(enum kind kind, const struct ce_variables *variables)
{
	static const char *const hydra[] = { "HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP",
					     NULL };
	static const char *const open_mpi[] = { "OMPI_MCA_plm", "OMPI_MCA_ras", "PRTE_MCA_plm",
						"PRTE_MCA_ras", NULL };

	for (const char *const *name = kind == HYDRA ? hydra : open_mpi; *name != NULL; name++) {
		const char *value = variables->get(variables->context, *name);
		if (value != NULL && value[0] != '\0' && strcmp(value, "slurm") != 0)
			return 1;
	}
	return 0;
}

static int has_beside(const char *directory, const char *name)
{
	char path[PATH_MAX + 32];

	snprintf(path, sizeof path, "%s/%s", directory, name);
	return faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) == 0;
}

/* Return whose mpirun this is, by the file that all links lead to, or by the files beside it: Intel MPI's is
 * a script, that of Open MPI 5 a program that calls prterun. */
static enum kind kind_of(const char *found)
{
	char path[PATH_MAX];

	if (realpath(found, path) == NULL)
		return UNKNOWN;
	char *slash = strrchr(path, '/');
	const char *name = slash + 1;
	if (strstr(name, "hydra") != NULL || strstr(name, "mpich") != NULL)
		return HYDRA;
	if (strstr(name, "orterun") != NULL || strstr(name, "prterun") != NULL ||
	    strstr(name, "openmpi") != NULL)
		return OPEN_MPI;
	*slash = '\0';
	if (has_beside(path, "mpiexec.hydra"))
		return HYDRA;
	return has_beside(path, "prterun") || has_beside(path, "orterun") ? OPEN_MPI : UNKNOWN;
}

static int has_srun(const struct ce_variables *variables)
{
	struct ce_error ignored = CE_ERROR_INIT;
	CE_AUTO_FREE char *srun = NULL;
	int rc = ce_find_command(variables->get(variables->context, "PATH"), "srun", &srun, &ignored);

	ce_error_clear(&ignored);
	return rc == 0;
}

/* Return whether Slurm's name for this node differs from its host name, by which Open MPI knows it. */
static int has_other_name(const struct ce_variables *variables)
{
	const char *node = variables->get(variables->context, "SLURMD_NODENAME");
	char host[HOST_NAME_MAX + 1] = "";

	if (node == NULL || gethostname(host, sizeof host - 1) < 0)
		return 0;
	host[strcspn(host, ".")] = '\0';
	return strncmp(host, node, strcspn(node, ".")) != 0 || host[strcspn(node, ".")] != '\0';
}

int ce_check_mpirun(const char *found, int argc, char **argv, const struct ce_variables *variables,
		    const char **doubt, struct ce_error *err)
{
	if (!is_mpirun(argv[0]) || variables->get(variables->context, "SLURM_JOB_ID") == NULL)
		return 0;
	enum kind kind = kind_of(found);
	if (kind == UNKNOWN || is_chosen(kind, variables) || has_choice(kind, argc, argv))
		return 0;
	const char *nodes = variables->get(variables->context, "SLURM_NNODES");
	int calls_srun = kind == HYDRA || (nodes != NULL && strcmp(nodes, "1") != 0);
	if (has_srun(variables)) {
		*doubt = calls_srun ? OF_THE_HOST : *doubt;
		return 0;
	}
	if (!calls_srun) {
		*doubt = has_other_name(variables) ? NOT_MY_NAME : *doubt;
		return 0;
	}
	return ce_fail_below(err, CE_HELP_MPIRUN_INSIDE,
			     "%s: in a Slurm job, %s starts its processes with Slurm's srun, which is not in "
			     "the container",
			     argv[0], kind == HYDRA ? "this mpirun of MPICH or Intel MPI" :
						      "Open MPI's mpirun for several nodes");
}

int ce_is_mpirun(const char *file)
{
	return is_mpirun(file) && kind_of(file) != UNKNOWN;
}

const char *ce_doubt_mpirun(const struct ce_variables *variables)
{
	const char *nodes = variables->get(variables->context, "SLURM_NNODES");

	if (variables->get(variables->context, "SLURM_JOB_ID") == NULL || nodes == NULL ||
	    strcmp(nodes, "1") == 0 || is_chosen(HYDRA, variables) || is_chosen(OPEN_MPI, variables))
		return NULL;
	return has_srun(variables) ? OF_THE_HOST : NO_SRUN;
}

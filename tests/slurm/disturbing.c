/*
 * A SPANK plugin of somebody else's that does what no plugin should: in srun, "unset" takes a variable of
 * the container engine's plan away; in a task, "thread" starts a thread, after which the kernel no longer
 * lets the process enter a user namespace.
 */
#include <pthread.h>
#include <slurm/spank.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SPANK_PLUGIN(disturbing, 1)

int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv);
int slurm_spank_task_init(spank_t spank, int argc, char **argv);

int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv)
{
	(void)spank;
	if (argc == 1 && strcmp(argv[0], "unset") == 0)
		unsetenv("SLURM_CE_PLAN_PARTS");
	return 0;
}

static void *idle(void *unused)
{
	pause();
	return unused;
}

int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
	pthread_t thread;

	if (argc == 1 && strcmp(argv[0], "thread") == 0 && spank_remote(spank) == 1)
		return pthread_create(&thread, NULL, idle, NULL);
	return 0;
}

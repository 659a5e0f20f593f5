/*
 * Slurm as the plugin's callbacks see it, over a job in memory: what slurmstepd and srun would answer
 * can be set by a test, what the plugin did can be read.
 */
#ifndef CE_TESTS_FAKE_SPANK_H
#define CE_TESTS_FAKE_SPANK_H

#include <slurm/spank.h>
#include <stdint.h>
#include <sys/types.h>

enum { FAKE_MAX_OPTIONS = 4, FAKE_MAX_VARIABLES = 512 };

struct fake_job {
	spank_context_t context;
	uint32_t step;
	int step_unknown; /* spank_get_item fails for the step's number */
	uid_t uid;
	gid_t gid;
	int task;
	pid_t task_pid; /* 0: spank_get_item fails for it */
	uint32_t local_tasks;
	int exit_status; /* of the task that task_exit is called for */
	int argc;
	char **argv;
	char *environment[FAKE_MAX_VARIABLES + 1]; /* heap strings */
	struct spank_option options[FAKE_MAX_OPTIONS];
	int option_count;
	int refuse_options; /* spank_option_register fails */
	char log[4096];	    /* what slurm_error printed, a line each */
};

extern struct fake_job fake_job;

/* The job to hand to the callbacks. */
spank_t fake_spank(void);

/* An empty job in this context. */
void fake_reset(spank_context_t context);

/* What Slurm does when the user gives --NAME=VALUE: 0, or what the plugin's callback returns. */
int fake_give_option(const char *name, const char *value);

const char *fake_getenv(const char *name);
void fake_setenv(const char *name, const char *value);

#endif

/*
 * A replacement for Slurm's SPANK interface, with a job in memory: tests set what slurmstepd and srun would
 * answer, and read what the plugin did.
 */
#ifndef CE_TESTS_FAKE_SPANK_H
#define CE_TESTS_FAKE_SPANK_H

#include <slurm/spank.h>
#include <stdint.h>
#include <sys/types.h>

enum { FAKE_MAX_OPTIONS = 64, FAKE_MAX_VARIABLES = 512, FAKE_JOB_ID = 4711 };

struct fake_job {
	spank_context_t context;
	uint32_t step;
	int step_unknown; /* makes spank_get_item fail for the step id */
	uid_t uid;
	gid_t gid;
	int task;
	pid_t task_pid; /* 0: spank_get_item fails for the pid */
	uint32_t local_tasks;
	int exit_status; /* wait status of the task for which task_exit is called */
	int argc;
	char **argv;
	char *environment[FAKE_MAX_VARIABLES + 1]; /* strings on the heap */
	struct spank_option options[FAKE_MAX_OPTIONS];
	int option_count;
	int refuse_options; /* makes spank_option_register fail */
	char log[4096];	    /* the output of slurm_error, one line for each call */
};

extern struct fake_job fake_job;

/* Return the job to pass to the callbacks. */
spank_t fake_spank(void);

/* Reset to an empty job in this context. */
void fake_reset(spank_context_t context);

/* Do what Slurm does when the user gives --NAME=VALUE. Return 0, or what the plugin's callback returns. */
int fake_give_option(const char *name, const char *value);

const char *fake_getenv(const char *name);
void fake_setenv(const char *name, const char *value);

/* Make this process's command line the given words: /proc/self/cmdline shows the memory of argv[0]. */
void fake_command_line(const char *words, size_t size);
#define BECOME(words) fake_command_line(words, sizeof(words))

#endif

/*
 * The container's session in slurmstepd and the tasks: waiting until it is ready, noticing its early death,
 * ending it.
 */
#pragma once

#include "common/join.h"
#include "launcher.h"
#include "session_end.h"

/* Wait at most `timeout_s` seconds for the launcher's answer, without taking it: every task of the node peeks
 * at the same packet and gets its own descriptors. Return 0, or -1 with the error; the caller closes
 * `container` in either case. Runs as the user, in a task. */
int ce_session_wait(const struct ce_launcher *launcher, int timeout_s,
		    struct ce_container *container, struct ce_error *err);

/* Register a task, so that it is killed if its container dies. The first call starts the watching thread,
 * which calls `report` once, with `context` and the cause, before it kills the tasks, unless a task has
 * already reported the death. In slurmstepd, as root. */
typedef void ce_report_fn(const void *context, const char *cause);
void ce_session_guard_task(const struct ce_launcher *launcher, pid_t pid, ce_report_fn *report,
			   const void *context);

/* Record how a task of the node has ended, by its wait status. Return whether SIGTERM ended it, which Slurm
 * sends first when a step is cancelled or its time is up. In slurmstepd. */
int ce_session_note_exit(int status);

/* Return whether the container was ready and has ended by itself. In slurmstepd or a task. */
int ce_session_died(const struct ce_launcher *launcher);

/* Find out why the container died. Return 1 for the one caller that must report it to the user: the watching
 * thread, or the first task that finds out, which may end before the thread can print through srun. */
int ce_session_claim_report(const struct ce_launcher *launcher, char cause[CE_CAUSE_SIZE]);

/* End the session cleanly and wait until nothing of it is left, for a few seconds at most (session_end.h).
 * Always close all descriptors. Called when the last task has ended, before Slurm kills the rest of the step.
 * In slurmstepd, as root. */
void ce_session_end(struct ce_launcher *launcher);

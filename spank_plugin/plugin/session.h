/*
 * The container's session as slurmstepd sees it: waiting for it in a task, noticing its early death,
 * ending it.
 */
#ifndef CE_SESSION_H
#define CE_SESSION_H

#include "common/join.h"
#include "launcher.h"

/* Waits at most `timeout_s` seconds for the launcher's answer, without taking it: every task of the
 * node looks at the same packet and gets descriptors of its own. Runs as the user, in a task. */
int ce_session_wait(const struct ce_launcher *launcher, int timeout_s,
		    struct ce_container *container, struct ce_error *err);

/* Notes a task, so that it is killed when the container dies under it. In slurmstepd, as root. The
 * first call starts the thread that watches; `report` is called from it once, with `context` and the
 * cause, before the tasks are killed. */
typedef void ce_report_fn(const void *context, const char *cause);
void ce_session_guard_task(const struct ce_launcher *launcher, pid_t pid, ce_report_fn *report,
			   const void *context);

/* Notes how a task of the node has ended, by its wait status. In slurmstepd. */
void ce_session_note_exit(int status);

/* Whether the container was ready and has ended by itself. In slurmstepd or a task. */
int ce_session_died(const struct ce_launcher *launcher);

/* Why it did; 0 for the one caller who is to tell the user: the watching thread or the first task that
 * finds out, which may end before the thread has a chance to speak to srun. */
enum { CE_CAUSE_SIZE = 512 };
int ce_session_is_told(const struct ce_launcher *launcher, char cause[CE_CAUSE_SIZE]);

/* Ends the session in good order and waits until nothing of it is left, seconds at most (session_end.h): called when
 * the last task has ended, before Slurm kills what else is in the step. Always closes everything. In
 * slurmstepd, as root. */
void ce_session_end(struct ce_launcher *launcher);

#endif

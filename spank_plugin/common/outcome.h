/*
 * The outcome of a container with limits, and of the command of `ce run --json`: a memory file that the guard
 * of the container and the process beside the command share (join.h). The guard writes all but `failed`.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "generated/help.h"
#include "image_gone.h"

/* of ce-enter, set by `ce run`: the descriptors of that file, of the file for JSON, and of the guard (a
 * pidfd), each -1 for none */
#define CE_OUTCOME "CE_OUTCOME"

struct ce_outcome {
	uint64_t is_watched; /* whether the guard looks at the container's memory and processes */
	uint64_t peak;	     /* the most memory that it has seen, in bytes */
	char limit[8];	     /* "memory", "pids" or "time", once that is reached */
	char text[240];	     /* the same in a sentence, or what else has ended the container */
	char failed[240];    /* why the command could not be executed, which is not the guard's to write */
};

/* the cause of a container's end if nothing could report one */
#define CE_CAUSE_KILLED "the process that guards the container was killed"
/* how the sentence begins for a limit that ends the container */
#define CE_CAUSE_LIMIT "the container was ended: "

/* how long the plugin may take to print why a container ends, on a node that is short of processors: so long
 * is the end of tasks put off, with which the step's output would end */
enum { CE_REPORT_MS = 5000 };

/* Return whether a cause of a container's end is a limit. */
static inline int ce_is_limit(const char *cause)
{
	return strncmp(cause, CE_CAUSE_LIMIT, sizeof CE_CAUSE_LIMIT - 1) == 0;
}

/* Return the lines to print below the cause of a container's end (help.h). */
static inline const char *ce_end_help(const char *cause)
{
	if (strncmp(cause, CE_CAUSE_GONE, sizeof CE_CAUSE_GONE - 1) == 0)
		return CE_HELP_IMAGE_GONE;
	return ce_is_limit(cause) ? CE_HELP_CONTAINER_LIMIT : CE_HELP_CONTAINER_DIED;
}

/* Read the file. What nobody has written is 0, and all is if that fails, or if there is none (-1). */
void ce_outcome_read(int file, struct ce_outcome *outcome);

/* Note in the file, if there is one, why the command could not be executed. */
void ce_outcome_failed(int file, const char *why);

/* The end of a command: the status of waitpid, the time that it took, the memory of its largest process. */
struct ce_ending {
	int status;
	int64_t took_ms;
	uint64_t largest;
};

/* The task whose container it is: Slurm's names for its node and for itself, and where messages that are
 * printed once per step are recorded (ce_claim_message). Without Slurm, `node` is NULL. */
struct ce_whose {
	const char *node, *task, *planned;
	int marks;
};

/* Print what has ended the container, or which limit was reached, if any: a line for each task, with the
 * lines of help below the first. Write the JSON of `ce run --json` (container_engine/printing/json_models.py)
 * to the descriptor `json` unless that is -1. `guard` is a pidfd, or -1. */
void ce_outcome_report(int file, int json, int guard, const struct ce_whose *whose,
		       const struct ce_ending *ending);

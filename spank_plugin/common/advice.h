/*
 * Checks a task's command, and asks ce-advise (advise/advise.c) what a user should know of it: why it cannot
 * be started, and what will go wrong without an error. Only cheap questions are asked here; ce-advise is
 * started if one of their answers is yes, as the user, in the container, and is waited for a limited time.
 * Whatever becomes of it, the task goes on with what it says, or without.
 *
 * ce-advise WANTS DIRECTORY FOUND COMMAND [ARG…]   with the task's environment; FOUND is the command's file,
 *                                                  "" for none; descriptors are those of enum ce_advise_fd
 *
 * It answers with strings, each followed by NUL. The first character says what one is:
 *   w  a warning
 *   m  a warning that the program is for another MPI than the image's
 *   e  an exit code of three digits and an error, for which the task must not start
 *   b  the lines to print below the error
 *   .  nothing: the end of a complete answer
 */
#pragma once

#include "error.h"
#include "join.h"

enum ce_advise_arg { CE_ADVISE_WANTS = 1, CE_ADVISE_DIRECTORY, CE_ADVISE_FOUND, CE_ADVISE_COMMAND };

/* the records of ce_apply_environment; the directory on the host from which the command was submitted */
enum ce_advise_fd { CE_ADVISE_ANSWER = 1, CE_ADVISE_RECORDS = 3, CE_ADVISE_HOST };

/* Wishes, of which an argument has the sum. */
enum ce_advise_wants {
	CE_WANTS_REASON = 1,	  /* why the command cannot be started, if it cannot */
	CE_WANTS_WARNINGS = 2,
	CE_WANTS_RANKS = 4,	  /* warnings for tasks of a step, too */
	CE_HAS_CHDIR = 8,	  /* srun has the option --chdir */
	CE_CHOSE_MPI = 16,	  /* the user gave --mpi= */
	CE_IS_REFUSED = 32	  /* by the PMIx server, as root in the container */
};

/* Parts of the host that ce-advise needs. */
struct ce_advisor {
	int program;   /* descriptors, owned; -1 when absent */
	int directory; /* the current one */
	char *named;   /* its path, on the heap, owned; may be NULL */
};

#define CE_ADVISOR_INIT { -1, -1, NULL }

/* Take these from the host, before the process joins the container. Nothing of it need be there. */
void ce_advisor_open(struct ce_advisor *advisor, const char *prefix);
void ce_advisor_close(struct ce_advisor *advisor);

struct ce_command {
	int argc;
	char **argv; /* at least one, ended by NULL */
	char **environment;
	const struct ce_variables *variables; /* to read the same environment */
	int records;
	unsigned wants;
	/* prints a warning; `is_of_mpi` for the kind m */
	void (*warn)(void *context, const char *line, int is_of_mpi);
	void *context;
};

/* Find the command's file as execvp would, and print what there is to warn of. Return 0 and the file in
 * *found, on the heap, which the caller frees; or -1 with the error, whose exit code is 127 if the command is
 * not found, 126 if it cannot be executed, 125 for all else. Call it in the container. */
int ce_check_command(const struct ce_advisor *advisor, const struct ce_command *command, char **found,
		     struct ce_error *err);

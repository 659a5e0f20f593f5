/* A small error: a one-line message and the exit code it stands for. */
#pragma once

enum { CE_EXIT_ENGINE = 125, CE_EXIT_NOT_EXECUTABLE = 126, CE_EXIT_NOT_FOUND = 127 };

struct ce_error {
	char *message; /* on the heap, owned by the error; NULL without a failure, or without memory */
	int exit_code; /* of the task or program: one of CE_EXIT_*, or what the launcher has answered */
	const char *below; /* static lines to print below the message (help.h); NULL for none */
	/* whether the message is the launcher's: it has the lines below it in itself, and is empty if another
	 * node of the step has printed it */
	int is_of_launcher;
};

#define CE_ERROR_INIT { .message = NULL, .exit_code = CE_EXIT_ENGINE }

/* Set the message and return -1, so that a caller writes `return ce_fail(err, …)`. The first message is kept,
 * because it is nearest to the cause. Never fails itself: without memory, ce_error_text returns a fixed
 * text. */
int ce_fail(struct ce_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Fail as ce_fail does, and set the exit code: 126 or 127 as in the shell, or the code in the launcher's
 * answer. */
int ce_fail_code(struct ce_error *err, int exit_code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Fail as ce_fail does, and set the lines to print below the message. */
int ce_fail_below(struct ce_error *err, const char *below, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Return the lines to print below the error of a program of the engine that could not be started, by the
 * errno `number`. */
const char *ce_start_help(int number);

/* Return the lines to print below the message, or `otherwise` if the error has none. */
const char *ce_error_below(const struct ce_error *err, const char *otherwise);

/* Return the message, or a fixed text if there was no memory for one. */
const char *ce_error_text(const struct ce_error *err);

/* Free the message and make the error one in which nothing has failed. */
void ce_error_clear(struct ce_error *err);

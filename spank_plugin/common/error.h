/* One small error: what went wrong in one line, and the exit code it means. */
#ifndef CE_ERROR_H
#define CE_ERROR_H

enum { CE_EXIT_ENGINE = 125, CE_EXIT_NOT_EXECUTABLE = 126, CE_EXIT_NOT_FOUND = 127 };

struct ce_error {
	char *message; /* heap, owned by the error; NULL while nothing failed */
	int exit_code; /* one of CE_EXIT_*; what the task exits with */
	const char *below; /* static lines for below the message (help.h); NULL for none */
};

#define CE_ERROR_INIT { .message = NULL, .exit_code = CE_EXIT_ENGINE }

/* Sets the message (the first one wins: it is nearest to the cause) and returns -1, so that a
 * caller writes `return ce_fail(err, …)`. Never fails itself: without memory a fixed text stands. */
int ce_fail(struct ce_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same with the exit code of the shell's convention. */
int ce_fail_code(struct ce_error *err, int exit_code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The same, with what stands below the message. */
int ce_fail_below(struct ce_error *err, const char *below, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* What stands below the message; without words of its own what all errors of a task have. */
const char *ce_error_below(const struct ce_error *err, const char *otherwise);

/* The message, or a text that admits there is none. */
const char *ce_error_text(const struct ce_error *err);

void ce_error_clear(struct ce_error *err);

#endif

#define _GNU_SOURCE
#include "protocol.h"

#include <limits.h>
#include <stdio.h>

#include "error.h"
#include "io.h"

void ce_answer_not_started(int reply, const char *what, const char *why, const char *below)
{
	char answer[2 * PATH_MAX + 512];
	int length = snprintf(answer, sizeof answer, "%c%d\ncannot start the launcher: %s: %s\n%s",
			      CE_ANSWER_FAILED, CE_EXIT_ENGINE, what, why, below);

	if (length > 0 && (size_t)length < sizeof answer)
		(void)ce_send(reply, answer, (size_t)length, NULL, 0);
}

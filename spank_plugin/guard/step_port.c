#include "step_port.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DIGITS = 15 };

static int has_number(const char *text)
{
	return ce_is_number(text) && strlen(text) <= MOST_DIGITS;
}

int ce_step_port(const struct ce_step_env *env, char port[CE_PORT_DIGITS])
{
	const char *job = ce_step_variable(env, "SLURM_JOB_ID");
	const char *step = ce_step_variable(env, "SLURM_STEP_ID");
	char digits[32];

	if (!has_number(job) || !has_number(step))
		return -1;
	long long number = atoll(job) * CE_PORT_STEPS_APART + atoll(step);
	snprintf(digits, sizeof digits, "%lld", CE_PORT_FIRST + number % CE_PORT_COUNT);
	memcpy(port, digits, CE_PORT_DIGITS);
	return 0;
}

int ce_step_port_enter(const char port[CE_PORT_DIGITS], char *text, size_t size, long long offset)
{
	if (size < CE_PORT_DIGITS || offset < 0 || (size_t)offset > size - CE_PORT_DIGITS)
		return -1;
	if (strspn(text + offset, "0123456789") < CE_PORT_DIGITS)
		return -1;
	memcpy(text + offset, port, CE_PORT_DIGITS);
	return 0;
}

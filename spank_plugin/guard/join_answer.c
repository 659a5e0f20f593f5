#include "join_answer.h"

#include <string.h>

int ce_join_wanted(const char *fact, struct ce_wanted *wanted)
{
	if (strspn(fact, "0123456789abcdef") != CE_KEPT_KEY || fact[CE_KEPT_KEY] != '/')
		return -1;
	memcpy(wanted->key, fact, CE_KEPT_KEY);
	wanted->key[CE_KEPT_KEY] = '\0';
	wanted->directory = fact + CE_KEPT_KEY;
	return 0;
}

int ce_join_read(struct ce_fields result, struct ce_join_answer *join)
{
	join->images = ce_take_table(&result, 1);
	join->block = ce_take_bytes(&result, &join->block_size);
	join->records = ce_take_bytes(&result, &join->records_size);
	join->workdir = ce_take(&result);
	ce_trace_read(&result, &join->trace);
	return !result.bad && result.next == result.end ? 0 : -1;
}

int ce_join_knows(const struct ce_join_answer *join, const char *image)
{
	struct ce_fields images = join->images;

	for (long long left = ce_take_number(&images); left > 0; left--) {
		if (strcmp(ce_take(&images), image) == 0)
			return 1;
	}
	return 0;
}

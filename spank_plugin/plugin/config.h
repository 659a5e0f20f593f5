/* What plugstack.conf says: a root-owned file, the only source of paths that the plugin uses. */
#ifndef CE_CONFIG_H
#define CE_CONFIG_H

#include "common/error.h"

struct ce_config {
	char *plan;	     /* PREFIX/libexec/container-engine/plan, heap */
	char *node;	     /* PREFIX/libexec/container-engine/node, heap */
	char *join;	     /* PREFIX/libexec/container-engine/ce-join, heap */
	char *audit;	     /* "syslog" or a file's path, heap; NULL for no audit */
	int may_gain;	     /* whether tasks may gain privileges by execve */
	int start_timeout_s; /* what a task waits for its container at most, in seconds */
	/* Why no container can be started with this. Only who asks for one is refused: a line that is
	 * wrong is not to stop the site's other jobs. */
	struct ce_error error;
};

/* Arguments: prefix=DIR (absolute), start_timeout=SECONDS (1 to 86400; default 300), no_new_privs=on|off (default on),
 * audit=syslog|FILE (absolute; default none). An argument that
 * is not known is an error: a misspelt setting must not be ignored. */
int ce_config_read(struct ce_config *config, int argc, char **argv, struct ce_error *err);

void ce_config_clear(struct ce_config *config);

#endif

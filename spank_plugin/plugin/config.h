/* The plugin's arguments from plugstack.conf, a root-owned file. They say where the engine is installed. */
#pragma once

#include "common/error.h"

struct ce_config {
	char *prefix;	     /* on the heap */
	char *plan;	     /* PREFIX/libexec/container-engine/plan, on the heap */
	char *guard;	     /* PREFIX/libexec/container-engine/ce-guard, on the heap */
	char *join;	     /* PREFIX/libexec/container-engine/ce-join, on the heap */
	char *prolog;	     /* PREFIX/libexec/container-engine/ce-prolog, on the heap */
	char *audit;	     /* "syslog" or the path of a file, on the heap; NULL for no audit */
	int leaves_pyxis;    /* whether pyxis's options are left to pyxis */
	char *seccomp; /* path of the tasks' seccomp profile, on the heap; NULL: seccomp.h finds it */
	int may_gain;	     /* whether tasks may gain privileges by execve */
	int start_timeout_s; /* how long a task waits for its container at most, in seconds */
	/* Why no container can be started with this configuration. Only steps that ask for a container are
	 * refused: a wrong line must not stop the site's other jobs. */
	struct ce_error error;
};

/* Read the arguments: prefix=DIR (absolute), start_timeout=SECONDS (1 to 86400; default 300),
 * no_new_privs=on|off (default on), pyxis=on|off (default on), audit=syslog|FILE (absolute; default none),
 * seccomp=FILE (absolute). Return 0, or -1 with the error for a wrong or unknown argument: a misspelt setting
 * must not be ignored. */
int ce_config_read(struct ce_config *config, int argc, char **argv, struct ce_error *err);

/* Free all strings and the error, and make the configuration an empty one. */
void ce_config_clear(struct ce_config *config);

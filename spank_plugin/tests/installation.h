/* An installation in the test's directory: a prefix for plugstack.conf, a planner, a launcher. */
#ifndef CE_TESTS_INSTALLATION_H
#define CE_TESTS_INSTALLATION_H

/* Install a planner with this shell script, and the fake launcher. */
void install(const char *planner);

/* Load the part of the plugin that is a library of its own. */
void load_user_part(void);

/* Load it, and call slurm_spank_init with that installation, a time limit of two seconds, and one more
 * argument, more_of_plugstack, unless that is NULL. */
extern const char *more_of_plugstack;
int init_plugin(void);

#endif

/* An installation below the test's directory: prefix for plugstack.conf, planner, launcher. */
#ifndef CE_TESTS_INSTALLATION_H
#define CE_TESTS_INSTALLATION_H

/* Install a planner with this shell script, and the fake launcher. */
void install(const char *planner);

/* Call slurm_spank_init with that installation, a time limit of two seconds, and one more
 * argument if this is not NULL. */
extern const char *more_of_plugstack;
int init_plugin(void);

#endif

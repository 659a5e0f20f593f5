/* An installation below the test's directory: prefix for plugstack.conf, planner, launcher. */
#ifndef CE_TESTS_INSTALLATION_H
#define CE_TESTS_INSTALLATION_H

/* Installs a planner with this shell script, and the fake launcher. */
void install(const char *planner);

/* slurm_spank_init with that installation and a time limit of two seconds, and with one argument more if this is
 * not NULL. */
extern const char *more_of_plugstack;
int init_plugin(void);

#endif

/*
 * Variables that choose which code a program loads: those of the dynamic loader, of the C library and of
 * interpreters. A program of the engine's or of Slurm's must not get those of a user or of a container, but
 * the tasks need them. They are held, under other names, on the way to where they are meant.
 */
#pragma once

#define CE_HELD "CE_HELD_"
/* Names in the environment of tasks with Slurm's programs, for such variables and for those that lead to a
 * user's files: the value that is not the user's, and the one that the job has. Must match
 * container_engine/node/container/environment.py. */
#define CE_OF_CONTAINER "CE_OF_CONTAINER_"
#define CE_OF_JOB "CE_OF_JOB_"

/* Rename each such variable NAME to CE_HELD_NAME, and drop variables without a name. Return 0, or -1 without
 * memory. */
int ce_hold(char **environment);

/* Rename the held variables of this process back, and keep the PATH that one replaces. Return 0, or -1
 * without memory. */
int ce_take_back(void);

/* Exchange PATH with the one that was there before a held one was taken back, the host's, if there was; a
 * second call exchanges them again. Return 0, or -1 without memory. */
int ce_exchange_path(void);

/* Forget the host's PATH. */
void ce_forget_path(void);

/*
 * Words for the user, and what of them is said once per step, by the first of its nodes that says it. container_engine/node/report/trace.py
 * (is_news) does the same for launchers.
 */
#ifndef CE_SAY_H
#define CE_SAY_H

/* the variable that has Slurm's name for the node */
#define CE_NODE "SLURMD_NODENAME"

/* Whether no node of the step has said this yet: a mark is made in the directory of the step's traces,
 * which nodes may share. Messages that differ in numbers only are the same. `planned` tells one srun
 * from another. Also where there is no directory (-1), or no mark can be made. Runs as the user. */
int ce_claim_message(int directory, const char *planned, const char *message);

/* Writes an error or a warning (`kind`) to the user's stderr, in one piece, so that what srun says itself
 * does not come between: each line after "ce: KIND: NODE: ", but for lines that begin with "ce: ", which
 * stand below an error and say for themselves what they are. `node` NULL or "": the host's own name. */
void ce_say(const char *node, const char *kind, const char *text);

/* The same for an error and what stands below it (help.h). */
void ce_say_error(const char *node, const char *message, const char *below);

#endif

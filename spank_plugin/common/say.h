/*
 * User-facing messages. Some are printed once per step, by the first of its nodes to report them.
 * container_engine/node/report/messages.py does the same for launchers.
 */
#pragma once

/* the variable that holds Slurm's name for the node */
#define CE_NODE "SLURMD_NODENAME"

/* Return 1 if this is the first node of the step to report this message, else 0. The first one creates a mark
 * in the directory of the step's traces, which nodes may share. Messages that differ only in numbers count as
 * the same. `planned` tells one srun from another. Return 1 also if there is no directory (-1) or no mark can
 * be created. Runs as the user. */
int ce_claim_message(int directory, const char *planned, const char *message);

/* Write an error or a warning (`kind`) to the user's stderr in one write, so that srun's own output does not
 * come in between. Each line is prefixed with "ce: KIND: NODE: ", except those that begin with "ce: " and a
 * label such as "hint: ": they follow an error and have their own prefix. Where `node` is NULL or "", the
 * host's own name is used. */
void ce_say(const char *node, const char *kind, const char *text);

/* Replace control characters by blanks: text of a user's process, or of an image, also goes to terminals and
 * logs. */
void ce_make_one_line(char *text);

/* Write an error and the lines below it (help.h), as ce_say does. Control characters in the message become
 * blanks, so that names in an image cannot add lines. */
void ce_say_error(const char *node, const char *message, const char *below);

/* Write a message of this kind and the lines below it without a node, for programs that a user starts on this
 * host. The message is made one line. `below` may be "". */
void ce_say_here(const char *kind, const char *message, const char *below);

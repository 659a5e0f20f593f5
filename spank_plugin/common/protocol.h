/*
 * The order of what the programs of a start pass to each other by position: arguments, and the descriptors
 * and strings of packets. Programs in C on both sides take it from here, Python from
 * container_engine/node/protocol.py, which `make generated` makes of this file.
 *
 *   plugin to ce-guard, ce-guard to the launcher  arguments            enum ce_launcher_arg
 *   the launcher and the plugin to ce-guard       arguments            enum ce_guard_arg
 *   Python and ce-guard to ce-enter               arguments            enum ce_enter_arg
 *   guard to its starter, the launcher and tasks  a report             enum ce_report_kind, ce_reported_fd
 *   guard to its starter and the launcher         a running container  enum ce_container_fd
 *   ce-guard and the launcher to the plugin       the answer           enum ce_answer_kind, _text and _fd
 *   task to guard                                 a request            enum ce_asked_fd
 */
#pragma once

/* The most namespaces that a container can have of its own besides the user and mount namespaces: network,
 * IPC, UTS, PID. */
#define CE_MAX_UNSHARED 4

/* ---- arguments --------------------------------------------------------------------------------- */

/* The arguments of ce-guard at the beginning of a start, and of the launcher, after the program's name. The
 * first CE_ARG_FDS are open descriptors. The launcher gets those from CE_ARG_CONTROL on if a guard has been
 * started, which waits for its specification, or CE_ARG_LOG and CE_ARG_STATUS if all it does is to explain
 * why the step fails. */
enum ce_launcher_arg {
	CE_ARG_REPLY, /* socket for the answer */
	CE_ARG_PLAN,
	CE_ARG_ENVIRONMENT, /* the step's variables, NAME=VALUE with a NUL after each */
	CE_ARG_WATCH, /* pidfd of slurmstepd, which the session must not outlive */
	CE_ARG_LIFE,  /* the guard's end of a socket to the plugin */
	CE_ARG_BEGUN, /* when the plugin started the program, in ns since 1970 */
	CE_ARG_COUNT,
	CE_ARG_CONTROL = CE_ARG_COUNT, /* socket to the guard */
	CE_ARG_PIPE, /* descriptor to which the specification is written */
	CE_ARG_PID,  /* of the process that has started the guard */
	CE_ARG_MOST,
	CE_ARG_LOG = CE_ARG_COUNT, /* what start-up steps have printed that ce-guard ran, and that failed */
	CE_ARG_STATUS, /* of waitpid, -1 if they were not done in time */
	CE_ARG_EXPLAINED
};
enum { CE_ARG_FDS = CE_ARG_BEGUN };

/* The arguments of ce-guard as a guard alone, after the program's name: open descriptors, of which
 * CE_GUARD_LIFE may be -1. */
enum ce_guard_arg {
	CE_GUARD_CONTROL, /* socket for reports; the byte CE_GO_ON comes back */
	CE_GUARD_WATCH,
	CE_GUARD_LIFE,
	CE_GUARD_SPECIFICATION,
	CE_GUARD_LEAST,
	CE_GUARD_USER_NS = CE_GUARD_LEAST, /* only of a guard whose container this step joins */
	CE_GUARD_MOST
};
_Static_assert((int)CE_ARG_COUNT > CE_GUARD_MOST, "ce-guard tells by their number which of both it gets");

/* A job's holder of images (guard/guard_hold.c): the format of its abstract socket's name, with the ids of
 * user and job and the node's name. */
#define CE_HOLDER_NAME "ce-images/%u/%s.%s"
/* the directory of copies of a job's images on a node: user, job, node (container_engine/tools/staging.py) */
#define CE_STAGED "/dev/shm/ce-kept-%u/%s.%s/staged"
/* what an address of a socket has room for, after the NUL that makes a name abstract */
#define CE_HOLDER_SIZE 107

/* The arguments of ce-enter, after the program's name. */
enum ce_enter_arg {
	CE_ENTER_NAMESPACES, /* descriptors with a comma between them: the user namespace, then any others */
	CE_ENTER_MOUNT_NS,
	CE_ENTER_ENVIRONMENT, /* records (join.h) */
	CE_ENTER_WORKDIR,
	CE_ENTER_COMMAND /* and its own arguments */
};

/* ---- the guard's reports ----------------------------------------------------------------------- */

/* The descriptors of a container. Its guard hands them over at its control socket, after its own user
 * namespace, and another guard gets them as arguments of the operation `joined`. */
enum ce_container_fd {
	CE_AT_USER_NS,
	CE_AT_MOUNT_NS,
	CE_AT_ENVIRONMENT, /* of its first process, as a file */
	CE_AT_MOUNTS, /* its mountinfo */
	CE_AT_UNSHARED /* its other namespaces, none or more */
};

/* The first byte of a guard's packet. */
enum ce_report_kind {
	/* The container is ready: the guard's times, a NUL, what its children printed. */
	CE_REPORT_OF_NODE = 'R',
	/* The same where each task has a container of its own. This report is about the first of them; its
	 * last descriptor is the socket at which tasks ask for theirs. */
	CE_REPORT_OF_TASKS = 'T',
	/* It failed: the guard's operation, the errno, the message, the output of its children, after a
	 * newline each; then, after a form feed, what OCI hooks printed, if there are any. */
	CE_REPORT_FAILED = 'E',
	/* A note of the specification, for the launcher; a report follows. */
	CE_REPORT_NOTE = 'N',
};

/* The descriptors of a report: the container's, with the guard's among them. */
enum ce_reported_fd {
	CE_REPORTED_USER_NS = CE_AT_USER_NS,
	CE_REPORTED_MOUNT_NS = CE_AT_MOUNT_NS,
	CE_REPORTED_ENVIRONMENT = CE_AT_ENVIRONMENT,
	CE_REPORTED_GUARD, /* a pidfd */
	CE_REPORTED_MOUNTS,
	CE_REPORTED_UNSHARED
};
_Static_assert((int)CE_REPORTED_GUARD == CE_AT_MOUNTS, "the guard's is inserted before the rest");

/* The answer to a report, with the socket to ce-reaper if there is one. */
#define CE_GO_ON "K"

/* A task's request for a container of its own. */
#define CE_ASK "J"
enum ce_asked_fd {
	CE_ASKED_ANSWER, /* socket for the report */
	CE_ASKED_TASK, /* the task's pidfd; the rest also goes to the first task guard */
	CE_ASKED_OUTCOME, /* a file for what becomes of it (outcome.h) */
	CE_ASKED_COUNT
};

/* ---- the launcher's answer --------------------------------------------------------------------- */

/* The first byte of the answer. CE_ANSWER_FAILED: the exit code, a newline, the message and the lines below
 * it. CE_ANSWER_READY: the number of the container's other namespaces, a digit that is left out for 0, then
 * strings, with a NUL between them. Where the container is saved another packet follows when the tasks have
 * ended: CE_ANSWER_SAVED and what was saved, or CE_ANSWER_FAILED, the message and the lines below it. The
 * launcher learns from the end of the socket that the tasks have ended. A byte before that says that the
 * container must not be saved. */
enum ce_answer_kind {
	CE_ANSWER_FAILED = 'F',
	CE_ANSWER_READY = 'R',
	CE_ANSWER_SAVED = 'S',
};

/* The strings of CE_ANSWER_READY; all but the first may be absent at the end. The last three are either empty
 * or set. */
enum ce_answer_text {
	CE_TEXT_WORKDIR,
	CE_TEXT_NOTICES, /* lines for the user */
	CE_TEXT_OUTPUT, /* of the image's entrypoint, if it is to be shown */
	CE_TEXT_KEPT, /* other steps of the job may be in the container */
	CE_TEXT_SAVED, /* the launcher saves the container when the tasks have ended */
	CE_TEXT_TASKS, /* each task has a container of its own */
	CE_TEXT_COUNT
};

/* The descriptors of CE_ANSWER_READY. */
enum ce_answer_fd {
	CE_ANSWER_USER_NS,
	CE_ANSWER_MOUNT_NS,
	CE_ANSWER_ENVIRONMENT, /* records (join.h) */
	CE_ANSWER_GUARD,
	CE_ANSWER_LAUNCHER,
	CE_ANSWER_ATTENDED,
	CE_ANSWER_UNSHARED, /* as many as the digit says, */
	/* then with CE_TEXT_TASKS the socket at which tasks ask, then the trace and the directory of marks,
	 * both of which may be absent */
};

/* Answer in place of a launcher that could not be started: `what` failed, for the reason `why`. `below` are
 * the lines below the message. */
void ce_answer_not_started(int reply, const char *what, const char *why, const char *below);

/*
 * The launcher's answer: one packet on a socket that all tasks of the node share. The launcher is the user's
 * process, so the answer is untrusted: text and descriptors may be anything. Its form is in
 * common/protocol.h. It is written by container_engine/node/start/launcher.py, guard/reply.c and, where no
 * launcher could be started, plugin_user/step_processes.c and guard/main.c.
 */
#pragma once

#include <stdint.h>

#include "common/join.h"

/* Peek at the answer without taking it: every caller gets its own descriptors. Does not wait. Return 0 if the
 * container is ready, or -1 with the error, which is the launcher's if it has reported one; the caller closes
 * `container` in either case. Call it as the user only: closing or inspecting a descriptor that the user
 * supplied can block indefinitely (a FUSE file). */
int ce_reply_look(int reply, struct ce_container *container, struct ce_error *err);

/* Remove the answer from the socket, signal to the launcher that the tasks have ended, and wait until it
 * reports what became of saving the container, or until it ends; `launcher` is its pidfd. Put the report into
 * `text`: one letter, a message and the lines below it. Return 1 if the container was saved, else 0. Call
 * it as the user only, as ce_reply_look. */
int ce_reply_await_save(int reply, int launcher, int64_t deadline_ms, char *text, size_t size);

/* Return whether the answer reports that the container is ready. Receives no descriptor, so root may call
 * it. */
int ce_reply_is_ready(int reply);

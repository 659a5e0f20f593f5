/*
 * ce-init: the container's first process. It holds the namespaces open, reaps what is reparented to
 * it, and does nothing else. Ours and static, so that an image without a shell, without a libc or for
 * another libc works. The guard knows that a start is complete when this program's name appears in
 * /proc/PID/comm: only then is /proc/PID/environ that of the container.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
	sigset_t child;
	int received;

	/* Process 1 of a PID namespace ignores every signal it has no handler for, so only SIGCHLD
	 * needs a word: blocked, and taken by sigwait. */
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	for (;;) {
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		sigwait(&child, &received);
	}
}

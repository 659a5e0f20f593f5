#define _GNU_SOURCE
#include "plugin/session.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/io.h"
#include "harness.h"
#include "plugin/session_end.h"

static struct ce_launcher launcher = CE_LAUNCHER_INIT;
static struct ce_container container = CE_CONTAINER_INIT;
static struct ce_error err = CE_ERROR_INIT;
static int their_reply, their_life; /* the ends that the launcher and the guard would hold */
static int their_process; /* the end that the task would hold which starts the launcher */

static void connect_launcher(void)
{
	int reply[2], life[2], process[2];

	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, process), 0);
	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, reply), 0);
	CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, life), 0);
	launcher = (struct ce_launcher){ .reply = reply[0], .life = life[0], .process = process[0],
					 .start = { -1, -1, -1, -1, -1, -1 },
					 .uid = getuid(), .gid = getgid(), .shared = ce_shared_make() };
	their_reply = reply[1];
	their_life = life[1];
	their_process = process[1];
}

static void answer(const char *text, size_t fd_count)
{
	int fds[CE_MAX_FDS];

	for (size_t i = 0; i < CE_MAX_FDS; i++)
		fds[i] = STDOUT_FILENO;
	CHECK_INT(ce_send(their_reply, text, strlen(text), fds, fd_count), 0);
}

static void fails(const char *why, int code)
{
	CHECK_INT(ce_session_wait(&launcher, 5, &container, &err), -1);
	CHECK_TEXT(ce_error_text(&err), why);
	CHECK_INT(err.exit_code, code);
	ce_error_clear(&err);
	ce_container_close(&container);
}

TEST("a ready answer gives the descriptors and the working directory, to every task")
{
	connect_launcher();
	answer("R/work dir\n", 6);
	for (int i = 0; i < 3; i++) {
		CHECK_INT(ce_session_wait(&launcher, 5, &container, &err), 0);
		CHECK_TEXT(container.workdir, "/work dir\n");
		CHECK(container.user_ns >= 0 && container.mount_ns >= 0);
		CHECK(container.environment >= 0 && container.guard >= 0);
		ce_container_close(&container);
	}
}

TEST("the text after the working directory is printed for the user")
{
	static const char text[] = "R/work\0first\nsecond\0hello\n";
	int fds[CE_MAX_FDS] = { STDOUT_FILENO, STDOUT_FILENO, STDOUT_FILENO, STDOUT_FILENO,
				 STDOUT_FILENO, STDOUT_FILENO };

	connect_launcher();
	CHECK_INT(ce_send(their_reply, text, sizeof text - 1, fds, 6), 0);
	CHECK_INT(ce_session_wait(&launcher, 5, &container, &err), 0);
	CHECK_TEXT(container.workdir, "/work");
	CHECK_TEXT(container.notices, "first\nsecond");
	CHECK_TEXT(container.entrypoint_output, "hello\n");
	ce_container_close(&container);
	connect_launcher();
	answer("R/work", 6);
	CHECK_INT(ce_session_wait(&launcher, 5, &container, &err), 0);
	CHECK_TEXT(container.notices, "");
	CHECK_TEXT(container.entrypoint_output, "");
	ce_container_close(&container);
}

TEST("namespaces of the container's own come before the descriptors that may be absent")
{
	connect_launcher();
	answer("R2/work", 9);
	CHECK_INT(ce_session_wait(&launcher, 5, &container, &err), 0);
	CHECK_TEXT(container.workdir, "/work");
	CHECK(container.unshared[0] >= 0 && container.unshared[1] >= 0 && container.unshared[2] < 0);
	CHECK(container.attended >= 0 && container.trace >= 0 && container.marks < 0);
	ce_container_close(&container);
	connect_launcher();
	answer("R2/work", 7);
	fails("the launcher's answer is not complete", 125);
}

TEST("a failure is the launcher's message with its exit code")
{
	connect_launcher();
	answer("F127\nimage '/x': does not exist", 0);
	fails("image '/x': does not exist", 127);
	fails("image '/x': does not exist", 127);
}

TEST("a failure keeps all lines of its message")
{
	connect_launcher();
	answer("F125\nfirst\nsecond", 0);
	fails("first\nsecond", 125);
}

TEST("an invalid exit code becomes 125")
{
	static const char *const codes[] = { "F0\nwhy", "F256\nwhy", "F-1\nwhy", "F\nwhy", "Fx\nwhy" };

	for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
		connect_launcher();
		answer(codes[i], 0);
		fails("why", 125);
	}
}

TEST("an answer of one letter is not read beyond its end")
{
	connect_launcher();
	answer("F", 0);
	fails("", 125);
	connect_launcher();
	answer("?", 0);
	fails("", 125);
}

TEST("a ready answer without all its descriptors is refused and none stays open")
{
	for (size_t count = 0; count < 6; count++) {
		connect_launcher();
		answer("R/", count);
		int before = test_open_fds();
		fails("the launcher's answer is not complete", 125);
		CHECK_INT(test_open_fds(), before);
	}
}

TEST("descriptors of a failure are closed")
{
	connect_launcher();
	answer("F125\nwhy", 4);
	int before = test_open_fds();
	fails("why", 125);
	CHECK_INT(test_open_fds(), before);
}

TEST("a launcher that ended without an answer is named")
{
	connect_launcher();
	close(their_reply);
	fails("the launcher ended before the container was ready", 125);
}

TEST("an answer larger than any of ours is refused")
{
	static char text[70000];

	connect_launcher();
	memset(text, 'R', sizeof text - 1);
	answer(text, 0);
	fails("cannot read the launcher's answer: Bad message", 125);
}

TEST("a container that has ended in the meantime is not joined")
{
	connect_launcher();
	answer("R/", 6);
	close(their_life);
	fails("the container ended before the task could join it", 125);
}

TEST("a launcher that never answers is waited for until the deadline and no longer")
{
	connect_launcher();
	int64_t begin = ce_now_ms();
	CHECK_INT(ce_session_wait(&launcher, 1, &container, &err), -1);
	CHECK(ce_now_ms() - begin >= 990);
	CHECK_TEXT(ce_error_text(&err), "the container did not start within 1 s");
	ce_error_clear(&err);
}

static pid_t start_idle(void)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		pause();
		_exit(0);
	}
	return pid;
}

static void ignore_signal(int number)
{
	(void)number;
}

TEST("signals neither end the wait nor prolong it")
{
	struct sigaction action = { .sa_handler = ignore_signal };
	int status;

	connect_launcher();
	sigaction(SIGUSR1, &action, NULL);
	pid_t waiter = getpid(), pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		for (int i = 0; i < 1000; i++) {
			kill(waiter, SIGUSR1);
			usleep(10000);
		}
		_exit(0);
	}
	int64_t begin = ce_now_ms();
	CHECK_INT(ce_session_wait(&launcher, 1, &container, &err), -1);
	CHECK(ce_now_ms() - begin >= 990);
	/* if the wait began again with each signal, it would last longer than the signals */
	CHECK_INT(waitpid(pid, &status, WNOHANG), 0);
	signal(SIGUSR1, SIG_IGN);
	kill(pid, SIGKILL);
	CHECK_INT(waitpid(pid, &status, 0), pid);
	ce_error_clear(&err);
}

/* ---- what is done as the user ------------------------------------------------------------------ */

struct seen {
	uid_t uid;
	int descriptors;
};

static void look_as_user(const void *context)
{
	struct seen *seen = *(struct seen *const *)context;

	seen->uid = getuid();
	seen->descriptors = test_open_fds();
}

TEST("work for a user is done as the user, who gets no descriptor of slurmstepd's")
{
	struct seen *seen =
		mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	test_needs_root();
	CHECK(seen != MAP_FAILED);
	CHECK_INT(dup2(STDIN_FILENO, 200), 200);
	ce_end_as_user(54321, 54322, look_as_user, &seen);
	CHECK_INT(seen->uid, 54321);
	/* 0, 1, 2, the gate, and the one by which descriptors are counted */
	CHECK(seen->descriptors <= 5);
	close(200);
	munmap(seen, sizeof *seen);
}

/* Return a process that does not notice the end of the session. */
static pid_t deaf(void)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		close(launcher.life);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	return pid;
}

TEST("a launcher that does not end after its answer is killed")
{
	int status;

	connect_launcher();
	pid_t pid = deaf();
	CE_AUTO_FD process = ce_pidfd_open(pid);
	CE_AUTO_FD done = ce_memory_file("readable", "", 0);
	int fds[] = { STDIN_FILENO, STDIN_FILENO, STDIN_FILENO, done, process, done };
	CHECK_INT(ce_send(their_reply, "R/", 2, fds, 6), 0);
	ce_session_end(&launcher);
	/* on a busy machine a killed process may take a while to end; one that was not killed never does */
	CHECK(ce_wait_readable(process, ce_now_ms() + 10000));
	CHECK_INT(waitpid(pid, &status, WNOHANG), pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void never(const void *context, const char *cause)
{
	(void)context, (void)cause;
	CHECK(!"a death is reported of a container that was never there");
}

TEST("tasks of a container that was never ready are not killed as those of one that died")
{
	int status;

	connect_launcher();
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		usleep(700000);
		_exit(9);
	}
	ce_session_guard_task(&launcher, pid, never, NULL);
	answer("F125\nwhy", 0);
	close(their_life);
	close(launcher.start[0]);
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 9);
	ce_session_end(&launcher);
}

TEST("the end of a session that never started waits for nothing")
{
	ce_session_end(&launcher);
	connect_launcher();
	int64_t begin = ce_now_ms();
	ce_session_end(&launcher);
	CHECK(ce_now_ms() - begin < 1000);
	CHECK_INT(launcher.reply, -1);
	CHECK_INT(launcher.life, -1);
}

/* Send the launcher's answer, and end the session at once. */
static void answer_and_end_with(int guard, int container_ns, int launcher_process)
{
	CE_AUTO_FD done = ce_memory_file("readable", "", 0);
	int fds[CE_ANSWER_UNSHARED] = { STDIN_FILENO };

	fds[CE_ANSWER_MOUNT_NS] = container_ns;
	fds[CE_ANSWER_GUARD] = guard;
	fds[CE_ANSWER_LAUNCHER] = launcher_process < 0 ? done : launcher_process;
	fds[CE_ANSWER_ATTENDED] = done;
	CHECK_INT(ce_send(their_reply, "R/", 2, fds, 6), 0);
	ce_session_end(&launcher);
}

static void answer_and_end(int guard)
{
	answer_and_end_with(guard, STDIN_FILENO, -1);
}

TEST("a launcher that has answered does what it still has to before the session ends")
{
	int status;
	char byte;

	connect_launcher();
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		close(launcher.life);
		usleep(100000);
		_exit(recv(their_life, &byte, 1, MSG_DONTWAIT) == 0 ? 8 : 7);
	}
	CE_AUTO_FD process = ce_pidfd_open(pid);
	CE_AUTO_FD ended = ce_memory_file("readable", "", 0);
	answer_and_end_with(ended, STDIN_FILENO, process);
	CHECK_INT(waitpid(pid, &status, WNOHANG), pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

TEST("work after the guard's end is waited for, for seconds at most")
{
	int attended[2];

	connect_launcher();
	CHECK_INT(pipe2(attended, O_CLOEXEC), 0);
	CE_AUTO_FD ended = ce_memory_file("readable", "", 0);
	int fds[CE_ANSWER_UNSHARED] = { STDIN_FILENO };
	fds[CE_ANSWER_GUARD] = fds[CE_ANSWER_LAUNCHER] = ended;
	fds[CE_ANSWER_ATTENDED] = attended[0];
	CHECK_INT(ce_send(their_reply, "R/", 2, fds, 6), 0);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		usleep(300000);
		_exit(0);
	}
	close(attended[1]);
	int64_t begin = ce_now_ms();
	ce_session_end(&launcher);
	CHECK(ce_now_ms() - begin >= 250);
	CHECK_INT(waitpid(pid, NULL, 0), pid);
	close(attended[0]);
}

/* Stop all children of `parent` except this process. */
static void stop_others(pid_t parent)
{
	char path[64], list[256];

	snprintf(path, sizeof path, "/proc/%d/task/%d/children", parent, parent);
	CE_AUTO_FD file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t size = file >= 0 ? read(file, list, sizeof list - 1) : 0;
	list[size > 0 ? size : 0] = '\0';
	for (char *rest = list, *word = strsep(&rest, " "); word != NULL && *word != '\0';
	     word = strsep(&rest, " ")) {
		if (atoi(word) != getpid())
			kill(atoi(word), SIGSTOP);
	}
}

/* End the session of a launcher that ends as soon as it is asked to save its container. If `stops` is set, it
 * first stops the process that waits for it. Its socket stays open in another process, as its user could
 * arrange. Return how long this took, in milliseconds. */
static int64_t end_during_save(int stops)
{
	static const char text[] = "R/\0\0\0\0save";
	int status;
	char byte;

	connect_launcher();
	CE_AUTO_FD done = ce_memory_file("readable", "", 0);
	int fds[] = { STDIN_FILENO, STDIN_FILENO, STDIN_FILENO, done, done, done };
	CHECK_INT(ce_send(their_reply, text, sizeof text - 1, fds, 6), 0);
	pid_t parent = getpid(), pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		ce_close_fd(&launcher.reply);
		ce_close_fd(&launcher.life);
		/* until the child asks for the save */
		while (recv(their_reply, &byte, 1, 0) > 0)
			;
		if (stops)
			stop_others(parent);
		_exit(0);
	}
	CE_AUTO_FD process = ce_pidfd_open(pid);
	CHECK_INT(ce_send(their_process, "p", 1, &process, 1), 0);
	int64_t begin = ce_now_ms();
	ce_session_end(&launcher);
	begin = ce_now_ms() - begin;
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ce_close_fd(&their_reply);
	return begin;
}

TEST("a save is over when the launcher has ended, whichever process holds its socket")
{
	CHECK(end_during_save(0) < 9000);
}

TEST("a process that waits for a save and is stopped by its user does not delay slurmstepd after the "
     "launcher's end")
{
	CHECK(end_during_save(1) < 40000);
}

/* End a session whose container is to be saved, by a launcher that has saved it. */
static void end_saved(void)
{
	static const char text[] = "R/\0\0\0\0save", saved[] = "Sto /image.sqsh, 2 MiB";

	connect_launcher();
	CE_AUTO_FD done = ce_memory_file("readable", "", 0);
	int fds[] = { STDIN_FILENO, STDIN_FILENO, STDIN_FILENO, done, done, done };
	CHECK_INT(ce_send(their_reply, text, sizeof text - 1, fds, 6), 0);
	CHECK_INT(ce_send(their_reply, saved, sizeof saved - 1, NULL, 0), 0);
	ce_session_end(&launcher);
}

/* End a session whose container is not to be saved. */
static void end_unsaved(void)
{
	connect_launcher();
	CE_AUTO_FD ended = ce_memory_file("readable", "", 0);
	answer_and_end(ended);
}

TEST("only a container that is to be saved is saved, and its user reads where")
{
	CHECK_INT(test_in_child(end_saved), 0);
	CHECK_CONTAINS(test_printed, "saved: ");
	CHECK_CONTAINS(test_printed, "to /image.sqsh, 2 MiB");
	CHECK_INT(test_in_child(end_unsaved), 0);
	CHECK_TEXT(test_printed, "");
}

TEST("a guard that does not react is killed at the end, and its end is waited for")
{
	char byte;
	int status;

	connect_launcher();
	pid_t pid = deaf();
	CE_AUTO_FD guard = ce_pidfd_open(pid);
	answer_and_end(guard);
	/* the guard was first asked to end, by the closing of its socket */
	CHECK_INT(recv(their_life, &byte, 1, MSG_DONTWAIT), 0);
	CHECK_INT(waitpid(pid, &status, WNOHANG), pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* ---- answers that were forged: the launcher is a process of the user's ------------------------- */

enum { STRANGER = 54321 };

static void session_of_a_stranger(void)
{
	test_needs_root();
	connect_launcher();
	launcher.uid = launcher.gid = STRANGER;
}

TEST("a process of another user is not killed, although its pidfd was sent as the guard's")
{
	int status;

	session_of_a_stranger();
	pid_t pid = start_idle();
	CE_AUTO_FD victim = ce_pidfd_open(pid);
	answer_and_end_with(victim, STDIN_FILENO, victim);
	CHECK_INT(waitpid(pid, &status, WNOHANG), 0);
	kill(pid, SIGTERM);
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK_INT(WTERMSIG(status), SIGTERM);
}

static void enter_mount_namespace(void)
{
	if (unshare(CLONE_NEWNS) < 0)
		_exit(1);
}

/* End a session with this answer, and return whether a process in the container outlives that. */
static int outlives(const char *text, size_t size)
{
	char path[64];
	int status;

	connect_launcher();
	pid_t pid = test_idle_process(enter_mount_namespace);
	snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)pid);
	CE_AUTO_FD namespace = open(path, O_RDONLY | O_CLOEXEC);
	CE_AUTO_FD process = ce_pidfd_open(pid);
	CE_AUTO_FD done = ce_memory_file("readable", "", 0);
	int fds[] = { STDIN_FILENO, namespace, STDIN_FILENO, done, done, done };
	CHECK_INT(ce_send(their_reply, text, size, fds, 6), 0);
	ce_session_end(&launcher);
	/* on a busy machine the end of a killed process may be seen late */
	int lives = !ce_wait_readable(process, ce_now_ms() + 1000);
	kill(pid, SIGKILL);
	CHECK_INT(waitpid(pid, &status, 0), pid);
	return lives;
}

TEST("what a task has left in the container is killed, unless the container lives with its job")
{
	static const char own[] = "R/", kept[] = "R/\0\0\0kept";

	test_needs_root();
	CHECK(!outlives(own, sizeof own - 1));
	CHECK(outlives(kept, sizeof kept - 1));
}

TEST("processes of somebody else in a mount namespace that came as the container's live on")
{
	int status;
	char path[64];

	session_of_a_stranger();
	pid_t pid = test_idle_process(enter_mount_namespace);
	snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)pid);
	CE_AUTO_FD namespace = open(path, O_RDONLY | O_CLOEXEC);
	CE_AUTO_FD ended = ce_memory_file("readable", "", 0);
	answer_and_end_with(ended, namespace, -1);
	CHECK_INT(waitpid(pid, &status, WNOHANG), 0);
	kill(pid, SIGTERM);
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK_INT(WTERMSIG(status), SIGTERM);
}

/* Return a descriptor of a file whose file system never answers a request about it. */
static int mute_file(const char *directory)
{
	char options[128];
	int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	CHECK(device >= 0);
	snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other",
		 device);
	CHECK_INT(unshare(CLONE_NEWNS), 0);
	CHECK_INT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	CHECK_INT(mount("mute", directory, "fuse", 0, options), 0);
	int fd = open(directory, O_PATH | O_CLOEXEC);
	CHECK(fd >= 0);
	return fd;
}

TEST("a descriptor that blocks every access delays the end only for seconds")
{
	session_of_a_stranger();
	CE_AUTO_FD mute = mute_file(test_directory());
	CE_AUTO_FD ended = ce_memory_file("readable", "", 0);
	int64_t begin = ce_now_ms();
	answer_and_end_with(ended, mute, -1);
	CHECK(ce_now_ms() - begin < 12000);
	CHECK_INT(launcher.reply, -1);
}

static char told[512];

static void tell(const void *context, const char *cause)
{
	CHECK(context == told);
	snprintf(told, sizeof told, "%s", cause);
}

TEST("the cause of a death is one line, whatever the user's process has sent with it")
{
	static const char cause[] = "broke\nslurmd: error: all is lost\x1b[2J";
	int status, fds[] = { STDIN_FILENO };

	int before = test_open_fds();
	connect_launcher();
	pid_t pid = start_idle();
	CHECK_INT(ce_send(their_reply, "R/", 2, NULL, 0), 0);
	ce_session_guard_task(&launcher, pid, tell, told);
	CHECK_INT(ce_send(their_life, cause, strlen(cause), fds, 1), 0);
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK_INT(WTERMSIG(status), SIGKILL);
	ce_session_end(&launcher);
	/* the other ends of the sockets */
	CHECK_INT(test_open_fds(), before + 3);
	CHECK_TEXT(told, "broke slurmd: error: all is lost [2J");
}

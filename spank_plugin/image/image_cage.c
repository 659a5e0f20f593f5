#define _GNU_SOURCE
#include "image_cage.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define CAGED 0
#elif defined(__x86_64__)
#define CAGED 1
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define CAGED 1
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#define CAGED 1
#endif

/* With 64 threads and all caches, an image takes some hundred MiB. */
#define MOST_MEMORY ((rlim_t)4 << 30)
/* The stack of a thread. By default it would be as large as the user's stack limit, which is meant for tasks
 * and may be huge. */
#define THREAD_STACK (1 << 20)

#if CAGED

/* ---- system calls ------------------------------------------------------------------------------ */

/* The calls that libfuse, libsquashfs, its compressors and glibc's threads and memory need between a request
 * and its answer. All others return ENOSYS, and glibc then does without: a new release that uses a new call
 * must not end running containers. A failed attempt at any call missing here does no harm. */
static const uint16_t allowed[] = {
	SYS_read,
	SYS_readv,
	SYS_pread64,
	SYS_preadv,
	SYS_write,
	SYS_writev,
	SYS_lseek,
	SYS_close,
	SYS_fstat,
	SYS_statx,
	SYS_futex,
	SYS_munmap,
	SYS_mremap,
	SYS_madvise,
	SYS_brk,
	SYS_sched_yield,
#ifdef SYS_poll
	SYS_poll,
#endif
	SYS_ppoll,
	SYS_clock_gettime,
	SYS_clock_nanosleep,
	SYS_nanosleep,
	SYS_getrandom,
	SYS_getpid,
	SYS_gettid,
	SYS_set_robust_list,
#ifdef SYS_rseq
	SYS_rseq,
#endif
	SYS_rt_sigaction,
	SYS_rt_sigprocmask,
	SYS_rt_sigreturn,
	SYS_sigaltstack,
	/* for signals to a thread: pthread_cancel, abort */
	SYS_tgkill,
	SYS_restart_syscall,
	SYS_exit,
	SYS_exit_group,
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define OFFSET(field) ((uint32_t)offsetof(struct seccomp_data, field))
#define LOAD(field) ((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, OFFSET(field)))
#define RETURN(what) ((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, (what)))
#define UNLESS_EQUAL(value, skip) \
	((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, (skip)))
/* tests the lower half of an argument: both machines are little-endian */
#define IF_ANY(bits, then, otherwise) \
	((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (bits), (then), (otherwise)))
#define REFUSE(number) RETURN(SECCOMP_RET_ERRNO | (number))

struct program {
	struct sock_filter code[2 * COUNT(allowed) + 24];
	unsigned short size;
};

static void add(struct program *program, struct sock_filter step)
{
	program->code[program->size++] = step;
}

/* Allow a call only if no bit of `bits` is set in an argument, or, with `wanted`, only if one is. */
static void add_call(struct program *program, uint32_t call, uint32_t argument, uint32_t bits,
		     int wanted)
{
	add(program, UNLESS_EQUAL(call, 4));
	add(program, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						  OFFSET(args) + argument * 8));
	add(program, IF_ANY(bits, wanted ? 0 : 1, wanted ? 1 : 0));
	add(program, RETURN(SECCOMP_RET_ALLOW));
	add(program, REFUSE(EPERM));
}

static int filter_calls(void)
{
	struct program program = { .size = 0 };

#ifdef ARCHITECTURE
	add(&program, LOAD(arch));
	add(&program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0));
	add(&program, RETURN(SECCOMP_RET_KILL_PROCESS));
	add(&program, LOAD(nr));
	for (size_t i = 0; i < COUNT(allowed); i++) {
		add(&program, UNLESS_EQUAL(allowed[i], 1));
		add(&program, RETURN(SECCOMP_RET_ALLOW));
	}
	/* memory, but no code */
	add_call(&program, SYS_mmap, 2, PROT_EXEC, 0);
	add_call(&program, SYS_mprotect, 2, PROT_EXEC, 0);
	/* threads, but no processes; clone3, whose flags a filter cannot read, returns ENOSYS */
	add_call(&program, SYS_clone, 0, CLONE_THREAD, 1);
	add(&program, REFUSE(ENOSYS));
#else
	add(&program, RETURN(SECCOMP_RET_ALLOW));
#endif
	const struct sock_fprog whole = { .len = program.size, .filter = program.code };
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole);
}

/* ---- all else ---------------------------------------------------------------------------------- */

/* Make /proc/self/fdinfo the root of the process that shares its root with this one: the directory is empty
 * once this process has ended, and stays the root of the other. A mount namespace of its own, the other way
 * to an empty root, would keep the session's mounts, and the guard and ce_kill_container find a session's
 * processes by their mount namespace. */
static int leave_root(void *unused)
{
	(void)unused;
	_exit(chroot("/proc/self/fdinfo") == 0 && chdir("/") == 0 ? 0 : 1);
}

/* Leave the root directory, if possible: without the right to, or without /proc, the filter must suffice. */
static void empty_root(void)
{
	static char stack[16384] __attribute__((aligned(16)));
	pid_t pid = clone(leave_root, stack + sizeof stack, CLONE_FS | CLONE_VM | CLONE_VFORK | SIGCHLD,
			  NULL);

	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static int drop_capabilities(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = { { 0 } };

	/* capabilities that do not exist, or cannot be dropped, are in no set of this process after capset */
	for (unsigned long capability = 0; capability <= 63; capability++)
		(void)prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
	return (int)syscall(SYS_capset, &head, none);
}

static int limit(int resource, rlim_t most)
{
	struct rlimit now;

	if (getrlimit((__rlimit_resource_t)resource, &now) < 0)
		return -1;
	if (now.rlim_max < most)
		most = now.rlim_max;
	now.rlim_cur = now.rlim_max = most;
	return setrlimit((__rlimit_resource_t)resource, &now);
}

static int prepare_threads(void)
{
	pthread_attr_t attributes;

	/* the library that ends threads would otherwise be loaded when the first one ends */
	(void)dlopen("libgcc_s.so.1", RTLD_NOW);
	if (pthread_attr_init(&attributes) != 0)
		return -1;
	int rc = pthread_attr_setstacksize(&attributes, THREAD_STACK);
	if (rc == 0)
		rc = pthread_setattr_default_np(&attributes);
	pthread_attr_destroy(&attributes);
	errno = rc;
	return rc == 0 ? 0 : -1;
}

int image_cage(void)
{
	if (prepare_threads() < 0 || limit(RLIMIT_CORE, 0) < 0 || limit(RLIMIT_AS, MOST_MEMORY) < 0)
		return -1;
	empty_root();
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || drop_capabilities() < 0)
		return -1;
	return filter_calls();
}

#else

int image_cage(void)
{
	return 0;
}

#endif

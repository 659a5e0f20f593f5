"""The cage of a process that reads an image: what it can still do inside."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

_SOURCES = Path(__file__).parents[2] / "spank_plugin" / "image"
_PROBE = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "image_cage.h"

static void say(const char *what, long rc)
{
	printf("%s: %s\n", what, rc < 0 ? strerrorname_np(errno) : "done");
	fflush(stdout);
}

static void *work(void *size)
{
	void *memory = malloc(*(size_t *)size);
	if (memory)
		memset(memory, 1, 1 << 20);
	return memory;
}

static void *wait_for_ever(void *unused)
{
	(void)unused;
	for (;;)
		usleep(1000000);
}

static const long permitted[] = {
	SYS_read, SYS_readv, SYS_pread64, SYS_preadv, SYS_write, SYS_writev, SYS_lseek, SYS_close,
	SYS_fstat, SYS_statx, SYS_futex, SYS_mmap, SYS_mprotect, SYS_munmap, SYS_mremap, SYS_madvise,
	SYS_brk, SYS_sched_yield, SYS_ppoll, SYS_clock_gettime, SYS_clock_nanosleep, SYS_nanosleep,
	SYS_getrandom, SYS_getpid, SYS_gettid, SYS_set_robust_list, SYS_rseq, SYS_rt_sigaction,
	SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack, SYS_tgkill, SYS_restart_syscall,
	SYS_clone, SYS_exit, SYS_exit_group,
#ifdef SYS_poll
	SYS_poll,
#endif
};

static int is_permitted(long call)
{
	for (size_t i = 0; i < sizeof permitted / sizeof permitted[0]; i++) {
		if (permitted[i] == call)
			return 1;
	}
	return 0;
}

/* Say which other calls reach the kernel. Between 335 and 423 are its own, and none. */
static void try_all(void)
{
	for (long call = 0; call < 480; call++) {
		if (is_permitted(call) || (call > 334 && call < 424))
			continue;
		if (syscall(call, -1, -1, -1, -1, -1, -1) >= 0 || errno != ENOSYS)
			printf("call %ld: reached\n", call);
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	char byte, *words[] = { "true", NULL };
	size_t some = 100 << 20, much = (size_t)5 << 30;
	void *result = NULL;
	pthread_t thread;
	int file = open(argv[0], O_RDONLY);

	alarm(60); /* without the filter, some calls wait forever */
#ifdef __x86_64__
	if (argc > 1 && image_cage() == 0) {
		long number = 20; /* getpid of 32-bit programs, whose numbers the filter does not know */
		__asm__ volatile("int $0x80" : "+a"(number) : : "memory");
		return 0;
	}
#endif
	(void)argc;
	setvbuf(stdout, NULL, _IOFBF, 4096);
	say("cage", image_cage());
	say("read", pread(file, &byte, 1, 0));
	say("thread", pthread_create(&thread, NULL, work, &some) ? -1 : pthread_join(thread, &result));
	say("memory", result ? 0 : -1);
	free(result);
	pthread_create(&thread, NULL, wait_for_ever, NULL);
	pthread_cancel(thread);
	say("cancel", pthread_join(thread, NULL) ? -1 : 0);
	errno = 0;
	say("too much", work(&much) ? 0 : -1);
	say("open", open("/", O_RDONLY));
	say("open a file", open(argv[0], O_RDONLY));
	say("write to a file", open("/tmp/x", O_WRONLY | O_CREAT, 0600));
	say("execute", execv("/bin/true", words));
	say("fork", fork());
	say("old fork", syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
	say("socket", socket(AF_UNIX, SOCK_STREAM, 0));
	say("kill", kill(getpid(), 0));
	say("trace", ptrace(PTRACE_TRACEME, 0, 0, 0));
	say("unshare", unshare(CLONE_NEWUSER));
	say("chroot", chroot("/"));
	void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	say("code", code == MAP_FAILED ? -1 : 0);
	void *data = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	say("data into code", mprotect(data, 4096, PROT_READ | PROT_EXEC));
	try_all();
	return 0;
}
"""
_SAID = {
    **dict.fromkeys(["cage", "read", "thread", "memory", "cancel"], "done"),
    "too much": "ENOMEM",
    **dict.fromkeys(["open", "open a file", "write to a file", "execute", "socket"], "ENOSYS"),
    **dict.fromkeys(["fork", "old fork", "code", "data into code"], "EPERM"),
    **dict.fromkeys(["kill", "trace", "unshare", "chroot"], "ENOSYS"),
}


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cage") / "probe"
    argv = ["gcc", "-O1", f"-I{_SOURCES}", "-x", "c", "-", str(_SOURCES / "image_cage.c")]
    subprocess.run([*argv, "-o", str(path), "-lpthread"], input=_PROBE.encode(), check=True)
    return path


@pytest.mark.parametrize("root", [True, False])
def test_a_caged_process_reads_and_maps_memory_and_nothing_else(probe: Path, *, root: bool) -> None:
    """The guard runs it as root in a user namespace; elsewhere an ordinary user runs it."""
    enter = ["unshare", "--user", "--map-root-user"] if root else []
    done = subprocess.run([*enter, str(probe)], text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    said = dict(line.split(": ") for line in done.stdout.splitlines())
    assert said == _SAID


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="has one kind of system calls")
def test_a_call_in_the_way_of_another_architecture_ends_a_caged_process(probe: Path) -> None:
    """Its number there may be that of a call which is allowed here."""
    assert subprocess.run([str(probe), "foreign"]).returncode == -signal.SIGSYS


def test_a_caged_process_has_no_rights_no_core_and_an_empty_root(tmp_path: Path) -> None:
    source = r"""
#include <stdio.h>
#include <unistd.h>
#include "image_cage.h"
int main(void)
{
	if (image_cage() == 0)
		(void)!write(1, "x", 1);
	return (int)read(0, (char[1]){ 0 }, 1);
}
"""
    path = tmp_path / "waits"
    argv = ["gcc", f"-I{_SOURCES}", "-x", "c", "-", str(_SOURCES / "image_cage.c")]
    subprocess.run([*argv, "-o", str(path), "-lpthread"], input=source.encode(), check=True)
    enter = ["unshare", "--user", "--map-root-user", str(path)]
    with subprocess.Popen(enter, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"x"
        proc = Path(f"/proc/{process.pid}")
        lines = (line.split(":\t") for line in (proc / "status").read_text().splitlines())
        status = {name: value.strip() for name, *rest in lines for value in rest}
        limits = (proc / "limits").read_text()
        root: list[str] = []
        # The directory of a process that has ended; users other than root may not even list it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            root = os.listdir(proc / "root")
        process.communicate(b"\n")
    capabilities = {status[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")}
    assert (capabilities, status["NoNewPrivs"], status["Seccomp"]) == ({"0" * 16}, "1", "2")
    assert "Max core file size        0                    0 " in limits
    assert root == []

"""The cage of a process that reads an image: what it can still do inside."""

import contextlib
import os
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

int main(int argc, char **argv)
{
	char byte, *words[] = { "true", NULL };
	size_t some = 100 << 20, much = (size_t)5 << 30;
	void *result = NULL;
	pthread_t thread;
	int file = open(argv[0], O_RDONLY);

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
	return 0;
}
"""
_SAID = {
    **dict.fromkeys(["cage", "read", "thread", "memory", "cancel"], "done"),
    "too much": "ENOMEM",
    **dict.fromkeys(["open", "open a file", "write to a file", "execute", "socket"], "ENOSYS"),
    **dict.fromkeys(["fork", "old fork", "code"], "EPERM"),
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
    """It is run as the guard's child, root in its user namespace, and as an ordinary user."""
    enter = ["unshare", "--user", "--map-root-user"] if root else []
    done = subprocess.run([*enter, str(probe)], text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    said = dict(line.split(": ") for line in done.stdout.splitlines())
    assert said == _SAID


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

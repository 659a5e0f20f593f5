/*
 * The program of the MPI tests and benchmarks, compiled against each MPI of an image.
 *
 * mpi-probe who                 every rank: RANK of SIZE on NODE
 * mpi-probe where               every rank: RANK of SIZE in NAMESPACE, which is its container
 * mpi-probe ring                passes a number round all ranks and adds it up; rank 0 prints both
 * mpi-probe bench FILE SIDE     measures a message and an allreduce: many lines `NAME BYTES MICROSECONDS`,
 *                               each a median over a short time; a ping-pong counts as two messages. Two
 *                               such runs, with SIDE 0 and 1, take turns: they count in FILE (a page
 *                               of zeros at first), so that the machine's other load affects both
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SIDES = 2, PATIENCE_S = 50 };

static int rank, size;

static void fail(const char *why)
{
	if (rank == 0)
		fprintf(stderr, "mpi-probe: %s\n", why);
	MPI_Abort(MPI_COMM_WORLD, 2);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *samples, int count)
{
	qsort(samples, (size_t)count, sizeof *samples, by_value);
	return samples[count / 2];
}

static int who(void)
{
	const char *node = getenv("SLURMD_NODENAME");
	char host[256] = "";

	gethostname(host, sizeof host - 1);
	printf("%d of %d on %s\n", rank, size, node != NULL ? node : host);
	return 0;
}

static int where(void)
{
	char container[64] = "";

	/* Not SLURMD_NODENAME: mpirun passes its own value to all its ranks. */
	if (readlink("/proc/self/ns/mnt", container, sizeof container - 1) < 0)
		fail("no /proc");
	printf("%d of %d in %s\n", rank, size, container);
	return 0;
}

static int ring(void)
{
	int sum = rank, total = 0, here = rank;

	for (int step = 1; step < size; step++) {
		MPI_Sendrecv_replace(&here, 1, MPI_INT, (rank + 1) % size, 0, (rank + size - 1) % size,
				     0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		sum += here;
	}
	MPI_Allreduce(&rank, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("ring %d allreduce %d\n", sum, total);
	return sum == total ? 0 : 1;
}

static void pass(char *data, int bytes)
{
	if (rank == 0) {
		MPI_Send(data, bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
		MPI_Recv(data, bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	} else if (rank == 1) {
		MPI_Recv(data, bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Send(data, bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
	}
}

static void reduce(char *data, int bytes)
{
	MPI_Allreduce(MPI_IN_PLACE, data, bytes / (int)sizeof(double), MPI_DOUBLE, MPI_SUM,
		      MPI_COMM_WORLD);
}

static double measure(void (*once)(char *, int), int ways, int bytes, int count)
{
	char *data = calloc(1, (size_t)bytes + sizeof(double));
	double *samples = calloc((size_t)count, sizeof *samples);

	if (data == NULL || samples == NULL)
		fail("out of memory");
	/* warm up: the other side has used the caches meanwhile */
	for (int i = -count / 10; i < count; i++) {
		double begin = MPI_Wtime();
		once(data, bytes);
		if (i >= 0)
			samples[i] = 1e6 * (MPI_Wtime() - begin) / ways;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	double found = median(samples, count);
	free(data);
	free(samples);
	return found;
}

/* ---- two runs that take turns: ranks of the one that waits sleep ------------------------------- */

struct turns {
	_Atomic int now;
	_Atomic int arrived;
};

static struct turns *open_turns(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	void *page = fd < 0 ? MAP_FAILED
			    : mmap(NULL, sizeof(struct turns), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (page == MAP_FAILED)
		fail("cannot open the file of turns");
	close(fd);
	return page;
}

static void count_up(_Atomic int *counter)
{
	atomic_fetch_add(counter, 1);
	syscall(SYS_futex, counter, FUTEX_WAKE, SIDES * size, NULL, NULL, 0);
}

static void wait_until(_Atomic int *counter, int wanted)
{
	const struct timespec patience = { .tv_sec = PATIENCE_S };

	for (int seen = atomic_load(counter); seen < wanted; seen = atomic_load(counter)) {
		if (syscall(SYS_futex, counter, FUTEX_WAIT, seen, &patience, NULL, 0) < 0 &&
		    errno == ETIMEDOUT && atomic_load(counter) == seen)
			fail("the other side does not come");
	}
}

/* Pin the rank to one CPU: a rank that moves between CPUs measures the scheduler. */
static void stay_on_one_cpu(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)(rank % (cpus > 0 ? cpus : 1)), &set);
	sched_setaffinity(0, sizeof set, &set);
}

static int bench(const char *path, int side)
{
	enum { SMALL = 8, LARGE = 1 << 20, MANY = 500, FEW = 15, ROUNDS = 32, KINDS = 4 };
	static const struct {
		const char *name;
		void (*once)(char *, int);
		int ways, bytes, count;
	} kinds[KINDS] = { { "pingpong", pass, 2, SMALL, MANY },
			   { "pingpong", pass, 2, LARGE, FEW },
			   { "allreduce", reduce, 1, SMALL, MANY },
			   { "allreduce", reduce, 1, LARGE, FEW } };
	struct turns *turns = open_turns(path);

	if (size < 2)
		fail("needs two ranks");
	stay_on_one_cpu();
	count_up(&turns->arrived);
	wait_until(&turns->arrived, SIDES * size);
	for (int i = 0; i < ROUNDS * KINDS; i++) {
		int kind = i % KINDS, first = (i / KINDS + kind) % SIDES;
		/* the sides take turns at going first */
		wait_until(&turns->now, SIDES * i + (side != first));
		double found = measure(kinds[kind].once, kinds[kind].ways, kinds[kind].bytes,
				       kinds[kind].count);
		if (rank == 0) {
			printf("%s %d %.3f\n", kinds[kind].name, kinds[kind].bytes, found);
			count_up(&turns->now);
		}
	}
	/* ending is work, which would disturb the other side's last turn */
	wait_until(&turns->now, SIDES * ROUNDS * KINDS);
	return 0;
}

static int run(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (strcmp(what, "who") == 0)
		return who();
	if (strcmp(what, "where") == 0)
		return where();
	if (strcmp(what, "ring") == 0)
		return ring();
	if (strcmp(what, "bench") == 0 && argc == 4)
		return bench(argv[2], atoi(argv[3]));
	fail("who, where, ring or bench FILE SIDE");
	return 2;
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	int code = run(argc, argv);
	MPI_Finalize();
	return code;
}

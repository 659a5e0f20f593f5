/*
 * What the tests and benchmarks of MPI run: one program, compiled against each MPI of an image.
 *
 * mpi-probe who                 every rank: RANK of SIZE on NODE
 * mpi-probe ring                a number goes round all ranks and is added up; rank 0 prints both
 * mpi-probe pingpong BYTES N    ranks 0 and 1: microseconds of one way, median of N round trips
 * mpi-probe allreduce BYTES N   all ranks: microseconds of one call, median of N
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WARM_UP = 20 };

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

static int measure(void (*once)(char *, int), int ways, int bytes, int count)
{
	char *data = calloc(1, (size_t)bytes + sizeof(double));
	double *samples = calloc((size_t)count, sizeof *samples);

	if (data == NULL || samples == NULL)
		fail("out of memory");
	for (int i = -WARM_UP; i < count; i++) {
		double begin = MPI_Wtime();
		once(data, bytes);
		if (i >= 0)
			samples[i] = 1e6 * (MPI_Wtime() - begin) / ways;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("%.3f\n", median(samples, count));
	free(data);
	free(samples);
	return 0;
}

static int run(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	int bytes = argc > 2 ? atoi(argv[2]) : 0, count = argc > 3 ? atoi(argv[3]) : 1;

	if (strcmp(what, "who") == 0)
		return who();
	if (strcmp(what, "ring") == 0)
		return ring();
	if (bytes < 0 || count < 1 || size < 2)
		fail("needs two ranks, BYTES and N");
	if (strcmp(what, "pingpong") == 0)
		return measure(pass, 2, bytes, count);
	if (strcmp(what, "allreduce") == 0)
		return measure(reduce, 1, bytes, count);
	fail("who, ring, pingpong or allreduce");
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

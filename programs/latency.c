/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * latency - half the round trip of one message, for each message size.
 *
 * Two ranks play ping-pong. For every size: a warm-up, then `repetitions` times the mean
 * over `iterations` round trips, halved, in microseconds by MPI_Wtime. Every repetition
 * is printed, so that the reader can form medians and see the spread.
 *
 *     mpiexec -n 2 latency [--sizes 0,8,4096] [--repetitions 5] [--iterations 10000]
 */
#include "measure.h"

#define ITERATIONS_SMALL 10000
#define ITERATIONS_MIN 50
#define SMALL_BYTES 8192U

/* Fewer round trips for larger messages: about the same number of bytes for each. */
static long iterations_for(size_t size)
{
	long iterations = ITERATIONS_SMALL;

	if (size > SMALL_BYTES)
		iterations = (long)(ITERATIONS_SMALL * (double)SMALL_BYTES / (double)size);
	return iterations < ITERATIONS_MIN ? ITERATIONS_MIN : iterations;
}

static void ping_pong(int rank, char *buffer, int size, long iterations)
{
	for (long i = 0; i < iterations; i++) {
		if (rank == 0) {
			MPI_Send(buffer, size, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
			MPI_Recv(buffer, size, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		} else {
			MPI_Recv(buffer, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			MPI_Send(buffer, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
		}
	}
}

static void measure(const struct measure_options *options, int rank, size_t size)
{
	long iterations = options->iterations > 0 ? options->iterations : iterations_for(size);
	char *buffer = measure_buffer(size);

	MPI_Barrier(MPI_COMM_WORLD);
	ping_pong(rank, buffer, (int)size, iterations / 10 + 1);
	for (int repetition = 0; repetition < options->repetitions; repetition++) {
		double start, seconds;

		MPI_Barrier(MPI_COMM_WORLD);
		start = MPI_Wtime();
		ping_pong(rank, buffer, (int)size, iterations);
		seconds = MPI_Wtime() - start;
		if (rank == 0) {
			printf("{\"size\": %zu, \"repetition\": %d, \"iterations\": %ld, "
			       "\"microseconds\": %.6f}\n",
			       size, repetition, iterations, seconds * 1e6 / 2 / (double)iterations);
			fflush(stdout);
		}
	}
	free(buffer);
}

int main(int argc, char **argv)
{
	struct measure_options options;
	int rank, ranks;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	measure_need_two("latency", ranks);
	options = measure_options(argc, argv);
	measure_print_run("latency", rank, ranks);
	for (int i = 0; i < options.size_count; i++)
		measure(&options, rank, options.sizes[i]);
	MPI_Finalize();
	return 0;
}

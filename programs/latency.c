/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * latency - half the round trip of one message, for each message size.
 *
 * Two ranks play ping-pong. For every size there is a warm-up. Then each of `repetitions`
 * repetitions takes about `seconds`, and its result is half the mean round trip, in microseconds by
 * MPI_Wtime. Every repetition is printed, so that the reader can compute medians and see the
 * spread.
 *
 *     mpiexec -n 2 latency [--sizes 0,8,4096] [--repetitions 5] [--seconds 0.05]
 */
#include "exchanges.h"

static void measure(const struct measure_options *options, int rank, size_t size)
{
	char *buffer = measure_buffer(size);
	struct exchange exchange = {.rank = rank, .peer = 1 - rank, .buffer = buffer, .size = (int)size};
	long iterations = measure_calibrate(ping_pong, &exchange, options->seconds);

	for (int repetition = 0; repetition < options->repetitions; repetition++) {
		double seconds = measure_seconds(ping_pong, &exchange, iterations);

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

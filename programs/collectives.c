/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * collectives - the time of the collective operations of collective.h, which says what the size is.
 *
 * Calls follow each other without a barrier. The root of an operation with a root changes each time,
 * so that no root runs ahead. The time of a repetition is the slowest rank's. Each operation's result
 * is checked once, before the measurement.
 *
 *     mpiexec -n 4 collectives [--sizes 8,65536] [--repetitions 5] [--seconds 0.05]
 */
#include "collective.h"

static void measure(const struct measure_options *options, struct group *group, int operation)
{
	long iterations;

	collective_verify(group, operation);
	iterations = measure_calibrate(collectives[operation].run, &group->exchange, options->seconds);
	for (int repetition = 0; repetition < options->repetitions; repetition++) {
		double taken = measure_seconds(collectives[operation].run, &group->exchange, iterations);
		double slowest;

		MPI_Reduce(&taken, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
		if (group->exchange.rank == 0) {
			printf("{\"operation\": \"%s\", \"size\": %d, \"repetition\": %d, "
			       "\"iterations\": %ld, \"microseconds\": %.6f}\n",
			       collectives[operation].name, group->exchange.size, repetition, iterations,
			       slowest * 1e6 / (double)iterations);
			fflush(stdout);
		}
	}
}

int main(int argc, char **argv)
{
	struct measure_options options;
	struct group group = {0};

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &group.exchange.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &group.ranks);
	options = measure_options(argc, argv);
	measure_print_run("collectives", group.exchange.rank, group.ranks);
	for (int i = 0; i < options.size_count; i++) {
		if (options.sizes[i] == 0 || options.sizes[i] % sizeof(double) != 0)
			measure_usage("collectives", "sizes are multiples of 8 bytes");
		group.exchange.size = (int)options.sizes[i];
		group.exchange.buffer = measure_buffer((size_t)group.ranks * options.sizes[i]);
		group.received = measure_buffer((size_t)group.ranks * options.sizes[i]);
		for (int operation = 0; operation < COLLECTIVES; operation++)
			measure(&options, &group, operation);
		free(group.received);
		free(group.exchange.buffer);
	}
	MPI_Finalize();
	return 0;
}

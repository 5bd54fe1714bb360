/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bandwidth - the rate at which one rank can send to another, for each message size.
 *
 * Rank 0 starts a window of non-blocking sends, for which rank 1 has posted a window of receives.
 * When the window is complete, rank 1 answers with one empty message. For every size there is a
 * warm-up, then `repetitions` repetitions, each with as many windows as take about `seconds`. One
 * MB is 10^6 bytes. The number of messages a second is printed as well, because it is what counts
 * for small messages.
 *
 *     mpiexec -n 2 bandwidth [--sizes 8,65536] [--window 64] [--repetitions 5]
 */
#include "exchanges.h"

static void measure(const struct measure_options *options, int rank, size_t size)
{
	int window = window_for(options->window, size);
	char *buffer = measure_buffer(size);
	MPI_Request *requests = measure_buffer((size_t)window * sizeof(MPI_Request));
	struct exchange exchange = {
		.rank = rank,
		.peer = 1 - rank,
		.buffer = buffer,
		.size = (int)size,
		.window = window,
		.requests = requests,
	};
	long iterations = measure_calibrate(stream, &exchange, options->seconds);

	for (int repetition = 0; repetition < options->repetitions; repetition++) {
		double seconds = measure_seconds(stream, &exchange, iterations);
		double messages = (double)iterations * window;

		if (rank == 0) {
			printf("{\"size\": %zu, \"repetition\": %d, \"iterations\": %ld, "
			       "\"window\": %d, \"megabytes_per_second\": %.6f, "
			       "\"messages_per_second\": %.1f}\n",
			       size, repetition, iterations, window, messages * (double)size / seconds / 1e6,
			       messages / seconds);
			fflush(stdout);
		}
	}
	free(requests);
	free(buffer);
}

int main(int argc, char **argv)
{
	struct measure_options options;
	int rank, ranks;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	measure_need_two("bandwidth", ranks);
	options = measure_options(argc, argv);
	measure_print_run("bandwidth", rank, ranks);
	for (int i = 0; i < options.size_count; i++)
		measure(&options, rank, options.sizes[i]);
	MPI_Finalize();
	return 0;
}

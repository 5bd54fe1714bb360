/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overhead - the time that an MPI library itself needs for one message, without a transport.
 *
 * One rank sends to itself: it posts a receive, sends, and waits for the receive. That is one send
 * and one receive with the library's own requests and matching, on one core, by its own path for
 * messages to itself, which needs no other process and no provider. For a message between two
 * ranks, a library does at least this much work.
 *
 *     mpiexec -n 1 overhead [--sizes 8] [--repetitions 5] [--seconds 0.05]
 */
#include "measure.h"

static void send_to_self(const struct exchange *exchange, long iterations)
{
	char *to = exchange->buffer, *from = to + exchange->size;
	MPI_Request request;

	for (long i = 0; i < iterations; i++) {
		MPI_Irecv(to, exchange->size, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &request);
		MPI_Send(from, exchange->size, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
}

static void measure(const struct measure_options *options, int rank, size_t size)
{
	char *buffer = measure_buffer(2 * size);
	struct exchange exchange = {.rank = rank, .buffer = buffer, .size = (int)size};
	long iterations = measure_calibrate(send_to_self, &exchange, options->seconds);

	for (int repetition = 0; repetition < options->repetitions; repetition++) {
		double seconds = measure_seconds(send_to_self, &exchange, iterations);

		printf("{\"size\": %zu, \"repetition\": %d, \"iterations\": %ld, \"microseconds\": %.6f}\n",
		       size, repetition, iterations, seconds * 1e6 / (double)iterations);
		fflush(stdout);
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
	if (ranks != 1)
		refuse("overhead: error: started with %d ranks: start it with 1\n", ranks);
	options = measure_options(argc, argv);
	measure_print_run("overhead", rank, ranks);
	for (int i = 0; i < options.size_count; i++)
		measure(&options, rank, options.sizes[i]);
	MPI_Finalize();
	return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bandwidth - how much one rank can send to another, for each message size.
 *
 * Rank 0 starts a window of non-blocking sends, rank 1 has a window of receives posted;
 * when the window is through, rank 1 answers with one empty message. For every size: a
 * warm-up, then `repetitions` times as many windows as take about `seconds`. One MB is
 * 10^6 bytes. The number of messages a second is printed as well, which is what counts for
 * small ones.
 *
 *     mpiexec -n 2 bandwidth [--sizes 8,65536] [--window 64] [--repetitions 5]
 */
#include "measure.h"

#define WINDOW_BYTES_MAX (32.0 * 1024 * 1024) /* large messages: fewer in flight */

static int window_for(const struct measure_options *options, size_t size)
{
	double fits = WINDOW_BYTES_MAX / (size == 0 ? 1.0 : (double)size);

	if (fits >= options->window)
		return options->window;
	return fits < 1 ? 1 : (int)fits;
}

static void stream(const struct exchange *exchange, long iterations)
{
	char *buffer = exchange->buffer;
	int size = exchange->size;
	MPI_Request *requests = exchange->requests;

	for (long i = 0; i < iterations; i++) {
		for (int message = 0; message < exchange->window; message++) {
			if (exchange->rank == 0)
				MPI_Isend(buffer, size, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &requests[message]);
			else
				MPI_Irecv(buffer, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &requests[message]);
		}
		MPI_Waitall(exchange->window, requests, MPI_STATUSES_IGNORE);
		if (exchange->rank == 0)
			MPI_Recv(NULL, 0, MPI_CHAR, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		else
			MPI_Send(NULL, 0, MPI_CHAR, 0, 2, MPI_COMM_WORLD);
	}
}

static void measure(const struct measure_options *options, int rank, size_t size)
{
	int window = window_for(options, size);
	char *buffer = measure_buffer(size);
	MPI_Request *requests = measure_buffer((size_t)window * sizeof(MPI_Request));
	struct exchange exchange = {
		.rank = rank, .buffer = buffer, .size = (int)size, .window = window, .requests = requests};
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

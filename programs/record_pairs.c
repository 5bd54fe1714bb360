/* SPDX-License-Identifier: BSD-3-Clause */
/* record_pairs.c - messages between pairs of ranks, all pairs at the same time. */
#include "record.h"

enum kind { LATENCY, BANDWIDTH, BIDIRECTIONAL };

static void open_pair(struct subject *subject, int kind, size_t size, int window,
		      enum synchronization synchronization)
{
	struct exchange *exchange = measure_buffer(sizeof(*exchange));
	int rank, ranks, both = kind == BIDIRECTIONAL ? 2 : 1;
	static exchange_function *const runs[] = {
		[LATENCY] = ping_pong, [BANDWIDTH] = stream, [BIDIRECTIONAL] = stream_both_ways};

	(void)synchronization;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	*exchange = (struct exchange){
		.rank = rank,
		.peer = record_peer(rank, ranks),
		.buffer = measure_buffer((size_t)both * size),
		.size = (int)size,
		.window = window,
		.requests = measure_buffer((size_t)both * (size_t)window * sizeof(MPI_Request)),
	};
	*subject = (struct subject){
		.exchange = exchange,
		.run = runs[kind],
		.messages = kind == LATENCY ? 2 : (long)both * window,
		.kept = begins(exchange),
	};
}

static void close_pair(struct subject *subject)
{
	free(subject->exchange->requests);
	free(subject->exchange->buffer);
	free(subject->exchange);
}

#define PAIR(its_name, its_kind, its_window, its_sample) \
	{ \
		.name = (its_name), .kind = (its_kind), .window = (its_window), .sample = (its_sample), \
		.sizes = true, .pairs = true, .multiple = 1, .open = open_pair, .close = close_pair \
	}

const struct operation pair_operations[] = {
	PAIR("latency", LATENCY, 0, "one message there and one back"),
	PAIR("bandwidth", BANDWIDTH, 64, "a window of messages one way, and one empty answer"),
	PAIR("bidirectional", BIDIRECTIONAL, 64, "a window of messages each way, and one empty answer"),
	{.name = NULL},
};

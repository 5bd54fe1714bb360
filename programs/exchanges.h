/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exchanges.h - the timed exchanges of two ranks: the messages of latency, bandwidth and record. In
 * each pair, the rank with the lower number begins.
 */
#ifndef PROGRAMS_EXCHANGES_H
#define PROGRAMS_EXCHANGES_H

#include "measure.h"

#define WINDOW_BYTES_MAX (32.0 * 1024 * 1024) /* fewer large messages in flight */

#define TAG_MESSAGE 1
#define TAG_ANSWER 2

/* The number of messages of `size` bytes in flight, if `window` were requested. */
static inline int window_for(int window, size_t size)
{
	double fits = WINDOW_BYTES_MAX / (size == 0 ? 1.0 : (double)size);

	if (fits >= window)
		return window;
	return fits < 1 ? 1 : (int)fits;
}

static inline int begins(const struct exchange *exchange)
{
	return exchange->rank < exchange->peer;
}

/* One message there and one back. */
static inline void ping_pong(const struct exchange *exchange, long iterations)
{
	char *buffer = exchange->buffer;
	int size = exchange->size, peer = exchange->peer;

	for (long i = 0; i < iterations; i++) {
		if (begins(exchange)) {
			MPI_Send(buffer, size, MPI_CHAR, peer, TAG_MESSAGE, MPI_COMM_WORLD);
			MPI_Recv(buffer, size, MPI_CHAR, peer, TAG_MESSAGE, MPI_COMM_WORLD,
				 MPI_STATUS_IGNORE);
		} else {
			MPI_Recv(buffer, size, MPI_CHAR, peer, TAG_MESSAGE, MPI_COMM_WORLD,
				 MPI_STATUS_IGNORE);
			MPI_Send(buffer, size, MPI_CHAR, peer, TAG_MESSAGE, MPI_COMM_WORLD);
		}
	}
}

/* One empty message back, when the window is complete. */
static inline void answer(const struct exchange *exchange)
{
	if (begins(exchange))
		MPI_Recv(NULL, 0, MPI_CHAR, exchange->peer, TAG_ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	else
		MPI_Send(NULL, 0, MPI_CHAR, exchange->peer, TAG_ANSWER, MPI_COMM_WORLD);
}

/* One window of messages in one direction. */
static inline void stream(const struct exchange *exchange, long iterations)
{
	char *buffer = exchange->buffer;
	int size = exchange->size, peer = exchange->peer;
	MPI_Request *requests = exchange->requests;

	for (long i = 0; i < iterations; i++) {
		for (int message = 0; message < exchange->window; message++) {
			if (begins(exchange))
				MPI_Isend(buffer, size, MPI_CHAR, peer, TAG_MESSAGE, MPI_COMM_WORLD,
					  &requests[message]);
			else
				MPI_Irecv(buffer, size, MPI_CHAR, peer, TAG_MESSAGE, MPI_COMM_WORLD,
					  &requests[message]);
		}
		MPI_Waitall(exchange->window, requests, MPI_STATUSES_IGNORE);
		answer(exchange);
	}
}

/*
 * A window of messages in each direction at the same time. `buffer` has room for two messages, and
 * `requests` for two windows.
 */
static inline void stream_both_ways(const struct exchange *exchange, long iterations)
{
	char *sent = exchange->buffer, *received = sent + exchange->size;
	int size = exchange->size, peer = exchange->peer, window = exchange->window;
	MPI_Request *requests = exchange->requests;

	for (long i = 0; i < iterations; i++) {
		for (int message = 0; message < window; message++)
			MPI_Irecv(received, size, MPI_CHAR, peer, TAG_MESSAGE, MPI_COMM_WORLD,
				  &requests[message]);
		for (int message = 0; message < window; message++)
			MPI_Isend(sent, size, MPI_CHAR, peer, TAG_MESSAGE, MPI_COMM_WORLD,
				  &requests[window + message]);
		MPI_Waitall(2 * window, requests, MPI_STATUSES_IGNORE);
		answer(exchange);
	}
}

#endif

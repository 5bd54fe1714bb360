/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.c - threads that share an endpoint, and progress without calls (FI_PROGRESS_AUTO). */
#include "waiting.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS 4
#define MESSAGES 300
#define ROOM 40000

/* An operation of one thread. The thread that reads its completion stores the result here. */
struct operation {
	_Atomic size_t done; /* bytes + 1 */
};

struct worker {
	pthread_t thread;
	const struct side *side;
	int number;
};

static void take(struct fid_cq *cq)
{
	struct fi_cq_tagged_entry entries[3];
	ssize_t count = fi_cq_read(cq, entries, 3);

	if (count == -FI_EAGAIN)
		return;
	CHECK(count > 0);
	for (ssize_t i = 0; i < count; i++)
		atomic_store(&((struct operation *)entries[i].op_context)->done, entries[i].len + 1);
}

static size_t wait_for(const struct side *side, const struct operation *operation)
{
	size_t done = 0;

	while ((done = atomic_load(&operation->done)) == 0) {
		take(side->sent);
		take(side->received);
	}
	return done - 1;
}

static size_t length_of(int thread, int index)
{
	static const size_t lengths[] = {8, 40, 200, 1500, 5000, 40000};

	return lengths[(thread + index) % 6];
}

/* Ping-pong on a tag of its own. Any thread may read the completions. */
static void *work(void *argument)
{
	const struct worker *worker = argument;
	const struct side *side = worker->side;
	fi_addr_t peer = side->peer[1 - side->rank];
	uint64_t tag = (uint64_t)worker->number;
	unsigned char *in = malloc(ROOM);
	unsigned char *out = malloc(ROOM);

	CHECK(in != NULL && out != NULL);
	for (int i = 0; i < MESSAGES; i++) {
		struct operation receive = {0};
		struct operation send = {0};
		size_t length = length_of(worker->number, i);
		uint64_t seed = tag * MESSAGES + (uint64_t)i;
		SAME(fi_trecv(side->endpoint, in, ROOM, NULL, peer, tag, 0, &receive), 0);
		fill(out, length, seed + (uint64_t)side->rank);
		ssize_t result = 0;
		while ((result = fi_tsend(side->endpoint, out, length, NULL, peer, tag, &send)) ==
		       -FI_EAGAIN) {
			take(side->sent);
			take(side->received);
		}
		SAME(result, 0);
		SAME(wait_for(side, &receive), length);
		CHECK_FILLED(in, length, seed + (uint64_t)(1 - side->rank));
		(void)wait_for(side, &send);
	}
	free(in);
	free(out);
	return NULL;
}

static void hammer(int rank, const struct side_options *options)
{
	struct side side;
	struct worker workers[THREADS];

	side_open(&side, rank, options);
	for (int i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.side = &side, .number = i};
		SAME(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		SAME(pthread_join(workers[i].thread, NULL), 0);
	barrier(&side);
	side_close(&side);
}

static void safe(int rank)
{
	hammer(rank, &(struct side_options){.threading = FI_THREAD_SAFE});
}

static void safe_automatic(int rank)
{
	hammer(rank, &(struct side_options){.threading = FI_THREAD_SAFE, .progress = FI_PROGRESS_AUTO});
}

/* Threads with an endpoint each, in one process: they meet only in the region. */
static void *own_endpoint(void *argument)
{
	const struct worker *worker = argument;
	const struct side *side = worker->side;
	struct fid_ep *endpoint = side->endpoints[worker->number];

	for (uint64_t i = 0; i < MESSAGES; i++) {
		ssize_t result = 0;
		while ((result = fi_tinjectdata(endpoint, &i, sizeof(i), i,
						side->peers[1 - side->rank][worker->number], i)) ==
		       -FI_EAGAIN)
			side_progress(side);
		SAME(result, 0);
	}
	return NULL;
}

static void several_endpoints(int rank)
{
	struct side side;
	struct worker workers[3];
	static uint64_t values[3][MESSAGES];

	side_open(&side, rank, &(struct side_options){.endpoints = 3});
	for (uint64_t i = 0; i < MESSAGES; i++)
		for (int e = 0; e < 3; e++)
			SAME(fi_trecv(side.endpoints[e], &values[e][i], 8, NULL, side.peers[1 - rank][e], i,
				      0, &values[e][i]),
			     0);
	barrier(NULL);
	for (int i = 0; i < 3; i++) {
		workers[i] = (struct worker){.side = &side, .number = i};
		SAME(pthread_create(&workers[i].thread, NULL, own_endpoint, &workers[i]), 0);
	}
	uint64_t next[3] = {0};
	for (int i = 0; i < 3 * MESSAGES; i++) {
		struct fi_cq_tagged_entry entry = next_completion(side.received);
		size_t e = (size_t)((uint64_t *)entry.op_context - values[0]) / MESSAGES;
		/* The messages of one sender are in order. */
		SAME(entry.data, next[e]);
		SAME(values[e][next[e]], next[e]);
		next[e]++;
	}
	for (int i = 0; i < 3; i++)
		SAME(pthread_join(workers[i].thread, NULL), 0);
	barrier(&side);
	side_close(&side);
}

/* The receiver posts and then makes no calls: its provider receives nevertheless. */
static void automatic(int rank)
{
	static const size_t sizes[] = {8, 300, 3000, 300000};
	struct side side;
	struct iovec piece;
	static unsigned char buffers[4][300000];

	side_open(&side, rank, &(struct side_options){.progress = FI_PROGRESS_AUTO});
	if (rank == 0) {
		barrier(NULL);
		for (uint64_t i = 0; i < 4; i++) {
			fill(buffers[i], sizes[i], i);
			piece = (struct iovec){buffers[i], sizes[i]};
			struct fi_msg_tagged message = {
				.msg_iov = &piece, .iov_count = 1, .addr = side.peer[1], .tag = i};
			POST(&side, fi_tsendmsg(side.endpoint, &message, FI_DELIVERY_COMPLETE));
			/* Delivered, although the receiver sleeps in the barrier below. */
			(void)next_completion(side.sent);
		}
		barrier(NULL);
	} else {
		for (uint64_t i = 0; i < 4; i++)
			SAME(fi_trecv(side.endpoint, buffers[i], sizes[i], NULL, side.peer[0], i, 0, NULL),
			     0);
		barrier(NULL);
		barrier(NULL);
		for (uint64_t i = 0; i < 4; i++) {
			SAME(next_completion(side.received).tag, i);
			CHECK_FILLED(buffers[i], sizes[i], i);
		}
	}
	barrier(NULL);
	side_close(&side);
}

/* A thread that waits in a queue does not keep other threads from sending on the endpoint. */
static void *wait_in_queue(void *argument)
{
	const struct side *side = argument;
	struct fi_cq_tagged_entry entry;

	SAME(fi_cq_sread(side->received, &entry, 1, NULL, -1), 1);
	SAME(entry.len, 3);
	return NULL;
}

static void waiting_thread(int rank)
{
	struct side side;
	pthread_t thread;
	char buffer[8];

	side_open(&side, rank, &(struct side_options){.wait = FI_WAIT_UNSPEC});
	SAME(fi_recv(side.endpoint, buffer, sizeof(buffer), NULL, FI_ADDR_UNSPEC, NULL), 0);
	SAME(pthread_create(&thread, NULL, wait_in_queue, &side), 0);
	send_after(&side, 0.02, side.peer[0]);
	SAME(pthread_join(thread, NULL), 0);
	CHECK(memcmp(buffer, "abc", 3) == 0);
	side_close(&side);
}

/* ---- closing beside other threads ---- */

/* More than a ring has slots, so that some wait in the sender's queue. */
#define BEYOND_THE_RING 500
#define IN_THE_RING 20
#define ROUNDS 100
/* The other thread is in fi_close() by then. If it is not, the scenario passes without showing anything. */
#define HEAD_START_MICROSECONDS 50000
#define PATIENCE_MILLISECONDS 20000

struct closer {
	pthread_t thread;
	struct fid_ep *endpoint;
	atomic_bool begun;
	atomic_bool ended;
};

static void *close_endpoint(void *argument)
{
	struct closer *closer = argument;

	atomic_store(&closer->begun, true);
	SAME(fi_close(&closer->endpoint->fid), 0);
	atomic_store(&closer->ended, true);
	return NULL;
}

/* Send messages that nobody takes, and close their endpoint in another thread. */
static void close_with(const struct side *side, int index, int messages, struct closer *closer)
{
	for (int i = 0; i < messages; i++)
		SAME(fi_tinject(side->endpoints[index], "x", 1, side->peers[1][index], (uint64_t)i), 0);
	*closer = (struct closer){.endpoint = side->endpoints[index]};
	SAME(pthread_create(&closer->thread, NULL, close_endpoint, closer), 0);
	while (!atomic_load(&closer->begun))
		(void)sched_yield();
	(void)usleep(HEAD_START_MICROSECONDS);
}

/* A message of the remaining endpoint to itself: a receive, a send, and reads of the queue. */
static void exchange_with_oneself(const struct side *side)
{
	char in = 0;

	SAME(fi_trecv(side->endpoints[1], &in, 1, NULL, side->peers[0][1], 7, 0, &in), 0);
	SAME(fi_tinject(side->endpoints[1], "y", 1, side->peers[0][1], 7), 0);
	CHECK(next_completion(side->received).op_context == &in && in == 'y');
}

static void closing_rank(struct side *side)
{
	struct closer closer;
	int rounds = 0;

	/* The close waits until the peer takes what is in the queue, and the peer waits for this thread. */
	close_with(side, 0, BEYOND_THE_RING, &closer);
	for (; rounds < ROUNDS; rounds++)
		exchange_with_oneself(side);
	CHECK(!atomic_load(&closer.ended));
	*shared_word(0) = 1;
	SAME(pthread_join(closer.thread, NULL), 0);
	SAME(*shared_word(1), 0);
	/* The close gives the peer a moment to take what is in the ring. */
	close_with(side, 2, IN_THE_RING, &closer);
	for (rounds = 0; !atomic_load(&closer.ended); rounds++)
		exchange_with_oneself(side);
	CHECK(rounds >= ROUNDS);
	SAME(pthread_join(closer.thread, NULL), 0);
}

/* Takes nothing until the other rank's second thread has done its work, or for so long that it cannot. */
static void busy_rank(const struct side *side)
{
	char in = 0;

	for (int waited = 0; *shared_word(0) == 0 && waited < PATIENCE_MILLISECONDS; waited++)
		(void)usleep(1000);
	*shared_word(1) = *shared_word(0) == 0;
	for (int i = 0; i < BEYOND_THE_RING; i++) {
		SAME(fi_trecv(side->endpoints[0], &in, 1, NULL, side->peers[0][0], (uint64_t)i, 0, &in), 0);
		CHECK(next_completion(side->received).op_context == &in && in == 'x');
	}
}

/*
 * While one thread closes an endpoint whose peer takes nothing, another thread uses another endpoint and the
 * queue of the same domain.
 */
static void closing(int rank)
{
	struct side side;

	side_open(&side, rank, &(struct side_options){.endpoints = 3});
	barrier(NULL);
	if (rank == 0)
		closing_rank(&side);
	else
		busy_rank(&side);
	barrier(NULL);
	if (rank == 0) {
		side.endpoints[0] = side.endpoints[1];
		side.count = 1;
	}
	side_close(&side);
}

const struct scenario thread_scenarios[] = {
	{"safe", 2, safe},
	{"safe_automatic", 2, safe_automatic},
	{"several_endpoints", 2, several_endpoints},
	{"automatic", 2, automatic},
	{"waiting_thread", 1, waiting_thread},
	{"closing", 2, closing},
	{0},
};

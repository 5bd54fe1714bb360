/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * order.c - messages of one sender are received in the order of sending, over all sizes and protocols, while
 * every rank sends to every other. Fenced messages come after everything else.
 */
#include "harness.h"

#include <stdlib.h>

#define MESSAGES 600U
#define ROOM ((size_t)200000)
#define POSTED 8U
/* Large messages wait for their receive, so only some may be in progress at once. */
#define UNDER_WAY 64U

/* Mostly small, sometimes each of the large. The receiver draws the same numbers. */
static size_t length_of(int from, int to, uint64_t index)
{
	uint64_t state = (uint64_t)from << 40 | (uint64_t)to << 32 | index;
	uint64_t choice = next_random(&state);
	static const size_t limits[] = {9, 49, 49, 441, 441, 4097, 4097, 20000, 65537, 200000};

	return choice / 16 % limits[choice % 10];
}

static uint64_t seed_of(int from, int to, uint64_t index)
{
	return (uint64_t)from * 1000003 + (uint64_t)to * 10007 + index;
}

struct flow;

/* A posted receive: the n-th posted takes the n-th message, whenever it completes. */
struct receive {
	struct flow *flow;
	uint64_t number;
	unsigned char *buffer;
};

/* To and from one peer. */
struct flow {
	struct receive receives[POSTED];
	uint64_t posted;
	uint64_t received;
	unsigned char *out[UNDER_WAY];
	uint64_t sent;
	uint64_t completed;
};

static void post_next(const struct side *side, struct receive *receive, int from)
{
	receive->number = receive->flow->posted++;
	SAME(fi_trecv(side->endpoint, receive->buffer, ROOM, NULL, side->peer[from], 7, 0, receive), 0);
}

/* Sends to one peer may complete in any order. A buffer is used again when all have completed. */
static void send_next(const struct side *side, struct flow *flow, int to)
{
	unsigned char *out = flow->out[flow->sent % UNDER_WAY];
	size_t length = length_of(side->rank, to, flow->sent);

	if (flow->sent == MESSAGES || (flow->sent % UNDER_WAY == 0 && flow->completed != flow->sent))
		return;
	fill(out, length, seed_of(side->rank, to, flow->sent));
	ssize_t result = fi_tsend(side->endpoint, out, length, NULL, side->peer[to], 7, flow);
	if (result == -FI_EAGAIN)
		return;
	SAME(result, 0);
	flow->sent++;
}

/* Returns the number of completed sends. */
static uint64_t take_sent(const struct side *side)
{
	struct fi_cq_tagged_entry entry;
	ssize_t result = 0;
	uint64_t count = 0;

	for (; (result = fi_cq_read(side->sent, &entry, 1)) == 1; count++)
		((struct flow *)entry.op_context)->completed++;
	SAME(result, -FI_EAGAIN);
	return count;
}

static uint64_t take_received(const struct side *side, const struct flow *flows)
{
	struct fi_cq_tagged_entry entry;
	ssize_t result = fi_cq_read(side->received, &entry, 1);

	if (result == -FI_EAGAIN)
		return 0;
	SAME(result, 1);
	struct receive *receive = entry.op_context;
	int from = (int)(receive->flow - flows);
	SAME(entry.len, length_of(from, side->rank, receive->number));
	CHECK_FILLED(receive->buffer, entry.len, seed_of(from, side->rank, receive->number));
	receive->flow->received++;
	if (receive->flow->posted < MESSAGES)
		post_next(side, receive, from);
	return 1;
}

static void all_to_all(int rank)
{
	struct side side;
	struct flow flows[RANKS_MAX] = {0};
	uint64_t left = 2 * MESSAGES * (uint64_t)ranks();

	side_open(&side, rank, NULL);
	for (int peer = 0; peer < ranks(); peer++) {
		for (unsigned i = 0; i < UNDER_WAY; i++)
			CHECK((flows[peer].out[i] = malloc(ROOM)) != NULL);
		for (unsigned i = 0; i < POSTED; i++) {
			struct receive *receive = &flows[peer].receives[i];
			receive->flow = &flows[peer];
			CHECK((receive->buffer = malloc(ROOM)) != NULL);
			post_next(&side, receive, peer);
		}
	}
	while (left > 0) {
		for (int peer = 0; peer < ranks(); peer++)
			send_next(&side, &flows[peer], peer);
		left -= take_sent(&side);
		left -= take_received(&side, flows);
	}
	for (int peer = 0; peer < ranks(); peer++) {
		SAME(flows[peer].received, MESSAGES);
		SAME(flows[peer].completed, MESSAGES);
		for (unsigned i = 0; i < POSTED; i++)
			free(flows[peer].receives[i].buffer);
		for (unsigned i = 0; i < UNDER_WAY; i++)
			free(flows[peer].out[i]);
	}
	barrier(&side);
	expect_nothing(&side, side.received);
	side_close(&side);
}

/*
 * Receives from any source, posted in small groups so that most messages are unexpected. The order between
 * senders is open. Of each sender, the next message is the next.
 */
static void anybody(int rank)
{
	struct side side;
	uint64_t next[RANKS_MAX] = {0};
	uint64_t state = (uint64_t)rank;
	static unsigned char in[POSTED][ROOM];
	static unsigned char out[ROOM];

	side_open(&side, rank, NULL);
	if (rank != 0) {
		for (uint64_t i = 0; i < MESSAGES; i++) {
			fill(out, length_of(rank, 0, i), seed_of(rank, 0, i));
			POST(&side,
			     fi_send(side.endpoint, out, length_of(rank, 0, i), NULL, side.peer[0], out));
			(void)next_completion(side.sent);
		}
	} else {
		uint64_t left = MESSAGES * (uint64_t)(ranks() - 1);
		while (left > 0) {
			uint64_t group = 1 + next_random(&state) % POSTED;
			if (group > left)
				group = left;
			for (uint64_t i = 0; i < group; i++)
				SAME(fi_recv(side.endpoint, in[i], ROOM, NULL, FI_ADDR_UNSPEC, in[i]), 0);
			/*
			 * Large messages of different senders may complete out of order. Messages of one
			 * sender were matched in order, as their contents show.
			 */
			fi_addr_t sources[POSTED];
			size_t lengths[POSTED];
			for (uint64_t i = 0; i < group; i++) {
				fi_addr_t source = 0;
				struct fi_cq_tagged_entry entry =
					next_completion_from(side.received, &source);
				size_t index = (size_t)((unsigned char *)entry.op_context - in[0]) / ROOM;
				sources[index] = source;
				lengths[index] = entry.len;
			}
			for (uint64_t i = 0; i < group; i++) {
				int from = 1;
				while (from < ranks() && side.peer[from] != sources[i])
					from++;
				CHECK(from < ranks());
				SAME(lengths[i], length_of(from, 0, next[from]));
				CHECK_FILLED(in[i], lengths[i], seed_of(from, 0, next[from]));
				next[from]++;
			}
			left -= group;
		}
		for (int from = 1; from < ranks(); from++)
			SAME(next[from], MESSAGES);
	}
	barrier(&side);
	side_close(&side);
}

/* A message passes between the pieces of a long write, but not if it is fenced. */
static void fenced(int rank)
{
	static unsigned char memory[EDGE_SIZE_MAX];
	struct side side;
	uint64_t word = 0;
	struct iovec piece = {&word, sizeof(word)};

	side_open(&side, rank, NULL);
	struct fid_mr *mr = side_expose(&side, memory, sizeof(memory), REMOTE_BOTH, 1);
	struct fi_msg message = {.msg_iov = &piece, .iov_count = 1, .addr = side.peer[1 - rank]};
	struct fi_msg_tagged tagged = {.msg_iov = &piece, .iov_count = 1, .addr = side.peer[1 - rank]};
	for (uint64_t round = 1; round <= 6; round++) {
		barrier(&side);
		if (rank == 0) {
			fill(memory, sizeof(memory), round);
			POST(&side,
			     fi_write(side.endpoint, memory, sizeof(memory), NULL, side.peer[1], 0, 1, NULL));
			if (round % 2 == 0)
				POST(&side, fi_sendmsg(side.endpoint, &message, FI_FENCE));
			else
				POST(&side, fi_tsendmsg(side.endpoint, &tagged, FI_FENCE));
			expect_completion(&side, NULL, WRITTEN);
			expect_completion(&side, NULL, FI_SEND | (round % 2 == 0 ? FI_MSG : FI_TAGGED));
			continue;
		}
		if (round % 2 == 0)
			SAME(fi_recvmsg(side.endpoint, &message, 0), 0);
		else
			SAME(fi_trecvmsg(side.endpoint, &tagged, 0), 0);
		(void)next_completion(side.received);
		CHECK_FILLED(memory, sizeof(memory), round);
	}
	barrier(&side);
	SAME(fi_close(&mr->fid), 0);
	side_close(&side);
}

const struct scenario order_scenarios[] = {
	{"pair", 2, all_to_all}, {"four", 4, all_to_all}, {"anybody", 4, anybody}, {"fenced", 2, fenced}, {0},
};

/* SPDX-License-Identifier: BSD-3-Clause */
/* match.c - which receive takes which message; peeking, claiming, discarding, cancelling. */
#include "harness.h"

#include <stdlib.h>

/* One size of each protocol. */
static const size_t sizes[] = {0, 24, 300, 3000, 50000, 400000};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define ROOM 400000

static unsigned char buffers[8][ROOM];

static void send_filled(const struct side *side, int to, size_t length, uint64_t tag)
{
	static unsigned char buffer[ROOM];

	fill(buffer, length, tag);
	POST(side, fi_tsend(side->endpoint, buffer, length, NULL, side->peer[to], tag, buffer));
	(void)next_completion(side->sent);
}

/* Receives match in the order of posting, messages in the order of arrival. */
static void wildcards(int rank)
{
	struct side side;
	char contexts[4];

	side_open(&side, rank, NULL);
	if (rank == 0) {
		barrier(&side);
		for (uint64_t tag = 0x10; tag < 0x14; tag++)
			send_filled(&side, 1, 100, tag);
	} else {
		/* only 0x13; any; 0x10 to 0x11; any of the lower two bits */
		SAME(fi_trecv(side.endpoint, buffers[0], ROOM, NULL, FI_ADDR_UNSPEC, 0x13, 0, &contexts[0]),
		     0);
		SAME(fi_trecv(side.endpoint, buffers[1], ROOM, NULL, FI_ADDR_UNSPEC, 0, UINT64_MAX,
			      &contexts[1]),
		     0);
		SAME(fi_trecv(side.endpoint, buffers[2], ROOM, NULL, side.peer[0], 0x10, 1, &contexts[2]), 0);
		SAME(fi_trecv(side.endpoint, buffers[3], ROOM, NULL, side.peer[0], 0x10, 3, &contexts[3]), 0);
		barrier(&side);
		static const struct {
			int receive;
			uint64_t tag;
		} expected[] = {{1, 0x10}, {2, 0x11}, {3, 0x12}, {0, 0x13}};
		for (int i = 0; i < 4; i++) {
			struct fi_cq_tagged_entry entry = next_completion(side.received);
			CHECK(entry.op_context == &contexts[expected[i].receive]);
			SAME(entry.tag, expected[i].tag);
			CHECK_FILLED(buffers[expected[i].receive], 100, expected[i].tag);
		}
	}
	barrier(&side);
	side_close(&side);
}

/* A directed receive takes its sender's message, however many messages of others came before. */
static void directed(int rank)
{
	struct side side;
	fi_addr_t source = 0;

	side_open(&side, rank, NULL);
	if (rank != 0) {
		for (size_t i = 0; i < SIZES; i++)
			send_filled(&side, 0, sizes[i], (uint64_t)rank << 8 | i);
	} else {
		for (int from = 3; from > 0; from--)
			for (size_t i = 0; i < SIZES; i++) {
				uint64_t tag = (uint64_t)from << 8 | i;
				SAME(fi_trecv(side.endpoint, buffers[0], ROOM, NULL, side.peer[from], 0,
					      UINT64_MAX, NULL),
				     0);
				struct fi_cq_tagged_entry entry =
					next_completion_from(side.received, &source);
				SAME(source, side.peer[from]);
				SAME(entry.tag, tag);
				SAME(entry.len, sizes[i]);
				CHECK_FILLED(buffers[0], sizes[i], tag);
			}
	}
	barrier(&side);
	side_close(&side);
}

/* An endpoint without FI_DIRECTED_RECV ignores a receive's source. */
static void undirected(int rank)
{
	struct side side;

	side_open(&side, rank, &(struct side_options){.caps = FI_TAGGED | FI_SEND | FI_RECV});
	SAME(side.info->caps & FI_DIRECTED_RECV, 0);
	if (rank == 0)
		send_filled(&side, 1, 24, 5);
	else {
		SAME(fi_trecv(side.endpoint, buffers[0], ROOM, NULL, side.peer[1], 5, 0, NULL), 0);
		SAME(next_completion(side.received).len, 24);
		CHECK_FILLED(buffers[0], 24, 5);
	}
	barrier(&side);
	side_close(&side);
}

/* A receive that is too short gets the bytes that fit, and an error with the number of the rest. */
static void truncation(int rank)
{
	struct side side;
	char context = 0;

	side_open(&side, rank, NULL);
	for (int round = 0; round < 2; round++)
		for (size_t i = 1; i < SIZES; i++) {
			uint64_t tag = 77 + i;
			size_t room = round == 0 ? sizes[i] - 1 : sizes[i] / 3;
			if (rank == 0) {
				if (round == 0)
					barrier(&side);
				/* Do not wait: a large send is complete only when it was received. */
				fill(buffers[1], sizes[i], tag);
				fill(buffers[2], 8, tag);
				POST(&side, fi_tsend(side.endpoint, buffers[1], sizes[i], NULL, side.peer[1],
						     tag, NULL));
				POST(&side,
				     fi_tsend(side.endpoint, buffers[2], 8, NULL, side.peer[1], tag, NULL));
				if (round == 1)
					barrier(&side);
				(void)next_completion(side.sent);
				(void)next_completion(side.sent);
				continue;
			}
			memset(buffers[0], 0xaa, sizes[i]);
			if (round == 1)
				barrier(&side);
			SAME(fi_trecv(side.endpoint, buffers[0], room, NULL, side.peer[0], tag, 0, &context),
			     0);
			if (round == 0)
				barrier(&side);
			struct fi_cq_err_entry error = next_error(side.received);
			SAME(error.err, FI_ETRUNC);
			CHECK(error.op_context == &context);
			SAME(error.len, room);
			SAME(error.olen, sizes[i] - room);
			SAME(error.tag, tag);
			CHECK_FILLED(buffers[0], room, tag);
			SAME(buffers[0][room], 0xaa);
			/* The next message is whole. */
			SAME(fi_trecv(side.endpoint, buffers[0], ROOM, NULL, side.peer[0], tag, 0, &context),
			     0);
			SAME(next_completion(side.received).len, 8);
			CHECK_FILLED(buffers[0], 8, tag);
		}
	barrier(&side);
	side_close(&side);
}

/* ---- peek, claim, discard ---- */

static ssize_t receive_flags(const struct side *side, fi_addr_t from, uint64_t tag, void *buffer, size_t room,
			     void *context, uint64_t flags)
{
	struct iovec piece = {buffer, room};

	return fi_trecvmsg(side->endpoint,
			   &(struct fi_msg_tagged){.msg_iov = &piece,
						   .iov_count = buffer != NULL,
						   .addr = from,
						   .tag = tag,
						   .context = context},
			   flags);
}

static void peek_nothing(const struct side *side, fi_addr_t from, uint64_t tag)
{
	char context = 0;

	SAME(receive_flags(side, from, tag, NULL, 0, &context, FI_PEEK), 0);
	struct fi_cq_err_entry error = next_error(side->received);
	SAME(error.err, FI_ENOMSG);
	CHECK(error.op_context == &context);
}

/* A peek that finds a message returns what is known of it. Repeated until the message is there. */
static void peek_message(const struct side *side, fi_addr_t from, uint64_t tag, size_t length, uint64_t flags,
			 void *context)
{
	struct fi_cq_tagged_entry entry = {0};
	struct fi_cq_err_entry error = {0};
	fi_addr_t source = 0;

	for (;;) {
		SAME(receive_flags(side, from, tag, NULL, 0, context, FI_PEEK | flags), 0);
		ssize_t result = 0;
		while ((result = fi_cq_readfrom(side->received, &entry, 1, &source)) == -FI_EAGAIN)
			;
		if (result == 1)
			break;
		SAME(fi_cq_readerr(side->received, &error, 0), 1);
		SAME(error.err, FI_ENOMSG);
	}
	CHECK(entry.op_context == context);
	SAME(entry.len, length);
	SAME(entry.tag, tag);
	CHECK((entry.flags & (FI_RECV | FI_TAGGED)) == (FI_RECV | FI_TAGGED));
	SAME(source, side->peer[0]);
}

static void peek(int rank)
{
	struct side side;
	char contexts[2];

	side_open(&side, rank, NULL);
	if (rank == 0) {
		barrier(&side);
		for (size_t i = 0; i < SIZES; i++) {
			for (uint64_t use = 0; use < 5; use++) {
				fill(buffers[use], sizes[i], i << 4 | use);
				POST(&side, fi_tsend(side.endpoint, buffers[use], sizes[i], NULL,
						     side.peer[1], i << 4 | use, NULL));
			}
			for (int use = 0; use < 5; use++)
				(void)next_completion(side.sent);
		}
		barrier(&side);
		side_close(&side);
		return;
	}
	peek_nothing(&side, FI_ADDR_UNSPEC, 0);
	peek_nothing(&side, side.peer[0], 0);
	barrier(&side);
	for (size_t i = 0; i < SIZES; i++) {
		uint64_t tag = i << 4;
		size_t length = sizes[i];
		/* 0: peek, peek again, receive */
		peek_message(&side, side.peer[0], tag, length, 0, &contexts[0]);
		peek_message(&side, FI_ADDR_UNSPEC, tag, length, 0, &contexts[1]);
		SAME(fi_trecv(side.endpoint, buffers[0], ROOM, NULL, FI_ADDR_UNSPEC, tag, 0, &contexts[0]),
		     0);
		SAME(next_completion(side.received).len, length);
		CHECK_FILLED(buffers[0], length, tag);
		peek_nothing(&side, FI_ADDR_UNSPEC, tag);
		/* 1: peek and discard */
		peek_message(&side, side.peer[0], tag | 1, length, FI_DISCARD, &contexts[0]);
		peek_nothing(&side, FI_ADDR_UNSPEC, tag | 1);
		/* 2 and 3: claim both, and receive them in reverse order; no other receive gets them */
		peek_message(&side, side.peer[0], tag | 2, length, FI_CLAIM, &contexts[0]);
		peek_message(&side, side.peer[0], tag | 3, length, FI_CLAIM, &contexts[1]);
		peek_nothing(&side, FI_ADDR_UNSPEC, tag | 2);
		SAME(receive_flags(&side, side.peer[0], tag | 3, buffers[1], ROOM, &contexts[1], FI_CLAIM),
		     0);
		struct fi_cq_tagged_entry entry = next_completion(side.received);
		CHECK(entry.op_context == &contexts[1] && entry.len == length && entry.tag == (tag | 3));
		CHECK_FILLED(buffers[1], length, tag | 3);
		SAME(receive_flags(&side, side.peer[0], tag | 2, buffers[0], ROOM, &contexts[0], FI_CLAIM),
		     0);
		entry = next_completion(side.received);
		CHECK(entry.op_context == &contexts[0] && entry.len == length && entry.tag == (tag | 2));
		CHECK_FILLED(buffers[0], length, tag | 2);
		/* A message cannot be claimed twice. */
		CHECK(receive_flags(&side, side.peer[0], tag | 2, buffers[0], ROOM, &contexts[0], FI_CLAIM) <
		      0);
		/* 4: claim and discard */
		peek_message(&side, side.peer[0], tag | 4, length, FI_CLAIM, &contexts[0]);
		SAME(receive_flags(&side, side.peer[0], tag | 4, NULL, 0, &contexts[0],
				   FI_CLAIM | FI_DISCARD),
		     0);
		(void)next_completion(side.received);
		peek_nothing(&side, FI_ADDR_UNSPEC, tag | 4);
	}
	barrier(&side);
	expect_nothing(&side, side.received);
	side_close(&side);
}

/* ---- cancel ---- */

static void cancel(int rank)
{
	struct side side;
	char contexts[8];

	side_open(&side, rank, NULL);
	if (rank == 0) {
		barrier(&side);
		send_filled(&side, 1, 24, 1);
		barrier(&side);
		side_close(&side);
		return;
	}
	for (int i = 0; i < 8; i++)
		SAME(fi_trecv(side.endpoint, buffers[i], ROOM, NULL,
			      i % 2 == 0 ? FI_ADDR_UNSPEC : side.peer[0], 1, 0, &contexts[i]),
		     0);
	/* All but the fifth, from the middle outwards. */
	static const int order[] = {3, 4, 2, 6, 1, 7, 0};
	for (int i = 0; i < 7; i++) {
		SAME(fi_cancel(&side.endpoint->fid, &contexts[order[i]]), 0);
		struct fi_cq_err_entry error = next_error(side.received);
		SAME(error.err, FI_ECANCELED);
		CHECK(error.op_context == &contexts[order[i]]);
		/* It is gone: there is nothing to cancel any more. */
		SAME(fi_cancel(&side.endpoint->fid, &contexts[order[i]]), -FI_ENOENT);
	}
	barrier(&side);
	struct fi_cq_tagged_entry entry = next_completion(side.received);
	CHECK(entry.op_context == &contexts[5]);
	CHECK_FILLED(buffers[5], 24, 1);
	SAME(fi_cancel(&side.endpoint->fid, &contexts[5]), -FI_ENOENT);
	/* Untagged receives have a queue of their own. */
	SAME(fi_recv(side.endpoint, buffers[0], ROOM, NULL, FI_ADDR_UNSPEC, &contexts[0]), 0);
	SAME(fi_cancel(&side.endpoint->fid, &contexts[0]), 0);
	SAME(next_error(side.received).err, FI_ECANCELED);
	barrier(&side);
	expect_nothing(&side, side.received);
	side_close(&side);
}

/*
 * Ten thousand messages wait, more than the region has room for, and are received from the last to the first.
 * Sends without room complete when their messages are received.
 */
static void many_unexpected(int rank)
{
	enum { COUNT = 10000, LONGEST = 700 };
	struct side side;

	side_open(&side, rank, NULL);
	if (rank == 0) {
		unsigned char *out = malloc((size_t)COUNT * LONGEST);
		CHECK(out != NULL);
		for (size_t tag = 0; tag < COUNT; tag++) {
			fill(out + tag * LONGEST, tag % LONGEST, tag);
			POST(&side, fi_tsend(side.endpoint, out + tag * LONGEST, tag % LONGEST, NULL,
					     side.peer[1], tag, NULL));
		}
		for (int i = 0; i < COUNT; i++)
			(void)next_completion(side.sent);
		free(out);
	} else {
		for (uint64_t tag = COUNT; tag-- > 0;) {
			SAME(fi_trecv(side.endpoint, buffers[0], ROOM, NULL, side.peer[0], tag, 0, NULL), 0);
			struct fi_cq_tagged_entry entry = next_completion(side.received);
			SAME(entry.tag, tag);
			SAME(entry.len, tag % LONGEST);
			CHECK_FILLED(buffers[0], tag % LONGEST, tag);
		}
	}
	barrier(&side);
	side_close(&side);
}

const struct scenario match_scenarios[] = {
	{"wildcards", 2, wildcards},
	{"directed", 4, directed},
	{"undirected", 2, undirected},
	{"truncation", 2, truncation},
	{"peek", 2, peek},
	{"cancel", 2, cancel},
	{"many_unexpected", 2, many_unexpected},
	{0},
};

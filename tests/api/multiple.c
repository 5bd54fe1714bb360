/* SPDX-License-Identifier: BSD-3-Clause */
/* multiple.c - buffers for several messages (FI_MULTI_RECV): filled, released, cancelled. */
#include "harness.h"

#include <stdlib.h>

#define BUFFER ((size_t)256 * 1024)

static unsigned char buffer[BUFFER];

static ssize_t post(const struct side *side, void *to, size_t length, void *context)
{
	return fi_recvmsg(side->endpoint,
			  &(struct fi_msg){.msg_iov = &(struct iovec){to, length},
					   .iov_count = 1,
					   .addr = FI_ADDR_UNSPEC,
					   .context = context},
			  FI_MULTI_RECV);
}

static void set_minimum(const struct side *side, size_t minimum)
{
	size_t read = 0;
	size_t length = sizeof(read);

	SAME(fi_setopt(&side->endpoint->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &minimum,
		       sizeof(minimum)),
	     0);
	SAME(fi_getopt(&side->endpoint->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &read, &length), 0);
	SAME(read, minimum);
	SAME(length, sizeof(size_t));
}

static void send_filled(const struct side *side, size_t length, uint64_t seed)
{
	static unsigned char out[BUFFER];

	fill(out, length, seed);
	POST(side, fi_send(side->endpoint, out, length, NULL, side->peer[1], NULL));
	(void)next_completion(side->sent);
}

static size_t length_of(uint64_t i)
{
	return edge_sizes[i % (edge_size_count - 3)];
}

/*
 * Messages of all sizes fill two buffers one after another, which are posted again when they are released. A
 * buffer is released exactly when less than the minimum is left of it.
 */
static void fill_and_release(int rank, bool expected)
{
	enum { MESSAGES = 600 };
	const size_t minimum = 70000; /* no message is longer, so none is truncated */
	struct side side;
	unsigned char *halves[2] = {buffer, buffer + BUFFER / 2};
	size_t used[2] = {0};
	int current = 0;
	int released = 0;

	side_open(&side, rank, NULL);
	if (rank == 0) {
		barrier(&side);
		for (uint64_t i = 0; i < MESSAGES; i++)
			if (length_of(i) <= minimum)
				send_filled(&side, length_of(i), i);
		barrier(&side);
		side_close(&side);
		return;
	}
	set_minimum(&side, minimum);
	if (!expected)
		barrier(&side);
	for (int half = 0; half < 2; half++)
		SAME(post(&side, halves[half], BUFFER / 2, halves[half]), 0);
	if (expected)
		barrier(&side);
	for (uint64_t i = 0; i < MESSAGES; i++) {
		if (length_of(i) > minimum)
			continue;
		struct fi_cq_tagged_entry entry = next_completion(side.received);
		CHECK(entry.op_context == halves[current]);
		SAME(entry.len, length_of(i));
		CHECK(entry.buf == halves[current] + used[current]);
		CHECK_FILLED(entry.buf, entry.len, i);
		used[current] += entry.len;
		bool last = BUFFER / 2 - used[current] < minimum;
		SAME(entry.flags, FI_RECV | FI_MSG | (last ? FI_MULTI_RECV : 0));
		if (last) {
			released++;
			used[current] = 0;
			SAME(post(&side, halves[current], BUFFER / 2, halves[current]), 0);
			current = 1 - current;
		}
	}
	CHECK(released > 10);
	barrier(&side);
	expect_nothing(&side, side.received);
	side_close(&side);
}

static void posted_before(int rank)
{
	fill_and_release(rank, true);
}

static void posted_after(int rank)
{
	fill_and_release(rank, false);
}

/* A message that does not fit into the rest is truncated with an error, and releases the buffer. */
static void cut(int rank)
{
	static const size_t lengths[] = {300, 3000, 30000};
	struct side side;
	char context = 0;

	side_open(&side, rank, NULL);
	if (rank == 1)
		set_minimum(&side, 64);
	for (int i = 0; i < 3; i++) {
		size_t room = lengths[i] + 100;
		if (rank == 0) {
			send_filled(&side, lengths[i], 1);
			send_filled(&side, lengths[i], 2);
			barrier(&side);
			continue;
		}
		SAME(post(&side, buffer, room, &context), 0);
		struct fi_cq_tagged_entry entry = next_completion(side.received);
		SAME(entry.flags, FI_RECV | FI_MSG);
		struct fi_cq_err_entry error = next_error(side.received);
		SAME(error.err, FI_ETRUNC);
		CHECK(error.op_context == &context);
		SAME(error.len, 100);
		SAME(error.olen, lengths[i] - 100);
		SAME(error.flags, FI_RECV | FI_MSG | FI_MULTI_RECV);
		CHECK_FILLED(buffer, lengths[i], 1);
		CHECK_FILLED(buffer + lengths[i], 100, 2);
		barrier(&side);
	}
	side_close(&side);
}

static void cancelled(int rank)
{
	struct side side;
	char contexts[2];

	side_open(&side, rank, NULL);
	if (rank == 0) {
		barrier(&side);
		send_filled(&side, 10, 1);
		barrier(&side);
		send_filled(&side, 10, 2);
	} else {
		SAME(post(&side, buffer, 1000, &contexts[0]), 0);
		barrier(&side);
		SAME(next_completion(side.received).len, 10);
		/* Partly used, then cancelled: later messages go to the next buffer. */
		SAME(fi_cancel(&side.endpoint->fid, &contexts[0]), 0);
		struct fi_cq_err_entry error = next_error(side.received);
		SAME(error.err, FI_ECANCELED);
		CHECK(error.op_context == &contexts[0]);
		SAME(post(&side, buffer + 1000, 1000, &contexts[1]), 0);
		barrier(&side);
		struct fi_cq_tagged_entry entry = next_completion(side.received);
		CHECK(entry.op_context == &contexts[1] && entry.buf == buffer + 1000);
		CHECK_FILLED(buffer, 10, 1);
		CHECK_FILLED(buffer + 1000, 10, 2);
	}
	barrier(&side);
	side_close(&side);
}

/* The release is reported even if receives complete selectively. */
static void selective(int rank)
{
	struct side side;
	char context = 0;

	side_open(&side, rank, &(struct side_options){.receive_bind = FI_SELECTIVE_COMPLETION});
	if (rank == 0) {
		barrier(&side);
		for (uint64_t i = 0; i < 10; i++)
			send_filled(&side, 100, i);
	} else {
		set_minimum(&side, 100);
		SAME(post(&side, buffer, 1000, &context), 0);
		barrier(&side);
		struct fi_cq_tagged_entry entry = next_completion(side.received);
		CHECK(entry.op_context == &context);
		SAME(entry.flags, FI_RECV | FI_MSG | FI_MULTI_RECV);
		for (uint64_t i = 0; i < 10; i++)
			CHECK_FILLED(buffer + i * 100, 100, i);
		expect_nothing(&side, side.received);
	}
	barrier(&side);
	side_close(&side);
}

/* As the endpoint's default: fi_recv() posts such buffers too; fi_trecv() does not. */
static void by_default(int rank)
{
	struct side side;
	char context = 0;

	side_open(&side, rank, &(struct side_options){.receive_flags = FI_MULTI_RECV});
	if (rank == 0) {
		barrier(&side);
		for (uint64_t i = 0; i < 3; i++)
			send_filled(&side, 40, i);
		POST(&side, fi_tinject(side.endpoint, "x", 1, side.peer[1], 1));
	} else {
		set_minimum(&side, 80);
		SAME(fi_recv(side.endpoint, buffer, 120, NULL, FI_ADDR_UNSPEC, &context), 0);
		SAME(fi_recv(side.endpoint, buffer + 120, 120, NULL, FI_ADDR_UNSPEC, &context), 0);
		SAME(fi_trecv(side.endpoint, buffer + 500, 1000, NULL, FI_ADDR_UNSPEC, 1, 0, &context), 0);
		barrier(&side);
		SAME(next_completion(side.received).flags, FI_RECV | FI_MSG);
		SAME(next_completion(side.received).flags, FI_RECV | FI_MSG | FI_MULTI_RECV);
		SAME(next_completion(side.received).flags, FI_RECV | FI_MSG);
		SAME(next_completion(side.received).flags, FI_RECV | FI_TAGGED);
		for (uint64_t i = 0; i < 3; i++)
			CHECK_FILLED(buffer + (i < 2 ? i * 40 : 120), 40, i);
	}
	barrier(&side);
	side_close(&side);
}

static void refused(int rank)
{
	struct side side;
	struct iovec pieces[2] = {{buffer, 10}, {buffer + 10, 10}};
	size_t minimum = 64;

	side_open(&side, rank, NULL);
	/* Such a buffer has one piece. */
	SAME(fi_recvmsg(side.endpoint,
			&(struct fi_msg){.msg_iov = pieces, .iov_count = 2, .addr = FI_ADDR_UNSPEC},
			FI_MULTI_RECV),
	     -FI_EINVAL);
	SAME(fi_setopt(&side.endpoint->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &minimum, 3), -FI_EINVAL);
	SAME(fi_setopt(&side.endpoint->fid, FI_OPT_ENDPOINT, 4711, &minimum, sizeof(minimum)),
	     -FI_ENOPROTOOPT);
	side_close(&side);
}

const struct scenario multiple_scenarios[] = {
	{"posted_before", 2, posted_before},
	{"posted_after", 2, posted_after},
	{"cut", 2, cut},
	{"cancelled", 2, cancelled},
	{"selective", 2, selective},
	{"by_default", 2, by_default},
	{"refused", 1, refused},
	{0},
};

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * send.c - every call that sends, with every call that receives, over all sizes: the bytes that arrive, and
 * every field of both completions, down to the last flag.
 */
#include "harness.h"

#include <stdlib.h>

enum send_call {
	SEND,
	SENDV,
	SENDMSG,
	INJECT,
	SENDDATA,
	INJECTDATA,
	SENDMSG_INJECT,
	SENDMSG_DATA,
	SEND_CALLS
};
enum receive_call { RECV, RECVV, RECVMSG, RECEIVE_CALLS };

#define DATA(seed) (UINT64_C(0xfedcba9876543210) ^ (seed))
#define TAG(seed) (UINT64_C(0x8000000000000000) | (seed))

static bool is_inject(enum send_call call)
{
	return call == INJECT || call == INJECTDATA || call == SENDMSG_INJECT;
}

static bool has_data(enum send_call call)
{
	return call == SENDDATA || call == INJECTDATA || call == SENDMSG_DATA;
}

/* The inject calls have no completion. fi_sendmsg() with FI_INJECT has one. */
static bool completes(enum send_call call)
{
	return call != INJECT && call != INJECTDATA;
}

/* Up to four pieces, with lengths at no limit, and one empty piece. */
static size_t split(struct iovec pieces[4], unsigned char *buffer, size_t length)
{
	size_t first = length / 3;
	size_t third = (length - first) / 2;

	pieces[0] = (struct iovec){buffer, first};
	pieces[1] = (struct iovec){buffer + first, 0};
	pieces[2] = (struct iovec){buffer + first, third};
	pieces[3] = (struct iovec){buffer + first + third, length - first - third};
	return 4;
}

static ssize_t send_tagged(const struct side *side, enum send_call call, unsigned char *buffer, size_t length,
			   fi_addr_t to, uint64_t seed, void *context)
{
	struct iovec pieces[4];
	size_t count = split(pieces, buffer, length);
	struct fid_ep *ep = side->endpoint;
	struct fi_msg_tagged message = {
		.msg_iov = pieces,
		.iov_count = count,
		.addr = to,
		.tag = TAG(seed),
		.context = context,
		.data = DATA(seed),
	};

	switch (call) {
	case SEND:
		return fi_tsend(ep, buffer, length, NULL, to, TAG(seed), context);
	case SENDV:
		return fi_tsendv(ep, pieces, NULL, count, to, TAG(seed), context);
	case SENDMSG:
		return fi_tsendmsg(ep, &message, FI_COMPLETION);
	case INJECT:
		return fi_tinject(ep, buffer, length, to, TAG(seed));
	case SENDDATA:
		return fi_tsenddata(ep, buffer, length, NULL, DATA(seed), to, TAG(seed), context);
	case INJECTDATA:
		return fi_tinjectdata(ep, buffer, length, DATA(seed), to, TAG(seed));
	case SENDMSG_INJECT:
		return fi_tsendmsg(ep, &message, FI_INJECT);
	default:
		return fi_tsendmsg(ep, &message, FI_REMOTE_CQ_DATA);
	}
}

static ssize_t send_message(const struct side *side, enum send_call call, unsigned char *buffer,
			    size_t length, fi_addr_t to, uint64_t seed, void *context)
{
	struct iovec pieces[4];
	size_t count = split(pieces, buffer, length);
	struct fid_ep *ep = side->endpoint;
	struct fi_msg message = {
		.msg_iov = pieces,
		.iov_count = count,
		.addr = to,
		.context = context,
		.data = DATA(seed),
	};

	switch (call) {
	case SEND:
		return fi_send(ep, buffer, length, NULL, to, context);
	case SENDV:
		return fi_sendv(ep, pieces, NULL, count, to, context);
	case SENDMSG:
		return fi_sendmsg(ep, &message, FI_COMPLETION);
	case INJECT:
		return fi_inject(ep, buffer, length, to);
	case SENDDATA:
		return fi_senddata(ep, buffer, length, NULL, DATA(seed), to, context);
	case INJECTDATA:
		return fi_injectdata(ep, buffer, length, DATA(seed), to);
	case SENDMSG_INJECT:
		return fi_sendmsg(ep, &message, FI_INJECT);
	default:
		return fi_sendmsg(ep, &message, FI_REMOTE_CQ_DATA);
	}
}

static ssize_t receive(const struct side *side, bool tagged, enum receive_call call, unsigned char *buffer,
		       size_t length, fi_addr_t from, uint64_t seed, void *context)
{
	struct iovec pieces[4];
	size_t count = split(pieces, buffer, length);
	struct fid_ep *ep = side->endpoint;

	if (tagged) {
		if (call == RECV)
			return fi_trecv(ep, buffer, length, NULL, from, TAG(seed), 0, context);
		if (call == RECVV)
			return fi_trecvv(ep, pieces, NULL, count, from, TAG(seed), 0, context);
		return fi_trecvmsg(ep,
				   &(struct fi_msg_tagged){.msg_iov = pieces,
							   .iov_count = count,
							   .addr = from,
							   .tag = TAG(seed),
							   .context = context},
				   0);
	}
	if (call == RECV)
		return fi_recv(ep, buffer, length, NULL, from, context);
	if (call == RECVV)
		return fi_recvv(ep, pieces, NULL, count, from, context);
	return fi_recvmsg(
		ep, &(struct fi_msg){.msg_iov = pieces, .iov_count = count, .addr = from, .context = context},
		0);
}

/* Rank 0 sends one message to rank 1, which posts its receive before or after the message arrives. */
static void transfer(const struct side *side, bool tagged, enum send_call send_call,
		     enum receive_call receive_call, size_t length, uint64_t seed, bool expected,
		     unsigned char *buffer)
{
	const uint64_t kind = tagged ? FI_TAGGED : FI_MSG;
	char context = 0;
	fi_addr_t source = 0;

	if (side->rank == 0) {
		if (expected)
			barrier(side);
		fill(buffer, length, seed);
		POST(side, (tagged ? send_tagged : send_message)(side, send_call, buffer, length,
								 side->peer[1], seed, &context));
		if (is_inject(send_call)) /* the buffer is ours again */
			memset(buffer, 0xee, length);
		if (!expected)
			barrier(side);
		if (completes(send_call)) {
			struct fi_cq_tagged_entry entry = next_completion(side->sent);
			CHECK(entry.op_context == &context);
			SAME(entry.flags, FI_SEND | kind);
		}
		return;
	}
	/* Sometimes room for more bytes than come. The byte after the room must not change. */
	size_t room = length + (seed % 2) * 13;
	memset(buffer, 0xaa, room + 1);
	if (!expected)
		barrier(side);
	SAME(receive(side, tagged, receive_call, buffer, room, side->peer[0], seed, &context), 0);
	if (expected)
		barrier(side);
	struct fi_cq_tagged_entry entry = next_completion_from(side->received, &source);
	CHECK(entry.op_context == &context);
	SAME(entry.flags, FI_RECV | kind | (has_data(send_call) ? FI_REMOTE_CQ_DATA : 0));
	SAME(entry.len, length);
	SAME(source, side->peer[0]);
	if (tagged)
		SAME(entry.tag, TAG(seed));
	if (has_data(send_call))
		SAME(entry.data, DATA(seed));
	CHECK_FILLED(buffer, length, seed);
	for (size_t i = length; i < room + 1; i++)
		SAME(buffer[i], 0xaa);
}

static void all_calls(int rank, bool tagged, bool expected)
{
	struct side side;
	unsigned char *buffer = malloc(EDGE_SIZE_MAX + 64);
	uint64_t seed = 0;

	CHECK(buffer != NULL);
	side_open(&side, rank, NULL);
	size_t inject = side.info->tx_attr->inject_size;
	for (size_t i = 0; i < edge_size_count; i++)
		for (enum send_call send_call = SEND; send_call < SEND_CALLS; send_call++)
			for (enum receive_call call = RECV; call < RECEIVE_CALLS; call++) {
				if (is_inject(send_call) && edge_sizes[i] > inject)
					continue;
				transfer(&side, tagged, send_call, call, edge_sizes[i], ++seed, expected,
					 buffer);
			}
	barrier(&side);
	expect_nothing(&side, side.sent);
	expect_nothing(&side, side.received);
	side_close(&side);
	free(buffer);
}

static void tagged_expected(int rank)
{
	all_calls(rank, true, true);
}

static void tagged_unexpected(int rank)
{
	all_calls(rank, true, false);
}

static void untagged_expected(int rank)
{
	all_calls(rank, false, true);
}

static void untagged_unexpected(int rank)
{
	all_calls(rank, false, false);
}

static void limits(int rank)
{
	struct side side;
	static unsigned char buffer[8192];
	struct iovec pieces[9];

	side_open(&side, rank, NULL);
	fi_addr_t self = side.peer[rank];
	size_t inject = side.info->tx_attr->inject_size;
	size_t iov = side.info->tx_attr->iov_limit;
	CHECK(inject + 1 <= sizeof(buffer) && iov + 1 <= 9);
	for (size_t i = 0; i <= iov; i++)
		pieces[i] = (struct iovec){buffer + i, 1};
	SAME(fi_inject(side.endpoint, buffer, inject + 1, self), -FI_EINVAL);
	SAME(fi_tinject(side.endpoint, buffer, inject + 1, self, 1), -FI_EINVAL);
	SAME(fi_injectdata(side.endpoint, buffer, inject + 1, 1, self), -FI_EINVAL);
	SAME(fi_sendv(side.endpoint, pieces, NULL, iov + 1, self, NULL), -FI_EINVAL);
	SAME(fi_tsendv(side.endpoint, pieces, NULL, iov + 1, self, 1, NULL), -FI_EINVAL);
	SAME(fi_recvv(side.endpoint, pieces, NULL, iov + 1, self, NULL), -FI_EINVAL);
	SAME(fi_trecvv(side.endpoint, pieces, NULL, iov + 1, self, 1, 0, NULL), -FI_EINVAL);
	expect_nothing(&side, side.sent);
	/* No piece at all is an empty message. */
	SAME(fi_recvv(side.endpoint, NULL, NULL, 0, self, buffer), 0);
	POST(&side, fi_sendv(side.endpoint, NULL, NULL, 0, self, NULL));
	SAME(next_completion(side.sent).flags, FI_SEND | FI_MSG);
	struct fi_cq_tagged_entry entry = next_completion(side.received);
	CHECK(entry.len == 0 && entry.op_context == buffer);
	side_close(&side);
}

const struct scenario send_scenarios[] = {
	{"tagged_expected", 2, tagged_expected},
	{"tagged_unexpected", 2, tagged_unexpected},
	{"untagged_expected", 2, untagged_expected},
	{"untagged_unexpected", 2, untagged_unexpected},
	{"limits", 1, limits},
	{0},
};

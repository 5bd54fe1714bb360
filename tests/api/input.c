/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * input.c - bad input: invalid lengths, flags, commands and objects. Each gets the error that the manual
 * names, and the endpoint still works.
 */
#include "harness.h"

#include <limits.h>
#include <rdma/fi_collective.h>
#include <stdlib.h>

static unsigned char buffer[4096];

/* Check that the endpoint still works, with a message to oneself. */
static void works(const struct side *side)
{
	uint64_t in = 0;
	uint64_t out = 0x123456789;
	char context = 0;

	SAME(fi_trecv(side->endpoint, &in, sizeof(in), NULL, side->peer[side->rank], 5, 0, &context), 0);
	POST(side, fi_tinject(side->endpoint, &out, sizeof(out), side->peer[side->rank], 5));
	CHECK(next_completion(side->received).op_context == &context);
	SAME(in, out);
	expect_nothing(side, side->sent);
	expect_nothing(side, side->received);
}

static void lengths(int rank)
{
	static const size_t bad[] = {(size_t)SSIZE_MAX + 1, SIZE_MAX - 16, SIZE_MAX - 8, SIZE_MAX};
	struct side side;

	side_open(&side, rank, NULL);
	fi_addr_t to = side.peer[0];
	struct fid_ep *ep = side.endpoint;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		/* One piece that is too long, and two pieces that are too long together. */
		struct iovec pieces[2][2] = {{{buffer, bad[i]}, {buffer, 0}},
					     {{buffer, 20}, {buffer, bad[i] - 10}}};
		SAME(fi_send(ep, buffer, bad[i], NULL, to, NULL), -FI_EMSGSIZE);
		SAME(fi_senddata(ep, buffer, bad[i], NULL, 1, to, NULL), -FI_EMSGSIZE);
		SAME(fi_tsend(ep, buffer, bad[i], NULL, to, 1, NULL), -FI_EMSGSIZE);
		SAME(fi_tsenddata(ep, buffer, bad[i], NULL, 1, to, 1, NULL), -FI_EMSGSIZE);
		CHECK(fi_inject(ep, buffer, bad[i], to) == -FI_EINVAL);
		CHECK(fi_tinjectdata(ep, buffer, bad[i], 1, to, 1) == -FI_EINVAL);
		for (int two = 0; two < 2; two++) {
			struct fi_msg message = {.msg_iov = pieces[two], .iov_count = 2, .addr = to};
			struct fi_msg_tagged tagged = {.msg_iov = pieces[two], .iov_count = 2, .addr = to};
			static const uint64_t flags[] = {0, FI_REMOTE_CQ_DATA, FI_DELIVERY_COMPLETE,
							 FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE};
			SAME(fi_sendv(ep, pieces[two], NULL, 2, to, NULL), -FI_EMSGSIZE);
			SAME(fi_tsendv(ep, pieces[two], NULL, 2, to, 1, NULL), -FI_EMSGSIZE);
			for (int f = 0; f < 4; f++) {
				SAME(fi_sendmsg(ep, &message, flags[f]), -FI_EMSGSIZE);
				SAME(fi_tsendmsg(ep, &tagged, flags[f]), -FI_EMSGSIZE);
			}
		}
		works(&side);
	}
	/* A receive of more bytes than there are addresses. */
	struct iovec wrapped[2] = {{buffer, 20}, {buffer, SIZE_MAX - 10}};
	SAME(fi_recvv(ep, wrapped, NULL, 2, to, NULL), -FI_EINVAL);
	SAME(fi_trecvv(ep, wrapped, NULL, 2, to, 1, 0, NULL), -FI_EINVAL);
	works(&side);
	side_close(&side);
}

/* Flags of calls: hints are accepted. Flags that are not offered and would change the meaning are refused. */
static void flags(int rank)
{
	static const uint64_t refused[] = {REFUSED_FLAGS};
	static const uint64_t taken[] = {TAKEN_FLAGS, FI_MATCH_COMPLETE};
	struct side side;
	struct iovec piece = {buffer, 8};
	struct iovec other = {buffer + 8, 8};

	side_open(&side, rank, NULL);
	fi_addr_t self = side.peer[0];
	struct fi_msg message = {.msg_iov = &piece, .iov_count = 1, .addr = self, .data = 17};
	struct fi_msg_tagged tagged = {.msg_iov = &piece, .iov_count = 1, .addr = self, .tag = 3, .data = 17};
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		SAME(fi_sendmsg(side.endpoint, &message, refused[i]), -FI_EBADFLAGS);
		SAME(fi_tsendmsg(side.endpoint, &tagged, refused[i]), -FI_EBADFLAGS);
	}
	/* Only receives have the last three. */
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]) - 3; i++) {
		SAME(fi_recvmsg(side.endpoint, &message, refused[i]), -FI_EBADFLAGS);
		SAME(fi_trecvmsg(side.endpoint, &tagged, refused[i]), -FI_EBADFLAGS);
	}
	SAME(fi_recvmsg(side.endpoint, &message, FI_MATCH_COMPLETE), -FI_EBADFLAGS);
	SAME(fi_trecvmsg(side.endpoint, &tagged, FI_MATCH_COMPLETE), -FI_EBADFLAGS);
	SAME(fi_trecvmsg(side.endpoint, &tagged, FI_MULTI_RECV), -FI_EBADFLAGS);
	/* Only a peeked or claimed message can be discarded. */
	SAME(fi_recvmsg(side.endpoint, &message, FI_DISCARD), -FI_EINVAL);
	SAME(fi_trecvmsg(side.endpoint, &tagged, FI_DISCARD), -FI_EINVAL);
	CHECK(fi_trecvmsg(side.endpoint, &tagged, FI_CLAIM) == -FI_ENOMSG);
	works(&side);
	for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
		for (int way = 0; way < 4; way++) {
			bool is_tagged = (way & 1) != 0;
			uint64_t data = way & 2 ? FI_REMOTE_CQ_DATA : 0;
			struct fi_msg receive = {.msg_iov = &other, .iov_count = 1, .addr = self};
			struct fi_msg_tagged tagged_receive = {
				.msg_iov = &other, .iov_count = 1, .addr = self, .tag = 3};
			fill(buffer, 8, i);
			if (is_tagged) {
				SAME(fi_trecvmsg(side.endpoint, &tagged_receive, FI_MORE | FI_COMPLETION), 0);
				POST(&side, fi_tsendmsg(side.endpoint, &tagged, taken[i] | data));
			} else {
				SAME(fi_recvmsg(side.endpoint, &receive, FI_MORE | FI_COMPLETION), 0);
				POST(&side, fi_sendmsg(side.endpoint, &message, taken[i] | data));
			}
			struct fi_cq_tagged_entry entry = next_completion(side.received);
			SAME(entry.flags, FI_RECV | (is_tagged ? FI_TAGGED : FI_MSG) | data);
			if (data != 0)
				SAME(entry.data, 17);
			CHECK_FILLED(buffer + 8, 8, i);
			SAME(next_completion(side.sent).flags, FI_SEND | (is_tagged ? FI_TAGGED : FI_MSG));
		}
	SAME(fi_av_insert(side.av, buffer, 1, NULL, FI_AV_USER_ID, NULL), -FI_EBADFLAGS);
	SAME(fi_av_insert(side.av, NULL, 1, NULL, 0, NULL), -FI_EINVAL);
	SAME(fi_av_insert(side.av, NULL, 0, NULL, FI_MORE, NULL), 0);
	works(&side);
	side_close(&side);
}

/* Options, commands and operations that do not exist. */
static void unknown(int rank)
{
	struct side side;
	size_t value = 0;
	size_t length = sizeof(value) - 1;
	struct fid_ep *alias = NULL;
	void *operations = NULL;

	side_open(&side, rank, NULL);
	fid_t fid = &side.endpoint->fid;
	SAME(fi_getopt(fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &length), -FI_ETOOSMALL);
	length = sizeof(value);
	SAME(fi_getopt(fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &length), 0);
	SAME(length, sizeof(value));
	CHECK(value > 0);
	SAME(fi_getopt(fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &value, &length), -FI_ENOPROTOOPT);
	SAME(fi_getopt(fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_LIMIT, &value, &length), -FI_ENOPROTOOPT);
	SAME(fi_setopt(fid, FI_OPT_ENDPOINT, FI_OPT_TX_SIZE, &value, length), -FI_ENOPROTOOPT);
	SAME(fi_setopt(fid, 4711, FI_OPT_MIN_MULTI_RECV, &value, length), -FI_ENOPROTOOPT);
	/* Flags of exactly one direction can be read or set. */
	for (int set = 0; set < 2; set++) {
		int command = set ? FI_SETOPSFLAG : FI_GETOPSFLAG;
		SAME(fi_control(fid, command, &(uint64_t){0}), -FI_EINVAL);
		SAME(fi_control(fid, command, &(uint64_t){FI_TRANSMIT | FI_RECV}), -FI_EINVAL);
		SAME(fi_control(fid, command, &(uint64_t){FI_RECV}), 0);
	}
	SAME(fi_control(fid, 4711, &value), -FI_ENOSYS);
	SAME(fi_control(fid, FI_BACKLOG, &value), -FI_ENOSYS);
	SAME(fi_ep_alias(side.endpoint, &alias, FI_TRANSMIT), -FI_ENOSYS);
	SAME(fi_open_ops(fid, "no such operations", 0, &operations, NULL), -FI_ENOSYS);
	CHECK(fi_open_ops(&side.domain->fid, "no such operations", 0, &operations, NULL) < 0);
	SAME(fi_open_ops(&side.fabric->fid, "no such operations", 0, &operations, NULL), -FI_ENOSYS);
	const fid_t others[] = {&side.av->fid, &side.sent->fid};
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		SAME(fi_open_ops(others[i], "no such operations", 0, &operations, NULL), -FI_ENOSYS);
	SAME(fi_control(&side.av->fid, 4711, &value), -FI_ENOSYS);
	CHECK(operations == NULL);
	SAME(fi_cancel(fid, &value), -FI_ENOENT);
	works(&side);
	side_close(&side);
}

/* Calls of other kinds of endpoint: connections, groups, shared and scalable contexts. */
static void not_for_us(int rank)
{
	struct side side;
	struct fid_ep *endpoint = NULL;
	struct fid_pep *passive = NULL;
	struct fid_stx *shared = NULL;
	struct fid_mc *group = NULL;
	struct fid_av *vector = NULL;
	size_t length = sizeof(buffer);

	side_open(&side, rank, NULL);
	fid_t fid = &side.endpoint->fid;
	SAME(fi_connect(side.endpoint, buffer, NULL, 0), -FI_ENOSYS);
	SAME(fi_accept(side.endpoint, NULL, 0), -FI_ENOSYS);
	SAME(fi_shutdown(side.endpoint, 0), -FI_ENOSYS);
	SAME(fi_getpeer(side.endpoint, buffer, &length), -FI_ENOSYS);
	SAME(fi_setname(fid, buffer, 32), -FI_ENOSYS);
	SAME(fi_join(side.endpoint, buffer, 0, &group, NULL), -FI_ENOSYS);
	SAME(fi_passive_ep(side.fabric, side.info, &passive, NULL), -FI_ENOSYS);
	SAME(fi_scalable_ep(side.domain, side.info, &endpoint, NULL), -FI_ENOSYS);
	SAME(fi_stx_context(side.domain, side.info->tx_attr, &shared, NULL), -FI_ENOSYS);
	SAME(fi_srx_context(side.domain, side.info->rx_attr, &endpoint, NULL), -FI_ENOSYS);
	SAME(fi_tx_context(side.endpoint, 0, NULL, &endpoint, NULL), -FI_ENOSYS);
	SAME(fi_rx_context(side.endpoint, 0, NULL, &endpoint, NULL), -FI_ENOSYS);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
	SAME(fi_rx_size_left(side.endpoint), -FI_ENOSYS);
	SAME(fi_tx_size_left(side.endpoint), -FI_ENOSYS);
#pragma GCC diagnostic pop
	CHECK(endpoint == NULL && passive == NULL && shared == NULL && group == NULL);
	/* An info of another kind of endpoint. */
	struct fi_info *info = fi_dupinfo(side.info);
	CHECK(info != NULL);
	info->ep_attr->type = FI_EP_MSG;
	SAME(fi_endpoint(side.domain, info, &endpoint, NULL), -FI_EINVAL);
	SAME(fi_endpoint(side.domain, NULL, &endpoint, NULL), -FI_EINVAL);
	fi_freeinfo(info);
	/* Objects that belong elsewhere. */
	struct fid_ep *second = side_endpoint(&side, &(struct side_options){0});
	SAME(fi_ep_bind(second, &side.fabric->fid, 0), -FI_EINVAL);
	SAME(fi_ep_bind(second, &side.endpoint->fid, 0), -FI_EINVAL);
	SAME(fi_domain_bind(side.domain, &side.av->fid, 0), -FI_EINVAL);
	SAME(fi_av_bind(side.av, &side.sent->fid, 0), -FI_EINVAL);
	SAME(fi_close(&second->fid), 0);
	SAME(fi_av_open(side.domain, &(struct fi_av_attr){.count = 1000, .ep_per_node = 2}, &vector, NULL),
	     0);
	SAME(fi_close(&vector->fid), 0);
	works(&side);
	side_close(&side);
}

/* Each call returns that it is not offered. */
static void collectives(int rank)
{
	struct side side;
	struct fi_collective_attr attributes = {.op = FI_SUM, .datatype = FI_INT32};
	struct fi_msg_collective message = {0};

	side_open(&side, rank, NULL);
	struct fid_ep *ep = side.endpoint;
	SAME(fi_query_collective(side.domain, FI_ALLREDUCE, &attributes, 0), -FI_EOPNOTSUPP);
	SAME(fi_barrier(ep, 0, NULL), -FI_ENOSYS);
	SAME(fi_barrier2(ep, 0, FI_COMPLETION, NULL), -FI_ENOSYS);
	SAME(fi_broadcast(ep, buffer, 1, NULL, 0, 0, FI_INT32, 0, NULL), -FI_ENOSYS);
	SAME(fi_alltoall(ep, buffer, 1, NULL, buffer, NULL, 0, FI_INT32, 0, NULL), -FI_ENOSYS);
	SAME(fi_allreduce(ep, buffer, 1, NULL, buffer, NULL, 0, FI_INT32, FI_SUM, 0, NULL), -FI_ENOSYS);
	SAME(fi_allgather(ep, buffer, 1, NULL, buffer, NULL, 0, FI_INT32, 0, NULL), -FI_ENOSYS);
	SAME(fi_reduce_scatter(ep, buffer, 1, NULL, buffer, NULL, 0, FI_INT32, FI_SUM, 0, NULL), -FI_ENOSYS);
	SAME(fi_reduce(ep, buffer, 1, NULL, buffer, NULL, 0, 0, FI_INT32, FI_SUM, 0, NULL), -FI_ENOSYS);
	SAME(fi_scatter(ep, buffer, 1, NULL, buffer, NULL, 0, 0, FI_INT32, 0, NULL), -FI_ENOSYS);
	SAME(fi_gather(ep, buffer, 1, NULL, buffer, NULL, 0, 0, FI_INT32, 0, NULL), -FI_ENOSYS);
	SAME(ep->collective->msg(ep, &message, NULL, NULL, 0, 0), -FI_ENOSYS);
	works(&side);
	side_close(&side);
}

/* More endpoints than the region has slots: the last one fails, the others go on. */
static void no_slot(int rank)
{
	enum { MOST = 64 };
	struct side side;
	struct fid_ep *endpoints[MOST];
	int enabled = 0;
	int result = 0;

	side_open(&side, rank, NULL);
	for (;; enabled++) {
		CHECK(enabled < MOST);
		endpoints[enabled] = side_endpoint(&side, &(struct side_options){0});
		result = fi_enable(endpoints[enabled]);
		if (result != 0)
			break;
	}
	SAME(result, -FI_ENOSPC);
	CHECK(enabled > 1);
	works(&side);
	/* With one endpoint closed there is room again, also for the endpoint that was refused. */
	SAME(fi_close(&endpoints[0]->fid), 0);
	SAME(fi_enable(endpoints[enabled]), 0);
	for (int i = 1; i <= enabled; i++)
		SAME(fi_close(&endpoints[i]->fid), 0);
	works(&side);
	side_close(&side);
}

/* A peer that makes no progress: sends without room are refused, nothing is lost, and sends go on later. */
static void no_room(int rank)
{
	static const size_t sizes[] = {8, 300, 3000};
	struct side side;

	side_open(&side, rank, NULL);
	for (size_t s = 0; s < 3; s++) {
		uint64_t sent = 0;
		barrier(NULL);
		if (rank == 0) {
			ssize_t result = 0;
			for (;; sent++) {
				fill(buffer, sizes[s], sent);
				result = fi_tsend(side.endpoint, buffer, sizes[s], NULL, side.peer[1], sent,
						  NULL);
				if (result != 0)
					break;
				/* Without a chunk a send needs its receiver, and until then its buffer. */
				if (fi_cq_read(side.sent, &(struct fi_cq_tagged_entry){0}, 1) != 1) {
					sent++;
					break;
				}
			}
			CHECK(result == 0 || result == -FI_EAGAIN);
			CHECK(sent > 10);
			*shared_word((int)s) = sent;
			barrier(NULL);
			if (result == 0)
				(void)next_completion(side.sent);
		} else {
			barrier(NULL);
			for (uint64_t i = 0; i < *shared_word((int)s); i++) {
				SAME(fi_trecv(side.endpoint, buffer, sizeof(buffer), NULL, side.peer[0], i, 0,
					      NULL),
				     0);
				SAME(next_completion(side.received).len, sizes[s]);
				CHECK_FILLED(buffer, sizes[s], i);
			}
		}
		barrier(&side);
	}
	side_close(&side);
}

/*
 * As many sends as the application requested in tx_attr.size find room, although their receiver takes nothing
 * and nobody makes progress. Endpoints with more are refused.
 */
static void requested_room(int rank)
{
	enum { ROOM = 8192 };
	struct side side;
	size_t length = 0;

	side_open(&side, rank, &(struct side_options){.transmit_size = ROOM});
	SAME(side.info->tx_attr->size, ROOM);
	length = side.info->tx_attr->inject_size;
	CHECK(length <= sizeof(buffer));
	barrier(NULL);
	if (rank == 0)
		for (uint64_t i = 0; i < ROOM; i++) {
			fill(buffer, length, i);
			SAME(fi_tinject(side.endpoint, buffer, length, side.peer[1], i), 0);
		}
	barrier(NULL);
	for (uint64_t i = 0; rank == 1 && i < ROOM; i++) {
		SAME(fi_trecv(side.endpoint, buffer, sizeof(buffer), NULL, side.peer[0], i, 0, NULL), 0);
		SAME(next_completion(side.received).len, length);
		CHECK_FILLED(buffer, length, i);
	}
	barrier(&side);
	side.info->tx_attr->size = ROOM + 1;
	struct fid_ep *endpoint = NULL;
	SAME(fi_endpoint(side.domain, side.info, &endpoint, NULL), -FI_EINVAL);
	side_close(&side);
}

const struct scenario input_scenarios[] = {
	{"lengths", 1, lengths},
	{"flags", 1, flags},
	{"unknown", 1, unknown},
	{"not_for_us", 1, not_for_us},
	{"collectives", 1, collectives},
	{"no_slot", 1, no_slot},
	{"no_room", 2, no_room},
	{"requested_room", 2, requested_room},
	{0},
};

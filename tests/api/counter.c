/* SPDX-License-Identifier: BSD-3-Clause */
/* counter.c - counters of sends and receives, successes and errors, and waiting for them. */
#include "harness.h"

#include <stdlib.h>

static unsigned char buffer[400000];

static void wait_exactly(struct fid_cntr *counter, uint64_t value)
{
	SAME(fi_cntr_wait(counter, value, -1), 0);
	SAME(fi_cntr_read(counter), value);
}

/* Every message counts once, even a message without a completion. */
static void counts(int rank)
{
	static const size_t sizes[] = {0, 24, 300, 3000, 50000, 400000};
	struct side side;
	struct iovec piece = {buffer, 8};

	side_open(&side, rank,
		  &(struct side_options){.counters = true, .send_bind = FI_SELECTIVE_COMPLETION});
	if (rank == 0) {
		barrier(&side);
		for (size_t i = 0; i < 6; i++)
			POST(&side, fi_tsend(side.endpoint, buffer, sizes[i], NULL, side.peer[1], i, NULL));
		for (size_t i = 6; i < 10; i++)
			POST(&side, fi_tinject(side.endpoint, buffer, i, side.peer[1], i));
		struct fi_msg_tagged message = {
			.msg_iov = &piece, .iov_count = 1, .addr = side.peer[1], .tag = 10};
		POST(&side, fi_tsendmsg(side.endpoint, &message, FI_DELIVERY_COMPLETE));
		wait_exactly(side.sent_count, 11);
		SAME(fi_cntr_readerr(side.sent_count), 0);
		SAME(fi_cntr_read(side.received_count), 0);
		expect_nothing(&side, side.sent);
	} else {
		for (size_t i = 0; i < 11; i++)
			SAME(fi_trecv(side.endpoint, buffer, sizeof(buffer), NULL, FI_ADDR_UNSPEC, i, 0,
				      NULL),
			     0);
		barrier(&side);
		wait_exactly(side.received_count, 11);
		SAME(fi_cntr_read(side.sent_count), 0);
		/* A truncated message and a cancelled receive count as errors. */
		SAME(fi_trecv(side.endpoint, buffer, 1, NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
		POST(&side, fi_tinject(side.endpoint, "123", 3, side.peer[1], 1));
		SAME(fi_cntr_wait(side.received_count, 12, -1), -FI_EAVAIL);
		SAME(fi_cntr_readerr(side.received_count), 1);
		SAME(fi_trecv(side.endpoint, buffer, 1, NULL, FI_ADDR_UNSPEC, 1, 0, &side), 0);
		SAME(fi_cancel(&side.endpoint->fid, &side), 0);
		SAME(fi_cntr_readerr(side.received_count), 2);
		SAME(fi_cntr_read(side.received_count), 11);
	}
	barrier(&side);
	side_close(&side);
}

static void arithmetic(int rank)
{
	struct side side;
	struct fid_cntr *counter = NULL;

	side_open(&side, rank, NULL);
	SAME(fi_cntr_open(side.domain, &(struct fi_cntr_attr){.events = FI_CNTR_EVENTS_COMP}, &counter, NULL),
	     0);
	SAME(fi_cntr_read(counter), 0);
	SAME(fi_cntr_set(counter, 10), 0);
	SAME(fi_cntr_add(counter, 5), 0);
	SAME(fi_cntr_seterr(counter, 3), 0);
	SAME(fi_cntr_adderr(counter, 4), 0);
	SAME(fi_cntr_read(counter), 15);
	SAME(fi_cntr_readerr(counter), 7);
	SAME(fi_cntr_wait(counter, 15, 0), 0);
	SAME(fi_cntr_wait(counter, 3, -1), 0);
	SAME(fi_cntr_wait(counter, 16, 20), -FI_ETIMEDOUT);
	SAME(fi_close(&counter->fid), 0);
	CHECK(fi_cntr_open(side.domain, &(struct fi_cntr_attr){.wait_obj = FI_WAIT_MUTEX_COND}, &counter,
			   NULL) < 0);
	side_close(&side);
}

/* Counters work without queues. They do not count operations that the endpoint cannot carry out. */
static void without_queues(int rank)
{
	struct side side;
	struct fid_ep *endpoint = NULL;

	side_prepare(&side, rank, &(struct side_options){.counters = true});
	SAME(fi_endpoint(side.domain, side.info, &endpoint, NULL), 0);
	SAME(fi_ep_bind(endpoint, &side.av->fid, 0), 0);
	SAME(fi_ep_bind(endpoint, &side.sent_count->fid, FI_SEND | FI_READ | FI_WRITE), 0);
	SAME(fi_ep_bind(endpoint, &side.received_count->fid, FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE), 0);
	SAME(fi_enable(endpoint), 0);
	side.endpoint = side.endpoints[0] = endpoint;
	side.count = 1;
	exchange_names(&side);
	for (int i = 0; i < 10; i++)
		SAME(fi_recv(endpoint, buffer, 8, NULL, FI_ADDR_UNSPEC, NULL), 0);
	barrier(NULL);
	for (int i = 0; i < 10; i++)
		POST(&side, fi_send(endpoint, buffer, 8, NULL, side.peer[1 - rank], NULL));
	wait_exactly(side.sent_count, 10);
	wait_exactly(side.received_count, 10);
	barrier(NULL);
	side_close(&side);
}

/* A counter that is bound only for reads and writes is released when its endpoint closes. */
static void one_sided_only(int rank)
{
	struct side side;
	struct fid_cntr *counter = NULL;

	side_prepare(&side, rank, &(struct side_options){0});
	SAME(fi_cntr_open(side.domain, NULL, &counter, NULL), 0);
	side.endpoint = side.endpoints[0] = side_endpoint(&side, &(struct side_options){0});
	side.count = 1;
	SAME(fi_ep_bind(side.endpoint, &counter->fid, FI_READ | FI_WRITE), 0);
	SAME(fi_enable(side.endpoint), 0);
	exchange_names(&side);
	POST(&side, fi_inject(side.endpoint, "x", 1, side.peer[0]));
	SAME(fi_cntr_read(counter), 0);
	side_close_endpoints(&side);
	SAME(fi_cntr_read(counter), 0);
	SAME(fi_close(&counter->fid), 0);
	side_close(&side);
}

const struct scenario counter_scenarios[] = {
	{"counts", 2, counts},
	{"arithmetic", 1, arithmetic},
	{"without_queues", 2, without_queues},
	{"one_sided_only", 1, one_sided_only},
	{0},
};

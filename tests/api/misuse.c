/* SPDX-License-Identifier: BSD-3-Clause */
/* misuse.c - calls too early, too late or in the wrong order: errors, never a crash. */
#include "harness.h"

#include <stdlib.h>

static unsigned char buffer[400000];

static void before_enable(int rank)
{
	struct side side;
	size_t length = sizeof(buffer);

	side_prepare(&side, rank, &(struct side_options){0});
	struct fid_ep *endpoint = side_endpoint(&side, &(struct side_options){0});
	SAME(fi_send(endpoint, buffer, 1, NULL, 0, NULL), -FI_EOPBADSTATE);
	SAME(fi_recv(endpoint, buffer, 1, NULL, 0, NULL), -FI_EOPBADSTATE);
	SAME(fi_tsend(endpoint, buffer, 1, NULL, 0, 0, NULL), -FI_EOPBADSTATE);
	SAME(fi_trecv(endpoint, buffer, 1, NULL, 0, 0, 0, NULL), -FI_EOPBADSTATE);
	SAME(fi_inject(endpoint, buffer, 1, 0), -FI_EOPBADSTATE);
	SAME(fi_tinjectdata(endpoint, buffer, 1, 0, 0, 0), -FI_EOPBADSTATE);
	SAME(fi_cancel(&endpoint->fid, NULL), -FI_EOPBADSTATE);
	SAME(fi_getname(&endpoint->fid, buffer, &length), -FI_EOPBADSTATE);
	SAME(fi_cq_read(side.sent, buffer, 1), -FI_EAGAIN);
	SAME(fi_enable(endpoint), 0);
	SAME(fi_enable(endpoint), 0);
	length = sizeof(buffer);
	SAME(fi_getname(&endpoint->fid, buffer, &length), 0);
	/* Bindings can no longer change. */
	SAME(fi_ep_bind(endpoint, &side.av->fid, 0), -FI_EOPBADSTATE);
	SAME(fi_ep_bind(endpoint, &side.sent->fid, FI_TRANSMIT), -FI_EOPBADSTATE);
	SAME(fi_close(&endpoint->fid), 0);
	side_close(&side);
}

static void unbound(int rank)
{
	struct side side;
	struct fid_ep *endpoint = NULL;

	side_prepare(&side, rank, &(struct side_options){0});
	SAME(fi_endpoint(side.domain, side.info, &endpoint, NULL), 0);
	SAME(fi_enable(endpoint), -FI_ENOAV);
	SAME(fi_ep_bind(endpoint, &side.av->fid, 0), 0);
	SAME(fi_enable(endpoint), -FI_ENOCQ);
	SAME(fi_ep_bind(endpoint, &side.sent->fid, FI_TRANSMIT), 0);
	SAME(fi_enable(endpoint), -FI_ENOCQ);
	SAME(fi_ep_bind(endpoint, &side.received->fid, 0), -FI_EINVAL);
	SAME(fi_ep_bind(endpoint, &side.domain->fid, 0), -FI_EINVAL);
	SAME(fi_ep_bind(endpoint, &side.received->fid, FI_RECV), 0);
	SAME(fi_enable(endpoint), 0);
	SAME(fi_close(&endpoint->fid), 0);
	/* An endpoint that was never enabled closes, too. */
	endpoint = side_endpoint(&side, &(struct side_options){0});
	SAME(fi_close(&endpoint->fid), 0);
	/* An endpoint that only sends needs nothing to receive with. */
	side.info->caps &= ~(FI_RECV | FI_DIRECTED_RECV | FI_MULTI_RECV | FI_SOURCE);
	SAME(fi_endpoint(side.domain, side.info, &endpoint, NULL), 0);
	SAME(fi_ep_bind(endpoint, &side.av->fid, 0), 0);
	SAME(fi_ep_bind(endpoint, &side.sent->fid, FI_TRANSMIT), 0);
	SAME(fi_enable(endpoint), 0);
	SAME(fi_close(&endpoint->fid), 0);
	side_close(&side);
}

/*
 * A queue of another domain, whose threads would read it, cannot be bound, nor can a second queue replace the
 * first.
 */
static void bound_otherwise(int rank)
{
	struct side side;
	struct fid_domain *domain = NULL;
	struct fid_av *av = NULL;
	struct fid_cq *cq = NULL;
	struct fid_cntr *first = NULL;
	struct fid_cntr *second = NULL;
	struct fi_cq_attr format = {.format = FI_CQ_FORMAT_TAGGED};
	struct fid_ep *endpoint = NULL;

	side_prepare(&side, rank, &(struct side_options){0});
	SAME(fi_endpoint(side.domain, side.info, &endpoint, NULL), 0);
	SAME(fi_domain(side.fabric, side.info, &domain, NULL), 0);
	SAME(fi_av_open(domain, &(struct fi_av_attr){0}, &av, NULL), 0);
	SAME(fi_cq_open(domain, &format, &cq, NULL), 0);
	SAME(fi_cntr_open(domain, NULL, &first, NULL), 0);
	SAME(fi_ep_bind(endpoint, &av->fid, 0), -FI_EINVAL);
	SAME(fi_ep_bind(endpoint, &cq->fid, FI_TRANSMIT), -FI_EINVAL);
	SAME(fi_ep_bind(endpoint, &first->fid, FI_SEND), -FI_EINVAL);
	SAME(fi_close(&first->fid), 0);
	SAME(fi_close(&cq->fid), 0);
	SAME(fi_close(&av->fid), 0);
	SAME(fi_close(&domain->fid), 0);

	SAME(fi_av_open(side.domain, &(struct fi_av_attr){0}, &av, NULL), 0);
	SAME(fi_cntr_open(side.domain, NULL, &first, NULL), 0);
	SAME(fi_cntr_open(side.domain, NULL, &second, NULL), 0);
	SAME(fi_ep_bind(endpoint, &side.av->fid, 0), 0);
	SAME(fi_ep_bind(endpoint, &av->fid, 0), -FI_EINVAL);
	SAME(fi_ep_bind(endpoint, &side.sent->fid, FI_TRANSMIT), 0);
	SAME(fi_ep_bind(endpoint, &side.received->fid, FI_TRANSMIT | FI_RECV), -FI_EINVAL);
	SAME(fi_ep_bind(endpoint, &side.received->fid, FI_RECV), 0);
	SAME(fi_ep_bind(endpoint, &first->fid, FI_SEND | FI_READ), 0);
	SAME(fi_ep_bind(endpoint, &second->fid, FI_WRITE | FI_READ), -FI_EINVAL);
	SAME(fi_ep_bind(endpoint, &second->fid, 0), -FI_EINVAL);
	/* It was not bound, so it can be closed. Binding the same queue again is allowed. */
	SAME(fi_close(&second->fid), 0);
	SAME(fi_ep_bind(endpoint, &first->fid, FI_SEND | FI_WRITE), 0);
	SAME(fi_enable(endpoint), 0);
	SAME(fi_close(&first->fid), -FI_EBUSY);
	SAME(fi_close(&endpoint->fid), 0);
	SAME(fi_cntr_read(first), 0);
	SAME(fi_close(&first->fid), 0);
	SAME(fi_close(&av->fid), 0);
	side_close(&side);
}

/* An object that another object needs cannot be closed. */
static void wrong_order(int rank)
{
	struct side side;
	struct fid_eq *eq = NULL;
	struct fid_mr *mr = NULL;

	side_prepare(&side, rank, &(struct side_options){.counters = true});
	SAME(fi_eq_open(side.fabric, &(struct fi_eq_attr){0}, &eq, NULL), 0);
	SAME(fi_mr_reg(side.domain, buffer, 1, FI_SEND, 0, 0, 0, &mr, NULL), 0);
	SAME(fi_close(&side.fabric->fid), -FI_EBUSY);
	SAME(fi_close(&side.domain->fid), -FI_EBUSY);
	struct fid_ep *endpoint = side_endpoint(&side, &(struct side_options){.counters = true});
	for (int enabled = 0; enabled < 2; enabled++) {
		SAME(fi_close(&side.sent->fid), -FI_EBUSY);
		SAME(fi_close(&side.received->fid), -FI_EBUSY);
		SAME(fi_close(&side.sent_count->fid), -FI_EBUSY);
		SAME(fi_close(&side.received_count->fid), -FI_EBUSY);
		SAME(fi_close(&side.av->fid), -FI_EBUSY);
		SAME(fi_close(&side.domain->fid), -FI_EBUSY);
		SAME(fi_enable(endpoint), 0);
	}
	SAME(fi_close(&endpoint->fid), 0);
	SAME(fi_close(&side.sent_count->fid), 0);
	SAME(fi_close(&side.received_count->fid), 0);
	SAME(fi_close(&side.sent->fid), 0);
	SAME(fi_close(&side.domain->fid), -FI_EBUSY);
	SAME(fi_close(&side.received->fid), 0);
	SAME(fi_close(&side.domain->fid), -FI_EBUSY);
	SAME(fi_close(&side.av->fid), 0);
	SAME(fi_close(&side.domain->fid), -FI_EBUSY);
	SAME(fi_close(&mr->fid), 0);
	SAME(fi_close(&side.domain->fid), 0);
	SAME(fi_close(&side.fabric->fid), -FI_EBUSY);
	SAME(fi_close(&eq->fid), 0);
	SAME(fi_close(&side.fabric->fid), 0);
	fi_freeinfo(side.info);
}

/* Posted receives, sends that wait for their peer, and messages that nobody took: all are freed. */
static void outstanding(int rank)
{
	struct side side;

	side_open(&side, rank, NULL);
	for (uint64_t i = 0; i < 100; i++)
		SAME(fi_trecv(side.endpoint, buffer, sizeof(buffer), NULL, side.peer[1 - rank], i, 0, NULL),
		     0);
	if (rank == 0) {
		for (uint64_t i = 0; i < 8; i++)
			POST(&side, fi_tsend(side.endpoint, buffer, i % 2 == 0 ? 400000 : 3000, NULL,
					     side.peer[1], 1000 + i, NULL));
		barrier(NULL);
		side_close(&side);
		barrier(NULL);
		return;
	}
	/* The beginnings of its messages arrived, and it leaves: receives that were posted for it end. */
	barrier(&side);
	barrier(&side);
	for (int i = 0; i < 100; i++)
		SAME(next_error(side.received).err, FI_ECONNABORTED);
	/* Messages that were whole before it left can still be received; the rest cannot. */
	for (uint64_t i = 0; i < 8; i++) {
		ssize_t result = fi_trecv(side.endpoint, buffer, sizeof(buffer), NULL, side.peer[0], 1000 + i,
					  0, NULL);
		if (i % 2 == 1) {
			SAME(result, 0);
			SAME(next_completion(side.received).len, 3000);
		} else if (result == 0) {
			SAME(fi_cancel(&side.endpoint->fid, NULL), 0);
			SAME(next_error(side.received).err, FI_ECANCELED);
		} else {
			SAME(result, -FI_ECONNABORTED);
		}
	}
	/* Nothing can be sent to it. */
	CHECK(fi_tinject(side.endpoint, "x", 1, side.peer[0], 1) < 0);
	side_close(&side);
}

/* A rank leaves while its peer is busy with other work: its messages are received nevertheless. */
static void left_early(int rank)
{
	static const size_t sizes[] = {0, 24, 300, 3000, 4096};
	struct side side;

	side_open(&side, rank, NULL);
	if (rank == 0) {
		for (uint64_t i = 0; i < 5; i++) {
			fill(buffer, sizes[i], i);
			POST(&side, fi_tsend(side.endpoint, buffer, sizes[i], NULL, side.peer[1], i, NULL));
			(void)next_completion(side.sent);
		}
		side_close(&side); /* the peer makes no progress meanwhile */
		barrier(NULL);
		return;
	}
	barrier(NULL);
	for (uint64_t i = 0; i < 5; i++) {
		SAME(fi_trecv(side.endpoint, buffer, sizeof(buffer), NULL, FI_ADDR_UNSPEC, i, 0, NULL), 0);
		SAME(next_completion(side.received).len, sizes[i]);
		CHECK_FILLED(buffer, sizes[i], i);
	}
	side_close(&side);
}

const struct scenario misuse_scenarios[] = {
	{"before_enable", 1, before_enable},
	{"unbound", 1, unbound},
	{"bound_otherwise", 1, bound_otherwise},
	{"wrong_order", 1, wrong_order},
	{"outstanding", 2, outstanding},
	{"left_early", 2, left_early},
	{0},
};

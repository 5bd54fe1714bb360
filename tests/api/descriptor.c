/* SPDX-License-Identifier: BSD-3-Clause */
/* descriptor.c - waiting for several objects at once: on descriptors, in wait sets and in poll sets. */
#include "waiting.h"

#include <poll.h>
#include <stdlib.h>

#define ROUNDS 2000

static int descriptor_of(struct fid *fid)
{
	int descriptor = -1;

	SAME(fi_control(fid, FI_GETWAIT, &descriptor), 0);
	CHECK(descriptor >= 0);
	return descriptor;
}

static bool readable(int descriptor, int timeout)
{
	struct pollfd polled = {.fd = descriptor, .events = POLLIN};

	return poll(&polled, 1, timeout) == 1;
}

/* Wait as fi_poll(3) and fi_cq(3) prescribe, and read. */
static struct fi_cq_tagged_entry await_by_descriptor(const struct side *side, int descriptor)
{
	struct fid *fids[] = {&side->received->fid};
	struct fi_cq_tagged_entry entry = {0};
	ssize_t result = 0;

	while ((result = fi_cq_read(side->received, &entry, 1)) == -FI_EAGAIN)
		if (fi_trywait(side->fabric, fids, 1) == 0)
			CHECK(readable(descriptor, -1));
	SAME(result, 1);
	return entry;
}

static void blocked_on_descriptor(int rank)
{
	struct side side;

	side_open(&side, rank, &(struct side_options){.wait = FI_WAIT_FD});
	int descriptor = descriptor_of(&side.received->fid);
	struct fid *fids[] = {&side.received->fid};
	if (rank == 0) {
		/* Nothing is there: the application may wait, and nothing arrives. */
		SAME(fi_trywait(side.fabric, fids, 1), 0);
		CHECK(!readable(descriptor, 20));
		post(&side);
		barrier(NULL);
		struct effort before = effort();
		(void)await_by_descriptor(&side, descriptor);
		check_idle(&before);
		/* A message is there: the application may not wait. That holds until the message is read. */
		post(&side);
		POST(&side, fi_inject(side.endpoint, "abc", 3, side.peer[0]));
		SAME(fi_trywait(side.fabric, fids, 1), -FI_EAGAIN);
		SAME(fi_trywait(side.fabric, fids, 1), -FI_EAGAIN);
		(void)await_by_descriptor(&side, descriptor);
		SAME(fi_trywait(side.fabric, fids, 1), 0);
		/* Level-triggered: readable until the next fi_trywait(). */
		post(&side);
		POST(&side, fi_inject(side.endpoint, "abc", 3, side.peer[0]));
		CHECK(readable(descriptor, -1));
		CHECK(readable(descriptor, 0));
		(void)await_by_descriptor(&side, descriptor);
		/* A signal wakes as well. */
		SAME(fi_trywait(side.fabric, fids, 1), 0);
		SAME(fi_cq_signal(side.received), 0);
		CHECK(readable(descriptor, 0));
	} else {
		barrier(NULL);
		send_after(&side, BLOCKED_SECONDS, side.peer[0]);
	}
	barrier(&side);
	side_close(&side);
}

/* An application that serialises its own calls: the provider's thread is an additional thread even so. */
static void descriptors_by_turns(int rank)
{
	struct side side;

	side_open(&side, rank, &(struct side_options){.wait = FI_WAIT_FD, .threading = FI_THREAD_DOMAIN});
	int descriptor = descriptor_of(&side.received->fid);
	post(&side);
	barrier(NULL);
	for (int round = 0; round < ROUNDS; round++) {
		if (rank == 0)
			POST(&side, fi_inject(side.endpoint, &round, sizeof(round), side.peer[1]));
		(void)await_by_descriptor(&side, descriptor);
		CHECK(memcmp(awaited, &round, sizeof(round)) == 0);
		post(&side);
		if (rank == 1)
			POST(&side, fi_inject(side.endpoint, &round, sizeof(round), side.peer[0]));
	}
	barrier(&side);
	side_close(&side);
}

/* A peer that dies makes the descriptor readable, because the provider checks peers meanwhile. */
static void descriptor_tells_of_death(int rank)
{
	struct side side;

	side_open(&side, rank, &(struct side_options){.wait = FI_WAIT_FD});
	if (rank == 0) {
		struct fid *fids[] = {&side.received->fid};
		int descriptor = descriptor_of(&side.received->fid);
		SAME(fi_recv(side.endpoint, awaited, 8, NULL, side.peer[1], NULL), 0);
		POST(&side, fi_inject(side.endpoint, "abc", 3, side.peer[1]));
		SAME(fi_trywait(side.fabric, fids, 1), 0);
		barrier(NULL);
		while (fi_trywait(side.fabric, fids, 1) == 0)
			CHECK(readable(descriptor, -1));
		int error = next_error(side.received).err;
		CHECK(error == FI_ECONNABORTED || error == FI_ECONNRESET);
		side_close(&side);
		return;
	}
	barrier(NULL);
	side_close(&side);
}

/* Queues and counters of two domains in one wait set. */
static void wait_set(int rank)
{
	struct side side;
	struct fid_wait *set = NULL;
	struct fid_cq *cq = NULL;
	struct fid_cntr *counter = NULL;
	struct fi_cq_tagged_entry entry;
	int descriptor = -1;

	side_prepare(&side, rank, &(struct side_options){0});
	SAME(fi_wait_open(side.fabric, &(struct fi_wait_attr){.wait_obj = FI_WAIT_FD}, &set), 0);
	SAME(fi_control(&set->fid, FI_GETWAIT, &descriptor), 0);
	SAME(fi_cq_open(side.domain,
			&(struct fi_cq_attr){
				.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_SET, .wait_set = set},
			&cq, NULL),
	     0);
	SAME(fi_cntr_open(side.domain, &(struct fi_cntr_attr){.wait_obj = FI_WAIT_SET, .wait_set = set},
			  &counter, NULL),
	     0);
	SAME(fi_close(&set->fid), -FI_EBUSY);
	struct fid_cq *plain = side.received;
	side.received = cq;
	side.endpoints[side.count++] = side.endpoint = side_endpoint(&side, &(struct side_options){0});
	SAME(fi_ep_bind(side.endpoint, &counter->fid, FI_SEND), 0);
	SAME(fi_enable(side.endpoint), 0);
	exchange_names(&side);

	SAME(fi_wait(set, 20), -FI_ETIMEDOUT);
	post(&side);
	if (rank == 0) {
		barrier(NULL);
		SAME(fi_wait(set, -1), 0);
		SAME(fi_cq_read(cq, &entry, 1), 1);
	} else {
		barrier(NULL);
		pause_for(0.05);
		POST(&side, fi_inject(side.endpoint, "abc", 3, side.peer[0]));
		/* The domain's counter counted. */
		SAME(fi_wait(set, -1), 0);
		SAME(fi_cntr_read(counter), 1);
	}
	SAME(fi_wait(set, 20), -FI_ETIMEDOUT);
	barrier(&side);
	side_close_endpoints(&side);
	SAME(fi_close(&counter->fid), 0);
	SAME(fi_close(&cq->fid), 0);
	side.received = plain;
	SAME(fi_close(&set->fid), 0);
	side_close(&side);
}

static void poll_set(int rank)
{
	struct side side;
	struct fid_poll *set = NULL;
	void *contexts[4] = {NULL};
	int context = 0;
	struct fid_cq *cq = NULL;

	side_open(&side, rank, &(struct side_options){.counters = true});
	SAME(fi_poll_open(side.domain, NULL, &set), 0);
	SAME(fi_poll_add(set, &side.received->fid, 0), 0);
	SAME(fi_poll_add(set, &side.sent_count->fid, 0), 0);
	SAME(fi_poll_add(set, &side.endpoint->fid, 0), -FI_EINVAL);
	SAME(fi_poll(set, contexts, 4), 0);
	post(&side);
	POST(&side, fi_inject(side.endpoint, "abc", 3, side.peer[0]));
	/*
	 * The counter counted at once, and is reported once. The queue is reported for as long as nobody
	 * reads it.
	 */
	CHECK(fi_poll(set, contexts, 4) >= 1);
	while (fi_poll(set, contexts, 4) == 0)
		;
	SAME(fi_poll(set, contexts, 4), 1);
	(void)next_completion(side.received);
	SAME(fi_poll(set, contexts, 4), 0);
	/* Returned by context. An object in a set cannot be closed. */
	SAME(fi_cq_open(side.domain, &(struct fi_cq_attr){.format = FI_CQ_FORMAT_TAGGED}, &cq, &context), 0);
	SAME(fi_poll_add(set, &cq->fid, 0), 0);
	SAME(fi_close(&cq->fid), -FI_EBUSY);
	SAME(fi_poll_del(set, &cq->fid, 0), 0);
	SAME(fi_poll_del(set, &cq->fid, 0), -FI_EINVAL);
	SAME(fi_close(&cq->fid), 0);
	SAME(fi_close(&set->fid), 0);
	side_close(&side);
}

const struct scenario descriptor_scenarios[] = {
	{"blocked_on_descriptor", 2, blocked_on_descriptor},
	{"descriptors_by_turns", 2, descriptors_by_turns},
	{"descriptor_tells_of_death", 2, descriptor_tells_of_death},
	{"wait_set", 2, wait_set},
	{"poll_set", 1, poll_set},
	{0},
};

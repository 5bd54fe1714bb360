/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * leaks.c - everything is freed, in any order of closing and with any operations in progress. Under valgrind
 * and the leak sanitizer (tests/python/provider/test_api.py) a rank that leaks fails.
 */
#include "harness.h"

#include <rdma/fi_atomic.h>
#include <stdlib.h>

#define OBJECTS_MAX 16
#define ROUNDS 10
#define LARGE 400000
/* More than a linear search takes, so that there are tables. */
#define MANY 40U

static unsigned char buffer[LARGE];
static unsigned char target[LARGE];

struct objects {
	struct fid *fids[OBJECTS_MAX];
	int count;
};

static void keep(struct objects *objects, struct fid *fid)
{
	CHECK(objects->count < OBJECTS_MAX);
	objects->fids[objects->count++] = fid;
}

/* Begin one of each kind of operation. None can end, because nobody makes progress. */
static void start_everything(const struct side *side, uint64_t key)
{
	struct fid_ep *from = side->endpoints[0];
	struct fid_ep *to = side->endpoints[1];
	fi_addr_t other = side->peers[0][1];
	static const size_t sizes[] = {0, 24, 300, 3000, 50000, LARGE};
	struct iovec piece = {target, sizeof(target)};
	struct fi_msg several = {.msg_iov = &piece, .iov_count = 1, .addr = FI_ADDR_UNSPEC};

	/* Receives of many tags and of any tag, and a message that searches all of them. */
	for (uint64_t tag = 0; tag < MANY; tag++) {
		SAME(fi_trecv(to, target, 8, NULL, FI_ADDR_UNSPEC, 1000 + tag, 0, NULL), 0);
		SAME(fi_trecv(to, target, 8, NULL, side->peers[0][0], 2000 + tag, 1, NULL), 0);
	}
	POST(side, fi_tinject(from, "x", 1, other, 1000 + MANY - 1));
	/* Messages that wait: short, in chunks, and half arrived. One of each is claimed. */
	for (uint64_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (uint64_t copy = 0; copy < 2; copy++)
			POST(side, fi_tsend(from, buffer, sizes[i], NULL, other, i << 4 | copy, buffer));
	for (uint64_t tag = 0; tag < MANY; tag++)
		POST(side, fi_tinject(from, "x", 1, other, 3000 + tag));
	side_progress(side);
	for (uint64_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		SAME(fi_trecvmsg(to, &(struct fi_msg_tagged){.addr = side->peers[0][0], .tag = i << 4},
				 FI_PEEK | FI_CLAIM),
		     0);
	SAME(fi_trecv(to, target, 8, NULL, FI_ADDR_UNSPEC, 3000 + MANY - 1, 0, NULL), 0);
	/* A buffer for several messages, one of which is in progress. */
	SAME(fi_recvmsg(to, &several, FI_MULTI_RECV), 0);
	POST(side, fi_send(from, buffer, 300, NULL, other, NULL));
	POST(side, fi_send(from, buffer, LARGE / 2, NULL, other, NULL));
	side_progress(side);
	/* Reads, writes and atomics that the target has not seen. */
	POST(side, fi_write(from, buffer, LARGE, NULL, other, 0, key, NULL));
	POST(side, fi_read(from, target, LARGE, NULL, other, 0, key, NULL));
	POST(side,
	     fi_fetch_atomic(from, buffer, 1, NULL, target, NULL, other, 0, key, FI_UINT64, FI_SUM, NULL));
	POST(side, fi_inject_write(from, buffer, 8, other, 0, key));
	/* A send that waits for its delivery. */
	piece = (struct iovec){buffer, 3000};
	POST(side,
	     fi_tsendmsg(from, &(struct fi_msg_tagged){.msg_iov = &piece, .iov_count = 1, .addr = other},
			 FI_DELIVERY_COMPLETE));
}

/* Close all repeatedly in the same order: objects in use refuse, and the rest closes. */
static void close_all(struct objects *objects, uint64_t *seed)
{
	for (int i = objects->count; i > 1; i--) {
		int which = (int)(next_random(seed) % (uint64_t)i);
		struct fid *kept = objects->fids[i - 1];
		objects->fids[i - 1] = objects->fids[which];
		objects->fids[which] = kept;
	}
	for (int left = objects->count, passes = 0; left > 0; passes++) {
		CHECK(passes < 10);
		for (int i = 0; i < objects->count; i++) {
			if (objects->fids[i] == NULL)
				continue;
			int result = fi_close(objects->fids[i]);
			CHECK(result == 0 || result == -FI_EBUSY);
			if (result != 0)
				continue;
			objects->fids[i] = NULL;
			left--;
		}
	}
}

static void every_order(int rank)
{
	uint64_t seed = 1;

	for (int round = 0; round < ROUNDS; round++) {
		struct side side;
		struct objects objects = {.count = 0};
		struct fid_eq *eq = NULL;
		struct fid_av *vector = NULL;
		struct fid_mr *mr = NULL;
		struct fid_ep *idle = NULL;

		side_open(&side, rank, &(struct side_options){.endpoints = 2, .counters = true});
		SAME(fi_eq_open(side.fabric, &(struct fi_eq_attr){.flags = FI_WRITE}, &eq, NULL), 0);
		SAME(fi_eq_write(eq, 1, "unread", 6, 0), 6);
		SAME(fi_av_open(side.domain, &(struct fi_av_attr){.flags = FI_EVENT}, &vector, NULL), 0);
		SAME(fi_av_bind(vector, &eq->fid, 0), 0);
		SAME(fi_av_insert(vector, buffer, 1, NULL, 0, NULL), 0);
		SAME(fi_mr_reg(side.domain, buffer, sizeof(buffer), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7, 0,
			       &mr, NULL),
		     0);
		SAME(fi_endpoint(side.domain, side.info, &idle, NULL), 0);
		if (round > 0)
			start_everything(&side, fi_mr_key(mr));
		keep(&objects, &idle->fid);
		keep(&objects, &mr->fid);
		keep(&objects, &vector->fid);
		keep(&objects, &eq->fid);
		keep(&objects, &side.endpoints[0]->fid);
		keep(&objects, &side.endpoints[1]->fid);
		keep(&objects, &side.sent_count->fid);
		keep(&objects, &side.received_count->fid);
		keep(&objects, &side.sent->fid);
		keep(&objects, &side.received->fid);
		keep(&objects, &side.av->fid);
		keep(&objects, &side.domain->fid);
		keep(&objects, &side.fabric->fid);
		close_all(&objects, &seed);
		fi_freeinfo(side.info);
	}
}

const struct scenario leaks_scenarios[] = {
	{"every_order", 1, every_order},
	{0},
};
